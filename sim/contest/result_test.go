package contest

import (
	"math"
	"strings"
	"testing"

	"kvasir/sim"
)

func goodput(name string, calls ...float64) *Goodput {
	return &Goodput{Entrant: name, Rates: calls, Calls: calls, Runs: 1}
}

func trial(name string, calls ...float64) Trial {
	return Trial{Entrant: Entrant{Name: name, Ours: name == Ours}, Goodput: goodput(name, calls...)}
}

func TestBestPeer_IsNeverOurs(t *testing.T) {
	trials := []Trial{trial("a", 1, 3), trial(Ours, 9, 9), trial("b", 2, 4)}
	if got := BestPeer(trials); got != 2 {
		t.Errorf("%d", got)
	}
	if got := BestPeer([]Trial{trial(Ours, 9), trial("a", 0)}); got != -1 {
		t.Errorf("without a peer that has a goodput: %d", got)
	}
}

func TestRatio_IsPairedBySeed(t *testing.T) {
	// Traffic differs threefold between seeds; one entrant always has a tenth more.
	e := ratio(goodput("a", 1.1, 3.3, 2.2), goodput("b", 1, 3, 2))
	if math.Abs(float64(e.Mean)-1.1) > 1e-12 || float64(e.Half) > 1e-12 {
		t.Errorf("%+v", e)
	}
	if e := ratio(goodput("a", 1, 1), goodput("b", 1, 0)); !math.IsNaN(float64(e.Mean)) {
		t.Errorf("of one that has none with a seed: %+v", e)
	}
}

func TestOrder_AFlipIsClearOnBothSides(t *testing.T) {
	profile := []*Goodput{goodput("a", 1.10), goodput("b", 1.00), goodput("c", 0.99)}
	for _, c := range []struct {
		varied []*Goodput
		flips  string
		order  string
	}{
		{[]*Goodput{goodput("a", 2.2), goodput("b", 2.0), goodput("c", 1.9)}, "", "a b c"},
		{[]*Goodput{goodput("a", 0.9), goodput("b", 1.0), goodput("c", 0.8)}, "b, a", "b a c"},
		{[]*Goodput{goodput("a", 0.99), goodput("b", 1.0), goodput("c", 0.8)}, "", "b a c"}, // alike there
		{[]*Goodput{goodput("a", 1.2), goodput("b", 1.0), goodput("c", 1.1)}, "", "a c b"},  // b and c were alike
	} {
		r := &Result{}
		r.Order("x", profile, c.varied)
		if o := r.Orders[0]; strings.Join(o.Flips, "; ") != c.flips || strings.Join(o.Policies, " ") != c.order {
			t.Errorf("%+v, want flips %q and order %q", o, c.flips, c.order)
		}
	}
}

// result is a cell in which ours has so much of its best peer, which has 2.
func result(cell string, fanOut bool, of float64) *Result {
	at := func(x float64) *Latencies { return &Latencies{TTFTP99: sim.Number(x), TPOTP95: sim.Number(x / 100)} }
	return &Result{Cell: cell, FanOut: fanOut, Reuse: 0.5, BestPeer: "peer", Entries: []Entry{
		{Policy: Ours, Ours: true, Ratio: Estimate{Mean: sim.Number(of)}, Matched: at(1)},
		{Policy: "peer", Ratio: Estimate{Mean: 1}, Matched: at(1)},
		{Policy: "least-outstanding", Own: Estimate{Mean: sim.Number(of * 1.6)}, Matched: at(3)},
	}}
}

func TestBars_EachCanHoldAndFail(t *testing.T) {
	good := func() []*Result {
		a, b := result("a", false, 1.0), result("f", true, 1.2)
		a.Orders = []Order{{Costs: "x"}}
		return []*Result{a, b}
	}
	bars := Bars(good())
	if len(bars) != 7 {
		t.Fatalf("%d bars", len(bars))
	}
	for _, b := range bars {
		if !b.Holds {
			t.Errorf("%s: %s", b.Text, b.Detail)
		}
	}
	for i, worse := range []func([]*Result){
		func(r []*Result) { r[0].Entries[0].Ratio.Mean = 0.97 },
		func(r []*Result) { r[0].Entries[0].Ratio.Mean = 0.89 },
		func(r []*Result) { r[1].Entries[0].Ratio.Mean = 1.14 },
		func(r []*Result) { r[0].Entries[2].Own.Mean = 1.4 },
		func(r []*Result) { r[0].Entries[0].Matched.TTFTP99 = 1.2 },
		func(r []*Result) { r[1].Entries[0].Matched.TPOTP95 = 1 },
		func(r []*Result) { r[0].Orders[0].Flips = []string{"a, b"} },
	} {
		results := good()
		worse(results)
		if b := Bars(results)[i]; b.Holds {
			t.Errorf("%s holds: %s", b.Text, b.Detail)
		}
	}
	none := good()
	none[0].Entries[2].Goodput.Mean, none[0].Entries[2].Own.Mean = 0, sim.Number(nan)
	none[0].Entries[0].Goodput.Mean = 1
	if b := Bars(none)[3]; !b.Holds {
		t.Errorf("least-outstanding keeps the SLO at no rate, ours at 1: %s", b.Detail)
	}
	unknown := good()
	unknown[0].Entries[0].Ratio.Mean = sim.Number(nan)
	if b := Bars(unknown)[0]; b.Holds {
		t.Errorf("what is not known holds: %s", b.Detail)
	}
	if Bars([]*Result{{Cell: "a", BestPeer: "peer", Entries: []Entry{{Policy: "peer"}}}}) != nil {
		t.Error("there are bars where ours took no part")
	}
}
