package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"kvasir/accelerator"
	"kvasir/client/workload"
	"kvasir/client/workload/trace"
	"kvasir/engine"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/internal/testkit/fulltrace"
	"kvasir/selection/policy"
)

// conversations is a workload of so many sessions, one a second by chance, whose turns
// repeat what came before.
func conversations(sessions int) workload.Source {
	return workload.Source{Name: "conversations", BlockTokens: 64, Sessions: func(yield func(workload.Session, error) bool) {
		at := time.Duration(0)
		for i := range sessions {
			r := seed.New(1, seed.Workload, uint64(i), 0)
			at += time.Duration(r.Int64n(int64(2 * time.Second)))
			s := workload.Session{ID: fmt.Sprint(i), At: at}
			tokens := 640 * (1 + r.Intn(8))
			var chain []kvblock.Hash
			var parent kvblock.Hash
			grow := func(tokens int) {
				for len(chain)*64+64 <= tokens {
					parent = workload.Extend(parent, uint64(i)<<20|uint64(len(chain)))
					chain = append(chain, parent)
				}
			}
			for turn := range 1 + r.Intn(4) {
				answer := 20 + r.Intn(200)
				grow(tokens + answer)
				c := workload.Call{PromptTokens: tokens, OutputTokens: answer, Blocks: chain[:tokens/64], AnswerBlocks: chain[tokens/64:]}
				if turn > 0 {
					c.After, c.Gap = []int{turn - 1}, time.Duration(1+r.Intn(5))*time.Second
				}
				s.Calls = append(s.Calls, c)
				tokens += answer + 50
			}
			if !yield(s, nil) {
				return
			}
		}
	}}
}

func testScenario(t testing.TB, rule string, engines int) Scenario {
	t.Helper()
	profile, err := accelerator.Lookup("llama-3.1-8b/a100")
	if err != nil {
		t.Fatal(err)
	}
	r, ok := policy.Lookup(rule)
	if !ok {
		t.Fatalf("no policy %s", rule)
	}
	s := Scenario{
		Rule: r, Scrape: time.Second, Seed: 7, Warmup: 10 * time.Second, SLO: SLO{TTFT: time.Second},
		Workload: SessionsConfig{Source: conversations(100), Rate: 2},
	}
	for range engines {
		s.Engines = append(s.Engines, Engine{Config: engine.Defaults(profile)})
	}
	return s
}

func mustRun(t testing.TB, s Scenario) *Summary {
	t.Helper()
	x, err := s.Run()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func text(t testing.TB, s *Summary) []byte {
	out, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The same seed gives the same bytes for every rule of the catalogue; the seed matters to
// those that draw.
func TestScenario_SameSeedSameBytes(t *testing.T) {
	for _, r := range policy.Catalog() {
		s := testScenario(t, r.Name, 3)
		s.Gateways, s.Loss, s.Stagger = 2, 0.2, true
		a, b := text(t, mustRun(t, s)), text(t, mustRun(t, s))
		if !bytes.Equal(a, b) {
			t.Errorf("%s: two runs of one seed differ:\n%s\n%s", r.Name, a, b)
		}
	}
	s := testScenario(t, "random", 3)
	a := text(t, mustRun(t, s))
	s.Seed++
	if bytes.Equal(a, text(t, mustRun(t, s))) {
		t.Error("another seed gives the same bytes")
	}
}

// A second turn is found in the cache of the engine that served the first one, so a rule
// that goes by prefixes finds more than one that takes turns.
func TestScenario_PrefixesReachEngines(t *testing.T) {
	turns, prefixes := mustRun(t, testScenario(t, "round-robin", 4)), mustRun(t, testScenario(t, "cache-aware", 4))
	if !(prefixes.CachedRatio > turns.CachedRatio+0.1) {
		t.Errorf("cached: cache-aware %v, round-robin %v", prefixes.CachedRatio, turns.CachedRatio)
	}
	if turns.Succeeded != turns.Calls {
		t.Errorf("%v of %v calls succeeded", turns.Succeeded, turns.Calls)
	}
}

// What happens to engines in mid-run is felt: see each case.
func TestScenario_EnginesComeAndGo(t *testing.T) {
	whole := mustRun(t, testScenario(t, "least-outstanding", 2))
	used := func(s Scenario) (map[int]int, *Summary) {
		n := map[int]int{}
		s.Sampled = func(e int, now mono.Time, x *engine.Stats) {
			if x.Running > 0 {
				n[e]++
			}
		}
		return n, mustRun(t, s)
	}
	t.Run("joins", func(t *testing.T) {
		s := testScenario(t, "least-outstanding", 2)
		s.Engines[1].Joins = 20 * second
		first := mono.Never
		s.Sampled = func(e int, now mono.Time, x *engine.Stats) {
			if e == 1 && x.Running > 0 {
				first = min(first, now)
			}
		}
		x := mustRun(t, s)
		if first < 20*second || first > 40*second {
			t.Errorf("it works from %v on", first.Sub(0))
		}
		if x.Succeeded != x.Calls {
			t.Errorf("%v", x.Unfinished)
		}
	})
	t.Run("down", func(t *testing.T) {
		s := testScenario(t, "least-outstanding", 2)
		s.Engines[0].Down = []Outage{{15 * second, 30 * second}}
		n, x := used(s)
		if x.Retries == 0 || n[0] == 0 || n[1] <= n[0] {
			t.Errorf("retries %v, busy seconds %v", x.Retries, n)
		}
	})
	t.Run("slow", func(t *testing.T) {
		s := testScenario(t, "least-outstanding", 2)
		s.Engines[0].Pace = []Pace{{0, 8}}
		if x := mustRun(t, s); !(x.E2E.P99 > 2*whole.E2E.P99) {
			t.Errorf("E2E P99 %v; %v where all are fast", x.E2E.P99, whole.E2E.P99)
		}
	})
}

// Results are told of calls after the warm-up and until the last one that comes by itself.
func TestScenario_MeasuresTheRateThatItWasGiven(t *testing.T) {
	one := testScenario(t, "round-robin", 4)
	one.Workload.Clock = Recorded
	two := one
	two.Workload.Rate *= 2
	two.Warmup /= 2
	a, b := mustRun(t, one), mustRun(t, two)
	if r := float64(b.Rate / a.Rate); r < 1.95 || r > 2.05 {
		t.Errorf("%v calls a second, and %v at twice the rate", a.Rate, b.Rate)
	}
}

func BenchmarkScenario(b *testing.B) {
	s := testScenario(b, "least-outstanding", 4)
	s.Warmup = 0
	b.ReportAllocs()
	calls := 0.0
	for b.Loop() {
		calls += float64(mustRun(b, s).Calls)
	}
	b.ReportMetric(calls/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkMooncake replays the conversation trace over 8 replicas, on one core, the file
// read before.
func BenchmarkMooncake(b *testing.B) {
	name := fulltrace.Path(b, "mooncake/conversation_trace.jsonl")
	t, err := trace.Open(trace.File{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(name) }}, trace.Options{Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	var sessions []workload.Session
	for s, err := range t.Sessions {
		if err != nil {
			b.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	for _, rule := range []string{"round-robin", "least-outstanding", "cache-aware"} {
		b.Run(rule, func(b *testing.B) {
			s := testScenario(b, rule, 8)
			for i := range s.Engines {
				c := &s.Engines[i].Config
				c.NumBlocks, c.BlockTokens = c.NumBlocks*c.BlockTokens/512, 512
			}
			s.Warmup = 0
			s.Workload = SessionsConfig{Rate: 1, Source: workload.Source{Name: t.Name, BlockTokens: t.BlockTokens, Sessions: func(yield func(workload.Session, error) bool) {
				for _, x := range sessions {
					if !yield(x, nil) {
						return
					}
				}
			}}}
			b.ReportAllocs()
			calls, events := 0.0, 0
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for b.Loop() {
				x := mustRun(b, s)
				calls += float64(x.Calls)
				events += x.Events
			}
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/calls, "B/call")
			b.ReportMetric(calls/b.Elapsed().Seconds(), "calls/s")
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// Engines that tell every token and engines that skip ahead give the same result: but for
// the gaps between outputs, which only the latter report, to the byte.
func TestScenario_SkippingAheadChangesNothing(t *testing.T) {
	for _, r := range policy.Catalog() {
		s := testScenario(t, r.Name, 3)
		s.Engines[1].Down = []Outage{{15 * second, 21 * second}}
		s.Engines[2].Pace = []Pace{{9 * second, 1.7}}
		skipping := mustRun(t, s)
		for i := range s.Engines {
			s.Engines[i].Config.EveryToken = true
		}
		stepping := mustRun(t, s)
		if skipping.ITL.Max == 0 || skipping.Events >= stepping.Events {
			t.Errorf("%s: nothing was skipped: %d events and %d", r.Name, skipping.Events, stepping.Events)
		}
		skipping.ITL, skipping.Events = stepping.ITL, stepping.Events
		if a, b := text(t, skipping), text(t, stepping); !bytes.Equal(a, b) {
			t.Errorf("%s: skipping and stepping differ:\n%s\n%s", r.Name, a, b)
		}
	}
}

// A table names classes, and losses once for all policies that had the same.
func TestWriteTable_ClassesAndLosses(t *testing.T) {
	sum := Summary{Calls: 10, Unfinished: map[string]Number{"broken": 2}, Classes: map[string]Summary{"a": {Calls: 4}, "b": {Calls: 6}}}
	other := Summary{Calls: 10, Skipped: 3}
	var out bytes.Buffer
	if err := WriteTable(&out, "policy", []Row{NewRow("x", []Summary{sum}), NewRow("y", []Summary{sum}), NewRow("z", []Summary{other})}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"x, y: 2 calls ended with broken\n", "z: 3 calls were not sent", "policy  class", "     x      a      4"} {
		if !bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("there is no %q in\n%s", want, &out)
		}
	}
}
