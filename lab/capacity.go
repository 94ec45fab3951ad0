package lab

import (
	"fmt"
	"math"

	"kvasir/internal/portable"
	"kvasir/internal/queueing"
	"kvasir/internal/seed"
)

// capacity is article 1.3: Little's law as a ceiling.
type capacity struct {
	seeding

	places  int
	prompt  float64
	prefill float64
	tpot    float64
	rho     float64
	calls   int
}

func capacityLab() Lab {
	return Lab{
		Name: "capacity", Title: "the throughput ceiling of a replica", Section: "1.3",
		About: "λ_max = L_max/W, with W = prefill + output tokens · TPOT at a full batch. That the law needs no assumption is shown on a " +
			"queue with random arrivals and services under three orders of service, and that the ceiling is met, on a replica whose places " +
			"are never empty. The article has no numbers here; those of the replica are ours.",
		Look: []string{
			"An answer of 1,600 tokens holds its place 16 times as long as one of 100, and the ceiling falls from 23.7 calls/s to 1.6: the same replica, the same tokens a second.",
			"A cache that holds three quarters of the prompt lifts the ceiling from 23.7 to 25.1 calls/s alone, as prefill is 0.2 s of 2.7. Turn `prompt_tokens` to 40,000 and it goes from 14.2 to 21.3.",
			"In `little` the order of service changes W from 4.7 to 2.8, and L with it: λW = L holds to the last digit under each. Turn `utilization` up to 0.95 to see the queue grow.",
			"`full` is a replica that never runs empty: it completes 0.998 of what L_max/W promises.",
		},
		Seeded: true,
		settings: func() experiment {
			return &capacity{places: 64, prompt: 4000, prefill: 20_000, tpot: 0.025, rho: 0.8, calls: 2000}
		},
	}
}

func (c *capacity) params() []Param {
	return []Param{
		count(&c.places, "places", "L_max: calls that are resident at once, at most", 1, 4096),
		number(&c.prompt, "prompt_tokens", "prompt, tokens", 1, 1e7),
		number(&c.prefill, "prefill_rate", "tokens a second that are prefilled", 1, 1e9),
		number(&c.tpot, "tpot", "time per output token in a full batch, s", 1e-6, 100),
		number(&c.rho, "utilization", "of the queue on which Little's law is shown", 0.01, 0.99),
		count(&c.calls, "calls", "how many the queue and the replica serve", 100, 100_000),
	}
}

// residence returns W in seconds.
func (c *capacity) residence(output, cached float64) float64 {
	return float64(c.prompt/c.prefill*(1-cached)) + float64(output*c.tpot)
}

func (c *capacity) run(seeds int) Findings {
	ceiling := func(output, cached float64) float64 {
		return queueing.CeilingRate(c.places, c.residence(output, cached))
	}
	columns := []Column{{Name: "W", Unit: "s"}, {Name: "λ_max", Unit: "calls/s"}}
	outputs := Table{Name: "by-output", Title: "the ceiling by answer length, nothing cached", Columns: append([]Column{{Name: "output", Unit: "tokens"}}, columns...)}
	for _, n := range []float64{100, 200, 400, 800, 1600} {
		outputs.Rows = append(outputs.Rows, []Cell{Number(n, 0), Number(c.residence(n, 0), 2), Number(ceiling(n, 0), 2)})
	}
	caches := Table{Name: "by-cached-part", Title: "the ceiling by cached part of the prompt, 100 tokens out", Columns: append([]Column{{Name: "cached", Unit: "%"}}, columns...)}
	for _, percent := range []float64{0, 25, 50, 75, 95} {
		caches.Rows = append(caches.Rows, []Cell{Number(percent, 0), Number(c.residence(100, percent/100), 2), Number(ceiling(100, percent/100), 2)})
	}
	little, worst := c.little(seeds)
	full, ratio := c.full(seeds)
	return Findings{Tables: []Table{outputs, caches, little, full}, Plots: []Plot{c.plot(ceiling)}, Verdicts: []Verdict{
		holds("1.3", "L = λW for any scheduler", worst < 1e-9, fmt.Sprintf("L and λW differ by at most %.0e of L", worst)),
		holds("1.3", "λ_max = L_max/W is the throughput ceiling of a replica", math.Abs(ratio-1) < 0.02,
			fmt.Sprintf("a replica that is never empty completes %s of it", decimal(ratio, 3))),
		holds("1.3", "longer outputs mean fewer calls a second", ceiling(800, 0) < ceiling(400, 0),
			fmt.Sprintf("%s calls/s at 400 tokens, %s at 800", decimal(ceiling(400, 0), 2), decimal(ceiling(800, 0), 2))),
		holds("1.3", "a prefix cache raises λ_max", ceiling(100, 0.75) > ceiling(100, 0),
			fmt.Sprintf("from %s calls/s to %s at 75 %% cached", decimal(ceiling(100, 0), 2), decimal(ceiling(100, 0.75), 2))),
	}}
}

// plot draws the ceiling by answer length, with and without a cache.
func (c *capacity) plot(ceiling func(output, cached float64) float64) Plot {
	const shortest, longest = 50, 2000
	p := Plot{Name: "ceiling", Title: "the ceiling by answer length", Kind: Lines, X: Axis{Label: "answer", Unit: "tokens", Log: true}, Y: Axis{Label: "λ_max", Unit: "calls/s", Log: true}}
	for _, percent := range []float64{0, 75, 95} {
		s := Series{Name: show(percent) + " % of the prompt cached"}
		for n := float64(shortest); n <= longest; n += 25 {
			s.X, s.Y = append(s.X, n), append(s.Y, ceiling(n, percent/100))
		}
		p.Series = append(p.Series, s)
	}
	p.Says = fmt.Sprintf("From answers of %d tokens to ones of %s the ceiling falls from %s to %s calls/s with nothing cached, from %s to %s with 95 %% of the prompt cached.",
		shortest, decimal(longest, 0), decimal(ceiling(shortest, 0), 1), decimal(ceiling(longest, 0), 2), decimal(ceiling(shortest, 0.95), 1), decimal(ceiling(longest, 0.95), 2))
	return p
}

// order picks which of the waiting calls is served next, given their service times in the
// order of arrival.
type order struct {
	name string
	next func(services []float64) int
}

var orders = []order{
	{"first come, first served", func([]float64) int { return 0 }},
	{"last come, first served", func(services []float64) int { return len(services) - 1 }},
	{"shortest first", func(services []float64) int {
		best := 0
		for i, s := range services {
			if s < services[best] {
				best = i
			}
		}
		return best
	}},
}

// little serves the same calls in each order, and returns a table and how far L and λW are
// apart at worst, relative to L.
func (c *capacity) little(seeds int) (t Table, worst float64) {
	t = Table{Name: "little", Title: fmt.Sprintf("Little's law on one queue at ρ = %s, time in mean services", show(c.rho)),
		Columns: []Column{{Name: "order of service"}, {Name: "λ"}, {Name: "W"}, {Name: "λW"}, {Name: "L"}}}
	for _, o := range orders {
		var rates, times, products, populations []float64
		for s := range seeds {
			rate, time, population := c.serve(c.root(s), o)
			rates, times = append(rates, rate), append(times, time)
			products, populations = append(products, rate*time), append(populations, population)
			worst = max(worst, math.Abs(population-float64(rate*time))/population)
		}
		t.Rows = append(t.Rows, []Cell{Text(o.name), Mean(rates, 3), Mean(times, 2), Mean(products, 2), Mean(populations, 2)})
	}
	return t, worst
}

// waiting is a call in the queue.
type waiting struct{ arrived, service float64 }

// serve runs one queue until it is empty, and returns the rate of arrivals, the mean time in
// the system and the mean number in it, each measured by itself: the number as an integral
// over time.
func (c *capacity) serve(root uint64, o order) (rate, time, population float64) {
	r := seed.New(root, seed.Workload, 0, 0)
	var queue []waiting
	var services []float64
	busyUntil, now, next := math.Inf(1), 0.0, 0.0 // next arrival
	var area, stayed, came float64                // came: when the call in service arrived
	inside, left := 0, c.calls
	for left > 0 || inside > 0 {
		at := busyUntil
		if left > 0 && next < at {
			at = next
		}
		area += float64(float64(inside) * (at - now))
		now = at
		if at == busyUntil {
			stayed += now - came
			inside--
			busyUntil = math.Inf(1)
		} else {
			w := waiting{now, exponential(&r)}
			queue, services = append(queue, w), append(services, w.service)
			inside++
			left--
			next = now + exponential(&r)/c.rho
		}
		if math.IsInf(busyUntil, 1) && len(queue) > 0 {
			i := o.next(services)
			came, busyUntil = queue[i].arrived, now+queue[i].service
			queue = append(queue[:i], queue[i+1:]...)
			services = append(services[:i], services[i+1:]...)
		}
	}
	n := float64(c.calls)
	return n / now, stayed / n, area / now
}

// full keeps every place of a replica taken, with residences that vary, for as long as the
// ceiling needs for so many calls. It returns a table, and how many calls were completed for
// each that the ceiling promises.
func (c *capacity) full(seeds int) (Table, float64) {
	ceiling := queueing.CeilingRate(c.places, c.residence(100, 0))
	horizon := float64(c.calls) / ceiling
	var rates, ratios []float64
	for s := range seeds {
		r := seed.New(c.root(s), seed.Workload, 1, 0)
		completed := 0
		for range c.places {
			for now := c.residence(100*exponential(&r), 0); now <= horizon; now += c.residence(100*exponential(&r), 0) {
				completed++
			}
		}
		rates = append(rates, float64(completed)/horizon)
		ratios = append(ratios, rates[s]/ceiling)
	}
	ratio := 0.0
	for _, x := range ratios {
		ratio += x / float64(len(ratios))
	}
	return Table{Name: "full", Title: "a replica whose places are never empty, answers of 100 tokens in the mean, exponential",
		Columns: []Column{{Name: "completed", Unit: "calls/s"}, {Name: "L_max/W", Unit: "calls/s"}, {Name: "ratio"}},
		Rows:    [][]Cell{{Mean(rates, 2), Number(ceiling, 2), Mean(ratios, 3)}}}, ratio
}

// exponential draws an exponential time with mean 1.
func exponential(r *seed.Rand) float64 { return -portable.Ln(1 - r.Float64()) }
