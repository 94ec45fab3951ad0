package lab

import (
	"fmt"
	"math"
	"slices"
)

// show plays the rule that was asked for on the first seed's trace, and returns what each replica
// did and how its queue went.
func (x *routing) show() (Table, Plot) {
	number := slices.Index(ruleKeys[:], x.shown)
	ru := x.rules()[number]
	queues := make([]thinner, x.replicas)
	counts := make([]int, 0, x.replicas)
	deepest, at, of, apart, tick := 0, 0, 0, 0.0, 0
	replicas, _, ticks := x.serve(ru, x.root(0), x.trace(x.root(0), x.rate), func(replicas []*replica) {
		counts := counts[:0]
		for i, r := range replicas {
			n := r.outstanding()
			counts = append(counts, n)
			queues[i].add(float64(n))
			if n > deepest {
				deepest, at, of = n, tick, i
			}
		}
		apart += float64(spread(counts))
		tick++
	})
	t := Table{Name: "replicas", Title: ru.name + ", the first seed's trace: by replica",
		Columns: []Column{{Name: "replica"}, {Name: "assigned"}, {Name: "completed"}, {Name: "busy", Unit: "% of ticks"}, {Name: "of which prefill", Unit: "% of ticks"}}}
	p := Plot{Name: "queues", Title: ru.name + ", the first seed's trace: outstanding requests by replica", Kind: Steps,
		X: Axis{Label: "time", Unit: "ticks"}, Y: Axis{Label: "outstanding requests"}}
	for i, r := range replicas {
		share := func(n int) Cell { return Number(100*float64(n)/float64(ticks), 0) }
		t.Rows = append(t.Rows, []Cell{Number(float64(i+1), 0), Number(float64(r.assigned), 0), Number(float64(r.completed), 0), share(r.busy), share(r.prefills)})
		p.Series = append(p.Series, queues[i].series(fmt.Sprintf("replica %d", i+1)))
	}
	p.Says = fmt.Sprintf("The longest queue is replica %d's, %d requests in tick %d; over the run the fullest and the emptiest replica are %s requests apart in the mean.",
		of+1, deepest, at, decimal(apart/float64(ticks), 1))
	return t, p
}

// workload says what the first seed's trace is like.
func (x *routing) workload() Table {
	calls := x.trace(x.root(0), x.rate)
	var prompts, answers []float64
	for i := range calls {
		prompts, answers = append(prompts, float64(calls[i].prompt())), append(answers, float64(calls[i].output))
	}
	t := Table{Name: "workload", Title: "the first seed's trace, tokens", Columns: []Column{{Name: "of a request"}, {Name: "mean"}, {Name: "CV"}, {Name: "least"}, {Name: "greatest"}}}
	for _, row := range []struct {
		name   string
		values []float64
	}{{"prompt", prompts}, {"answer", answers}} {
		mean := average(row.values)
		variance := 0.0
		for _, v := range row.values {
			variance += float64((v-mean)*(v-mean)) / float64(len(row.values))
		}
		t.Rows = append(t.Rows, []Cell{Text(row.name), Number(mean, 0), Number(math.Sqrt(variance)/mean, 2), Number(slices.Min(row.values), 0), Number(slices.Max(row.values), 0)})
	}
	return t
}

// tails draws the tail of each rule.
func (x *routing) tails(r [routingRules]routedRuns) Plot {
	p := Plot{Name: "tails", Title: "TTFT P95 by rule, λ = " + show(x.rate) + " a tick", Kind: Bars, Y: Axis{Label: "TTFT P95", Unit: "ticks"},
		Marks: []Mark{{"y", float64(x.slo), "SLO"}}}
	var runs [][]float64
	best, worst := 0, 0
	for i, ru := range x.rules() {
		p.X.Names = append(p.X.Names, ru.name)
		runs = append(runs, r[i].p95)
		if average(r[i].p95) < average(r[best].p95) {
			best = i
		}
		if average(r[i].p95) > average(r[worst].p95) {
			worst = i
		}
	}
	p.Series = []Series{bars("TTFT P95", runs...)}
	p.Says = fmt.Sprintf("The shortest tail has %s with %s ticks, the longest %s with %s.", p.X.Names[best], decimal(average(r[best].p95), 1),
		p.X.Names[worst], decimal(average(r[worst].p95), 1))
	return p
}
