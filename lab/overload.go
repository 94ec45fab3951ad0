package lab

import (
	"fmt"
	"slices"
	"time"

	"kvasir/client/arrival"
	"kvasir/internal/stats"
	"kvasir/sim"
)

// overload is article 9.3: what a pool still does of use when more is asked of it than it can do.
type overload struct {
	pressure
	lasts int
}

func overloadLab() Lab {
	return Lab{
		Name: "overload", Title: "goodput of a pool that is asked for too much", Section: "9.3",
		About: "Calls come to a pool of simulated engines at a multiple of its capacity, through the gateway's own machine. A call is good when its first token comes within the SLO, and the rest at 100 ms a token at most. " +
			"Clients who wait too long, or are refused, try again as SDKs do; a client counts once, by the try that is answered. Each row adds a mechanism to those above it; the second table has the same rows at three times the capacity. The article gives no numbers; these are ours.",
		Look: []string{
			"Below the capacity all rows are nearly the same. Well beyond it the engines' queues are full of calls that come too late, and what the pool does is of use to nobody: not less than before is done, but nothing in time.",
			"At and just above the capacity a queue alone can be worse than none, and at it a bound, too: docs/overload.md has the figures, and kvasir sim --overload 0.9,0.95,1,1.05,1.1 finds them for any pool.",
			"A bound on the wait alone does little: calls wait up to the bound, and then have their prefill before them.",
			"With deadlines the pool is as good at three times its capacity as at its peak: who is let in is in time, and who is not hears so at once.",
			"Look at the upstream attempts in `at-3x`: clients that wait in vain and try again make three of one; refused at once, four in ten calls are sent at all.",
			"Turn `retries` down to 0: the first row is no better. It is not the retries that lose the goodput, but the queue.",
		},
		Seeded: true, repeats: 3,
		settings: func() experiment { return &overload{pressure: defaultPressure(), lasts: 36} },
	}
}

func (x *overload) params() []Param {
	return append(append(x.pressure.params(), x.pressure.clients()...), count(&x.lasts, "lasts", "length of a run, s; its first third is not measured", 30, 60))
}

// factors are the loads, in capacities.
var factors = []float64{0.5, 0.9, 1.5, 2, 3}

// attained is what came of a load.
type attained struct {
	good, sent, tries []float64 // calls a second that were good; upstream attempts and clients' tries for each call, by seed
	p99, refused      []float64 // TTFT of those that were answered, s; per cent of the calls that were given up
}

func (x *overload) play(d sim.Defence, factor float64, seeds int) (a attained) {
	for n := range seeds {
		lasts := time.Duration(x.lasts) * time.Second
		s := x.scenario(x.root(n), x.work(), arrival.Poisson{Rate: float64(x.capacity * factor)}, lasts)
		s.Warmup = lasts / 3
		d.Apply(&s)
		r := x.simulate(s)
		calls := float64(r.Calls)
		a.good = append(a.good, float64(r.Attainment)*calls/(lasts-s.Warmup).Seconds())
		a.sent = append(a.sent, float64(r.Attempts)/calls)
		a.tries = append(a.tries, 1+float64(r.ClientRetries)/calls)
		if r.Succeeded > 0 {
			a.p99 = append(a.p99, float64(r.TTFT.P99))
		}
		a.refused = append(a.refused, 100*(1-float64(r.Succeeded)/calls))
	}
	return a
}

func (x *overload) run(seeds int) Findings {
	t := Table{Name: "goodput", Title: fmt.Sprintf("good calls a second, %s, capacity %s calls/s", x.sizes(), show(x.capacity)), Columns: []Column{{Name: "mechanisms"}}}
	amp := Table{Name: "at-3x", Title: "at three times the capacity", Columns: []Column{{Name: "mechanisms"}, {Name: "good", Unit: "% of the row's peak"}, {Name: "answered P99 TTFT", Unit: "s"},
		{Name: "upstream attempts a call"}, {Name: "tries of a client"}, {Name: "given up", Unit: "%"}}}
	p := Plot{Name: "goodput", Title: "good calls a second by load", Kind: Lines, X: Axis{Label: "load", Unit: "capacities"}, Y: Axis{Label: "good calls", Unit: "1/s"}}
	for _, f := range factors {
		t.Columns = append(t.Columns, Column{Name: show(f) + "×"})
	}
	var kept [][]float64
	for _, d := range sim.Defences() {
		row := []Cell{Text(d.Name)}
		var runs [][]float64
		var last attained
		for _, f := range factors {
			last = x.play(d, f, seeds)
			row = append(row, Mean(last.good, 1))
			runs = append(runs, last.good)
		}
		t.Rows = append(t.Rows, row)
		p.Series = append(p.Series, meansAt(d.Name, factors, runs))
		share := shares(runs)
		kept = append(kept, share)
		amp.Rows = append(amp.Rows, []Cell{Text(d.Name), Mean(share, 0), meanOrNothing(last.p99, 2), Mean(last.sent, 2), Mean(last.tries, 2), Mean(last.refused, 0)})
	}
	p.Says = fmt.Sprintf("At %s times the capacity %s of the peak is left without a defence, with all of them %s.", show(factors[len(factors)-1]),
		percent(kept[0]), percent(kept[len(kept)-1]))
	return Findings{Tables: []Table{t, amp}, Plots: []Plot{p}, Verdicts: x.verdicts(kept)}
}

// percent writes a mean of percentages.
func percent(values []float64) string { return decimal(average(values), 0) + " %" }

// shares returns what the last load leaves of the best one, per cent, by seed.
func shares(runs [][]float64) (out []float64) {
	for s := range runs[0] {
		best := 0.0
		for _, r := range runs {
			best = max(best, r[s])
		}
		out = append(out, 100*runs[len(runs)-1][s]/best)
	}
	return out
}

func (x *overload) verdicts(kept [][]float64) []Verdict {
	last := kept[len(kept)-1]
	mean, _ := stats.Interval(last)
	return []Verdict{
		holds("9.3", "queues that behave as if they were infinite: waiting time grows while goodput does not", slices.Max(kept[0]) < 50, fmt.Sprintf("at 3× the engines' queues leave %s %% of the peak", Mean(kept[0], 0))),
		holds("9.3", "failing fast beats failing after a long wait: at 3× the pool keeps 90 % of its peak", mean >= 90, fmt.Sprintf("%s %%", Mean(last, 0))),
	}
}
