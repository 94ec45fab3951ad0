package lab

import (
	"fmt"
	"time"

	"kvasir/client/arrival"
	"kvasir/internal/mono"
	"kvasir/internal/stats"
	"kvasir/sim"
)

// metastable is an overload that ends, and what is left of it: a state that its own effects keep
// up (Bronson et al., HotOS '21), and that article 9 is about.
type metastable struct {
	pressure
	load   float64
	factor float64
	surge  int
	after  int
}

func metastableLab() Lab {
	return Lab{
		Name: "metastable", Title: "an overload that ends, and what is left of it", Section: "9",
		About: "The pool and the clients of the lab overload, at a load that the pool can do; for a minute three times as many calls come, then as many as before. Good calls are counted by when they came. " +
			"An engine's queue that has grown is worked off while new calls come behind it, each of which waits as long; its clients leave, and come again. The article gives no numbers; these are ours.",
		Look: []string{
			"In the plot the surge takes the goodput to nothing. Clients that try once have it back with the last of the surge's queue; those that try again keep the queue full for nearly two minutes, though no more of them come than before.",
			"Turn `load` up to 0.95: with so little to spare it takes the pool two to three minutes to come back, where it takes twenty seconds if clients try once.",
			"Refusing what can't be in time has the pool at its capacity during the surge, and at once behind it.",
		},
		Seeded: true, repeats: 3,
		settings: func() experiment {
			return &metastable{pressure: defaultPressure(), load: 0.85, factor: 3, surge: 60, after: 150}
		},
	}
}

func (x *metastable) params() []Param {
	return append(x.pressure.params(),
		number(&x.load, "load", "before and after, in capacities", 0.1, 1),
		number(&x.factor, "factor", "how many times the load comes meanwhile", 1, 5),
		count(&x.surge, "surge", "how long that lasts, s", 5, 120),
		count(&x.after, "after", "how long is looked at afterwards, s", 30, 240))
}

// calm is how long the load has lasted when the surge begins; goodput before is measured in its
// second half.
const calm = 60 * time.Second

// slice is the width in which good calls are counted.
const slice = 5 * time.Second

// defences are the rows.
func (x *metastable) defences() []sim.Defence {
	all := sim.Defences()
	none, refusing := all[0], all[len(all)-1]
	none.Name = "engines queue, clients try again"
	once := none
	once.Name, once.Apply = "engines queue, clients try once", func(s *sim.Scenario) { s.Workload.Clients.Retries = 0 }
	refusing.Name = "the gateway refuses what can't be in time"
	return []sim.Defence{none, once, refusing}
}

// recovered is what came of a surge.
type recovered struct {
	before, during float64 // good calls a second
	back           float64 // s after its end until the goodput of a slice is 90 % of that before, and stays there for three slices; the length that is looked at, where it does not
	by             []float64
}

func (x *metastable) play(d sim.Defence, root uint64) recovered {
	surge, after := time.Duration(x.surge)*time.Second, time.Duration(x.after)*time.Second
	lasts := calm + surge + after
	comes := arrival.Surge{Rate: float64(x.capacity * x.load), Factor: x.factor, From: calm, For: surge, Burstiness: 1}
	s := x.scenario(root, x.work(), comes, lasts)
	d.Apply(&s)
	good, came := goodBy{width: slice}, goodBy{width: slice}
	s.Ended = func(_ *sim.SessionRecord, _ int, r *sim.Record) {
		good.add(r, s.SLO)
		if !r.Again {
			came.count(r.Wanted())
		}
	}
	x.simulate(s)
	out := recovered{before: good.rate(calm/2, calm), during: good.rate(calm, calm+surge), back: after.Seconds()}
	const stays = 3
	for at := calm + surge; at+stays*slice <= lasts; at += slice {
		// What comes varies from slice to slice: what counts is which part of it was good.
		if part := good.rate(at, at+stays*slice) / came.rate(at, at+stays*slice); part >= 0.9*good.rate(calm/2, calm)/came.rate(calm/2, calm) {
			out.back = (at - calm - surge).Seconds()
			break
		}
	}
	for at := time.Duration(0); at < lasts; at += slice {
		out.by = append(out.by, good.rate(at, at+slice))
	}
	return out
}

// count counts a call.
func (g *goodBy) count(at mono.Time) {
	i := int(at.Duration() / g.width)
	for len(g.good) <= i {
		g.good = append(g.good, 0)
	}
	g.good[i]++
}

func (x *metastable) run(seeds int) Findings {
	t := Table{Name: "recovery", Title: fmt.Sprintf("%s× the load for %d s, %s", show(x.factor), x.surge, x.sizes()), Columns: []Column{{Name: "what stands before the engines"},
		{Name: "good before", Unit: "1/s"}, {Name: "meanwhile", Unit: "1/s"}, {Name: "back at 90 % after", Unit: "s"}}}
	p := Plot{Name: "goodput", Title: "good calls a second, by when they came; first seed", Kind: Lines, X: Axis{Label: "time", Unit: "s"}, Y: Axis{Label: "good calls", Unit: "1/s"},
		Marks: []Mark{{"x", calm.Seconds(), "surge begins"}, {"x", calm.Seconds() + float64(x.surge), "and ends"}}}
	var backs [][]float64
	for _, d := range x.defences() {
		var before, during, back []float64
		for n := range seeds {
			r := x.play(d, x.root(n))
			before, during, back = append(before, r.before), append(during, r.during), append(back, r.back)
			if n == 0 {
				series := Series{Name: d.Name}
				for i, y := range r.by {
					series.X, series.Y = append(series.X, float64(i)*slice.Seconds()), append(series.Y, y)
				}
				p.Series = append(p.Series, series)
			}
		}
		backs = append(backs, back)
		t.Rows = append(t.Rows, []Cell{Text(d.Name), Mean(before, 1), Mean(during, 1), Mean(back, 0)})
	}
	p.Says = fmt.Sprintf("Back at 90 %% of the goodput before: %s s after the surge where clients try again, %s s where they try once, %s s where the gateway refuses.",
		decimal(average(backs[0]), 0), decimal(average(backs[1]), 0), decimal(average(backs[2]), 0))
	worst := 0.0
	for _, b := range backs[len(backs)-1] {
		worst = max(worst, b)
	}
	naive, _ := stats.Interval(backs[0])
	return Findings{Tables: []Table{t}, Plots: []Plot{p}, Verdicts: []Verdict{
		holds("9", "after a threefold overload of a minute the pool is at its earlier goodput within 30 s by itself", worst <= 30, fmt.Sprintf("after %s s in the worst run", show(worst))),
		holds("9", "retries keep an overload up that would end by itself", naive > average(backs[1]), fmt.Sprintf("%s s with retries, %s without", Mean(backs[0], 0), Mean(backs[1], 0))),
	}}
}
