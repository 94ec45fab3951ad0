package sim

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/accelerator"
	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/policy"
	"kvasir/selection/prefix"
)

// world of these tests: routers of one policy over equal engines, calls at random.
type testWorld struct {
	rule             policy.Rule
	seed             uint64
	routers, engines int
	calls            int
	length           time.Duration
	down             []Outage // of engine 0
	leaving          int      // every how manieth client leaves; 0: none
	hedge            attempt.HedgeConfig
	slow             float64 // how many times as long as the others' engine 0's steps take; 0: as long
}

func (w testWorld) config(t interface{ Fatal(...any) }) (Config, []Call) {
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	c := engine.Defaults(profile)
	c.NumBlocks, c.MaxModelLen, c.EveryToken = 2000, 16000, true
	cfg := Config{Until: mono.Time(w.length), Strict: true}
	pool := flow.Pool{Name: "p", PolicyName: w.rule.Name}
	for i := range w.engines {
		e := Engine{Config: c}
		if i == 0 {
			e.Down = w.down
			if w.slow > 0 {
				e.Pace = []Pace{{At: 0, Factor: w.slow}}
			}
		}
		cfg.Engines = append(cfg.Engines, e)
		pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: string(rune('a' + i)), Weight: 1})
	}
	for i := range w.routers {
		p := pool
		p.Policy = w.rule.Params().New()
		r := Router{Scrape: time.Second, Machine: flow.Config{
			Seed: w.seed + uint64(i), Retry: attempt.Default(), Hedge: w.hedge, Health: health.Default(), Explain: true,
			Prefix: prefix.Config{BudgetBytes: 4 << 20, SpeculativeTTL: 30 * time.Second}, Pools: []flow.Pool{p},
		}}
		for e := range w.engines {
			r.Phases = append(r.Phases, time.Duration(e*1000+i+1)*time.Millisecond/7)
		}
		cfg.Routers = append(cfg.Routers, r)
	}
	r := seed.New(w.seed, seed.Workload, 0, 0)
	var calls []Call
	for i := range w.calls {
		calls = append(calls, w.call(i, &r))
	}
	return cfg, calls
}

// outcome is a run's result with all that its functions heard.
type outcome struct {
	*Result
	Records   []Record // in the order of the calls
	Decisions []selection.Decision
}

func run(cfg Config, calls []Call) (*outcome, error) {
	o := &outcome{Records: make([]Record, len(calls))}
	cfg.Feed = Calls(calls)
	cfg.Ended = func(r *Record) { o.Records[r.Call-1] = *r }
	cfg.Decided = func(_ int, d *selection.Decision) { o.Decisions = append(o.Decisions, *d) }
	var err error
	o.Result, err = Run(cfg)
	return o, err
}

func (w testWorld) call(i int, r *seed.Rand) Call {
	at := mono.Time(i)*mono.Time(w.length)/mono.Time(w.calls) + mono.Time(r.Intn(int(w.length)/w.calls/2)) + 1
	group, blocks := r.Intn(8), 4+r.Intn(40)
	c := Call{At: at, Router: i % w.routers, Request: selection.Request{
		ID: selection.CallID(i + 1), Stream: i%5 > 0, InputTokens: blocks * 16, BlockTokens: 64,
	}}
	for b := range blocks {
		h := kvblock.Seed(string(rune(group)), string(rune(b)))
		if b >= 20 {
			h = kvblock.Seed(string(rune(i)), string(rune(b)))
		}
		c.Prompt.Blocks = append(c.Prompt.Blocks, h)
		if b%4 == 3 {
			c.Request.Blocks = append(c.Request.Blocks, h)
		}
	}
	c.Prompt.PromptTokens, c.Prompt.OutputTokens = blocks*16, 1+r.Intn(100)
	if w.leaving > 0 && i%w.leaving == 0 {
		c.LeaveAt = at.Add(time.Duration(r.Intn(int(time.Second))))
	}
	return c
}

func mustLookup(t interface{ Fatal(...any) }, name string) policy.Rule {
	rule, ok := policy.Lookup(name)
	if !ok {
		t.Fatal("no policy " + name)
	}
	return rule
}

// TestLaw_NothingIsLostNorEarly checks conservation and causality for random worlds under
// every policy: each call ends in one way, at the right time, and nothing stays charged.
func TestLaw_NothingIsLostNorEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := testWorld{
			rule: rapid.SampledFrom(policy.Catalog()).Draw(t, "rule"), seed: rapid.Uint64().Draw(t, "seed"),
			routers: rapid.IntRange(1, 3).Draw(t, "routers"), engines: rapid.IntRange(1, 5).Draw(t, "engines"),
			calls: rapid.IntRange(1, 60).Draw(t, "calls"), length: 5 * time.Second,
			leaving: rapid.IntRange(0, 5).Draw(t, "leaving"),
		}
		if rapid.Bool().Draw(t, "outage") {
			w.down = []Outage{{From: mono.Time(time.Second) + 3, To: mono.Time(3*time.Second) + 3}}
		}
		if rapid.Bool().Draw(t, "hedge") {
			w.slow = 10
			w.hedge = attempt.HedgeConfig{Ratio: 1, After: time.Duration(rapid.IntRange(1, 100).Draw(t, "after")) * time.Millisecond, Whole: 300 * time.Millisecond}
		}
		cfg, calls := w.config(t)
		result, err := run(cfg, calls)
		if err != nil {
			t.Fatal(err)
		}
		check(t, cfg, calls, result)
	})
}

func check(t *rapid.T, cfg Config, calls []Call, result *outcome) {
	for i, r := range result.Records {
		c := &calls[i]
		if r.Call != c.Request.ID {
			t.Fatalf("call %d has not ended", c.Request.ID)
		}
		if r.End < r.At || r.First != 0 && (r.First <= r.At || r.First > r.End) {
			t.Fatalf("call %d came at %d, answered first at %d, ended at %d", r.Call, r.At, r.First, r.End)
		}
		if r.Attempts > 1+cfg.Routers[0].Machine.Retry.Attempts {
			t.Fatalf("call %d had %d attempts", r.Call, r.Attempts)
		}
		done := r.Refused == flow.NoReason && r.Outcome == attempt.Success
		if done && r.Tokens != c.Prompt.OutputTokens {
			t.Fatalf("call %d got %d of %d tokens", r.Call, r.Tokens, c.Prompt.OutputTokens)
		}
		if r.Outcome == attempt.ClientGone && r.End != c.LeaveAt {
			t.Fatalf("call %d left at %d and ended at %d", r.Call, c.LeaveAt, r.End)
		}
	}
	hedged := 0
	for i := range result.Records {
		if r := &result.Records[i]; r.Hedged {
			hedged++
			if r.Attempts < 2 || r.Wasted > calls[i].Prompt.PromptTokens*2 {
				t.Fatalf("call %d was hedged with %d attempts, which wasted %d tokens of a prompt of %d", r.Call, r.Attempts, r.Wasted, calls[i].Prompt.PromptTokens)
			}
		} else if r.Wasted != 0 {
			t.Fatalf("call %d was not hedged and wasted %d tokens", r.Call, r.Wasted)
		}
	}
	for _, s := range result.Final {
		if h := s.Pools[0].Hedge; h != nil {
			hedged -= int(h.Sent)
			if h.Sent != h.Won+h.Lost+h.Failed {
				t.Fatalf("%d hedges have come to %+v", h.Sent, h.HedgeCount)
			}
		}
	}
	if hedged != 0 {
		t.Fatalf("%d more calls were hedged than machines say", hedged)
	}
	for _, s := range result.Final {
		if s.InFlight != 0 {
			t.Fatalf("%d calls are held at the end", s.InFlight)
		}
		for _, e := range s.Pools[0].Endpoints {
			if e.Book != (selection.Book{}) {
				t.Fatalf("%s is charged %+v at the end", e.Name, e.Book)
			}
		}
	}
}

func TestRun_SameSeedSameResult(t *testing.T) {
	w := testWorld{
		rule: mustLookup(t, "cache-aware"), seed: 5, routers: 2, engines: 4, calls: 400, length: 20 * time.Second,
		leaving: 9, down: []Outage{{From: mono.Time(7 * time.Second), To: mono.Time(9 * time.Second)}},
	}
	try := func(seed uint64) *outcome {
		w.seed = seed
		r, err := run(w.config(t))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, again, other := try(5), try(5), try(6)
	text := func(r *outcome) string { return fmt.Sprintf("%+v %+v %+v", *r.Result, r.Records, r.Decisions) } // in which NaN equals NaN
	if text(first) != text(again) {
		t.Error("one seed gave two results")
	}
	if slices.Equal(first.Records, other.Records) {
		t.Error("two seeds gave one result")
	}
}

// TestRun_RoutersKnowNoOutputLength gives two workloads that differ in nothing but the
// true lengths of answers that end after the last arrival: every decision must be equal.
func TestRun_RoutersKnowNoOutputLength(t *testing.T) {
	for _, rule := range policy.Catalog() {
		decide := func(tokens int) []selection.Decision {
			w := testWorld{rule: rule, seed: 3, routers: 1, engines: 3, calls: 30, length: 300 * time.Millisecond}
			cfg, calls := w.config(t)
			for i := range calls {
				calls[i].Prompt.OutputTokens = tokens + i
			}
			r, err := run(cfg, calls)
			if err != nil {
				t.Fatal(err)
			}
			return r.Decisions
		}
		if !slices.EqualFunc(decide(200), decide(900), func(a, b selection.Decision) bool { return a.Chosen == b.Chosen && a.At == b.At }) {
			t.Errorf("%s: the answers' true lengths change what was decided before they were known", rule.Name)
		}
	}
}

func TestRun_RefusesDecisionsThatShareAnInstant(t *testing.T) {
	w := testWorld{rule: mustLookup(t, "random"), seed: 1, routers: 1, engines: 2, calls: 2, length: time.Second}
	cfg, calls := w.config(t)
	calls[1].At = calls[0].At
	if _, err := run(cfg, calls); !errors.Is(err, ErrSharedInstant) {
		t.Errorf("got %v", err)
	}
	w.routers = 2 // two routers may decide at one instant
	cfg, calls = w.config(t)
	calls[1].At = calls[0].At
	if _, err := run(cfg, calls); err != nil {
		t.Error(err)
	}
}

func BenchmarkRun(b *testing.B) {
	w := testWorld{rule: mustLookup(b, "least-outstanding"), seed: 1, routers: 1, engines: 8, calls: 2000, length: 60 * time.Second}
	cfg, calls := w.config(b)
	cfg.Routers[0].Machine.Explain = false
	b.ReportAllocs()
	steps := 0
	for b.Loop() {
		cfg.Routers[0].Machine.Pools[0].Policy = w.rule.Params().New()
		cfg.Feed = Calls(calls)
		r, err := Run(cfg)
		if err != nil {
			b.Fatal(err)
		}
		steps += r.Events
	}
	b.ReportMetric(float64(w.calls*b.N)/b.Elapsed().Seconds(), "calls/s")
}
