package lab

import (
	"fmt"
	"math"
	"strings"
)

// prefix is article 6.1: two routers on one trace, replicas with one cache slot each.
type prefix struct {
	replicas  int
	threshold int
}

func prefixLab() Lab {
	return Lab{
		Name: "prefix", Title: "prefix affinity with an escape hatch", Section: "6.1",
		About: "Twelve requests, eight of them on prefix P1, go to three replicas whose cache holds one prefix. Load is cumulative assignments; of " +
			"equals the first replica is taken. The prefix-aware router prefers the least loaded replica that holds the prefix, unless the loads " +
			"differ by more than the threshold. The article does not publish its trace: ours was found by a search for one that " +
			"satisfies every fact that it states, and the search is a test.",
		Look: []string{
			"Step through the twelve requests: by load alone the four hits are accidents, where the turn happens to come back to the replica that holds the prefix. By affinity six are meant.",
			"R4 and R8 are the price of the hatch: P1's replica is more than two requests ahead, so they go to the emptiest one and prefill 4,180 tokens that another replica holds.",
			"Turn `threshold` to 12: nine hits and 11,180 tokens in place of six and 21,180, and loads of 8, 2, 2. Turn it to 0: four hits, as many as by load alone.",
			"The dial is not even: at 4 there are fewer hits than at 3. A hatch that opens too late throws away a prefix that would have been asked for again.",
		},
		settings: func() experiment { return &prefix{replicas: 3, threshold: 2} },
	}
}

func (p *prefix) params() []Param {
	return []Param{
		count(&p.replicas, "replicas", "replicas", 1, 12),
		count(&p.threshold, "threshold", "load gap above which affinity is dropped, requests", 0, 12),
	}
}

// prompt is a request of the trace: its prefix, and how many tokens that and the rest have.
type prompt struct{ prefix, head, tail int }

func (p prompt) tokens() int { return p.head + p.tail }

// prefixTrace is the rebuilt trace. TestPrefixTrace_IsWhatTheSearchFinds finds it.
var prefixTrace = [...]prompt{
	{1, 4000, 180}, {1, 4000, 180}, {1, 4000, 180}, {1, 4000, 180},
	{2, 2000, 180}, {3, 3000, 180}, {1, 4000, 180}, {1, 4000, 180},
	{3, 3000, 180}, {1, 4000, 180}, {2, 2000, 180}, {1, 4000, 200},
}

// placement is what became of a request.
type placement struct {
	replica int
	hit     bool
	reason  string
	prefill int
}

// The reasons of a placement.
const (
	byLoad     = "load"
	firstSight = "first sight"
	affinity   = "affinity"
	dropped    = "affinity dropped"
)

// placed is a router's run over the trace.
type placed struct {
	requests []placement
	loads    []int
	hits     int
	dropped  int
	missed   int // of those dropped
	prefill  int
}

// unlimited is a threshold that no load gap exceeds.
const unlimited = math.MaxInt

// place runs a router over the trace. Without affinity it goes by load alone.
func place(trace []prompt, replicas, threshold int, aware bool) placed {
	p := placed{loads: make([]int, replicas)}
	cached := make([]int, replicas) // each replica's one prefix; 0: none
	for _, q := range trace {
		at, reason := choose(q.prefix, cached, p.loads, threshold, aware)
		r := placement{replica: at, hit: cached[at] == q.prefix, reason: reason, prefill: q.tokens()}
		if r.hit {
			r.prefill = q.tail
			p.hits++
		}
		if reason == dropped {
			p.dropped++
			if !r.hit {
				p.missed++
			}
		}
		p.loads[at]++
		cached[at] = q.prefix
		p.prefill += r.prefill
		p.requests = append(p.requests, r)
	}
	return p
}

// choose returns the replica that a router takes, and why.
func choose(prefix int, cached, loads []int, threshold int, aware bool) (int, string) {
	least, most, holder := 0, 0, -1
	for i, load := range loads {
		if load < loads[least] {
			least = i
		}
		most = max(most, load)
		if cached[i] == prefix && (holder < 0 || load < loads[holder]) {
			holder = i
		}
	}
	switch {
	case !aware:
		return least, byLoad
	case holder < 0:
		return least, firstSight
	case most-loads[least] > threshold:
		return least, dropped
	}
	return holder, affinity
}

func (p *prefix) run(int) Findings {
	load := place(prefixTrace[:], p.replicas, p.threshold, false)
	aware := place(prefixTrace[:], p.replicas, p.threshold, true)
	free := place(prefixTrace[:], p.replicas, unlimited, true)

	steps := Table{Name: "steps", Title: "request by request", Columns: []Column{{Name: "request"}, {Name: "prefix"}, {Name: "tokens"},
		{Name: "by load"}, {Name: "prefill"}, {Name: "total"}, {Name: "prefix-aware"}, {Name: "why"}, {Name: "prefill"}, {Name: "total"}}}
	loadTotal, awareTotal := 0, 0
	for i, q := range prefixTrace {
		l, a := load.requests[i], aware.requests[i]
		loadTotal, awareTotal = loadTotal+l.prefill, awareTotal+a.prefill
		steps.Rows = append(steps.Rows, []Cell{Text(fmt.Sprintf("R%d", i+1)), Text(fmt.Sprintf("P%d", q.prefix)), Text(fmt.Sprintf("%s + %d", decimal(float64(q.head), 0), q.tail)),
			Text(l.where()), Number(float64(l.prefill), 0), Number(float64(loadTotal), 0),
			Text(a.where()), Text(a.reason), Number(float64(a.prefill), 0), Number(float64(awareTotal), 0)})
	}
	routers := Table{Name: "routers", Title: "the routers compared", Columns: []Column{{Name: "router"}, {Name: "hits"}, {Name: "dropped affinity"},
		{Name: "of which missed"}, {Name: "prefill", Unit: "tokens"}, {Name: "saved", Unit: "%"}, {Name: "loads"}}}
	for _, r := range []struct {
		name string
		run  placed
	}{{"least outstanding only", load}, {"prefix-aware", aware}, {"prefix-aware, no threshold", free}} {
		routers.Rows = append(routers.Rows, []Cell{Text(r.name), Number(float64(r.run.hits), 0), Number(float64(r.run.dropped), 0), Number(float64(r.run.missed), 0),
			Number(float64(r.run.prefill), 0), Number(saved(load, r.run), 1), Text(joined(r.run.loads))})
	}
	dial := Table{Name: "dial", Title: "the threshold as a dial between affinity and balance", Columns: []Column{{Name: "threshold"}, {Name: "hits"},
		{Name: "dropped affinity"}, {Name: "prefill", Unit: "tokens"}, {Name: "loads"}}}
	for threshold := range 9 {
		r := place(prefixTrace[:], p.replicas, threshold, true)
		dial.Rows = append(dial.Rows, []Cell{Number(float64(threshold), 0), Number(float64(r.hits), 0), Number(float64(r.dropped), 0),
			Number(float64(r.prefill), 0), Text(joined(r.loads))})
	}

	return Findings{
		Tables:   []Table{routers, prefixArticle(load, aware, free), steps, dial},
		Plots:    p.plots(),
		Players:  []Player{p.player()},
		Verdicts: prefixVerdicts(load, aware, free),
	}
}

// prefixVerdicts compares the routers by load, with the threshold, and without one.
func prefixVerdicts(load, aware, free placed) []Verdict {
	whole := func(article, ours int) figure { return figure{float64(article), float64(ours), 0, ""} }
	return []Verdict{
		equals("6.1", "hits of 12: by load 4, prefix-aware 6", whole(4, load.hits), whole(6, aware.hits)),
		equals("6.1", "prefilled tokens: by load 29,180, prefix-aware 21,180, 27.4 % less", whole(29_180, load.prefill), whole(21_180, aware.prefill),
			figure{27.4, saved(load, aware), 1, " %"}),
		equals("6.1", "two requests drop affinity, and both miss", whole(2, aware.dropped), whole(2, aware.missed)),
		equals("6.1", "without a threshold the loads are 8, 2, 2", loadFigures(free.loads)...),
		holds("6.1", "without a threshold the hit rate rises", free.hits > aware.hits, fmt.Sprintf("%d of 12 hits", free.hits)),
		holds("16", "prioritize affinity and hits rise while load skews; take the hatch and load evens out while the request loses its cache",
			free.hits > aware.hits && spread(free.loads) > spread(aware.loads) && aware.missed == aware.dropped,
			fmt.Sprintf("hits %d and %d, loads apart by %d and %d, without and with the threshold", free.hits, aware.hits, spread(free.loads), spread(aware.loads))),
		equals("6.1", "the first request is P1 with 4,000 + 180 tokens and goes to replica 1 in both", whole(4000, prefixTrace[0].head), whole(180, prefixTrace[0].tail),
			whole(1, load.requests[0].replica+1), whole(1, aware.requests[0].replica+1)),
	}
}

func (p placement) where() string {
	if p.hit {
		return fmt.Sprintf("replica %d, hit", p.replica+1)
	}
	return fmt.Sprintf("replica %d", p.replica+1)
}

// saved returns by how many per cent b prefills less than a.
func saved(a, b placed) float64 { return 100 * float64(a.prefill-b.prefill) / float64(a.prefill) }

func loadFigures(loads []int) []figure {
	var f []figure
	for i, article := range []int{8, 2, 2} {
		if i < len(loads) {
			f = append(f, figure{float64(article), float64(loads[i]), 0, ""})
		}
	}
	return f
}

func joined(loads []int) string {
	var texts []string
	for _, l := range loads {
		texts = append(texts, fmt.Sprint(l))
	}
	return strings.Join(texts, ", ")
}
