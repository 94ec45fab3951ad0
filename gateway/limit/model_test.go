package limit

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// naive is a Book in plain words: lists, and fractions in place of units.
type naive struct {
	scopes []*naiveScope
	fanOut FanOut
	calls  []*naiveCall // that are held, in the order of their coming
}

type naiveScope struct {
	scope            Scope
	caps             Caps
	requests, tokens *big.Rat // left
	at               int64    // microseconds
	answers          mean
}

type naiveCall struct {
	who      Caller
	running  bool
	scopes   []*naiveScope
	reserved []*big.Rat
	grant    Grant
}

func rat(n int64) *big.Rat { return big.NewRat(n, 1) }

func (s *naiveScope) full(rate int) *big.Rat {
	burst := s.caps.Burst
	if burst == 0 {
		burst = time.Minute
	}
	f := big.NewRat(int64(rate)*int64(burst/time.Microsecond), 60e6)
	if f.Cmp(rat(1)) < 0 {
		f = rat(1)
	}
	return f
}

func (s *naiveScope) refill(now mono.Time) {
	us := int64(now) / 1000
	for _, x := range []struct {
		left *big.Rat
		rate int
	}{{s.requests, s.caps.RPM}, {s.tokens, s.caps.TPM}} {
		if x.rate == 0 {
			continue
		}
		x.left.Add(x.left, big.NewRat(int64(x.rate)*(us-s.at), 60e6))
		if full := s.full(x.rate); x.left.Cmp(full) > 0 {
			x.left.Set(full)
		}
	}
	s.at = us
}

func (s *naiveScope) cost(input, cached, output int) *big.Rat {
	w := s.caps.Weights
	if w == (Weights{}) {
		w = DefaultWeights()
	}
	of := func(n int, w float64) *big.Rat { return big.NewRat(int64(n)*int64(w*1000+0.5), 1000) }
	sum := of(input-cached, w.Input)
	sum.Add(sum, of(cached, w.Cached))
	return sum.Add(sum, of(output, w.Output))
}

func newNaive(c Config) *naive {
	n := &naive{fanOut: c.FanOut}
	for _, r := range c.Rules {
		s := &naiveScope{scope: r.Scope, caps: r.Caps, answers: firstMean}
		s.requests, s.tokens = s.full(r.Caps.RPM), s.full(r.Caps.TPM)
		n.scopes = append(n.scopes, s)
	}
	return n
}

func (n *naive) of(who Caller) []*naiveScope {
	var out []*naiveScope
	for _, s := range n.scopes {
		name := map[Kind]string{Tenant: who.Tenant, Key: who.Key, Model: who.Model, TenantModel: who.Tenant}[s.scope.Kind]
		if s.scope.Name == name && (s.scope.Kind != TenantModel || s.scope.Model == who.Model) {
			out = append(out, s)
		}
	}
	return out
}

// expect is what a call of the scope reserves.
func (s *naiveScope) expect(e Estimate) *big.Rat {
	output := int((s.answers + 500) / 1000)
	switch {
	case e.NoOutput:
		output = 0
	case e.MaxOutput > 0:
		output = min(output, e.MaxOutput)
	}
	answer := s.cost(0, 0, output)
	if s.caps.TPM > 0 && s.scope.Kind == Model {
		if most := new(big.Rat).Quo(s.full(s.caps.TPM), rat(8)); answer.Cmp(most) > 0 {
			answer = most
		}
	}
	cost := answer.Add(answer, s.cost(e.Input, 0, 0))
	if s.caps.TPM > 0 && cost.Cmp(s.full(s.caps.TPM)) > 0 {
		cost = s.full(s.caps.TPM)
	}
	return cost
}

func (n *naive) running(in func(*naiveCall) bool) (running, waiting int) {
	for _, c := range n.calls {
		switch {
		case !in(c):
		case c.running:
			running++
		default:
			waiting++
		}
	}
	return running, waiting
}

func (n *naive) crowded(s *naiveScope) bool {
	running, _ := n.running(func(c *naiveCall) bool { return slices.Contains(c.scopes, s) })
	return s.caps.Concurrency > 0 && running >= s.caps.Concurrency
}

// take returns the outcome, and how long it takes until the rates would let the call in.
func (n *naive) take(now mono.Time, who Caller, e Estimate) (Outcome, time.Duration) {
	running, waiting := n.running(func(c *naiveCall) bool { return c.who.Conversation == who.Conversation })
	bound := n.fanOut.Concurrency > 0 && who.Conversation != 0
	waits := bound && (running >= n.fanOut.Concurrency || waiting > 0)
	c := &naiveCall{who: who, running: !waits, scopes: n.of(who)}
	retry := time.Duration(0)
	for _, s := range c.scopes {
		s.refill(now)
		cost := s.expect(e)
		c.reserved = append(c.reserved, cost)
		if n.crowded(s) && !waits {
			retry = max(retry, time.Second)
		}
		if s.caps.RPM > 0 {
			retry = max(retry, until(now, s.requests, rat(1), s.caps.RPM))
		}
		if s.caps.TPM > 0 {
			retry = max(retry, until(now, s.tokens, cost, s.caps.TPM))
		}
	}
	if waits && waiting >= n.fanOut.Waiting {
		retry = max(retry, time.Second)
	}
	if retry > 0 {
		return Refused, retry
	}
	for i, s := range c.scopes {
		s.requests.Sub(s.requests, rat(1))
		s.tokens.Sub(s.tokens, c.reserved[i])
	}
	n.calls = append(n.calls, c)
	if waits {
		return Wait, 0
	}
	return Granted, 0
}

func until(now mono.Time, left, want *big.Rat, rate int) time.Duration {
	if left.Cmp(want) >= 0 {
		return 0
	}
	us := new(big.Rat).Quo(new(big.Rat).Mul(new(big.Rat).Sub(want, left), rat(60e6)), rat(int64(rate)))
	whole := new(big.Int).Div(new(big.Int).Add(us.Num(), new(big.Int).Sub(us.Denom(), big.NewInt(1))), us.Denom())
	return mono.Time((int64(now)/1000 + whole.Int64()) * 1000).Sub(now)
}

// settle ends a call and returns those that have heard of it.
func (n *naive) settle(now mono.Time, c *naiveCall, u Usage) (let, refused []*naiveCall) {
	if !c.running {
		u = Usage{Unsent: true}
	}
	n.close(now, c, u)
	stuck := false
	for _, x := range slices.Clone(n.calls) {
		running, _ := n.running(func(y *naiveCall) bool { return y.who.Conversation == x.who.Conversation })
		switch {
		case x.running || x.who.Conversation != c.who.Conversation || running >= n.fanOut.Concurrency || stuck:
		case slices.ContainsFunc(x.scopes, n.crowded) && running > 0:
			stuck = true
		case slices.ContainsFunc(x.scopes, n.crowded):
			n.close(now, x, Usage{Unsent: true})
			refused = append(refused, x)
		default:
			x.running = true
			let = append(let, x)
		}
	}
	return let, refused
}

func (n *naive) close(now mono.Time, c *naiveCall, u Usage) {
	for i, s := range c.scopes {
		s.refill(now)
		s.tokens.Add(s.tokens, c.reserved[i])
		s.tokens.Sub(s.tokens, s.cost(u.Input, u.Cached, u.Output))
		if u.Unsent {
			s.requests.Add(s.requests, rat(1))
		}
		s.refill(now) // no more than there is room for
		if u.Whole {
			s.answers.learn(u.Output)
		}
	}
	n.calls = slices.DeleteFunc(n.calls, func(x *naiveCall) bool { return x == c })
}

func drawCaps(t *rapid.T, label string) Caps {
	return Caps{
		Concurrency: rapid.SampledFrom([]int{0, 1, 2, 5}).Draw(t, label+" concurrency"),
		RPM:         rapid.SampledFrom([]int{0, 1, 7, 60, 1000}).Draw(t, label+" rpm"),
		TPM:         rapid.SampledFrom([]int{0, 100, 999, 100_000}).Draw(t, label+" tpm"),
		Burst:       rapid.SampledFrom([]time.Duration{0, time.Second, 90 * time.Second}).Draw(t, label+" burst"),
		Weights:     rapid.SampledFrom([]Weights{{}, {1, 0.1, 2}, {0, 0, 1}, {0.333, 0, 4}}).Draw(t, label+" weights"),
	}
}

func drawConfig(t *rapid.T) Config {
	c := Config{FanOut: FanOut{rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "fan-out"), rapid.IntRange(0, 4).Draw(t, "waiting")}}
	for _, s := range []Scope{
		{Tenant, "a", ""}, {Tenant, "b", ""}, {Key, "k1", ""}, {Key, "k2", ""}, {Model, "m1", ""}, {Model, "m2", ""}, {TenantModel, "a", "m1"},
	} {
		if rapid.Bool().Draw(t, fmt.Sprint(s)) {
			c.Rules = append(c.Rules, Rule{s, drawCaps(t, fmt.Sprint(s))})
		}
	}
	return c
}

func drawCaller(t *rapid.T) Caller {
	return Caller{
		Tenant: rapid.SampledFrom([]string{"a", "b", "stranger", ""}).Draw(t, "tenant"),
		Key:    rapid.SampledFrom([]string{"k1", "k2", ""}).Draw(t, "key"), Model: rapid.SampledFrom([]string{"m1", "m2", "m3"}).Draw(t, "model"),
		Conversation: kvblock.Hash(rapid.IntRange(0, 2).Draw(t, "conversation")),
	}
}

func drawUsage(t *rapid.T) Usage {
	u := Usage{Input: rapid.IntRange(0, 500).Draw(t, "input"), Output: rapid.IntRange(0, 500).Draw(t, "output"), Whole: rapid.Bool().Draw(t, "whole")}
	u.Cached = rapid.IntRange(0, u.Input).Draw(t, "cached")
	if rapid.IntRange(0, 3).Draw(t, "unsent") == 0 {
		return Usage{Unsent: true}
	}
	return u
}

// TestBook_AgreesWithAPlainOne has a Book and its plain twin do the same, at random.
func TestBook_AgreesWithAPlainOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		b, n := New(0, c), newNaive(c)
		now := mono.Time(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 999, 1000, 1e6, 137_000_001, 1e9, 90e9}).Draw(t, "passes")))
			if len(n.calls) == 0 || rapid.IntRange(0, 2).Draw(t, "what") > 0 {
				who := drawCaller(t)
				e := Estimate{Input: rapid.IntRange(0, 300).Draw(t, "estimate"), MaxOutput: rapid.IntRange(0, 400).Draw(t, "most"), NoOutput: rapid.Bool().Draw(t, "embeds")}
				v := b.Take(now, &who, e)
				want, retry := n.take(now, who, e)
				if v.Outcome != want || v.Retry != retry {
					t.Fatalf("at %d ns %+v is %v, again in %v; want %v, %v", now, who, v.Outcome, v.Retry, want, retry)
				}
				if v.Grant.Held() != (want != Refused) {
					t.Fatalf("outcome %v with the grant %v", want, v.Grant)
				}
				if want != Refused {
					n.calls[len(n.calls)-1].grant = v.Grant
				}
			} else {
				x := n.calls[rapid.IntRange(0, len(n.calls)-1).Draw(t, "who")]
				u := drawUsage(t)
				words := slices.Clone(b.Settle(now, x.grant, u))
				let, refused := n.settle(now, x, u)
				var got []string
				for _, w := range words {
					got = append(got, fmt.Sprint(w.Grant, w.Verdict.Outcome))
				}
				var want []string
				for _, y := range let {
					want = append(want, fmt.Sprint(y.grant, Granted))
				}
				for _, y := range refused {
					want = append(want, fmt.Sprint(y.grant, Refused))
				}
				if slices.Sort(got); !slices.Equal(got, sorted(want)) {
					t.Fatalf("the end of %v lets %v go, want %v", x.grant, got, want)
				}
				if b.Settle(now, x.grant, u) != nil {
					t.Fatal("a grant is settled twice")
				}
			}
			compare(t, now, b, n)
		}
	})
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

func compare(t *rapid.T, now mono.Time, b *Book, n *naive) {
	if grants, _ := b.Load(); grants != len(n.calls) {
		t.Fatalf("%d grants are held, want %d", grants, len(n.calls))
	}
	for i, s := range b.States(now) {
		x := n.scopes[i]
		x.refill(now)
		running, waiting := n.running(func(c *naiveCall) bool { return slices.Contains(c.scopes, x) })
		if s.Running != running || s.Waiting != waiting {
			t.Fatalf("%v: %d run and %d wait, want %d and %d", s.Scope, s.Running, s.Waiting, running, waiting)
		}
		a := b.order[i]
		for _, y := range []struct {
			b    *bucket
			left *big.Rat
		}{{&a.requests, x.requests}, {&a.tokens, x.tokens}} {
			if y.b.rate > 0 && big.NewRat(y.b.level, unit).Cmp(y.left) != 0 {
				t.Fatalf("%v: %v is left, want %v", s.Scope, big.NewRat(y.b.level, unit), y.left)
			}
		}
	}
}
