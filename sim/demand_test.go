package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"kvasir/client/workload"
	"kvasir/gateway/admission"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/internal/portable"
	"kvasir/internal/seed"
)

// asking is a workload that a pool is to be sized for.
type asking struct {
	name           string
	rate           float64 // calls a second
	ttft           time.Duration
	prompt, answer func(r *seed.Rand) int
	engines        int           // that are overloaded with it
	length         time.Duration // of the run; it is asked at the half
}

func between(least, most int) func(*seed.Rand) int {
	return func(r *seed.Rand) int { return least + r.Intn(most-least+1) }
}

// lognormal draws around a median, at most fifty times that.
func lognormal(median, sigma float64) func(*seed.Rand) int {
	return func(r *seed.Rand) int {
		normal := math.Sqrt(-2*portable.Ln(1-r.Float64())) * portable.CosTurn(r.Float64())
		return max(int(min(median*portable.Exp(sigma*normal), 50*median)), 1)
	}
}

// askings need 3 to 11 replicas: the first for their prefill, the last one for the KV cache.
var askings = []asking{
	{"short prompts", 120, 500 * time.Millisecond, between(100, 500), between(20, 60), 2, 2 * time.Minute},
	{"chat", 60, time.Second, between(500, 3500), between(20, 220), 5, 2 * time.Minute},
	{"long prompts", 6, 5 * time.Second, between(8000, 24000), between(50, 150), 5, 4 * time.Minute},
	{"heavy tails", 20, 4 * time.Second, lognormal(1500, 1.5), lognormal(150, 1), 5, 4 * time.Minute},
	{"long answers", 20, time.Second, between(500, 1500), between(800, 1600), 4, 8 * time.Minute},
}

func (a asking) source() workload.Source {
	return workload.Source{Name: a.name, Sessions: func(yield func(workload.Session, error) bool) {
		at := 0.0
		for i := 0; at < a.length.Seconds(); i++ {
			r := seed.New(1, seed.Workload, uint64(i), 0)
			at -= portable.Ln(1-r.Float64()) / a.rate
			s := workload.Session{ID: fmt.Sprint(i), At: mono.FromSeconds(at), Calls: []workload.Call{{PromptTokens: a.prompt(&r), OutputTokens: a.answer(&r)}}}
			if !yield(s, nil) {
				return
			}
		}
	}}
}

// on runs the workload on so many engines. It returns what share of the calls of the second half
// kept the SLO, and what the gateway asked for in the middle.
func (a asking) on(t testing.TB, rule string, queue admission.Config, engines int) (float64, flow.DemandState) {
	s := testScenario(t, rule, engines)
	s.Workload.Source, s.Workload.Rate, s.Warmup, s.SLO, s.Queue = a.source(), 1, a.length/2, SLO{TTFT: a.ttft}, queue
	var d flow.DemandState
	s.Watched = func(_ int, x *flow.Snapshot) {
		if x.At <= mono.Time(a.length/2) {
			d = x.Pools[0].Demand
		}
	}
	return float64(mustRun(t, s).Attainment), d
}

// TestDemand_WhatIsAskedForIsNeeded: a pool that is overloaded asks for as many replicas as keep the
// SLO of nine calls in ten, and with two thirds of them they would not.
func TestDemand_WhatIsAskedForIsNeeded(t *testing.T) {
	t.Log("| workload | policy | replicas | keep the SLO | asked for | keep it then | asked for then | with two thirds keep it |")
	t.Log("|---|---|---|---|---|---|---|---|")
	for _, a := range askings {
		for _, x := range []struct {
			rule  string
			queue admission.Config
			name  string
		}{
			{"predicted-ttft", admission.Config{}, "predicted-ttft"},
			{"least-outstanding", admission.Config{}, "least-outstanding"},
			{"least-outstanding", holds(admission.FIFO), "the same, `queue: {work: 500ms}`"},
		} {
			before, d := a.on(t, x.rule, x.queue, a.engines)
			if d.Replicas == 0 || d.Replicas > 64 {
				t.Errorf("%s, %s: %d replicas are asked for: %+v", a.name, x.name, d.Replicas, d)
				continue
			}
			after, then := a.on(t, x.rule, x.queue, d.Replicas)
			fewer, _ := a.on(t, x.rule, x.queue, d.Replicas*2/3)
			t.Logf("| %s | %s | %d | %.2f | %d | %.2f | %d | %.2f |", a.name, x.name, a.engines, before, d.Replicas, after, then.Replicas, fewer)
			if before > 0.5 {
				t.Errorf("%s, %s: %d engines keep the SLO of %.2f of the calls; the test says nothing", a.name, x.name, a.engines, before)
			}
			if after < 0.9 || fewer >= 0.9 {
				t.Errorf("%s, %s: with the %d replicas that are asked for %.2f of the calls keep the SLO, with two thirds %.2f", a.name, x.name, d.Replicas, after, fewer)
			}
		}
	}
}

// TestDemand_OfAPoolThatHasEnough: it asks for what would do, within one, but where the KV cache and not
// prefill is what would be short: fewer replicas decode in larger batches, and calls stay longer there.
func TestDemand_OfAPoolThatHasEnough(t *testing.T) {
	const engines = 10
	for _, a := range askings[:4] {
		for _, share := range []float64{0.2, 0.5} {
			a := a
			a.rate, a.length = a.rate*share, 4*time.Minute
			_, d := a.on(t, "least-outstanding", admission.Config{}, engines)
			more, _ := a.on(t, "least-outstanding", admission.Config{}, d.Replicas+1)
			t.Logf("%s, %g of what %d answer: %d are asked for; with one more %.2f keep the SLO", a.name, share, engines, d.Replicas, more)
			if more < 0.9 {
				t.Errorf("%s: %d are asked for, and with one more %.2f keep the SLO", a.name, d.Replicas, more)
			}
			if d.Replicas > 2 {
				if fewer, _ := a.on(t, "least-outstanding", admission.Config{}, d.Replicas-2); fewer >= 0.9 {
					t.Errorf("%s: %d are asked for, and with two less %.2f keep the SLO", a.name, d.Replicas, fewer)
				}
			}
		}
	}
}
