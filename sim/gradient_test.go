package sim

import (
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/internal/mono"
)

// hold is a way to let calls wait at the gateway.
type hold struct {
	name  string
	queue admission.Config
}

// holdsAdaptively compares what bounds unstarted prefill with what bounds calls in flight.
func holdsAdaptively() []hold {
	of := func(name string, set func(*admission.Config)) hold {
		c := admission.Default()
		c.Length, c.Bytes = 1<<20, 1<<40
		set(&c)
		if !c.On() {
			c = admission.Config{}
		}
		return hold{name, c}
	}
	return []hold{
		of("none", func(*admission.Config) {}),
		of("`work: 50ms`", func(c *admission.Config) { c.Work = 50 * time.Millisecond }),
		of("`work: 500ms`", func(c *admission.Config) { c.Work = 500 * time.Millisecond }),
		of("`limit: gradient`", func(c *admission.Config) { c.Adaptive = true }),
		of("both, 500ms", func(c *admission.Config) { c.Adaptive, c.Work = true, 500*time.Millisecond }),
	}
}

var limited = []asking{
	{"chat", 15, 2 * time.Second, between(500, 3500), between(20, 220), 2, 8 * time.Minute},
	{"long answers", 8, 2 * time.Second, between(500, 1500), between(800, 1600), 2, 16 * time.Minute},
}

// under runs calls with a deadline, so many times as many as two engines answer.
func (a asking) under(t testing.TB, h hold, load float64, change func(*Scenario)) *Summary {
	a.rate *= load
	s := testScenario(t, "least-outstanding", a.engines)
	s.Workload.Source, s.Workload.Rate, s.Warmup, s.SLO, s.Queue = a.source(), 1, a.length/2, SLO{TTFT: a.ttft}, h.queue
	Within(&s, a.ttft)
	if change != nil {
		change(&s)
	}
	return mustRun(t, s)
}

// TestGradient_UnderOverload: a limit that is found keeps goodput where without a queue none is left,
// but less of it than a bound of unstarted prefill, since it lets engines decode fewer calls than they
// could; so their tokens come faster.
func TestGradient_UnderOverload(t *testing.T) {
	t.Log("| workload | load | calls wait at the gateway by | good calls/s | and TPOT below 50 ms | TTFT P95, s | TPOT P50, ms |")
	t.Log("|---|---|---|---|---|---|---|")
	for _, a := range limited {
		for _, load := range []float64{0.8, 2, 3} {
			good, quick := map[string]Number{}, map[string]Number{}
			for _, h := range holdsAdaptively() {
				x := a.under(t, h, load, nil)
				fast := a.under(t, h, load, func(s *Scenario) { s.SLO.TPOT = 50 * time.Millisecond })
				good[h.name] = x.Goodput
				quick[h.name] = fast.Goodput
				t.Logf("| %s | %g | %s | %.1f | %.1f | %.2f | %.0f |", a.name, load, h.name, x.Goodput, fast.Goodput, x.TTFT.P95, 1000*x.TPOT.P50)
			}
			const found = "`limit: gradient`"
			switch {
			case load < 1 && good[found] < 0.95*good["none"]:
				t.Errorf("%s, %g: it costs a pool that is not overloaded: %v", a.name, load, good)
			case load > 1 && good[found] < max(5*good["none"], 0.35*good["`work: 500ms`"]):
				t.Errorf("%s, %g: it keeps too little: %v", a.name, load, good)
			case load > 1 && quick[found] < 4*quick["`work: 500ms`"]:
				t.Errorf("%s, %g: tokens come no faster: %v", a.name, load, quick)
			}
		}
	}
}

// TestGradient_AfterASlowSpell: for two minutes one of two engines is five times as slow. When it is
// over the limit comes back.
func TestGradient_AfterASlowSpell(t *testing.T) {
	t.Log("| calls wait at the gateway by | keep the SLO before | during | in the two minutes after | later |")
	t.Log("|---|---|---|---|---|")
	a := limited[0]
	a.length = 10 * time.Minute
	for _, h := range holdsAdaptively() {
		const from, to = 2 * time.Minute, 4 * time.Minute
		var all, good [4]float64
		a.under(t, h, 0.7, func(s *Scenario) {
			s.Engines[0].Pace = []Pace{{At: mono.Time(from), Factor: 5}, {At: mono.Time(to), Factor: 1}}
			s.Ended = func(_ *SessionRecord, _ int, r *Record) {
				i := 0
				switch at := r.At.Duration(); {
				case at < 30*time.Second:
					return
				case at >= to+2*time.Minute:
					i = 3
				case at >= to:
					i = 2
				case at >= from:
					i = 1
				}
				all[i]++
				if r.Succeeded() && r.First.Sub(r.At) <= a.ttft {
					good[i]++
				}
			}
		})
		if h.queue.Adaptive && good[2] < 0.95*all[2] {
			t.Errorf("%s: after the spell %.2f of the calls keep the SLO", h.name, good[2]/all[2])
		}
		t.Logf("| %s | %.2f | %.2f | %.2f | %.2f |", h.name, good[0]/all[0], good[1]/all[1], good[2]/all[2], good[3]/all[3])
	}
}
