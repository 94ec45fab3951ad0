package lab

import (
	"fmt"
	"math"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/policy"
)

// newcomer is article 11.3: a replica that joins a warm pool, with no calls and nothing cached.
type newcomer struct {
	seeding

	replicas int
	rate     float64
	joins    int
	window   int
	ramp     int
}

func newcomerLab() Lab {
	return Lab{
		Name: "newcomer", Title: "a cold replica joins a warm pool", Section: "11.3",
		About: "The pool and the calls of the lab routing, with a replica more, which joins when the others have filled their caches. Least outstanding and prefix-aware are the catalogue's with exact and fresh load. " +
			"With slow start the newcomer may be picked with a probability that rises from 0 to 1. Measured are the calls that arrive within a window from the moment when it joins. The article gives no numbers; these are ours.",
		Look: []string{
			"Least outstanding gives the newcomer 48 % of the calls in the window, where a fifth is its share, and the first three in a row: it is the emptiest until it is as full as the others. They find nothing cached and wait 3.0 ticks for their first token, the others' 2.1.",
			"Prefix-aware gives it 17 %, by first sights and where the load gap opens the hatch. Without a threshold it gets 2 %: nothing that comes is in its cache, so it is paid for and idle.",
			"Slow start takes least outstanding from 48 % to 33 % in the window. Turn `ramp` up to 1,000 and it is 7 %.",
			"Turn `rate` up to 0.2: the others have queues, the newcomer is a relief, and its calls wait a third of what the others' wait, cold or not.",
		},
		Seeded:   true,
		settings: func() experiment { return &newcomer{replicas: 4, rate: 0.1, joins: 1000, window: 150, ramp: 150} },
	}
}

func (x *newcomer) params() []Param {
	return []Param{
		count(&x.replicas, "replicas", "replicas before one joins", 1, 16),
		number(&x.rate, "rate", "arrivals a tick", 0.01, 2),
		count(&x.joins, "joins", "when it joins, ticks", 0, 10_000),
		count(&x.window, "window", "how long is looked at from then on, ticks", 1, 5000),
		count(&x.ramp, "ramp", "how long slow start lasts, ticks", 1, 10_000),
	}
}

// The rows of the comparison.
const (
	rushRule = iota
	slowRule
	awareRule
	closedRule
	turnsRule
	newcomerRules
)

// newcomerRule is a row.
type newcomerRule struct {
	name   string
	params policy.Params
	slow   bool // with slow start
}

func (x *newcomer) rules() [newcomerRules]newcomerRule {
	return [newcomerRules]newcomerRule{
		{"least outstanding", &policy.LeastOutstanding{}, false},
		{"least outstanding, slow start", &policy.LeastOutstanding{}, true},
		{"prefix-aware", x.aware(x.pool().threshold), false},
		{"prefix-aware, no threshold", x.aware(math.MaxInt32), false},
		{"round robin", &policy.RoundRobin{}, false},
	}
}

// aware is the lab routing's rule by prefix.
func (x *newcomer) aware(threshold int) policy.Params {
	return &policy.CacheAware{CacheThreshold: 0.3, BalanceAbsThreshold: threshold, BalanceRelThreshold: 1}
}

// pool returns the lab routing with as many replicas and calls as are played here.
func (x *newcomer) pool() *routing {
	p := routingLab().settings().(*routing)
	p.replicas = x.replicas + 1
	p.requests = int(math.Ceil(x.rate*float64(x.joins+x.window)*1.5)) + 50 // more than come
	return p
}

// welcome is what is measured of a run.
type welcome struct {
	share  float64   // per cent of the window's calls that go to the newcomer
	row    float64   // calls that went to it one after the other, from the first on
	ttft   float64   // mean, of its calls of the window, in ticks; NaN where it has none
	others float64   // the same of the others' calls of the window
	full   []float64 // calls outstanding at the newcomer, by tick from its start
}

// play runs one rule over the calls of a seed.
func (x *newcomer) play(ru newcomerRule, root uint64) welcome {
	p := x.pool()
	calls := p.trace(root, x.rate)
	replicas := make([]*replica, p.replicas)
	for i := range replicas {
		replicas[i] = newReplica(p.prefill, p.kv, p.slots)
	}
	r := newRouter(ru.params, p.replicas, root, 0)
	chance := seed.New(root, seed.SlowStart, 0, 0)
	var j welcome
	var window []int // positions in calls
	at := make([]int, len(calls))
	inRow, answered := true, 0 // answered: that all of the window's calls before have a first token
	last := x.joins + x.window
	for tick, next := 0, 0; tick < last || answered < len(window); tick++ {
		for next < len(calls) && calls[next].at <= tick && tick < last {
			c := &calls[next]
			in := tick >= x.joins && (!ru.slow || chance.Float64()*float64(x.ramp) < float64(tick-x.joins))
			if in {
				r.among(p.replicas)
			} else {
				r.among(x.replicas)
			}
			p.see(r, replicas, c)
			i := r.pick(&selection.Request{InputTokens: c.prompt(), BlockTokens: routingBlock, Blocks: make([]kvblock.Hash, c.prompt()/routingBlock)})
			replicas[i].accept(c)
			at[next] = i
			if tick >= x.joins {
				window = append(window, next)
				inRow = inRow && i == x.replicas
				if inRow {
					j.row++
				}
			}
			next++
		}
		for _, replica := range replicas {
			replica.step(tick)
		}
		for answered < len(window) && calls[window[answered]].first > 0 {
			answered++
		}
		if tick >= x.joins && tick < last {
			j.full = append(j.full, float64(replicas[x.replicas].outstanding()))
		}
	}
	var its, others []float64
	for _, n := range window {
		ttft := float64(calls[n].first - calls[n].at)
		if at[n] == x.replicas {
			its = append(its, ttft)
		} else {
			others = append(others, ttft)
		}
	}
	if len(window) > 0 {
		j.share = 100 * float64(len(its)) / float64(len(window))
	}
	j.ttft, j.others = average(its), average(others)
	return j
}

// welcomes are a rule's runs. A run in which the newcomer got no call has no time of it.
type welcomes struct {
	share, row, ttft, others []float64
	its, theirs              []float64 // ttft and others of the runs that have both
}

func (x *newcomer) repeat(ru newcomerRule, seeds int) (all welcomes) {
	for s := range seeds {
		j := x.play(ru, x.root(s))
		all.share, all.row = append(all.share, j.share), append(all.row, j.row)
		if !math.IsNaN(j.ttft) {
			all.ttft = append(all.ttft, j.ttft)
		}
		if !math.IsNaN(j.others) {
			all.others = append(all.others, j.others)
		}
		if !math.IsNaN(j.ttft) && !math.IsNaN(j.others) {
			all.its, all.theirs = append(all.its, j.ttft), append(all.theirs, j.others)
		}
	}
	return all
}

// meanOrNothing is a cell that is empty where there is no value.
func meanOrNothing(values []float64, digits int) Cell {
	if len(values) == 0 {
		return Cell{}
	}
	return Mean(values, digits)
}

func (x *newcomer) run(seeds int) Findings {
	t := Table{Name: "rules", Title: fmt.Sprintf("the %s ticks from when it joins", decimal(float64(x.window), 0)), Columns: []Column{{Name: "rule"}, {Name: "calls to the newcomer", Unit: "%"}, {Name: "of which in a row at first"},
		{Name: "their mean TTFT", Unit: "ticks"}, {Name: "the others' mean TTFT", Unit: "ticks"}}}
	p := Plot{Name: "queue", Title: "outstanding calls at the newcomer, first seed", Kind: Steps, X: Axis{Label: "time from when it joins", Unit: "ticks"}, Y: Axis{Label: "outstanding calls"}}
	shares := Plot{Name: "shares", Title: "calls to the newcomer", Kind: Bars, Y: Axis{Label: "calls", Unit: "%"}, Marks: []Mark{{"y", x.fair(), "its share"}}}
	var all [newcomerRules]welcomes
	var runs [][]float64
	for i, ru := range x.rules() {
		all[i] = x.repeat(ru, seeds)
		j := &all[i]
		t.Rows = append(t.Rows, []Cell{Text(ru.name), Mean(j.share, 0), Mean(j.row, 1), meanOrNothing(j.ttft, 1), meanOrNothing(j.others, 1)})
		var queue thinner
		for _, n := range x.play(ru, x.root(0)).full {
			queue.add(n)
		}
		p.Series = append(p.Series, queue.series(ru.name))
		shares.X.Names = append(shares.X.Names, ru.name)
		runs = append(runs, j.share)
	}
	shares.Series = []Series{bars("calls to the newcomer", runs...)}
	shares.Says = fmt.Sprintf("Its share would be %s %%; least outstanding gives it %s %%, with slow start %s %%, prefix-aware %s %%.", decimal(x.fair(), 0),
		decimal(average(runs[rushRule]), 0), decimal(average(runs[slowRule]), 0), decimal(average(runs[awareRule]), 0))
	p.Says = fmt.Sprintf("Least outstanding gives it its first %s calls in a row in the mean over seeds, with slow start %s.", decimal(average(all[rushRule].row), 1), decimal(average(all[slowRule].row), 1))
	return Findings{Tables: []Table{t}, Plots: []Plot{shares, p}, Verdicts: x.verdicts(all, seeds)}
}

// fair is the newcomer's share of the calls, per cent.
func (x *newcomer) fair() float64 { return 100 / float64(x.replicas+1) }

func (x *newcomer) verdicts(all [newcomerRules]welcomes, seeds int) []Verdict {
	fair := times(x.fair(), ones(seeds))
	rush, slow, aware, closed := all[rushRule], all[slowRule], all[awareRule], all[closedRule]
	return []Verdict{
		above("11.3", "least outstanding pours traffic into a replica that just joined: more than its share", rush.share, fair, 0, " points"),
		above("11.3", "all of it at first: several calls in a row", rush.row, ones(seeds), 1, " calls beyond the first"),
		above("11.3", "its calls then wait longer for their first token than those of the others, as its cache is cold", rush.its, rush.theirs, 1, " ticks"),
		above("11.3", "a prefix-aware router rarely picks it, less than half its share: without an escape hatch", times(0.5, fair), closed.share, 0, " points"),
		above("11.3", "a prefix-aware router rarely picks it, less than half its share: with one", times(0.5, fair), aware.share, 0, " points").
			because("First sights and calls that the hatch lets out go by load, and the newcomer is the emptiest."),
		above("11.3", "slow start is the answer: nearer to its share than without", distances(rush.share, fair), distances(slow.share, fair), 0, " points"),
	}
}

// ones returns n times 1.
func ones(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 1
	}
	return out
}
