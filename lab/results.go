package lab

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"kvasir/client/arrival"
	"kvasir/client/workload"
	"kvasir/client/workload/trace"
	"kvasir/internal/stats"
	"kvasir/sim"
	"kvasir/sim/contest"
)

// results is article section 15: the goodput curve of policies on a workload, small enough for
// a page, beside the figures of the whole contest.
type results struct {
	seeding

	workload string
	kv       string
	replicas int
	policies string
	goal     goal

	given *Trace // nil: one of the workloads
	loops int    // how often that is played
}

// The choices of settings.
const (
	fanOutWorkload = "fan-out"

	smallKV = "small"
	largeKV = "large"

	somePolicies = "some"
	allPolicies  = "all"
)

func resultsLab() Lab {
	return Lab{
		Name: "results", Title: "goodput by policy and workload", Section: "15",
		About: "Calls come at their own times (an open loop; those of one agent after each other's answers) to a pool of simulated engines, faster and faster. " +
			"Goodput is the rate at which 90 % of the calls keep the SLO: it is searched for each policy and seed, bracketed to 6 % and interpolated. Every seed draws four fifths " +
			"of the sessions anew, the same for all policies. This is the contest of docs/results.md in small: excerpts of the traces, " +
			"played several times over with prefixes of their own, fewer replicas, fewer seeds, and agents that set off up to 32 others. Of a trace that is given the first " +
			"1,000 calls are played, short ones several times over, and of a session its first five minutes. The figures of the whole contest, which takes an hour, are in the last tables.",
		Look: []string{
			"The curves fall from all calls within the SLO to few of them. What counts is where each crosses 90 %: with the defaults round-robin does so at little more than half of the rate that predicted-ttft has, on the same hardware.",
			"Set `kv` to large: caches hold more of what comes again. Everybody gains, but who looks at caches gains more: round-robin falls from 58 % of the best to 52 %.",
			"Set `workload` to fan-out, where the calls that an agent sets off share a long prompt: going by load alone has about half of the best goodput there, round-robin 42 %. Where the column note says so, a policy keeps the SLO at no rate, or at any that there are enough calls for.",
			"Compare with the whole contest's figures, in the tables `published` and `published-cells`: there each cell has 8 or 32 replicas and ten seeds.",
		},
		Seeded: true, Traced: true, repeats: 5,
		settings: func() experiment {
			return &results{workload: conversationTrace, kv: smallKV, replicas: 4, policies: somePolicies, goal: goal{ttft: 2, tpot: 100}}
		},
	}
}

func (x *results) params() []Param {
	return append([]Param{
		choice(&x.workload, "workload", "what is played, where no trace is given", []string{conversationTrace, agentsTrace, fanOutWorkload}),
		choice(&x.kv, "kv", fmt.Sprintf("KV of a replica: small is %s tokens, large %s", decimal(contest.SmallKV, 0), decimal(contest.LargeKV, 0)), []string{smallKV, largeKV}),
		count(&x.replicas, "replicas", "replicas, each llama-3.1-8b on an H100", 2, 8),
		choice(&x.policies, "policies", "which take part", []string{somePolicies, allPolicies}),
	}, x.goal.params()...)
}

// entrants returns who takes part, as the contest names them.
func (x *results) entrants() []contest.Entrant {
	names := []string{"round-robin", "power-of-two", "least-outstanding", "cache-aware", "lmetric", contest.Ours}
	if x.policies == allPolicies {
		names = append(contest.Peers(), contest.Ours)
	}
	var all []contest.Entrant
	for _, name := range names {
		e, err := contest.Policy(name)
		if err != nil {
			panic(err) // the catalogue has them: a test asks for all
		}
		all = append(all, e)
	}
	return all
}

// source is a workload of this lab.
type source struct {
	start  float64       // about at which rate goodput lies with four replicas and small KV, times the workload's own; 0: not known
	settle time.Duration // how long it takes until as many sessions run as will
	least  time.Duration // how long a run lasts
	loops  int           // how often it is played, each time with prefixes of its own
	open   func(seed uint64) (workload.Source, error)
}

// drawnShare is the share of the sessions that a seed draws.
const drawnShare = 0.8

// source returns the workload.
func (x *results) source() source {
	excerpted := func(name string) func(uint64) (workload.Source, error) {
		return func(seed uint64) (workload.Source, error) {
			t := x.given
			if t == nil {
				t = excerpt(name)
			}
			tr, err := t.drawn(seed)
			if err != nil {
				return workload.Source{}, err
			}
			s, err := read(shortened(tr.Source, longestSession), mostResultCalls, contextTokens)
			if err != nil {
				return workload.Source{}, err
			}
			last := s.lastCall(math.Inf(1)) // rates are searched: sessions count from their beginnings
			switch {
			case last.at > longestRun:
				return workload.Source{}, fmt.Errorf("session %d lasts %v or more until its call %d; allowed: %v", last.session, last.at.Round(time.Second), last.call, longestRun)
			case x.given != nil: // it may have too few sessions for a sample
				return s.Source, nil
			}
			return contest.Sample(s.Source, seed, drawnShare), nil
		}
	}
	switch {
	case x.given != nil:
		return source{least: time.Minute, loops: x.loops, open: excerpted("")}
	case x.workload == agentsTrace:
		return source{start: 4, settle: 2 * time.Minute, least: 5 * time.Minute, loops: x.replicas, open: excerpted(agentsTrace)}
	case x.workload == fanOutWorkload:
		return source{start: 2, settle: 20 * time.Second, least: time.Minute, loops: 1, open: x.fanOut}
	}
	return source{start: 18, least: time.Minute, loops: (x.replicas + 1) / 2, open: excerpted(conversationTrace)}
}

// Bounds of a trace of one's own: how many of its calls are played, how long those may be, and
// after how much time sessions are cut.
const (
	mostResultCalls = 1000
	contextTokens   = 131072
	longestSession  = 5 * time.Minute

	// Short calls are played several times over, so that there are enough of them for high rates.
	enoughTokens, mostLoops = 8_000_000, 5
)

// guessedRate is about how many calls a second a replica answers within an SLO. The search for
// goodput begins there where nothing better is known.
const guessedRate = 1.5

// fanOut draws agents that set off others and wait for all of them: as the contest has them
// (contest.FanOut), with fewer branches, of one step each, and as many as the pool has use for.
func (x *results) fanOut(seed uint64) (workload.Source, error) {
	g, err := workload.Parse(fanOutAgents)
	if err != nil {
		return workload.Source{}, err
	}
	process, err := arrival.Parse("poisson:rate=0.1")
	if err != nil {
		return workload.Source{}, err
	}
	s, err := workload.Generate(fanOutWorkload, g, seed, process.Instants(seed))
	return trace.Transform{Sessions: fanOutSessions * x.replicas}.Apply(s), err
}

const (
	fanOutAgents = "subagents:system=8000,task=lognormal/36000/0.6/4000/90000,rounds=2,branches=lognormal/12/2/1/32,steps=1," +
		"plan=lognormal/400/0.8/20/4000,briefing=lognormal/600/1/20/8000,output=lognormal/250/1/10/4000,result=lognormal/600/1/20/16000," +
		"gap=lognormal/5s/3/100ms/10s,context=131072"

	fanOutSessions = 12 // by replica
)

// draw returns what a seed draws.
func (x *results) draw(c *contest.Cell, seed uint64) *contest.Draw {
	d, err := c.Draw(seed)
	if err != nil {
		x.fail(err) // open has read the first seed's; another one may bring other sessions first
	}
	return d
}

// cell is the contest's cell of these settings. It keeps what it has drawn last.
func (x *results) cell() *contest.Cell {
	w := x.source()
	kv := contest.SmallKV
	if x.kv == largeKV {
		kv = contest.LargeKV
	}
	c := &contest.Cell{Name: x.workload, Settle: w.settle, Shortest: w.least, Start: w.start * float64(x.replicas) / 4}
	c.Scenario.SLO, c.Scenario.Scrape, c.Scenario.Stopped = x.goal.slo(), time.Second, x.stopped
	var latest *contest.Draw
	of := uint64(0) // whose that is
	c.Draw = func(seed uint64) (*contest.Draw, error) {
		if latest != nil && of == seed {
			return latest, nil
		}
		x.ask()
		latest = nil
		s, err := w.open(seed)
		if err != nil {
			return nil, err
		}
		if w.loops > 1 {
			s = trace.Transform{Loops: w.loops, Fresh: true}.Apply(s)
		}
		latest, err = contest.Keep(s)
		of = seed
		return latest, err
	}
	d := x.draw(c, 1)
	c.Scenario.Engines = enginesOf(engineChoices[0], x.replicas, kv, d.Source.BlockTokens)
	if w.start == 0 {
		c.Start = min(guessedRate*float64(x.replicas)/d.Rate(), c.Highest(d))
	}
	return c
}

// open implements traced.
func (x *results) open(t *Trace) error {
	x.given = t
	s, err := x.source().open(1)
	if err != nil {
		return err
	}
	n, tokens := 0, 0
	for w := range s.Sessions {
		n++
		for i := range w.Calls {
			tokens += w.Calls[i].PromptTokens + w.Calls[i].OutputTokens
		}
	}
	x.loops = min(max(enoughTokens/max(tokens, 1), 1), mostLoops)
	if n < leastSessions {
		return fmt.Errorf("it has %d sessions whose calls fit into the context of %d tokens; allowed: at least %d", n, contextTokens, leastSessions)
	}
	_, err = contest.Keep(s)
	return err
}

// leastSessions is of how many sessions a rate can be told.
const leastSessions = 10

// goodputCurve is what a policy did.
type goodputCurve struct {
	entrant contest.Entrant
	goodput *contest.Goodput
	points  [][]sim.Summary // by rate, then by seed
}

func (x *results) run(seeds int) Findings {
	c := x.cell()
	var roots []uint64
	for s := range seeds {
		roots = append(roots, x.root(s))
	}
	var curves []goodputCurve
	for _, e := range x.entrants() {
		g, err := c.Goodput(e, contest.Search{Seeds: roots, Tolerance: 0.06})
		if err != nil {
			x.fail(err) // it is stopped: every setting is within its bounds, which a test tries
		}
		curves = append(curves, goodputCurve{entrant: e, goodput: g})
	}
	rates := x.rates(c, curves)
	for i := range curves {
		curves[i].points = make([][]sim.Summary, len(rates))
		for _, root := range roots { // so that each is drawn once
			for k, rate := range rates {
				runs, err := c.At(curves[i].entrant, []uint64{root}, []float64{rate})
				if err != nil {
					x.fail(err) // likewise
				}
				curves[i].points[k] = append(curves[i].points[k], runs...)
			}
		}
	}
	var highest []float64
	for _, root := range roots {
		highest = append(highest, c.Highest(x.draw(c, root)))
	}
	d := x.draw(c, roots[0])
	perRate := d.Rate()
	slices.SortStableFunc(curves, func(a, b goodputCurve) int {
		switch m, n := mean(a.goodput.Calls), mean(b.goodput.Calls); {
		case m > n:
			return -1
		case m < n:
			return 1
		}
		return 0
	})
	figures := publishedFigures()
	return Findings{
		Tables: []Table{
			goodputTable(curves, d, highest), curveTable(curves, rates, perRate), x.publishedCells(figures), publishedTable(figures),
		},
		Plots:    []Plot{curvePlot(curves, rates, perRate), publishedPlot(figures)},
		Verdicts: goodputVerdicts(curves, rates),
	}
}

// curvePoints is at how many rates a curve is shown.
const curvePoints = 7

// rates are those of the curves: from below where the first policy fails to above where the
// last one does, equally far apart.
func (x *results) rates(c *contest.Cell, curves []goodputCurve) []float64 {
	low, high := 0.0, 0.0
	for _, k := range curves {
		for _, rate := range k.goodput.Rates {
			if rate > 0 && (low == 0 || rate < low) {
				low = rate
			}
			high = max(high, rate)
		}
	}
	if high == 0 { // nobody keeps the SLO at any rate
		low, high = c.Start/4, c.Start
	}
	low, high = low/2, min(high*1.25, c.Highest(x.draw(c, 1)))
	var rates []float64
	for i := range curvePoints {
		rates = append(rates, low+float64((high-low)*float64(i)/(curvePoints-1)))
	}
	return rates
}

func mean(values []float64) float64 {
	m, _ := stats.Interval(values)
	return m
}

func goodputTable(curves []goodputCurve, d *contest.Draw, highest []float64) Table {
	t := Table{Name: "goodput", Title: fmt.Sprintf("the rate at which 90 %% of the calls are within the SLO; %s calls a run, reuse %s %%", decimal(float64(d.Calls), 0), decimal(100*d.Reuse(), 0)),
		Columns: []Column{{Name: "policy"}, {Name: "goodput", Unit: "calls/s"}, {Name: "of the best", Unit: "%"}, {Name: "note"}}}
	for _, k := range curves {
		var shares []float64
		for i, rate := range k.goodput.Rates {
			if best := curves[0].goodput.Rates[i]; best > 0 {
				shares = append(shares, 100*rate/best)
			}
		}
		certain := ""
		for i, rate := range k.goodput.Rates {
			switch {
			case rate == 0:
				certain = "0 where it keeps the SLO at no rate"
			case rate >= highest[i]:
				certain = "at least that: a higher rate would need more calls"
			}
		}
		share := Cell{}
		if len(shares) > 0 {
			share = Mean(shares, 0)
		}
		t.Rows = append(t.Rows, []Cell{Text(k.entrant.Name), Mean(k.goodput.Calls, 2), share, Text(certain)})
	}
	return t
}

// attainments returns the share within the SLO at a rate, by seed, in per cent.
func (k *goodputCurve) attainments(rate int) []float64 {
	var all []float64
	for i := range k.points[rate] {
		all = append(all, 100*float64(k.points[rate][i].Attainment))
	}
	return all
}

func curveTable(curves []goodputCurve, rates []float64, perRate float64) Table {
	t := Table{Name: "curve", Title: "calls within the SLO by rate, %", Columns: []Column{{Name: "policy"}}}
	for _, rate := range rates {
		t.Columns = append(t.Columns, Column{Name: decimal(rate*perRate, 1), Unit: "calls/s"})
	}
	for i := range curves {
		row := []Cell{Text(curves[i].entrant.Name)}
		for r := range rates {
			row = append(row, Mean(curves[i].attainments(r), 0))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func curvePlot(curves []goodputCurve, rates []float64, perRate float64) Plot {
	p := Plot{Name: "curve", Title: "calls within the SLO by rate", Kind: Lines, X: Axis{Label: "calls that come", Unit: "1/s"}, Y: Axis{Label: "within the SLO", Unit: "%"},
		Marks: []Mark{{Axis: "y", At: 100 * contest.Attainment, Label: "goodput"}}}
	for i := range curves {
		s := Series{Name: curves[i].entrant.Name}
		for r, rate := range rates {
			m, half := stats.Interval(curves[i].attainments(r))
			s.X, s.Y, s.Half = append(s.X, rate*perRate), append(s.Y, m), append(s.Half, half)
		}
		p.Series = append(p.Series, s)
	}
	best, last := curves[0], curves[len(curves)-1]
	p.Says = fmt.Sprintf("%s keeps 90 %% of the calls within the SLO up to %s calls/s, %s up to %s.",
		best.entrant.Name, decimal(mean(best.goodput.Calls), 1), last.entrant.Name, decimal(mean(last.goodput.Calls), 1))
	return p
}

// goodputVerdicts judges what the article says of kinds of rules.
func goodputVerdicts(curves []goodputCurve, rates []float64) []Verdict {
	of := func(name string) *goodputCurve {
		i := slices.IndexFunc(curves, func(k goodputCurve) bool { return k.entrant.Name == name })
		return &curves[i]
	}
	calls := func(name string) []float64 { return of(name).goodput.Calls }
	near, best := 0, mean(curves[0].goodput.Rates) // of the rates shown the nearest to the best goodput
	for i, rate := range rates {
		if math.Abs(rate-best) < math.Abs(rates[near]-best) {
			near = i
		}
	}
	return []Verdict{
		above("15", "plot the goodput curve: the same traffic at which the best policy just keeps the SLO is far beyond what the last one can take",
			curves[0].attainments(near), curves[len(curves)-1].attainments(near), 0, " points"),
		above("4.1", "round robin, which looks at nothing, has less goodput than least outstanding", calls("least-outstanding"), calls("round-robin"), 2, " calls/s"),
		above("5.5", "a rule that goes by cached prefixes has more goodput than one that goes by load alone", calls("cache-aware"), calls("least-outstanding"), 2, " calls/s"),
		above("16", "prioritize affinity and the hit rate rises", of("cache-aware").cached(near), of("least-outstanding").cached(near), 1, " points"),
	}
}

// cached returns the share of prompt tokens that were cached at a rate, by seed, in per cent.
func (k *goodputCurve) cached(rate int) []float64 {
	var all []float64
	for i := range k.points[rate] {
		all = append(all, 100*float64(k.points[rate][i].CachedRatio))
	}
	return all
}

//go:embed results.json
var publishedJSON []byte

// publishedFigures are those of docs/results.md; make results writes both.
func publishedFigures() contest.Figures {
	var f contest.Figures
	d := json.NewDecoder(bytes.NewReader(publishedJSON))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		panic(err) // it is part of the binary, and a test reads it
	}
	return f
}

// publishedTable has every cell of the whole contest.
func publishedTable(f contest.Figures) Table {
	t := Table{Name: "published", Title: "the whole contest (docs/results.md): every cell, goodput in calls/s", Columns: []Column{
		{Name: "cell"}, {Name: "best peer"}, {Name: "its goodput"}, {Name: contest.Ours}, {Name: "of the best peer"}, {Name: "least-outstanding"}, {Name: "pooled, a bound"},
	}}
	for _, c := range f.Cells {
		row := []Cell{Text(c.Cell), {}, {}, {}, {}, {}, {}}
		for i := len(c.Entries) - 1; i >= 0; i-- { // the best last, so that it stays
			e := &c.Entries[i]
			switch {
			case e.Policy == contest.Ours:
				row[3] = interval(e.Goodput.Mean, e.Goodput.Half, 2)
				if e.BestPeer != nil {
					row[4] = interval(e.BestPeer.Mean, e.BestPeer.Half, 3)
				}
				continue
			case e.Policy == "least-outstanding":
				row[5] = interval(e.Goodput.Mean, e.Goodput.Half, 2)
			}
			row[1], row[2] = Text(e.Policy), interval(e.Goodput.Mean, e.Goodput.Half, 2)
		}
		if c.Bound != nil {
			row[6] = interval(c.Bound.Mean, c.Bound.Half, 2)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// publishedCells has what the whole contest says of the workload and the KV that are played
// here: of all its cells of that kind every policy.
func (x *results) publishedCells(f contest.Figures) Table {
	t := Table{Name: "published-cells", Title: "the whole contest on " + x.workload + " with " + x.kv + " KV, by replicas: goodput, and at 80 % of the best peer's goodput TTFT P95 and what was cached", Columns: []Column{{Name: "policy"}}}
	prefix := x.workload + "-" + x.kv + "-"
	var cells []contest.CellFigures
	for _, c := range f.Cells {
		if replicas, ok := strings.CutPrefix(c.Cell, prefix); ok {
			cells = append(cells, c)
			t.Columns = append(t.Columns, Column{Name: replicas + " replicas", Unit: "calls/s"}, Column{Name: "TTFT P95", Unit: "s"}, Column{Name: "cached", Unit: "%"})
		}
	}
	if len(cells) == 0 {
		return t
	}
	for _, e := range cells[0].Entries {
		row := []Cell{Text(e.Policy)}
		for _, c := range cells {
			i := slices.IndexFunc(c.Entries, func(o contest.EntryFigures) bool { return o.Policy == e.Policy })
			if i < 0 {
				row = append(row, Cell{}, Cell{}, Cell{})
				continue
			}
			o := &c.Entries[i]
			row = append(row, interval(o.Goodput.Mean, o.Goodput.Half, 2), known(o.TTFTP95, 2), known(o.Cached, 1))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// known is a cell with a number; empty where there is none.
func known(x *float64, digits int) Cell {
	if x == nil {
		return Cell{}
	}
	return Number(*x, digits)
}

// publishedPlot has the goodput of a few policies in every cell, as shares of the best one.
func publishedPlot(f contest.Figures) Plot {
	p := Plot{Name: "published", Title: "the whole contest: goodput by cell, of the best policy's", Kind: Dots, X: Axis{Label: "of the best", Unit: "%"}, Y: Axis{Label: "cell"}}
	names := []string{contest.Ours, "lmetric", "cache-aware", "least-outstanding", "round-robin"}
	ahead := 0
	for _, c := range f.Cells {
		p.Y.Names = append([]string{c.Cell}, p.Y.Names...) // the first one is on top
		if c.Entries[0].Policy == contest.Ours {
			ahead++
		}
	}
	for _, name := range names {
		s := Series{Name: name}
		for i, c := range f.Cells {
			for _, e := range c.Entries {
				if e.Policy == name {
					s.X = append(s.X, 100*e.Goodput.Mean/c.Entries[0].Goodput.Mean)
					s.Y = append(s.Y, float64(len(f.Cells)-1-i))
				}
			}
		}
		p.Series = append(p.Series, s)
	}
	p.Says = fmt.Sprintf("%s has the highest goodput in %d of %d cells.", contest.Ours, ahead, len(f.Cells))
	return p
}
