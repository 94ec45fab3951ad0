package lab

import (
	"fmt"
	"slices"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/internal/stats"
	"kvasir/selection"
	"kvasir/selection/policy"
)

// routing is article 4.2: the rules compared on one arrival trace.
type routing struct {
	seeding

	replicas  int
	requests  int
	rate      float64
	lowRate   float64
	long      float64
	prefill   int
	kv        int
	slots     int
	slo       int
	short     int // prefixes of short prompts
	tall      int // prefixes of long prompts
	threshold int
	shown     string // the rule of the plot and of the table by replica
}

func routingLab() Lab {
	return Lab{
		Name: "routing", Title: "the rules compared on one arrival trace", Section: "4.2",
		About: "Requests arrive as a Poisson process. A prompt begins with one of a few prefixes and goes on with tokens of its own; whether its answer is long " +
			"is drawn apart from whether it is itself. In a tick a replica prefills one request or decodes all that are running. A request is admitted in the order of arrival, " +
			"when a place and the KV of its prompt and answer are free; what is cached is neither prefilled nor takes KV, and no prefix is ever evicted. The rules are the " +
			"catalogue's with exact and fresh load; prefix-aware is cache-aware with the router's own record of where each prefix went. Least-KV is the article's broken one: it " +
			"counts the KV of running and prefilling requests, and queued work breaks ties. The article states replicas, rate, share of long requests, prompt lengths, objective and the " +
			"shape of the engine; answers, places, KV, prefixes and threshold are ours, chosen so that the load is as its figures say.",
		Look: []string{
			"In `rules`, round robin deals out to the request evenly, a gap of 0, and its TTFT P95 is 169 ticks where least outstanding has 57: equal counts are not equal work.",
			"Set `rule` to least-kv and look at the queues: one replica after the other gets a pile, as what waits holds no KV yet. Its gap is 49 requests; with the work that waits counted (`repaired`) the P95 falls from 512 ticks to 76.",
			"Turn `rate` down to 0.02: every rule that spreads load comes to 7 ticks, and prefix-aware keeps 2, because recomputing does not go away with the queues.",
			"Turn `threshold` between 0 and 1,000 (`by-threshold`): the cached share rises from 44 % to 74 %, and from about 6 on the tail pays for it.",
			"Turn `long` to 0 and nothing queues: TTFT P95 is 2 to 3 ticks under every rule. Turn it to 0.4 and the pool is overloaded: 530 to 650 ticks under all but the broken one. Rules matter between.",
		},
		Seeded: true,
		settings: func() experiment {
			return &routing{replicas: 4, requests: 160, rate: 0.20, lowRate: 0.02, long: 0.2, prefill: 380, kv: 16_000, slots: 8,
				slo: 80, short: 20, tall: 7, threshold: 6, shown: "least-outstanding"}
		},
	}
}

func (x *routing) params() []Param {
	return []Param{
		count(&x.replicas, "replicas", "replicas", 2, 32),
		count(&x.requests, "requests", "requests of a run", 20, 2000),
		number(&x.rate, "rate", "arrivals a tick", 0.001, 10),
		number(&x.lowRate, "low_rate", "arrivals a tick of the second table", 0.001, 10),
		number(&x.long, "long", "part of the requests whose prompt is long, and part whose answer is", 0, 1),
		count(&x.prefill, "prefill_rate", "tokens that a replica prefills in a tick", 1, 100_000),
		count(&x.kv, "kv_tokens", "tokens of KV that a replica has", 4096, 10_000_000),
		count(&x.slots, "places", "requests that a replica decodes at once, at most", 1, 1000),
		count(&x.slo, "slo", "TTFT that counts as attained, ticks", 1, 100_000),
		count(&x.short, "short_prefixes", "prefixes of short prompts", 1, 1000),
		count(&x.tall, "long_prefixes", "prefixes of long prompts", 1, 1000),
		count(&x.threshold, "threshold", "load gap above which prefix-aware drops affinity, requests", 0, 1000),
		choice(&x.shown, "rule", "whose queues and replicas are shown, on the first seed's trace", ruleKeys[:]),
	}
}

// Lengths in tokens. Prompts have mean 957 and CV 0.75 and are 436 to 3,079 long, as the
// article's; TestRoutingTrace_HasTheArticlesMoments checks that.
const (
	shortHeadLeast, shortHeadMost = 400, 680
	shortTailLeast, shortTailMost = 36, 113
	longHeadLeast, longHeadMost   = 1500, 2900
	longTailLeast, longTailMost   = 75, 179

	shortOutputLeast, shortOutputMost = 20, 80
	longOutputLeast, longOutputMost   = 400, 900

	// routingBlock is the length of a prefix block in tokens: no prompt has more than 64,
	// behind which blocks would be longer (kvblock.Span).
	routingBlock = 64
)

// trace draws the calls of a seed at the given rate. The calls are the same at every rate.
func (x *routing) trace(root uint64, rate float64) []call {
	r := seed.New(root, seed.Workload, 0, 0)
	times := seed.New(root, seed.Workload, 1, 0)
	calls := make([]call, x.requests)
	now := 0.0
	for i := range calls {
		now += exponential(&times) / rate
		c := &calls[i]
		c.at = int(now)
		if r.Float64() < x.long {
			n := r.Intn(x.tall)
			c.family = x.short + n
			c.head = spaced(n, x.tall, longHeadLeast, longHeadMost)
			c.tail = uniform(&r, longTailLeast, longTailMost)
		} else {
			n := r.Intn(x.short)
			c.family = n
			c.head = spaced(n, x.short, shortHeadLeast, shortHeadMost)
			c.tail = uniform(&r, shortTailLeast, shortTailMost)
		}
		if r.Float64() < x.long {
			c.output = uniform(&r, longOutputLeast, longOutputMost)
		} else {
			c.output = uniform(&r, shortOutputLeast, shortOutputMost)
		}
	}
	return calls
}

// spaced returns the n-th of count lengths that are evenly spaced from low to high.
func spaced(n, count, low, high int) int {
	if count == 1 {
		return (low + high) / 2
	}
	return low + n*(high-low)/(count-1)
}

// The rows of the comparison, in the article's order.
const (
	randomRule = iota
	roundRobin
	leastOutstanding
	twoChoices
	leastKV
	prefixAware
	routingRules
)

// ruleKeys name the rows as settings do.
var ruleKeys = [routingRules]string{"random", "round-robin", "least-outstanding", "power-of-two", "least-kv", "prefix-aware"}

// rule is a row of the comparison.
type rule struct {
	name   string
	params policy.Params // of the catalogue; nil: the broken least-kv
}

func (x *routing) rules() [routingRules]rule {
	return [routingRules]rule{
		{"random", &policy.Random{}},
		{"round robin", &policy.RoundRobin{}},
		{"least outstanding", &policy.LeastOutstanding{}},
		{"power of two choices", &policy.PowerOfTwo{ChoiceCount: 2}},
		{"least KV usage", nil},
		{"prefix-aware", &policy.CacheAware{CacheThreshold: 0.3, BalanceAbsThreshold: x.threshold, BalanceRelThreshold: 1}},
	}
}

// routed is what is measured of a run.
type routed struct {
	p50, p95   float64 // TTFT, ticks
	e2e95      float64
	attainment float64 // per cent
	cached     float64 // per cent of the prompt tokens
	gap        float64 // most less fewest assigned
	throughput float64 // output tokens a tick
}

// play runs one rule over the trace of a seed.
func (x *routing) play(ru rule, root uint64, rate float64) routed {
	calls := x.trace(root, rate)
	replicas, output, ticks := x.serve(ru, root, calls, func([]*replica) {})
	return x.measure(calls, replicas, output, ticks)
}

// serve runs one rule over calls until all are answered, and returns the tokens that were put
// out and the ticks that it took. watch sees the replicas after each tick.
func (x *routing) serve(ru rule, root uint64, calls []call, watch func([]*replica)) (replicas []*replica, output, ticks int) {
	replicas = make([]*replica, x.replicas)
	for i := range replicas {
		replicas[i] = newReplica(x.prefill, x.kv, x.slots)
	}
	choose := x.chooser(ru, replicas, root)
	next := 0
	for done := 0; done < len(calls); ticks++ {
		if ticks%askEvery == askEvery-1 {
			x.ask()
		}
		for next < len(calls) && calls[next].at <= ticks {
			replicas[choose(&calls[next])].accept(&calls[next])
			next++
		}
		done = 0
		for _, r := range replicas {
			output += r.step(ticks)
			done += r.completed
		}
		watch(replicas)
	}
	return replicas, output, ticks
}

// chooser returns the rule as a function of a call.
func (x *routing) chooser(ru rule, replicas []*replica, root uint64) func(*call) int {
	if ru.params == nil {
		ties := seed.New(root, seed.Pick, 0, 0)
		return func(*call) int { return leastOccupied(replicas, &ties) }
	}
	r := newRouter(ru.params, len(replicas), root, 0)
	return func(c *call) int {
		x.see(r, replicas, c)
		return r.pick(&selection.Request{InputTokens: c.prompt(), BlockTokens: routingBlock, Blocks: make([]kvblock.Hash, c.prompt()/routingBlock)})
	}
}

// see fills a router's view with the exact load of the replicas, and with where it sent the call's
// prefix before.
func (x *routing) see(r *router, replicas []*replica, c *call) {
	for i, replica := range replicas {
		r.view.Book[i].Outstanding = int32(replica.outstanding())
		r.view.Endpoints[i].Load = replica.load()
		r.view.Overlap[i] = 0
		if replica.promised[c.family] {
			r.view.Overlap[i] = int32(c.head / routingBlock)
		}
	}
}

// leastOccupied is the article's least-KV rule: the fewest KV tokens of running and
// prefilling calls; of equals the least work that waits; of these one at random.
func leastOccupied(replicas []*replica, ties *seed.Rand) int {
	best, equal := 0, 0
	for i, r := range replicas {
		b := replicas[best]
		switch {
		case i == 0 || r.used < b.used || r.used == b.used && r.queued < b.queued:
			best, equal = i, 1
		case r.used == b.used && r.queued == b.queued:
			if equal++; ties.Intn(equal) == 0 {
				best = i
			}
		}
	}
	return best
}

func (x *routing) measure(calls []call, replicas []*replica, output, ticks int) routed {
	var m routed
	var ttft, e2e []float64
	within, prompt, cached := 0, 0, 0
	for i := range calls {
		c := &calls[i]
		ttft = append(ttft, float64(c.first-c.at))
		e2e = append(e2e, float64(c.end-c.at))
		prompt += c.prompt()
		if c.cached {
			cached += c.head
		}
		if c.first-c.at <= x.slo {
			within++
		}
	}
	slices.Sort(ttft)
	slices.Sort(e2e)
	m.p50, m.p95, m.e2e95 = stats.Quantile(ttft, 0.5), stats.Quantile(ttft, 0.95), stats.Quantile(e2e, 0.95)
	m.attainment = 100 * float64(within) / float64(len(calls))
	m.cached = 100 * float64(cached) / float64(prompt)
	m.throughput = float64(output) / float64(ticks)
	var assigned []int
	for _, r := range replicas {
		assigned = append(assigned, r.assigned)
	}
	m.gap = float64(spread(assigned))
	return m
}

// routedRuns are a rule's runs, by seed.
type routedRuns struct{ p50, p95, e2e95, attainment, cached, gap, throughput []float64 }

func (r *routedRuns) cells() []Cell {
	return []Cell{Mean(r.p95, 1), Mean(r.attainment, 0), Mean(r.cached, 0), Mean(r.gap, 0), Mean(r.throughput, 1), Mean(r.p50, 1), Mean(r.e2e95, 0)}
}

func (x *routing) repeat(ru rule, seeds int, rate float64) routedRuns {
	var all routedRuns
	for s := range seeds {
		m := x.play(ru, x.root(s), rate)
		all.p50, all.p95, all.e2e95 = append(all.p50, m.p50), append(all.p95, m.p95), append(all.e2e95, m.e2e95)
		all.attainment, all.cached = append(all.attainment, m.attainment), append(all.cached, m.cached)
		all.gap, all.throughput = append(all.gap, m.gap), append(all.throughput, m.throughput)
	}
	return all
}

// routedArticle has the article's table, by rule: TTFT P95, attainment, cached, gap, throughput.
var routedArticle = [routingRules][5]float64{
	{324.2, 88, 38, 10, 14.4}, {84.3, 94, 46, 0, 15.1}, {52.1, 98, 39, 10, 16.6},
	{90.1, 94, 37, 8, 16.6}, {559.0, 81, 45, 50, 12.5}, {151.3, 91, 67, 11, 17.2},
}

func (x *routing) run(seeds int) Findings {
	columns := []Column{{Name: "rule"}, {Name: "TTFT P95", Unit: "ticks"}, {Name: "SLO attainment", Unit: "%"}, {Name: "cached", Unit: "%"},
		{Name: "assignment gap"}, {Name: "output", Unit: "tokens/tick"}}
	more := []Column{{Name: "TTFT P50", Unit: "ticks"}, {Name: "E2E P95", Unit: "ticks"}}
	table := func(name, title string, rate float64) (Table, [routingRules]routedRuns) {
		t := Table{Name: name, Title: title, Columns: append(slices.Clone(columns), more...)}
		var all [routingRules]routedRuns
		for i, ru := range x.rules() {
			r := x.repeat(ru, seeds, rate)
			all[i] = r
			t.Rows = append(t.Rows, append([]Cell{Text(ru.name)}, r.cells()...))
		}
		return t, all
	}
	rules, loaded := table("rules", "λ = "+show(x.rate)+" a tick", x.rate)
	article := Table{Name: "article", Title: "the article's table, one trace of its own", Columns: columns}
	for i, ru := range x.rules() {
		a := routedArticle[i]
		article.Rows = append(article.Rows, []Cell{Text(ru.name), Number(a[0], 1), Number(a[1], 0), Number(a[2], 0), Number(a[3], 0), Number(a[4], 1)})
	}
	repaired := Table{Name: "repaired", Title: "least KV usage, with and without the work that waits, λ = " + show(x.rate) + " a tick", Columns: rules.Columns}
	counted := x.repeat(rule{params: &policy.LeastKV{}}, seeds, x.rate)
	repaired.Rows = [][]Cell{
		append([]Cell{Text("the article's broken one")}, loaded[leastKV].cells()...),
		append([]Cell{Text("the catalogue's least-kv")}, counted.cells()...),
		append([]Cell{Text("least outstanding")}, loaded[leastOutstanding].cells()...)}
	low, idle := table("low-load", "λ = "+show(x.lowRate)+" a tick", x.lowRate)
	v := append(routingVerdicts(loaded),
		above("4.2", "a load signal must count all accepted and unfinished work: least-kv that does has a better tail", loaded[leastKV].p95, counted.p95, 1, " ticks"),
		above("4.2", "least-kv that does has a smaller assignment gap", loaded[leastKV].gap, counted.gap, 1, ""))
	replicas, queues := x.show()
	threshold, dial := x.byThreshold(seeds)
	return Findings{
		Tables:   []Table{rules, article, repaired, low, threshold, replicas, x.workload()},
		Plots:    []Plot{x.tails(loaded), queues, dial},
		Verdicts: append(v, lowLoadVerdicts(idle)...),
	}
}

// byThreshold plays prefix-aware with other thresholds.
func (x *routing) byThreshold(seeds int) (Table, Plot) {
	t := Table{Name: "by-threshold", Title: "prefix-aware: the threshold as a dial, λ = " + show(x.rate) + " a tick",
		Columns: []Column{{Name: "threshold"}, {Name: "TTFT P95", Unit: "ticks"}, {Name: "SLO attainment", Unit: "%"}, {Name: "cached", Unit: "%"},
			{Name: "assignment gap"}, {Name: "output", Unit: "tokens/tick"}}}
	p := Plot{Name: "dial", Title: t.Title, Kind: Dots, X: Axis{Label: "prompt tokens from cache", Unit: "%"}, Y: Axis{Label: "TTFT P95", Unit: "ticks"},
		Series: []Series{{Name: "threshold"}}}
	points := &p.Series[0]
	for _, threshold := range []int{0, 1, 2, 3, 4, 6, 8, 12, 1000} {
		y := *x
		y.threshold = threshold
		r := y.repeat(y.rules()[prefixAware], seeds, x.rate)
		name := decimal(float64(threshold), 0)
		t.Rows = append(t.Rows, []Cell{Number(float64(threshold), 0), Mean(r.p95, 1), Mean(r.attainment, 0), Mean(r.cached, 0), Mean(r.gap, 0), Mean(r.throughput, 1)})
		points.dot(name, r.cached, r.p95)
	}
	last := len(points.X) - 1
	p.Says = fmt.Sprintf("From a threshold of 0 to one that is never reached, the cached share goes from %s %% to %s %% and TTFT P95 from %s to %s ticks.",
		decimal(points.X[0], 0), decimal(points.X[last], 0), decimal(points.Y[0], 0), decimal(points.Y[last], 0))
	return t, p
}

// routingVerdicts judges what the article says of its table.
func routingVerdicts(r [routingRules]routedRuns) []Verdict {
	random, turns, least, two, kv, aware := r[randomRule], r[roundRobin], r[leastOutstanding], r[twoChoices], r[leastKV], r[prefixAware]
	v := []Verdict{
		equals("4.2", "round robin has no assignment gap", figure{0, average(turns.gap), 0, ""}),
		above("4.2", "round robin loses the tail to least outstanding all the same", turns.p95, least.p95, 1, " ticks"),
		above("4.2", "random has the worst tail of the rules that see no load", random.p95, turns.p95, 1, " ticks"),
		near("4.2", "two choices attain what round robin does", two.attainment, turns.attainment, 3, 1, " points").
			because("Over seeds two choices, which see load, attain more than round robin, which sees none; the article's equality is that of one trace."),
		near("4.2", "two choices put out what least outstanding does", two.throughput, least.throughput, 0.5, 2, " tokens/tick"),
		above("4.2", "two choices do not reach least outstanding's tail", two.p95, least.p95, 1, " ticks").
			because("With fresh counts and four replicas the tails of a full scan and of two choices differ by less than their spread from trace to trace: twenty traces do not show it, 400 do, by 11 ± 3 ticks."),
		above("4.2", "prefix-aware does not win the attainment: least outstanding does", least.attainment, aware.attainment, 1, " points"),
	}
	for i, name := range []string{"random", "round robin", "least outstanding", "two choices"} {
		v = append(v,
			above("4.2", "prefix-aware has more of the prompts cached than "+name, aware.cached, r[i].cached, 1, " points"),
			above("4.2", "prefix-aware puts out more than "+name, aware.throughput, r[i].throughput, 2, " tokens/tick").
				because("What is saved in prefill is lost to skew: the run ends with the last answer on the fullest replica. The table by threshold "+
					"has both ends: with a threshold of 3 prefix-aware puts out more than least outstanding, but then it does not lose the tail."))
	}
	v = append(v,
		above("4.2", "prefix-aware does not win the tail: least outstanding does", aware.p95, least.p95, 1, " ticks"),
		above("4.2", "but for cache hits least-KV is last: there least outstanding is behind it", kv.cached, least.cached, 1, " points"))
	for _, other := range []int{randomRule, roundRobin, leastOutstanding, twoChoices, prefixAware} {
		name := [routingRules]string{"random", "round robin", "least outstanding", "two choices", "", "prefix-aware"}[other]
		o := r[other]
		v = append(v,
			above("4.2", "least-KV has a worse tail than "+name, kv.p95, o.p95, 1, " ticks"),
			above("4.2", "least-KV attains less than "+name, o.attainment, kv.attainment, 1, " points"),
			above("4.2", "least-KV has a greater assignment gap than "+name, kv.gap, o.gap, 1, ""),
			above("4.2", "least-KV puts out less than "+name, o.throughput, kv.throughput, 2, " tokens/tick"))
	}
	return v
}

// lowLoadVerdicts judges what the article says of a rate at which nothing queues.
func lowLoadVerdicts(r [routingRules]routedRuns) []Verdict {
	lowest, highest := average(r[0].p95), average(r[0].p95)
	for _, o := range r[:prefixAware] {
		lowest, highest = min(lowest, average(o.p95)), max(highest, average(o.p95))
	}
	aware := average(r[prefixAware].p95)
	text := "from " + decimal(lowest, 1) + " to " + decimal(highest, 1) + " ticks"
	return []Verdict{
		holds("4.2", "at low load the rules that go by load converge: TTFT P95 of 7 to 8", 6.5 <= lowest && highest <= 8.5, text),
		holds("4.2", "prefix-aware keeps 2 there", 1.5 <= aware && aware < 2.5, decimal(aware, 1)+" ticks"),
	}
}
