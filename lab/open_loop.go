package lab

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"kvasir/client/arrival"
	"kvasir/internal/seed"
	"kvasir/internal/stats"
)

// openLoop is article 15: what a load of a fixed number of clients does not show.
type openLoop struct {
	seeding

	rate    float64
	clients int
	slow    float64
	limit   float64
	calls   int
}

func openLoopLab() Lab {
	return Lab{
		Name: "open-loop", Title: "what a closed loop does not show", Section: "15",
		About: "One queue with exponential services of mean 1, served in the order of arrival. In the open loop calls come as a Poisson process, whatever becomes of others. In the closed loop each of a fixed number of clients sends its next call " +
			"when it has the answer to the one before. Then the server becomes slower, and both are played again. The article gives no numbers; these are ours.",
		Look: []string{
			"In `slowdown` the server gets half as fast at a `rate` of 0.8: it is overloaded, calls of the open loop take 734 services in the mean, more with every call, and 1 % keep the limit. The closed loop asks half as often, its mean time doubles, and 74 % keep it.",
			"In `closed` no number of clients ever sends more than the server serves, and the mean time is their number: a closed loop has no overload to show.",
			"In `open` 99 % keep the limit at a rate of 0.6 and 48 % at 0.95: that is the goodput curve, and the highest rate that keeps it well enough is the capacity.",
			"In `burstiness` the same rate in bursts, gamma gaps of shape 0.1, has a CV of 3.2 and takes five times as long as a Poisson process.",
		},
		Seeded:   true,
		settings: func() experiment { return &openLoop{rate: 0.8, clients: 4, slow: 2, limit: 10, calls: 2000} },
	}
}

func (x *openLoop) params() []Param {
	return []Param{
		number(&x.rate, "rate", "of the open loop, in calls a mean service", 0.01, 2),
		count(&x.clients, "clients", "of the closed loop", 1, 1000),
		number(&x.slow, "slowdown", "how many times as long services take once the server is slow", 1, 100),
		number(&x.limit, "limit", "time in the system that a call should keep, in mean services", 0.1, 1000),
		count(&x.calls, "calls", "calls of a run", 100, 100_000),
	}
}

// loopRun is what a load measures.
type loopRun struct {
	rate   float64 // calls a mean service, at which they came
	mean   float64 // time in the system, in mean services at full speed
	p95    float64
	within float64 // per cent of the calls that kept the limit
}

func (x *openLoop) measure(stays []float64, lasted float64) loopRun {
	within := 0
	for _, s := range stays {
		if s <= x.limit {
			within++
		}
	}
	r := loopRun{rate: float64(len(stays)) / lasted, mean: average(stays), within: 100 * float64(within) / float64(len(stays))}
	slices.Sort(stays)
	r.p95 = stats.Quantile(stays, 0.95)
	return r
}

// open plays calls that come at a rate.
func (x *openLoop) open(rate, slow float64, root uint64) loopRun {
	r := seed.New(root, seed.Workload, 0, 0)
	now := 0.0
	return x.serve(slow, root, func() float64 {
		now += exponential(&r) / rate
		return now
	})
}

// serve plays calls that come when next says.
func (x *openLoop) serve(slow float64, root uint64, next func() float64) loopRun {
	r := seed.New(root, seed.Workload, 2, 0)
	now, free := 0.0, 0.0
	stays := make([]float64, x.calls)
	for i := range stays {
		now = next()
		free = max(free, now) + float64(slow*exponential(&r))
		stays[i] = free - now
	}
	return x.measure(stays, now)
}

// burstinesses are the rows of the table of bursts.
var burstinesses = []float64{0.1, 0.25, 1, 4}

// burstTable plays the rate with gamma gaps, and returns the mean times by burstiness and by which
// part the gaps' CV is off from 1/√burstiness at most.
func (x *openLoop) burstTable(seeds int) (t Table, means [][]float64, apart float64) {
	t = Table{Name: "burstiness", Title: "the rate of " + show(x.rate) + " with gamma gaps", Columns: append([]Column{{Name: "burstiness"}, {Name: "1/√burstiness"}, {Name: "CV of the gaps"}}, loopColumns...)}
	for _, b := range burstinesses {
		var cvs []float64
		l := x.repeat(seeds, func(root uint64) loopRun {
			// A second of the process is a service here.
			next, stop := iter.Pull(arrival.Gamma{Rate: x.rate, Burstiness: b}.Instants(root))
			defer stop()
			var gaps []float64
			before := 0.0
			run := x.serve(1, root, func() float64 {
				at, _ := next() // it never ends
				gaps = append(gaps, at.Seconds()-before)
				before = at.Seconds()
				return before
			})
			cvs = append(cvs, math.Sqrt(squaredVariation(stats.Summarize(gaps))))
			return run
		})
		want := 1 / math.Sqrt(b)
		apart = max(apart, relative(average(cvs), want))
		means = append(means, l.mean)
		t.Rows = append(t.Rows, append([]Cell{Number(b, 2), Number(want, 2), Mean(cvs, 2)}, l.cells()...))
	}
	return t, means, apart
}

// closed plays clients that each wait for an answer. They are served in turn, as each sends again at
// the instant of its answer.
func (x *openLoop) closed(clients int, slow float64, root uint64) loopRun {
	r := seed.New(root, seed.Workload, 1, 0)
	sent := make([]float64, clients) // when each sent its call
	now := 0.0
	stays := make([]float64, x.calls)
	for i := range stays {
		now += float64(slow * exponential(&r))
		client := i % clients
		stays[i] = now - sent[client]
		sent[client] = now
	}
	return x.measure(stays, now)
}

// loopRuns are a row's runs, by seed.
type loopRuns struct{ rate, mean, p95, within []float64 }

func (x *openLoop) repeat(seeds int, play func(root uint64) loopRun) (l loopRuns) {
	for s := range seeds {
		r := play(x.root(s))
		l.rate, l.mean, l.p95, l.within = append(l.rate, r.rate), append(l.mean, r.mean), append(l.p95, r.p95), append(l.within, r.within)
	}
	return l
}

func (l loopRuns) cells() []Cell {
	return []Cell{Mean(l.rate, 2), Mean(l.mean, 1), Mean(l.p95, 1), Mean(l.within, 0)}
}

var loopColumns = []Column{{Name: "rate", Unit: "calls a service"}, {Name: "mean time", Unit: "services"}, {Name: "P95", Unit: "services"}, {Name: "within the limit", Unit: "%"}}

// loopRates and loopClients are the rows of the tables.
var (
	loopRates   = []float64{0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1.1, 1.3}
	loopClients = []int{1, 2, 4, 8, 16, 32}
)

func (x *openLoop) run(seeds int) Findings {
	slowdown := Table{Name: "slowdown", Title: fmt.Sprintf("the server takes %s times as long", show(x.slow)), Columns: append([]Column{{Name: "load"}, {Name: "server"}}, loopColumns...)}
	row := func(load, server string, l loopRuns) loopRuns {
		slowdown.Rows = append(slowdown.Rows, append([]Cell{Text(load), Text(server)}, l.cells()...))
		return l
	}
	of := fmt.Sprintf("closed loop of %s", counted(x.clients, "client", "clients"))
	openBefore := row("open loop", "as it was", x.repeat(seeds, func(root uint64) loopRun { return x.open(x.rate, 1, root) }))
	openAfter := row("open loop", "slow", x.repeat(seeds, func(root uint64) loopRun { return x.open(x.rate, x.slow, root) }))
	closedBefore := row(of, "as it was", x.repeat(seeds, func(root uint64) loopRun { return x.closed(x.clients, 1, root) }))
	closedAfter := row(of, "slow", x.repeat(seeds, func(root uint64) loopRun { return x.closed(x.clients, x.slow, root) }))

	open := Table{Name: "open", Title: "the open loop by rate", Columns: append([]Column{{Name: "asked for"}}, loopColumns...)}
	goodput := Plot{Name: "goodput", Title: fmt.Sprintf("calls within %s services", show(x.limit)), Kind: Lines, X: Axis{Label: "rate", Unit: "calls a service"}, Y: Axis{Label: "within the limit", Unit: "%", Most: 100}}
	var asked, measured Numbers
	var within, closedWithin [][]float64
	best, most := 0.0, 0.0
	for _, rate := range loopRates {
		l := x.repeat(seeds, func(root uint64) loopRun { return x.open(rate, 1, root) })
		open.Rows = append(open.Rows, append([]Cell{Number(rate, 2)}, l.cells()...))
		asked, within = append(asked, rate), append(within, l.within)
		if average(l.within) >= 95 {
			best = rate
		}
	}
	closed := Table{Name: "closed", Title: "the closed loop by clients", Columns: append([]Column{{Name: "clients"}}, loopColumns...)}
	var waits [][]float64
	for _, n := range loopClients {
		l := x.repeat(seeds, func(root uint64) loopRun { return x.closed(n, 1, root) })
		closed.Rows = append(closed.Rows, append([]Cell{Number(float64(n), 0)}, l.cells()...))
		measured, closedWithin, waits = append(measured, average(l.rate)), append(closedWithin, l.within), append(waits, l.mean)
		most = max(most, average(l.rate))
	}
	goodput.Series = []Series{meansAt("open loop", asked, within), meansAt("closed loop", measured, closedWithin)}
	goodput.Says = fmt.Sprintf("The open loop keeps the limit for 95 %% of its calls up to a rate of %s; the closed loop never asks for more than %s, whatever its clients.", show(best), decimal(most, 2))
	last := len(loopClients) - 1
	burst, bursts, apart := x.burstTable(seeds)
	return Findings{Tables: []Table{slowdown, open, closed, burst}, Plots: []Plot{goodput}, Verdicts: []Verdict{
		above("15", "an overload that an open loop shows stays hidden to a closed one",
			differences(openBefore.within, openAfter.within), differences(closedBefore.within, closedAfter.within), 0, " points of the calls within the limit"),
		above("15", "a closed loop lowers its own rate when the server slows down", closedBefore.rate, times(1.5, closedAfter.rate), 2, " calls a service over one and a half times the other"),
		near("15", "an open loop does not", openBefore.rate, openAfter.rate, 0.001, 3, " calls a service"),
		holds("15", "a closed loop cannot reproduce overload: no number of clients sends more than is served", most < 1.05,
			fmt.Sprintf("at most %s calls a service, with %d clients that wait %s services each", decimal(most, 2), loopClients[last], decimal(average(waits[last]), 0))),
		above("15", "a single throughput hides how far the limit is missed: 32 clients have that of one, and their calls do not keep it", closedWithin[0], closedWithin[last], 0, " points"),
		holds("15", "gamma gaps have a CV of 1/√burstiness: 1.0 is Poisson", apart < 0.1, "off by at most "+percentText(apart)),
		above("15", "a burstiness of 0.1 is a stress burst: calls take longer than at 1.0, at the same rate", bursts[0], bursts[2], 1, " services"),
	}}
}
