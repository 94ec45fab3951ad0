package lab

import (
	"fmt"
	"time"

	"kvasir/client/arrival"
	"kvasir/client/workload"
	"kvasir/gateway/admission"
	"kvasir/internal/stats"
	"kvasir/sim"
)

// fairness is article section 8: who gets what of a pool that is asked for too much.
type fairness struct {
	pressure
	few, many float64
	lasts     int
}

func fairnessLab() Lab {
	return Lab{
		Name: "fairness", Title: "who gets what of a pool that is asked for too much", Section: "8",
		About: "Two tenants share a pool of simulated engines; calls wait at the gateway and go in an order of its queue. In the first table one tenant asks for a small part of the capacity and the other for more than all of it. " +
			"In the second both ask for too much and as often, but one sends prompts sixteen times as long. In the third each has a long prefix of its own. Service is weighted tokens: 1 for one of the prompt, 2 for one of the answer, 0.1 for one that was cached. " +
			"The article gives no numbers; these are ours.",
		Look: []string{
			"First come, first served is fair to nobody: who asks for little waits behind who floods. With the fair order its calls are answered as if it were alone, and the pool does as much as before.",
			"As many calls is not as much: in the second table the same number of calls a second, which is what a limit of requests a minute equals out, gives the tenant with long prompts most of the pool. The fair order gives both the same service, and the other one four times the calls.",
			"Strict fairness alternates between the tenants whatever is in the caches; the local one lets calls go whose prefix an endpoint with room holds, as far as its quantum allows: in the third table that is twice the calls, and still the same service for both.",
			"Turn `few` up to 0.8: beyond half of the capacity nobody is the one who asks for little, and the fair order can't make both whole.",
		},
		Seeded: true, repeats: 3,
		settings: func() experiment {
			p := defaultPressure()
			p.patience, p.retries = 36, 0
			return &fairness{pressure: p, few: 0.2, many: 1.5, lasts: 36}
		},
	}
}

func (x *fairness) params() []Param {
	return append(x.pressure.params(),
		number(&x.few, "few", "load of the tenant that asks for little, in capacities", 0.05, 1),
		number(&x.many, "many", "load of the one that floods, likewise", 0.5, 2),
		count(&x.lasts, "lasts", "length of a run, s; its first third is not measured", 30, 60))
}

// orders are the rows.
func (x *fairness) orders() []admission.Order {
	return []admission.Order{admission.FIFO, admission.Fair, admission.FairLocal}
}

// served is what a tenant got in the time that is measured: calls and weighted tokens a second, and
// tokens of their prompts.
type served struct{ calls, service, prompt, cached float64 }

// share plays two tenants and returns what became of their calls, and what each got by its name:
// calls that come later are in nobody's way, but the queue is as long as it gets.
func (x *fairness) share(order admission.Order, root uint64, a, b workload.Part, rate float64) (*sim.Summary, map[string]served) {
	lasts := time.Duration(x.lasts) * time.Second
	s := x.scenario(root, workload.Mix{a, b}, arrival.Poisson{Rate: rate}, lasts)
	s.Warmup = lasts / 3
	sim.Hold(&s, 24*time.Hour)
	s.Queue.Order = order
	got, f, measured := map[string]served{}, s.Queue.Fairness, (lasts - s.Warmup).Seconds()
	s.Ended = func(of *sim.SessionRecord, _ int, r *sim.Record) {
		if at := r.End.Duration(); r.Succeeded() && at >= s.Warmup && at < lasts {
			g := got[of.Tenant]
			g.calls += 1 / measured
			g.prompt, g.cached = g.prompt+float64(r.Prompt), g.cached+float64(r.Cached)
			g.service += (f.Prompt(r.Prompt, r.Cached) + f.Answer(r.Tokens)) / measured
			got[of.Tenant] = g
		}
	}
	return x.simulate(s), got
}

func part(tenant string, weight float64, g workload.Generator) workload.Part {
	return workload.Part{Name: tenant, Weight: weight, Generator: g, Terms: workload.Terms{Tenant: tenant}}
}

// The tenants.
const (
	fewTenant, manyTenant   = "asks for little", "floods"
	shortTenant, longTenant = "short prompts", "long prompts"
)

// longer is how many times as long one tenant's prompts are in the second table.
const longer = 16

func (x *fairness) run(seeds int) Findings {
	shield := Table{Name: "shield", Title: fmt.Sprintf("one tenant asks for %s of the capacity, the other for %s times it", percentText(x.few), show(x.many)), Columns: []Column{{Name: "order"},
		{Name: fewTenant + ": within the SLO", Unit: "%"}, {Name: "its TTFT P95", Unit: "s"}, {Name: manyTenant + ": within the SLO", Unit: "%"}, {Name: "answered", Unit: "calls/s"}}}
	unit := Table{Name: "unit", Title: fmt.Sprintf("two tenants send as many calls, one with prompts %d times as long", longer), Columns: []Column{{Name: "order"},
		{Name: "short: calls/s"}, {Name: "long: calls/s"}, {Name: "short: service", Unit: "tokens/s"}, {Name: "long: service", Unit: "tokens/s"}, {Name: "long over short"}}}
	locality := Table{Name: "locality", Title: "each tenant has prefixes of its own, and the caches hold those of one", Columns: []Column{{Name: "order"}, {Name: "prompt tokens cached", Unit: "%"}, {Name: "answered", Unit: "calls/s"}, {Name: "service of the two, greater over less"}}}
	p := Plot{Name: "shield", Title: "calls within the SLO", Kind: Bars, Y: Axis{Label: "calls", Unit: "%"}}

	random := func(prompt int) workload.Generator {
		return workload.Random{Input: around(prompt), Output: around(x.output)}
	}
	var little, flood [][]float64
	var ratios, cached, bounds [][]float64
	for _, o := range x.orders() {
		var good, tail, other, answered []float64
		var shortCalls, longCalls, shortService, longService, ratio []float64
		var hit, whole, gap []float64
		for n := range seeds {
			root := x.root(n)
			r, got := x.share(o, root, part(fewTenant, x.few, random(x.prompt)), part(manyTenant, x.many, random(x.prompt)), float64(x.capacity*(x.few+x.many)))
			f, m := r.Tenants[fewTenant], r.Tenants[manyTenant]
			good, tail = append(good, 100*float64(f.Attainment)), append(tail, float64(f.TTFT.P95))
			other, answered = append(other, 100*float64(m.Attainment)), append(answered, got[fewTenant].calls+got[manyTenant].calls)

			short := x.prompt / 4
			_, got = x.share(o, root, part(shortTenant, 1, random(short)), part(longTenant, 1, random(short*longer)), 4*x.capacity)
			a, b := got[shortTenant], got[longTenant]
			shortCalls, longCalls = append(shortCalls, a.calls), append(longCalls, b.calls)
			shortService, longService, ratio = append(shortService, a.service), append(longService, b.service), append(ratio, b.service/a.service)

			h, w, g := x.local(o, root)
			hit, whole, gap = append(hit, h), append(whole, w), append(gap, g)
		}
		shield.Rows = append(shield.Rows, []Cell{Text(o.String()), Mean(good, 0), Mean(tail, 2), Mean(other, 0), Mean(answered, 1)})
		unit.Rows = append(unit.Rows, []Cell{Text(o.String()), Mean(shortCalls, 1), Mean(longCalls, 1), Mean(shortService, 0), Mean(longService, 0), Mean(ratio, 2)})
		locality.Rows = append(locality.Rows, []Cell{Text(o.String()), Mean(hit, 0), Mean(whole, 1), Mean(gap, 2)})
		p.X.Names = append(p.X.Names, o.String())
		little, flood = append(little, good), append(flood, other)
		ratios, cached, bounds = append(ratios, ratio), append(cached, hit), append(bounds, gap)
	}
	p.Series = []Series{bars(fewTenant, little...), bars(manyTenant, flood...)}
	p.Says = fmt.Sprintf("Of the calls of who asks for little %s are within the SLO first come, first served, and %s in the fair order.", percent(little[0]), percent(little[1]))
	return Findings{Tables: []Table{shield, unit, locality}, Plots: []Plot{p}, Verdicts: x.verdicts(little, ratios, cached, bounds)}
}

// local plays two tenants, each with long prefixes of its own, and returns which part of the
// prompts was cached, per cent, the calls answered a second, and by how much one tenant had more
// service than the other.
func (x *fairness) local(o admission.Order, root uint64) (hit, answered, gap float64) {
	prefixes := func(name string) workload.Part {
		return part(name, 1, workload.SharedPrefix{Groups: 24, Prompts: 1 << 20, System: workload.Fixed(8 * x.prompt), Question: around(x.prompt / 4), Output: around(x.output / 4), Turns: workload.Fixed(1)})
	}
	_, got := x.share(o, root, prefixes("a"), prefixes("b"), 4*x.capacity)
	a, b := got["a"], got["b"]
	return 100 * (a.cached + b.cached) / (a.prompt + b.prompt), a.calls + b.calls, max(a.service, b.service) / min(a.service, b.service)
}

func (x *fairness) verdicts(little, ratios, cached, gaps [][]float64) []Verdict {
	mean := func(v []float64) float64 { m, _ := stats.Interval(v); return m }
	return []Verdict{
		holds("8.1", "as many requests is not as much: a long prompt counts as one, as a short one does", mean(ratios[0]) > 2, fmt.Sprintf("first come, first served: %s times the service", Mean(ratios[0], 1))),
		holds("8.2", "the client with the smallest counter first: both get the same weighted tokens", mean(ratios[1]) > 0.8 && mean(ratios[1]) < 1.25, fmt.Sprintf("%s times the service", Mean(ratios[1], 2))),
		holds("8.2", "who asks for little is served as if it were alone", mean(little[1]) >= 95 && mean(little[0]) < 50, fmt.Sprintf("%s %% within the SLO; first come, first served: %s %%", Mean(little[1], 0), Mean(little[0], 0))),
		holds("8.2", "strict token fairness fights prefix locality: more is cached where a tenant's requests go back to back", mean(cached[2]) > 1.2*mean(cached[1]), fmt.Sprintf("%s %% of the prompt tokens with the local order, %s %% with the strict one", Mean(cached[2], 0), Mean(cached[1], 0))),
		holds("8.2", "and the locality-aware variant is fair within its quantum", mean(gaps[2]) < 1.25, fmt.Sprintf("one tenant has %s times the other's service", Mean(gaps[2], 2))),
	}
}
