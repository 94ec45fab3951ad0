package admission

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// served is a call under way in a batch.
type served struct {
	payer  Payer
	who    int
	prompt int
	left   int // tokens of the answer to come
	due    int // tokens that have come and are not charged yet
}

// batch is a queue whose principals want different amounts of service, and engines with places.
type batch struct {
	q       *Queue
	f       Fairness
	shares  []float64
	backlog []int // calls of each principal that wait all the time; 0: none
	cached  func(call int32) int
	places  int
	charge  int // an answer is charged every so many tokens

	running  []served
	whose    []int32 // by call; none once it has gone
	counts   []int   // of those that wait, by principal
	calls    int32
	lastWent int32
	had      []float64 // true service, by share
	went     []int     // calls
	found    int       // prompt tokens that were cached
}

const longest1, longest2 = 400, 60 // of a prompt and an answer in the tests

func newBatch(c Config, places int, shares []float64) *batch {
	return &batch{
		q: New(c), f: c.Fairness, places: places, shares: shares, charge: 1, backlog: make([]int, len(shares)),
		had: make([]float64, len(shares)), went: make([]int, len(shares)), counts: make([]int, len(shares)), cached: func(int32) int { return 0 },
	}
}

// step brings everybody's backlog up, lets calls go for which there are places, and every
// running one produce a token. draw returns a whole number from 0, below n.
func (b *batch) step(draw func(n int) int) {
	for who, n := range b.backlog {
		for ; b.counts[who] < n; b.counts[who]++ {
			b.whose = append(b.whose, int32(who))
			b.q.Push(Waiter{Call: b.calls, ID: uint64(b.calls), Rank: int64(b.calls), Since: mono.Time(b.calls), Principal: kvblock.Hash(who)})
			b.calls++
		}
	}
	for len(b.running) < b.places {
		w, ok := b.q.Next(0, true)
		if !ok {
			break
		}
		_, payer := b.q.Depart(w.Call)
		who := int(b.whose[w.Call])
		b.whose[w.Call] = none
		b.counts[who]--
		b.lastWent = int32(who)
		prompt := 1 + draw(longest1)
		cached := min(b.cached(w.Call), prompt-1)
		cost := b.f.Prompt(prompt, cached) / b.shares[who]
		b.q.Charge(payer, cost)
		b.had[who] += cost
		b.went[who]++
		b.found += cached
		b.running = append(b.running, served{payer: payer, who: who, prompt: prompt, left: 1 + draw(longest2)})
	}
	for i := 0; i < len(b.running); i++ {
		r := &b.running[i]
		r.left--
		r.due++
		b.had[r.who] += b.f.Answer(1) / b.shares[r.who]
		if r.due == b.charge || r.left == 0 {
			b.q.Charge(r.payer, b.f.Answer(r.due)/b.shares[r.who])
			r.due = 0
		}
		if r.left == 0 {
			b.q.End(r.payer)
			b.running = append(b.running[:i], b.running[i+1:]...)
			i--
		}
	}
}

// bound is the theorem's constant: L is the longest prompt, M the most tokens under way.
func (b *batch) bound() float64 {
	share := math.Inf(1)
	for _, s := range b.shares {
		share = min(share, s)
	}
	u := max(float64(b.f.Input*longest1), b.f.Output*float64(b.places*(longest1+longest2)))
	if b.q.Config().Order == FairLocal {
		return 2 * (u/share + b.f.Quantum)
	}
	return 2 * u / share
}

// TestFair_BackloggedPrincipalsStayTogether is the theorem: between any two instants the
// service of two principals that wait all the time differs by no more than the constant,
// whatever their calls are like, and how many each of them has.
func TestFair_BackloggedPrincipalsStayTogether(t *testing.T) {
	for _, order := range []Order{Fair, FairLocal} {
		t.Run(order.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				f := DefaultFairness()
				f.Quantum = rapid.SampledFrom([]float64{100, 3000}).Draw(t, "quantum")
				shares := []float64{1, rapid.SampledFrom([]float64{1, 1, 2, 0.5}).Draw(t, "share"), 1}
				places := rapid.IntRange(1, 4).Draw(t, "places")
				b := newBatch(Config{Order: order, Fairness: f}, places, shares)
				b.backlog = []int{places + 1, places + rapid.IntRange(1, 12).Draw(t, "more of the second"), 0}
				b.charge = rapid.SampledFrom([]int{1, 20}).Draw(t, "charge every")
				hot := rapid.Bool().Draw(t, "hot")
				b.cached = func(call int32) int {
					if hot && call%3 > 0 {
						return 300
					}
					return 0
				}
				b.q.Prefer(func(call int32) int64 { // the second one's prefixes are everywhere
					return int64(b.whose[call]) * 1000
				})
				least, most := 0.0, 0.0
				draw := cheap(rapid.Uint64().Draw(t, "seed"))
				for range 3000 {
					if draw(200) == 0 { // a third one comes and goes
						b.backlog[2] = 3 - b.backlog[2]
					}
					b.step(draw)
					d := b.had[0] - b.had[1]
					least, most = min(least, d), max(most, d)
				}
				if most-least > b.bound() {
					t.Fatalf("service differs by %v, more than %v: %v calls", most-least, b.bound(), b.went)
				}
			})
		})
	}
}

// cheap is a source of numbers for long runs that rapid need not shrink.
func cheap(seed uint64) func(n int) int {
	return func(n int) int {
		seed = seed*6364136223846793005 + 1442695040888963407
		return int(seed >> 33 % uint64(n))
	}
}

// TestFair_TheBoundIsNeeded: an order that is not fair breaks it.
func TestFair_TheBoundIsNeeded(t *testing.T) {
	b := newBatch(Config{Order: FIFO, Fairness: DefaultFairness()}, 2, []float64{1, 1})
	b.backlog = []int{1, 10}
	draw := cheap(1)
	for range 10000 {
		b.step(draw)
	}
	if d := b.had[1] - b.had[0]; d < b.bound() {
		t.Errorf("first come, first served is fair to within %v", d)
	}
}

// TestFair_SharesAreKept: over a long time service is in proportion to shares.
func TestFair_SharesAreKept(t *testing.T) {
	for _, order := range []Order{Fair, FairLocal} {
		b := newBatch(Config{Order: order, Fairness: DefaultFairness()}, 4, []float64{1, 3})
		b.backlog = []int{5, 5}
		draw := cheap(2)
		for range 100000 {
			b.step(draw)
		}
		if got := b.had[1] * 3 / b.had[0]; got < 2.9 || got > 3.1 {
			t.Errorf("%v: three shares get %.2f times the service of one", order, got)
		}
	}
}

// TestFair_NobodySavesUp: who was idle while another one was served gets no more than that one
// from when it comes.
func TestFair_NobodySavesUp(t *testing.T) {
	for _, order := range []Order{Fair, FairLocal} {
		for _, queued := range []bool{true, false} { // the other one waits meanwhile, or finds room each time
			b := newBatch(Config{Order: order, Fairness: DefaultFairness()}, 4, []float64{1, 1})
			draw := cheap(3)
			b.backlog = []int{0, 6}
			if !queued {
				for i := range 3000 {
					p := b.q.Enter(0, 1)
					b.q.Charge(p, float64(draw(1000)))
					b.q.End(p)
					if i%500 == 0 { // the idle one calls, now and then
						b.q.End(b.q.Enter(0, 0))
					}
				}
			}
			for range 20000 {
				if queued {
					b.step(draw)
				}
			}
			if queued && b.had[1] < 10*b.bound() {
				t.Fatalf("the test says nothing: %v of service", b.had[1])
			}
			b.backlog = []int{6, 6}
			from := []float64{b.had[0], b.had[1]}
			for range 20000 {
				b.step(draw)
				if d := (b.had[0] - from[0]) - (b.had[1] - from[1]); d > b.bound() {
					t.Fatalf("%v: who was idle got %v more service, over %v", order, d, b.bound())
				}
			}
		}
	}
}

// TestFair_IdlePrincipalsAreForgotten: a principal that is not ahead of anybody takes no memory,
// and as many as may be idle and ahead are bounded.
func TestFair_IdlePrincipalsAreForgotten(t *testing.T) {
	q := New(Config{Order: Fair, Fairness: DefaultFairness()})
	for i := range 10000 {
		p := q.Enter(0, kvblock.Hash(i))
		q.Charge(p, 5)
		q.End(p)
		if n := q.Principals(); n > 2 {
			t.Fatalf("%d principals are remembered", n)
		}
	}
	q.Push(Waiter{Call: 1, ID: 1, Principal: 1 << 40}) // it waits for ever, so that all others are ahead
	var payers []Payer
	for i := range mostIdle + 1000 {
		payers = append(payers, q.Enter(0, kvblock.Hash(i)))
	}
	for _, p := range payers { // so many charges of 1 are less than 1 on average: all stay ahead
		q.Charge(p, 1)
	}
	for _, p := range payers {
		q.End(p)
	}
	if n := q.Principals(); n > mostIdle+4 || n < mostIdle {
		t.Errorf("%d principals are remembered, want %d", n, mostIdle)
	}
}

// counted is the Virtual Token Counter that forgets nobody, one band of it.
type counted struct {
	counter  map[kvblock.Hash]float64
	waits    []Waiter
	running  map[kvblock.Hash]int
	floor    float64
	virtual  float64
	last     kvblock.Hash
	departed bool
}

// charge advances the virtual time by the mean charge of those that have a call.
func (c *counted) charge(who kvblock.Hash, cost float64) {
	active := map[kvblock.Hash]bool{}
	for _, w := range c.waits {
		active[w.Principal] = true
	}
	for r, n := range c.running {
		if n > 0 {
			active[r] = true
		}
	}
	c.counter[who] += cost
	by := cost / float64(len(active))
	if cost > 0 {
		by = min(by, max(c.counter[who]-c.virtual, 0))
	}
	c.virtual += by
}

// sample raises the floor to what it is now.
func (c *counted) sample() {
	least := math.Inf(1)
	for _, w := range c.waits {
		least = min(least, c.counter[w.Principal])
	}
	switch {
	case len(c.waits) > 0:
		c.virtual = max(c.virtual, least)
	case c.departed:
		c.virtual = max(c.virtual, c.counter[c.last])
	}
	c.floor = max(c.floor, c.virtual)
}

func (c *counted) lift(who kvblock.Hash) {
	c.sample()
	for _, w := range c.waits {
		if w.Principal == who {
			return
		}
	}
	c.counter[who] = max(c.counter[who], c.floor)
}

func (c *counted) next() (best Waiter, ok bool) {
	for _, w := range c.waits {
		a, b := c.counter[w.Principal], c.counter[best.Principal]
		if !ok || a < b || a == b && w.ID < best.ID {
			best, ok = w, true
		}
	}
	return best, ok
}

func (c *counted) remove(call int32) {
	for i, w := range c.waits {
		if w.Call == call {
			c.waits = append(c.waits[:i:i], c.waits[i+1:]...)
			return
		}
	}
}

// TestFair_AgainstCountersThatForgetNobody: heaps and forgotten principals change no decision.
func TestFair_AgainstCountersThatForgetNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New(Config{Order: Fair, Fairness: DefaultFairness()})
		c := &counted{counter: map[kvblock.Hash]float64{}, running: map[kvblock.Hash]int{}}
		type under struct {
			payer Payer
			who   kvblock.Hash
		}
		var way []under
		calls := int32(0)
		goes := func(p Payer, who kvblock.Hash) {
			c.last, c.departed = who, true
			c.running[who]++
			c.sample()
			way = append(way, under{p, who})
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				who := kvblock.Hash(rapid.IntRange(0, 4).Draw(t, "who"))
				w := Waiter{Call: calls % 50, ID: uint64(calls), Rank: int64(calls), Since: mono.Time(calls), Principal: who, Tied: rapid.IntRange(0, 5).Draw(t, "tied") == 0}
				if int(w.Call) < len(q.places) && q.places[w.Call].waits {
					t.Skip("it waits")
				}
				calls++
				c.lift(who)
				c.waits = append(c.waits, w)
				q.Push(w)
			},
			"enter": func(t *rapid.T) {
				who := kvblock.Hash(rapid.IntRange(0, 4).Draw(t, "who"))
				c.lift(who)
				goes(q.Enter(0, who), who)
			},
			"go": func(t *rapid.T) {
				w, ok := c.next()
				if !ok {
					t.Skip("nobody waits")
				}
				_, p := q.Depart(w.Call)
				goes(p, w.Principal)
				c.remove(w.Call)
				c.sample()
			},
			"leave": func(t *rapid.T) {
				if len(c.waits) == 0 {
					t.Skip("nobody waits")
				}
				w := c.waits[rapid.IntRange(0, len(c.waits)-1).Draw(t, "who")]
				c.remove(w.Call)
				c.sample()
				q.Remove(w.Call)
			},
			"charge": func(t *rapid.T) {
				if len(way) == 0 {
					t.Skip("nobody is under way")
				}
				x := way[rapid.IntRange(0, len(way)-1).Draw(t, "which")]
				cost := float64(rapid.IntRange(-5, 30).Draw(t, "cost"))
				c.charge(x.who, cost)
				q.Charge(x.payer, cost)
			},
			"end": func(t *rapid.T) {
				if len(way) == 0 {
					t.Skip("nobody is under way")
				}
				i := rapid.IntRange(0, len(way)-1).Draw(t, "which")
				q.End(way[i].payer)
				c.running[way[i].who]--
				c.sample()
				way = append(way[:i:i], way[i+1:]...)
			},
			"": func(t *rapid.T) {
				got, ok := q.Next(0, true)
				want, has := c.next()
				if ok != has || got != want {
					t.Fatalf("%+v goes first, want %+v; counters %v", got, want, c.counter)
				}
				for _, x := range way {
					if q.Had(x.payer) != c.counter[x.who] {
						t.Fatalf("principal %d has had %v, want %v", x.who, q.Had(x.payer), c.counter[x.who])
					}
				}
			},
		})
	})
}

// TestFair_NobodyFillsTheQueue: the principal with most gives way to one that has less, whose
// wait is what it will be and not all that wait.
func TestFair_NobodyFillsTheQueue(t *testing.T) {
	c := Config{Order: Fair, Fairness: DefaultFairness(), Length: 10, Bytes: 100, MaxWait: time.Second}
	q := New(c)
	for i := range 10 {
		who := kvblock.Hash(7)
		if i > 7 {
			who = 8
		}
		q.Push(Waiter{Call: int32(i), ID: uint64(i), Rank: int64(i), Since: mono.Time(i), Principal: who, Bytes: 10, Tokens: 500})
	}
	if bound, _ := q.Refuses(Asking{Principal: 7, Bytes: 1, Tokens: 500, Rate: 10000}); bound != LengthMost {
		t.Errorf("who has most: bound %v", bound)
	}
	few := Asking{Principal: 9, Bytes: 20, Tokens: 500, Rate: 1000 + 2*CallTokens}
	bound, wait := q.Refuses(few)
	if bound != Within || wait != time.Second { // 500 tokens of each of the two others
		t.Errorf("who has nothing: bound %v after %v", bound, wait)
	}
	var out []int32
	for size := q.Bytes(); ; {
		call, ok := q.GivesWay(few, len(out), size-q.Bytes())
		if !ok {
			break
		}
		out = append(out, call)
		q.Remove(call)
	}
	if !slices.Equal(out, []int32{7, 6}) { // one for the length, another for the bytes
		t.Errorf("%v give way, want 7 and 6", out)
	}
	if bound, _ := q.Refuses(Asking{Principal: 9, Bytes: 60, Rate: 1000}); bound != BytesMost {
		t.Errorf("who would have most: bound %v", bound)
	}
	for i := range 2 {
		q.Push(Waiter{Call: int32(20 + i), ID: uint64(20 + i), Rank: int64(20 + i), Since: mono.Time(20 + i), Principal: kvblock.Hash(8 + i)})
	}
	// Now six are of 7, three of 8 and one of 9. Nobody gives way to who would then have as many.
	for who, want := range map[kvblock.Hash]Bound{7: LengthMost, 8: Within, 9: Within} {
		if bound, _ := q.Refuses(Asking{Principal: who}); bound != want {
			t.Errorf("principal %d: bound %v, want %v", who, bound, want)
		}
	}
	for _, call := range []int32{0, 1, 2} {
		q.Remove(call)
		q.Push(Waiter{Call: 30 + call, ID: uint64(30 + call), Rank: int64(30 + call), Since: mono.Time(30 + call), Principal: 9})
	}
	// Three are of 7, three of 8 and four of 9.
	if bound, _ := q.Refuses(Asking{Principal: 8}); bound != LengthMost {
		t.Errorf("who would have as many as the one with most: bound %v", bound)
	}
}

// TestFair_BandsAreFairEachByItself: service in one band does not count in another.
func TestFair_BandsAreFairEachByItself(t *testing.T) {
	q := New(Config{Order: Fair, Fairness: DefaultFairness()})
	q.Charge(q.Enter(1, 7), 1000)
	q.Push(Waiter{Call: 1, ID: 1, Rank: 1, Principal: 7})
	q.Push(Waiter{Call: 2, ID: 2, Rank: 2, Principal: 8})
	if w, _ := q.Next(0, true); w.Call != 1 {
		t.Errorf("call %d goes first: what its principal has had with another priority counts", w.Call)
	}
}

// TestFairLocal_PrefersWhoFindsItsPrefix, as far as the quantum allows.
func TestFairLocal_PrefersWhoFindsItsPrefix(t *testing.T) {
	run := func(order Order) (found int, ratio float64) {
		f := DefaultFairness()
		f.Quantum = 5000
		b := newBatch(Config{Order: order, Fairness: f}, 2, []float64{1, 1, 1})
		b.backlog = []int{6, 6, 6}
		// Each of a principal's calls finds the prefix that was sent last, if it was its own.
		last := int32(none)
		b.cached = func(call int32) int {
			hit := last == b.lastWent
			last = b.lastWent
			if hit {
				return 300
			}
			return 0
		}
		b.q.Prefer(func(call int32) int64 {
			if b.whose[call] == last {
				return 300
			}
			return 0
		})
		draw := cheap(4)
		for range 100000 {
			b.step(draw)
		}
		return b.found, b.had[0] / b.had[2]
	}
	strict, _ := run(Fair)
	local, ratio := run(FairLocal)
	if local < 2*strict {
		t.Errorf("%d tokens found, and %d where fairness is strict", local, strict)
	}
	if ratio < 0.9 || ratio > 1.1 {
		t.Errorf("the first has %.2f times the last one's service", ratio)
	}
}

func ExampleFairness_Prompt() {
	f := DefaultFairness()
	fmt.Println(f.Prompt(1000, 0), f.Prompt(1000, 900), f.Answer(50))
	// Output: 1000 190 100
}
