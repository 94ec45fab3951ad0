package contest

import (
	"reflect"
	"testing"
	"time"

	"kvasir/accelerator"
	"kvasir/client/arrival"
	"kvasir/client/workload"
	"kvasir/client/workload/trace"
	"kvasir/engine"
	"kvasir/sim"
)

// small is a cell of two replicas with a workload that takes no file.
func small(t *testing.T) *Cell {
	t.Helper()
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	g, err := workload.Parse("chat-turn:history=lognormal/8000/1/0/60000,context=100000")
	if err != nil {
		t.Fatal(err)
	}
	process, err := arrival.Parse("poisson:rate=2")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cell{Name: "small", Start: 1, Draw: func(seed uint64) (*Draw, error) {
		s, err := workload.Generate("chat", g, seed, process.Instants(seed))
		if err != nil {
			return nil, err
		}
		return Keep(trace.Transform{Sessions: 1500}.Apply(s))
	}}
	e := engine.Defaults(profile)
	e.BlockTokens, e.NumBlocks = 128, SmallKV/128
	c.Scenario.SLO = sim.SLO{TTFT: boundTTFT, Prefill: boundPrefill, TPOT: boundTPOT}
	c.Scenario.Scrape = time.Second
	c.Scenario.Engines = []sim.Engine{{Config: e}, {Config: e}}
	return c
}

func mustPolicy(t *testing.T, text string) Entrant {
	t.Helper()
	e, err := Policy(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestGoodput_IsKeptBelowAndMissedAbove(t *testing.T) {
	c := small(t)
	e := mustPolicy(t, "least-outstanding")
	seeds := []uint64{1, 2}
	g, err := c.Goodput(e, Search{Seeds: seeds, Tolerance: 0.03})
	if err != nil {
		t.Fatal(err)
	}
	for i, factor := range []float64{0.9, 1.1} {
		rates := []float64{g.Rates[0] * factor, g.Rates[1] * factor}
		runs, err := c.At(e, seeds, rates)
		if err != nil || len(runs) != 2 {
			t.Fatal(len(runs), err)
		}
		for s, r := range runs {
			if keeps := float64(r.Attainment) >= Attainment; keeps != (i == 0) {
				t.Errorf("seed %d, at %v times %v: attainment %v", s, factor, g.Rates[s], r.Attainment)
			}
		}
	}
	d, err := c.Draw(1)
	if err != nil {
		t.Fatal(err)
	}
	if g.Calls[0] != g.Rates[0]*d.Rate() {
		t.Errorf("%v calls a second at %v times %v", g.Calls[0], g.Rates[0], d.Rate())
	}
	again, err := c.Goodput(e, Search{Seeds: seeds, Tolerance: 0.03})
	if err != nil || !reflect.DeepEqual(g, again) {
		t.Errorf("%+v and then %+v, %v", g, again, err)
	}
}

func TestGoodput_TheBoundIsAboveEveryPolicy(t *testing.T) {
	c := small(t)
	bound, ok := c.Bound()
	if !ok {
		t.Fatal("there is none")
	}
	search := Search{Seeds: []uint64{1}, Tolerance: 0.05}
	most, err := c.Goodput(bound, search)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"round-robin", "least-outstanding", "cache-aware"} {
		g, err := c.Goodput(mustPolicy(t, name), search)
		if err != nil || g.Rates[0] > most.Rates[0] {
			t.Errorf("%s: %v, the bound %v, %v", name, g.Rates, most.Rates, err)
		}
	}
	c.Scenario.Engines[1].Config.NumBlocks /= 2
	if _, ok := c.Bound(); ok {
		t.Error("there is a bound where engines differ")
	}
}

// With other costs the SLO stays what it was: that of the profile's reference.
func TestVary_KeepsTheSLO(t *testing.T) {
	c := small(t)
	slow := c.Vary(sim.Variation{Name: "slow", Change: func(e *engine.Config) { e.Profile = e.Profile.Scaled(3) }})
	if slow.reference() != c.reference() {
		t.Error("the reference changed")
	}
	if a, b := c.Scenario.Engines[0].Config.Profile.PrefillMicros, slow.Scenario.Engines[0].Config.Profile.PrefillMicros; b != 3*a {
		t.Errorf("prefill costs %v, and %v before", b, a)
	}
	search := Search{Seeds: []uint64{1}, Tolerance: 0.05}
	e := mustPolicy(t, "least-outstanding")
	fast, err := c.Goodput(e, search)
	if err != nil {
		t.Fatal(err)
	}
	g, err := slow.Goodput(e, search)
	if err != nil || g.Rates[0] > fast.Rates[0]*0.7 {
		t.Errorf("engines that take three times as long keep %v of %v, %v", g.Rates, fast.Rates, err)
	}
}

func TestHighest_IsWhatFillsTheShortestRun(t *testing.T) {
	d := &Draw{Length: 10 * time.Minute}
	if got := (&Cell{}).Highest(d); got != 10 {
		t.Errorf("%v", got)
	}
	if got := (&Cell{Shortest: 5 * time.Minute}).Highest(d); got != 2 {
		t.Errorf("%v", got)
	}
}
