package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"kvasir/accelerator"
	"kvasir/gateway/admission"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/policy"
	"kvasir/sim"
)

// simulator runs scenarios, as many at a time as --jobs says.
type simulator struct {
	*simOptions
	work  *loadedWorkload
	slots chan struct{}
	runs  progress

	calm    bool                // clients wait, whatever the flags say: the capacity is looked for
	defence func(*sim.Scenario) // of the run; nil: as the flags say
}

// run does what the flags say.
func (o *simOptions) run(ctx context.Context, env environment) error {
	w, err := o.work.load(ctx, o.seed, o.seeds, o.rate)
	if err != nil {
		return err
	}
	if w.adapted {
		for i := range o.scenario.Engines {
			if o.scenario.Engines[i].Config.LoRA.MaxLoRAs == 0 {
				return fmt.Errorf("%s asks for LoRA adapters and the engines have no slots for them: --max-loras is needed", w.name)
			}
		}
	}
	if warmup := o.warmupOf(w); warmup >= w.length && w.length > 0 {
		return fmt.Errorf("--warmup is %v and the last session comes at %v: nothing is left to measure", warmup, w.length)
	}
	if o.block == 0 && w.blockTokens > 0 {
		o.resize(w.blockTokens)
		if o.blocksGiven && w.blockTokens != accelerator.BlockTokens {
			w.notes = append(w.notes, fmt.Sprintf("--num-gpu-blocks and --host-blocks are blocks of %d tokens; here they are %d tokens long, the workload's own, and as many fewer", accelerator.BlockTokens, w.blockTokens))
		}
	}
	s := &simulator{simOptions: o, work: w, slots: make(chan struct{}, o.jobs)}
	for i := range o.scenario.Engines {
		if err := o.scenario.Engines[i].Config.Validate(); err != nil {
			return fmt.Errorf("with blocks of %d tokens, the workload's own: %w (--block-size sets another length)", o.scenario.Engines[i].Config.BlockTokens, err)
		}
	}
	s.runs.begin(env.stderr)
	defer s.runs.end()
	var notes []string
	o.scenario.Gateways = o.gateways[0]
	o.sharing[0].set(&o.scenario)
	if o.load > 0 && !o.sensitivity {
		if err := s.matchLoad(ctx); err != nil {
			return err
		}
		if s.work, err = o.work.load(ctx, o.seed, o.seeds, o.rate); err != nil {
			return err
		}
		notes = append(notes, fmt.Sprintf("rate scale %.4g is %g of the pool's capacity, %.4g (least-outstanding's goodput)", o.rate, o.load, o.rate/o.load))
	}
	var reports []*simReport
	for _, v := range o.variants() {
		o.scenario.Gateways = v.gateways
		v.sharing.set(&o.scenario)
		report := &simReport{Config: o.describe(s.work)}
		report.Config.Gateways, report.Config.Sharing = v.gateways, v.sharing.String()
		report.Config.Notes = append(report.Config.Notes, notes...)
		switch {
		case o.overload != nil:
			return s.overloadReport(ctx, env.stdout, report)
		case o.sensitivity:
			return s.sensitivityReport(ctx, env.stdout, report)
		case o.goodput:
			err = s.goodputReport(ctx, report)
		default:
			report.Results, err = s.rows(ctx, o.policies, o.rate, o.scenario.Engines)
		}
		if err != nil {
			return err
		}
		reports = append(reports, report)
	}
	s.runs.end()
	return o.print(env.stdout, reports)
}

// resize makes the engines' blocks as long as the trace's, for as many tokens: blocks that
// the trace does not tell apart need not be told apart here, and a run is faster.
func (o *simOptions) resize(block int) {
	for i := range o.scenario.Engines {
		c := &o.scenario.Engines[i].Config
		c.NumBlocks = max(c.NumBlocks*c.BlockTokens/block, 1)
		c.Host.Blocks = c.Host.Blocks * c.BlockTokens / block
		c.BlockTokens = block
		if c.Host.Blocks == 0 {
			c.Host.Bandwidth = 0
		}
	}
}

// simReport is the JSON output.
type simReport struct {
	Config  simConfig      `json:"config"`
	Results []sim.Row      `json:"results,omitempty"`
	Goodput []goodputCurve `json:"goodput,omitempty"`
}

// simConfig says what was simulated.
type simConfig struct {
	Workload   string   `json:"workload"`
	Notes      []string `json:"notes,omitempty"`
	ClosedLoop string   `json:"closed_loop"`
	Sessions   int      `json:"sessions"`
	Calls      int      `json:"calls"`
	LengthS    float64  `json:"length_s"`
	WarmupS    float64  `json:"warmup_s"`
	RateScale  float64  `json:"rate_scale"`
	Engines    []string `json:"engines"`
	Events     []string `json:"events,omitempty"`
	BlockSize  int      `json:"block_size"`
	Gateways   int      `json:"gateways"`
	Sharing    string   `json:"sharing"`
	Queue      string   `json:"queue,omitempty"`
	Hedge      string   `json:"hedge,omitempty"`
	ScrapeS    float64  `json:"scrape_s"`
	SLO        string   `json:"slo"`
	Seed       uint64   `json:"seed"`
	Seeds      int      `json:"seeds"`
}

func (o *simOptions) describe(w *loadedWorkload) simConfig {
	c := simConfig{
		Workload: w.name, Sessions: w.sessions, Calls: w.calls, LengthS: w.length.Seconds(), RateScale: o.rate,
		WarmupS: o.warmupOf(w).Seconds(), BlockSize: o.scenario.Engines[0].Config.BlockTokens,
		ScrapeS: o.scenario.Scrape.Seconds(), Seed: o.seed, Seeds: o.seeds,
		Notes: slices.Clone(w.notes), Events: o.events, Queue: joined("; ", queueText(o.scenario.Queue, o.scenario.Flight), fanOutText(o.scenario.Limits)), Hedge: hedgeText(o.scenario.Hedge),
	}
	if o.scenario.Flight.On() {
		var blind []string
		for _, p := range o.policies {
			if _, looks := p.params.New().(selection.OverlapUser); !looks {
				blind = append(blind, p.name)
			}
		}
		if blind != nil {
			c.Notes = append(c.Notes, "--single-flight has no effect with policies that do not look at prefixes: "+strings.Join(blind, ", "))
		}
	}
	for _, e := range o.scenario.Engines {
		for _, at := range changes(&e) {
			if last := w.lasts(o.rate); at > last {
				c.Notes = append(c.Notes, fmt.Sprintf("something happens to an engine at %v; the last session comes at %v", at, last.Round(time.Second)))
			}
		}
	}
	switch {
	case o.clock == sim.Recorded:
		c.ClosedLoop = "nothing: every call comes when the trace says"
	case w.calls == w.sessions:
		c.ClosedLoop = "nothing: every session is one call"
	default:
		c.ClosedLoop = cmp.Or(w.loop, "within sessions, where a later call waits for the end of those before it; sessions come open-loop")
	}
	c.SLO = sloText(o.scenario.SLO)
	counts := map[string]int{}
	for _, e := range o.scenario.Engines {
		name := fmt.Sprintf("%s (%d KV blocks)", e.Config.Profile.Name, e.Config.NumBlocks)
		if counts[name]++; counts[name] == 1 {
			c.Engines = append(c.Engines, name)
		}
	}
	for i, name := range c.Engines {
		c.Engines[i] = fmt.Sprintf("%d × %s", counts[name], name)
	}
	return c
}

// changes returns when something happens to an engine.
func changes(e *sim.Engine) []time.Duration {
	var at []time.Duration
	for _, d := range e.Down {
		at = append(at, d.From.Duration())
	}
	for _, p := range e.Pace {
		at = append(at, p.At.Duration())
	}
	return append(at, e.Joins.Duration())
}

// warmupOf returns what is not measured at the beginning, by the workload's own clock.
func (o *simOptions) warmupOf(w *loadedWorkload) time.Duration {
	if o.warmup >= 0 {
		return o.warmup
	}
	return w.length / 10
}

// print writes what was found. Several reports are of one workload with several gateways:
// as JSON they are an array, and a table for each policy has a row for each.
func (o *simOptions) print(out io.Writer, reports []*simReport) error {
	switch {
	case o.format == "json" && len(reports) > 1:
		return printJSON(out, reports)
	case o.format == "json":
		return printJSON(out, reports[0])
	case o.format == "csv" && o.goodput:
		return writeGoodputCSV(out, reports[0].Goodput)
	case o.format == "csv":
		return sim.WriteCSV(out, reports[0].Results)
	}
	if len(reports) > 1 && !o.goodput {
		return writeComparison(out, reports)
	}
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(out)
		}
		r.Config.write(out, r.Config.gateways())
		var err error
		if o.goodput {
			err = writeGoodputTable(out, r.Goodput, o.attainment)
		} else {
			err = sim.WriteTable(out, "policy", r.Results)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeComparison writes a table for each policy.
func writeComparison(out io.Writer, reports []*simReport) error {
	reports[0].Config.write(out, "gateways as below")
	for i := range reports[0].Results {
		rows := make([]sim.Row, len(reports))
		for k, r := range reports {
			rows[k] = r.Results[i]
			rows[k].Policy = r.Config.gateways()
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := sim.WriteTable(out, reports[0].Results[i].Policy, rows); err != nil {
			return err
		}
	}
	return nil
}

// gateways says how many there are, and what several tell each other.
func (c *simConfig) gateways() string {
	if c.Gateways == 1 {
		return "1 gateway"
	}
	return fmt.Sprintf("%d gateways, %s", c.Gateways, c.Sharing)
}

// write says what was simulated, with so many gateways.
func (c *simConfig) write(out io.Writer, gateways string) {
	fmt.Fprintf(out, "%s, × %.4g: %d sessions, %d calls in %.0f s\n", c.Workload, c.RateScale, c.Sessions, c.Calls, c.LengthS/c.RateScale)
	fmt.Fprintf(out, "%s, blocks of %d tokens; %s, gauges read every %g s; %s; seeds: %d from %d; not measured: the first %.0f s\n",
		strings.Join(c.Engines, ", "), c.BlockSize, gateways, c.ScrapeS, c.SLO, c.Seeds, c.Seed, c.WarmupS/c.RateScale)
	fmt.Fprintf(out, "closed loop: %s\n", c.ClosedLoop)
	if c.Queue != "" {
		fmt.Fprintln(out, c.Queue)
	}
	if c.Hedge != "" {
		fmt.Fprintln(out, c.Hedge)
	}
	if len(c.Events) > 0 {
		fmt.Fprintln(out, strings.Join(c.Events, ", "))
	}
	for _, note := range c.Notes {
		fmt.Fprintln(out, note)
	}
	fmt.Fprintln(out)
}

// sloText names the bounds that there are.
func sloText(s sim.SLO) string {
	var bounds []string
	ttft := fmt.Sprintf("ttft %v", s.TTFT)
	switch {
	case s.Prefill > 0 && s.TTFT > 0:
		bounds = append(bounds, fmt.Sprintf("%s or %g × unloaded prefill", ttft, s.Prefill))
	case s.Prefill > 0:
		bounds = append(bounds, fmt.Sprintf("ttft %g × unloaded prefill", s.Prefill))
	case s.TTFT > 0:
		bounds = append(bounds, ttft)
	}
	if s.TPOT > 0 {
		bounds = append(bounds, fmt.Sprintf("tpot %v", s.TPOT))
	}
	if s.E2E > 0 {
		bounds = append(bounds, fmt.Sprintf("e2e %v", s.E2E))
	}
	if bounds == nil {
		return "no SLO"
	}
	return "SLO " + strings.Join(bounds, ", ")
}

// one makes one run.
func (s *simulator) one(ctx context.Context, p namedPolicy, rate float64, engines []sim.Engine, seed int) (*sim.Summary, error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.slots }()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	x := s.scenario
	x.Rule, x.Params, x.Engines, x.Seed = p.rule, p.params, slices.Clone(engines), s.seed+uint64(seed)
	x.Reference = &s.scenario.Engines[0].Config
	x.Warmup = mono.FromSeconds(s.warmupOf(s.work).Seconds() * s.work.lasts(rate).Seconds() / s.work.length.Seconds())
	if p.name == pooled {
		x.Queue = admission.Config{} // it has no choice to make that waiting could better
	}
	x.Stopped = func() bool { return ctx.Err() != nil }
	source, err := s.work.open(x.Seed, rate)
	if err != nil {
		return nil, err
	}
	x.Workload = sim.SessionsConfig{Source: interruptible(ctx, source), Clock: s.clock, Rate: rate}
	if !s.calm {
		s.press(&x)
	}
	var timeline *csvFile
	var calls *csvFile
	if seed == 0 && p.name == s.policies[0].name {
		if s.timeline != "" {
			if timeline, err = createTimeline(s.timeline); err != nil {
				return nil, err
			}
			x.Sampled = timeline.sample
		}
		if s.calls != "" {
			if calls, err = createCalls(s.calls); err != nil {
				return nil, errors.Join(err, timeline.close())
			}
			x.Ended = calls.call
		}
	}
	result, err := x.Run()
	if closed := errors.Join(timeline.close(), calls.close()); err == nil {
		err = closed
	}
	s.runs.done()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return result, nil
}

// press gives a run the clients that the flags describe, their deadline and the gateway's
// defence.
func (s *simulator) press(x *sim.Scenario) {
	x.Workload.Clients = s.clients
	if s.deadline > 0 {
		sim.Within(x, s.deadline)
	}
	if s.defence != nil {
		s.defence(x)
	}
}

// point runs a policy with all seeds.
func (s *simulator) point(ctx context.Context, p namedPolicy, rate float64, engines []sim.Engine) ([]sim.Summary, error) {
	out := make([]sim.Summary, s.seeds)
	errs := make([]error, s.seeds)
	s.runs.expect(s.seeds)
	var all sync.WaitGroup
	for i := range s.seeds {
		all.Go(func() {
			r, err := s.one(ctx, p, rate, engines, i)
			if errs[i] = err; err == nil {
				out[i] = *r
			}
		})
	}
	all.Wait()
	return out, errors.Join(errs...)
}

// rows runs all policies.
func (s *simulator) rows(ctx context.Context, policies []namedPolicy, rate float64, engines []sim.Engine) ([]sim.Row, error) {
	rows := make([]sim.Row, len(policies))
	errs := make([]error, len(policies))
	var all sync.WaitGroup
	for i, p := range policies {
		all.Go(func() {
			runs, err := s.point(ctx, p, rate, engines)
			if errs[i] = err; err == nil {
				rows[i] = sim.NewRow(p.name, runs)
			}
		})
	}
	all.Wait()
	return rows, errors.Join(errs...)
}

// search finds a policy's goodput.
func (s *simulator) search(ctx context.Context, p namedPolicy, engines []sim.Engine) (*sim.Curve, error) {
	return sim.Goodput(func(rate float64) (sim.Point, error) {
		runs, err := s.point(ctx, p, rate, engines)
		if err != nil {
			return sim.Point{}, err
		}
		mean, half := sim.Mean(runs)
		return sim.Point{Summary: mean, Half: half, Attainment: float64(mean.Attainment)}, nil
	}, s.rate, s.attainment, s.tolerance)
}

// matchLoad sets the rate to the share of the pool's capacity that --load asks for.
func (s *simulator) matchLoad(ctx context.Context) error {
	s.calm = true
	rate, err := s.rateAt(ctx, s.scenario.Engines)
	s.calm, s.rate = false, rate*s.load
	return err
}

// rateAt returns the pool's capacity: the rate that least-outstanding keeps the SLO at.
func (s *simulator) rateAt(ctx context.Context, engines []sim.Engine) (float64, error) {
	rule, _ := policy.Lookup("least-outstanding")
	c, err := s.search(ctx, namedPolicy{rule.Name, rule, rule.Params()}, engines)
	if err != nil {
		return 0, err
	}
	if c.Best == nil {
		return 0, fmt.Errorf("least-outstanding keeps the SLO at no rate down to %g times the workload's: there is no capacity to take a share of", c.Points[0].Rate)
	}
	return c.Best.Rate, nil
}

// goodputCurve is a policy's goodput, for JSON and drawings.
type goodputCurve struct {
	Policy    string         `json:"policy"`
	RateScale sim.Number     `json:"rate_scale"`  // the highest that keeps the SLO; null: none does
	CallsRPS  sim.Number     `json:"calls_rps"`   // calls that come a second at that rate
	Goodput   sim.Number     `json:"goodput_rps"` // of those, the ones that keep the SLO
	Half      sim.Number     `json:"goodput_ci95_half_width"`
	Open      bool           `json:"highest_rate_tried_keeps_it,omitempty"`
	Points    []goodputPoint `json:"points"`
}

type goodputPoint struct {
	RateScale  float64    `json:"rate_scale"`
	CallsRPS   sim.Number `json:"calls_rps"`
	Attainment sim.Number `json:"slo_attainment"`
	Half       sim.Number `json:"slo_attainment_ci95_half_width"`
	Goodput    sim.Number `json:"goodput_rps"`
	TTFTP95    sim.Number `json:"ttft_p95_s"`
	Cached     sim.Number `json:"cached_token_ratio"`
}

func newCurve(name string, c *sim.Curve) goodputCurve {
	nan := sim.Number(math.NaN())
	g := goodputCurve{Policy: name, RateScale: nan, CallsRPS: nan, Goodput: nan, Half: nan, Open: c.Open}
	if b := c.Best; b != nil {
		g.RateScale, g.CallsRPS, g.Goodput, g.Half = sim.Number(b.Rate), b.Summary.Rate, b.Summary.Goodput, b.Half.Goodput
	}
	for _, p := range c.Points {
		g.Points = append(g.Points, goodputPoint{p.Rate, p.Summary.Rate, p.Summary.Attainment, p.Half.Attainment, p.Summary.Goodput, p.Summary.TTFT.P95, p.Summary.CachedRatio})
	}
	return g
}

// pooled is the name of the bound, sim.Pooled.
const pooled = "pooled (bound)"

// steady is how long a run lasts at least whose goodput is believed without a word.
const steady = 5 * time.Minute

// goodputReport searches every policy's goodput, and writes the files that go with it.
func (s *simulator) goodputReport(ctx context.Context, report *simReport) error {
	report.Goodput = make([]goodputCurve, len(s.policies))
	whole, same := sim.Pooled(s.scenario.Engines)
	if same {
		report.Goodput = append(report.Goodput, goodputCurve{})
	} else {
		report.Config.Notes = append(report.Config.Notes, "there is no pooled bound where engines differ or change")
	}
	errs := make([]error, len(report.Goodput))
	var all sync.WaitGroup
	for i := range report.Goodput {
		all.Go(func() {
			p, engines := namedPolicy{name: pooled}, whole
			if i < len(s.policies) {
				p, engines = s.policies[i], s.scenario.Engines
			} else {
				p.rule, _ = policy.Lookup("round-robin")
				p.params = p.rule.Params()
			}
			c, err := s.search(ctx, p, engines)
			if errs[i] = err; err == nil {
				report.Goodput[i] = newCurve(p.name, c)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, g := range report.Goodput {
		if math.IsNaN(float64(g.RateScale)) {
			continue
		}
		if last := s.work.lasts(float64(g.RateScale)); last < steady {
			report.Config.Notes = append(report.Config.Notes, fmt.Sprintf(
				"%s: at its rate the trace is over after %v, which queues may outlast; --loops %d --fresh makes it longer",
				g.Policy, last.Round(100*time.Millisecond), int(math.Ceil(steady.Seconds()/max(last.Seconds(), 1)))))
		}
	}
	for _, f := range []struct {
		name  string
		write func(io.Writer, []goodputCurve) error
	}{{s.svg, s.drawGoodput}, {s.csv, writeGoodputCSV}} {
		if f.name != "" {
			if err := createFile(f.name, func(w io.Writer) error { return f.write(w, report.Goodput) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// createFile writes a file whole, or says why not.
func createFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
