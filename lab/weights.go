package lab

import (
	"fmt"
	"slices"

	"kvasir/internal/seed"
	"kvasir/internal/stats"
	"kvasir/selection"
	"kvasir/selection/policy"
)

// weights is article 4.3: replicas that are not alike.
type weights struct {
	seeding

	fast, slow int
	speed      float64
	rho        float64
	bias       float64
	calls      int
}

func weightsLab() Lab {
	return Lab{
		Name: "weights", Title: "replicas that are not alike", Section: "4.3",
		About: "Some replicas are faster than the others. Calls arrive as a Poisson process, their work is exponential, and each replica serves its own in the order of arrival. The rules are the catalogue's with exact and fresh counts; " +
			"the weighted ones are told the speeds. The article gives Envoy's formula, its default bias of 1 and what it should do; pool and load are ours.",
		Look: []string{
			"Round robin gives slow replicas half of the calls, more than they can serve at this load: 43 services in the mean, and more with every call.",
			"Least outstanding gives fast replicas 64 % of the calls, a little less than the two thirds that their speed is worth; weighted least request gives them 66 %.",
			"At ρ = 0.8 that does not pay: 1.47 services against 1.37, as turns by weight still give to a replica that just got a long call. In `by-utilization` it pays at 0.3, 0.72 against 0.75: there least outstanding sends calls to idle slow replicas while fast ones are idle too.",
			"Turn `bias` from 0 to 8: from weighted round robin, deaf to load, at 2.18 services, to 1.35, with what least outstanding knows and the weights as well.",
		},
		Seeded:   true,
		settings: func() experiment { return &weights{fast: 2, slow: 2, speed: 2, rho: 0.8, bias: 1, calls: 4000} },
	}
}

func (x *weights) params() []Param {
	return []Param{
		count(&x.fast, "fast", "fast replicas", 1, 16),
		count(&x.slow, "slow", "slow replicas", 1, 16),
		number(&x.speed, "speed", "of a fast replica, in that of a slow one", 1, 100),
		number(&x.rho, "utilization", "of the pool's speed altogether", 0.01, 0.99),
		number(&x.bias, "bias", "active_request_bias of the last rule", 0, 16),
		count(&x.calls, "calls", "calls of a run", 100, 50_000),
	}
}

// The rows of the comparison; behind them comes weighted least request with the setting's bias.
const (
	evenTurns = iota
	weightedTurns
	leastCalls
	biasNone
	biasOne
	biasFour
	weightRules
)

// weightRule is a row.
type weightRule struct {
	name     string
	params   policy.Params
	weighted bool
}

func (x *weights) rules() []weightRule {
	request := func(bias float64) weightRule {
		return weightRule{"weighted least request, bias " + show(bias), &policy.WeightedLeastRequest{ActiveRequestBias: bias}, true}
	}
	rules := []weightRule{
		{"round robin", &policy.RoundRobin{}, false},
		{"weighted round robin", &policy.WeightedRoundRobin{}, true},
		{"least outstanding", &policy.LeastOutstanding{}, false},
		request(0), request(1), request(4),
	}
	if !slices.Contains([]float64{0, 1, 4}, x.bias) {
		rules = append(rules, request(x.bias))
	}
	return rules
}

// unequal is what is measured of a run.
type unequal struct {
	mean, p95 float64 // time in the system, in mean services at a slow replica
	held      float64 // calls at a fast replica, in those at a slow one
	share     float64 // per cent of the calls that go to fast replicas
	picks     []int
}

// play runs one rule over the calls of a seed, which are the same for every rule.
func (x *weights) play(ru weightRule, root uint64) unequal {
	n := x.fast + x.slow
	r := newRouter(ru.params, n, root, 0)
	speeds := make([]float64, n)
	total := 0.0
	for i := range speeds {
		speeds[i] = 1
		if i < x.fast {
			speeds[i] = x.speed
		}
		total += speeds[i]
		if ru.weighted {
			r.view.Endpoints[i].Weight = speeds[i]
		}
	}
	rand := seed.New(root, seed.Workload, 0, 0)
	ends := make([][]float64, n) // of the calls at each replica, in order
	last := make([]float64, n)
	var u unequal
	var stays []float64
	now, fastStay, slowStay := 0.0, 0.0, 0.0
	toFast := 0
	for range x.calls {
		now += exponential(&rand) / float64(x.rho*total)
		work := exponential(&rand)
		for i := range ends {
			gone := 0
			for gone < len(ends[i]) && ends[i][gone] <= now {
				gone++
			}
			ends[i] = ends[i][gone:]
			r.view.Book[i].Outstanding = int32(len(ends[i]))
		}
		i := r.pick(&selection.Request{})
		u.picks = append(u.picks, i)
		last[i] = max(last[i], now) + work/speeds[i]
		ends[i] = append(ends[i], last[i])
		stay := last[i] - now
		stays = append(stays, stay)
		if i < x.fast {
			toFast++
			fastStay += stay
		} else {
			slowStay += stay
		}
	}
	u.mean = average(stays)
	slices.Sort(stays)
	u.p95 = stats.Quantile(stays, 0.95)
	// By Little's law what is held is the time spent there, at the same clock for both.
	u.held = (fastStay / float64(x.fast)) / (slowStay / float64(x.slow))
	if slowStay == 0 {
		u.held = 0
	}
	u.share = 100 * float64(toFast) / float64(x.calls)
	return u
}

// unequals are a rule's runs, by seed.
type unequals struct{ mean, p95, held, share []float64 }

// repeat plays a rule once a seed.
func (x *weights) repeat(ru weightRule, seeds int) (u unequals) {
	for s := range seeds {
		one := x.play(ru, x.root(s))
		u.mean, u.p95 = append(u.mean, one.mean), append(u.p95, one.p95)
		u.held, u.share = append(u.held, one.held), append(u.share, one.share)
	}
	return u
}

func (x *weights) run(seeds int) Findings {
	t := Table{Name: "rules", Title: fmt.Sprintf("%d replicas of speed %s and %d of speed 1 at ρ = %s", x.fast, show(x.speed), x.slow, show(x.rho)),
		Columns: []Column{{Name: "rule"}, {Name: "mean time", Unit: "services"}, {Name: "P95", Unit: "services"}, {Name: "calls at a fast one, in those at a slow one"}, {Name: "calls to fast ones", Unit: "%"}}}
	rules := x.rules()
	var all []unequals
	for _, ru := range rules {
		u := x.repeat(ru, seeds)
		all = append(all, u)
		t.Rows = append(t.Rows, []Cell{Text(ru.name), Mean(u.mean, 2), Mean(u.p95, 2), Mean(u.held, 2), Mean(u.share, 0)})
	}
	same := true
	for s := range seeds {
		same = same && slices.Equal(x.play(rules[biasNone], x.root(s)).picks, x.play(rules[weightedTurns], x.root(s)).picks)
	}
	by, plot, low := x.byUtilization(seeds)
	return Findings{Tables: []Table{t, by}, Plots: []Plot{plot}, Verdicts: weightVerdicts(all, low, same, x.speed)}
}

// lowest is the utilization at which nothing queues.
const lowest = 0.3

// byUtilization plays the rules but round robin at other loads, and returns their mean times at the
// lowest one, by position in rules.
func (x *weights) byUtilization(seeds int) (Table, Plot, [][]float64) {
	t := Table{Name: "by-utilization", Title: "mean time in the system, in services", Columns: []Column{{Name: "ρ"}}}
	p := Plot{Name: "times", Title: "mean time in the system by utilization", Kind: Lines, X: Axis{Label: "utilization ρ", Most: 1}, Y: Axis{Label: "time", Unit: "services"}}
	rules := x.rules()
	for _, ru := range rules[weightedTurns:] {
		t.Columns = append(t.Columns, Column{Name: ru.name})
		p.Series = append(p.Series, Series{Name: ru.name})
	}
	low := make([][]float64, len(rules))
	for _, rho := range []float64{lowest, 0.5, 0.7, 0.8, 0.9, 0.95} {
		y := *x
		y.rho = rho
		row := []Cell{Number(rho, 2)}
		for i := weightedTurns; i < len(rules); i++ {
			means := y.repeat(rules[i], seeds).mean
			row = append(row, Mean(means, 2))
			one := meansAt("", []float64{rho}, [][]float64{means})
			s := &p.Series[i-weightedTurns]
			s.X, s.Y, s.Half = append(s.X, one.X...), append(s.Y, one.Y...), append(s.Half, one.Half...)
			if rho == lowest {
				low[i] = means
			}
		}
		t.Rows = append(t.Rows, row)
	}
	value := func(rule, i int) string { return decimal(p.Series[rule-weightedTurns].Y[i], 2) }
	p.Says = fmt.Sprintf("At ρ = %s a call is there for %s services in the mean under weighted round robin, %s under least outstanding and %s under weighted least request with a bias of 1; at 0.9 for %s, %s and %s.",
		show(lowest), value(weightedTurns, 0), value(leastCalls, 0), value(biasOne, 0), value(weightedTurns, 4), value(leastCalls, 4), value(biasOne, 4))
	return t, p, low
}

func weightVerdicts(all []unequals, low [][]float64, same bool, speed float64) []Verdict {
	turns, weighted, least, one, four := all[evenTurns], all[weightedTurns], all[leastCalls], all[biasOne], all[biasFour]
	ours := "other picks"
	if same {
		ours = "the same picks in every run"
	}
	return []Verdict{
		above("4.3", "round robin skews resources where replicas are not alike", turns.mean, weighted.mean, 1, " services"),
		above("4.3", "static weights cannot track live congestion: weighted round robin is slower than least outstanding", weighted.mean, least.mean, 2, " services"),
		above("4.3", "equalizing counts underfills a fast replica: it gets less than its part of the speed", weighted.share, least.share, 1, " points of the calls"),
		above("4.3", "weighted least request fills it better", one.share, least.share, 1, " points of the calls"),
		within("4.3", "a replica that is twice as fast should hold twice the calls: under weighted least request it does", speed, one.held, 0.3, 2, " times").
			because("A replica that serves one call after the other holds as many at any speed, when it gets its part: twice the calls come, and each is gone in half the time. Twice as many is right for one that serves twice as many side by side."),
		above("4.3", "weighted least request handles unequal replicas better than counts: a shorter mean time where nothing queues", low[leastCalls], low[biasOne], 2, " services"),
		above("4.3", "weighted least request handles unequal replicas better than counts: a shorter mean time at ρ = 0.8", least.mean, one.mean, 2, " services").
			because("Turns by weight give to a replica that just got a long call; what least outstanding loses to unequal speeds is less than that here."),
		holds("4.3", "at a bias of 0 the calls are not counted: weighted round robin", same, ours),
		above("4.3", "as the bias grows it approaches least outstanding, in what a fast replica holds", distances(one.held, least.held), distances(four.held, least.held), 2, " times"),
	}
}

// distances returns |a - b| by seed.
func distances(a, b []float64) []float64 {
	d := differences(a, b)
	for i, v := range d {
		d[i] = max(v, -v)
	}
	return d
}
