package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"kvasir/client/workload/trace"
	"kvasir/sim"
	"kvasir/sim/contest"
)

const resultsUsage = `usage: kvasir results [--traces DIR] [flags]

Sets policies beside each other on many pools and workloads, in the simulator, and says which
of the bars hold that predicted-ttft is held to. With all cells and ten seeds it takes most of
an hour on two cores.

  --traces DIR          the folder of the traces, as docs/traces.md describes it (default: what the
                        environment variable KVASIR_TRACES says)
  --cells PATTERNS      separated by commas, such as conversation-*,*-small-8; list prints them
                        (default *)
  --policies NAMES      separated by commas, as for kvasir sim (default all: predicted-ttft and its
                        peers at their documented defaults)
  --seeds N             (default 10)
  --first-seed N        (default 1)
  --half NAME           of the sessions: reported, tuning or both (default reported)
  --share SHARE         of the half's sessions, drawn by each seed (default 0.8)
  --tolerance SHARE     how narrow a rate is bracketed before it is interpolated (default 0.03)
  --tuned=BOOL          also search settings of the peers on the other half, on pools of 8 (default true)
  --sensitivity=BOOL    also the order of the best four under other costs (default true)
  --quick               four pools and the mixed ones of 8 replicas, 3 seeds, a coarser search, half
                        as many sessions, neither tuned peers nor other costs: for a look
  --format NAME         table, json or md (default table)
  --figures FILE        play nothing: print what a page that --format md has written says of each
                        cell, as JSON, which the lab results shows (lab/results.json)
  --out FILE            (default: standard output)
  --machine TEXT        what the report says of the machine (default: its cores and Go's version)
  --jobs N              runs at a time (default: the machine's cores)

example:
  KVASIR_TRACES=../traces kvasir results --cells 'fan-out-*-8' --policies predicted-ttft,lmetric --seeds 3
`

// resultsOptions is what the flags say.
type resultsOptions struct {
	traces, machine, format, out string
	command                      string // as it was given, for the report
	cells                        []*contest.Cell
	tuning                       map[string]*contest.Cell // the same cells with the other half's sessions, by name
	entrants                     []contest.Entrant
	missing                      []string
	seeds                        []uint64
	half                         contest.Half
	share, tolerance             float64
	tuned, sensitivity           bool
	list                         bool
	figures                      string // of a page; empty: none
	jobs                         int
}

// runResults is kvasir results.
func runResults(ctx context.Context, env environment, args []string) int {
	o, err := parseResults(env, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(env.stdout, resultsUsage)
		return 0
	case err != nil:
		return env.misused("results", err, "the flags")
	case o.list:
		for _, c := range o.cells {
			fmt.Fprintf(env.stdout, "%-22s %s\n", c.Name, c.Pool)
		}
		return 0
	}
	if o.figures != "" {
		if err := o.printFigures(env); err != nil {
			fmt.Fprintf(env.stderr, "kvasir results: %v\n", err)
			return 1
		}
		return 0
	}
	if err := o.run(ctx, env); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintf(env.stderr, "kvasir results: %v\n", err)
		return 1
	}
	return 0
}

// quickCells are those of --quick.
const quickCells = "*-small-8,*-mixed-8"

// parseResults reads the flags. The error has every mistake, or is flag.ErrHelp.
func parseResults(env environment, args []string) (*resultsOptions, error) {
	o := &resultsOptions{}
	f := flag.NewFlagSet("kvasir results", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.traces, "traces", env.getenv("KVASIR_TRACES"), "")
	cells := f.String("cells", "*", "")
	policies := f.String("policies", "all", "")
	seeds := f.Int("seeds", 10, "")
	first := f.Uint64("first-seed", 1, "")
	half := f.String("half", contest.ReportedHalf.String(), "")
	f.Float64Var(&o.share, "share", 0.8, "")
	f.Float64Var(&o.tolerance, "tolerance", 0.03, "")
	f.BoolVar(&o.tuned, "tuned", true, "")
	f.BoolVar(&o.sensitivity, "sensitivity", true, "")
	quick := f.Bool("quick", false, "")
	f.StringVar(&o.format, "format", "table", "")
	f.StringVar(&o.figures, "figures", "", "")
	f.StringVar(&o.out, "out", "", "")
	f.StringVar(&o.machine, "machine", fmt.Sprintf("%d cores, %s, %s/%s", runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH), "")
	f.IntVar(&o.jobs, "jobs", runtime.GOMAXPROCS(0), "")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	given := map[string]bool{}
	o.command = "kvasir results"
	f.Visit(func(x *flag.Flag) {
		given[x.Name] = true
		switch x.Name {
		case "traces", "out", "machine", "jobs": // where and how it ran is nothing that the result depends on
		default:
			o.command += fmt.Sprintf(" --%s=%v", x.Name, x.Value)
		}
	})
	if *quick {
		for name, set := range map[string]func(){
			"cells": func() { *cells = quickCells }, "seeds": func() { *seeds = 3 }, "share": func() { o.share = 0.4 },
			"tolerance": func() { o.tolerance = 0.06 }, "tuned": func() { o.tuned = false }, "sensitivity": func() { o.sensitivity = false },
		} {
			if !given[name] {
				set()
			}
		}
	}
	var errs []error
	bad := func(flag string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("--%s: %v is not allowed; allowed: %s", flag, value, allowed))
	}
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected %q", f.Arg(0)))
	}
	if *seeds < 1 || *seeds > 1000 {
		bad("seeds", *seeds, "1 to 1000")
	}
	if o.jobs < 1 || o.jobs > 1<<10 {
		bad("jobs", o.jobs, "1 to 1024")
	}
	if !(o.share > 0 && o.share <= 1) {
		bad("share", o.share, "above 0, at most 1")
	}
	if !(o.tolerance >= 0.001 && o.tolerance <= 0.5) {
		bad("tolerance", o.tolerance, "0.001 to 0.5")
	}
	if !slices.Contains([]string{"table", "json", "md"}, o.format) {
		bad("format", o.format, "table, json or md")
	}
	found := false
	for _, h := range []contest.Half{contest.ReportedHalf, contest.TuningHalf, contest.BothHalves} {
		if h.String() == *half {
			o.half, found = h, true
		}
	}
	if !found {
		bad("half", *half, "reported, tuning or both")
	}
	if o.half != contest.ReportedHalf && !given["tuned"] {
		o.tuned = false
	}
	if o.half != contest.ReportedHalf && o.tuned {
		errs = append(errs, errors.New("--tuned tunes on the half that is not reported on: it goes with --half reported"))
	}
	for i := range min(max(*seeds, 0), 1000) {
		o.seeds = append(o.seeds, *first+uint64(i))
	}
	errs = append(errs, o.takePolicies(*policies)...)
	o.list = *cells == "list"
	if o.list {
		*cells = "*"
	} else if o.figures != "" {
		for name := range given {
			if name != "figures" && name != "out" {
				errs = append(errs, fmt.Errorf("--%s: with --figures nothing is played; only --out goes with it", name))
			}
		}
	} else if err := folder(o.traces); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, o.takeCells(*cells)...)
	return o, errors.Join(errs...)
}

// folder says what is wrong with the folder of the traces.
func folder(name string) error {
	if name == "" {
		return errors.New("the traces are needed: --traces DIR or the environment variable KVASIR_TRACES names their folder (docs/traces.md says where they come from)")
	}
	switch info, err := os.Stat(name); {
	case err != nil:
		return fmt.Errorf("--traces, KVASIR_TRACES: %w", err)
	case !info.IsDir():
		return fmt.Errorf("--traces, KVASIR_TRACES: %s is no folder", name)
	}
	return nil
}

// takePolicies reads --policies.
func (o *resultsOptions) takePolicies(text string) []error {
	var errs []error
	if text == "all" {
		for _, name := range append([]string{contest.Ours}, contest.Peers()...) {
			e, err := contest.Policy(name)
			if err != nil {
				o.missing = append(o.missing, name)
				continue
			}
			o.entrants = append(o.entrants, e)
		}
		return nil
	}
	for _, p := range parsePolicies(text, &errs) {
		e, err := contest.Policy(p.name)
		if err == nil && slices.ContainsFunc(o.entrants, func(x contest.Entrant) bool { return x.Name == e.Name }) {
			err = fmt.Errorf("--policies: %s is there twice", e.Name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		o.entrants = append(o.entrants, e)
	}
	return errs
}

// takeCells reads --cells.
func (o *resultsOptions) takeCells(patterns string) []error {
	plan := contest.Plan{Half: o.half, Share: o.share, Open: func(name string) trace.File {
		return traceFile(filepath.Join(o.traces, filepath.FromSlash(name)))
	}}
	all, err := plan.Cells()
	if err != nil {
		return []error{err}
	}
	plan.Half = contest.TuningHalf
	others, err := plan.Cells()
	if err != nil {
		return []error{err}
	}
	o.tuning = map[string]*contest.Cell{}
	used := map[string]bool{}
	for i, c := range all {
		wanted := false
		for pattern := range strings.SplitSeq(patterns, ",") {
			ok, err := path.Match(pattern, c.Name)
			if err != nil {
				return []error{fmt.Errorf("--cells: %q: %w", pattern, err)}
			}
			if ok {
				wanted, used[pattern] = true, true
			}
		}
		if wanted {
			o.cells = append(o.cells, c)
			o.tuning[c.Name] = others[i]
		}
	}
	var errs []error
	for pattern := range strings.SplitSeq(patterns, ",") {
		if !used[pattern] {
			errs = append(errs, fmt.Errorf("--cells: no cell is called %q; --cells list prints them", pattern))
		}
	}
	return errs
}

// run plays all cells and writes the report.
func (o *resultsOptions) run(ctx context.Context, env environment) error {
	began := time.Now()
	r := &contest.Report{
		Command: o.command, Machine: o.machine, Half: o.half.String(), Share: o.share, Seeds: len(o.seeds), Tolerance: o.tolerance, Missing: o.missing,
	}
	kept := map[string]drawer{} // by half and workload
	for i, c := range o.cells {
		for _, x := range []*contest.Cell{c, o.tuning[c.Name]} {
			key := x.Workload
			if x != c {
				key += ", tuning"
			}
			if kept[key] == nil {
				kept[key] = remember(x.Draw)
			}
			x.Draw = kept[key]
			x.Scenario.Stopped = func() bool { return ctx.Err() != nil }
		}
		began := time.Now()
		fmt.Fprintf(env.stderr, "%2d of %d: %s\n", i+1, len(o.cells), c.Name)
		result, err := o.cell(env, c)
		if err != nil {
			return err
		}
		result.TookS = math.Round(time.Since(began).Seconds()*10) / 10
		fmt.Fprintf(env.stderr, "         %d runs in %.0f s\n", result.Runs, result.TookS)
		r.Results = append(r.Results, result)
		if i+1 == len(o.cells) || !strings.HasPrefix(o.cells[i+1].Workload, c.Workload[:strings.IndexByte(c.Workload, ' ')]) {
			clear(kept) // of a workload that is over
		}
	}
	r.Bars = contest.Bars(r.Results)
	r.Took = time.Since(began).Round(time.Second)
	return o.write(env, func(w io.Writer) error {
		switch o.format {
		case "json":
			return printJSON(w, r)
		case "md":
			return r.Markdown(w)
		}
		return r.Text(w)
	})
}

// write writes where --out says.
func (o *resultsOptions) write(env environment, content func(io.Writer) error) error {
	if o.out == "" {
		return content(env.stdout)
	}
	return createFile(o.out, content)
}

// printFigures writes the figures of a page.
func (o *resultsOptions) printFigures(env environment) error {
	f, err := os.Open(o.figures)
	if err != nil {
		return err
	}
	defer f.Close()
	figures, err := contest.ReadFigures(f)
	if err != nil {
		return fmt.Errorf("%s: %w", o.figures, err)
	}
	return o.write(env, func(w io.Writer) error { return printJSON(w, figures) })
}

// cell plays one cell.
func (o *resultsOptions) cell(env environment, c *contest.Cell) (*contest.Result, error) {
	search := contest.Search{Seeds: o.seeds, Tolerance: o.tolerance}
	all := slices.Clone(o.entrants)
	if bound, ok := c.Bound(); ok {
		all = append(all, bound)
	}
	goodputs, err := o.goodputs(c, all, search, nil)
	if err != nil {
		return nil, err
	}
	var bound *contest.Goodput
	if len(all) > len(o.entrants) {
		bound = goodputs[len(o.entrants)]
	}
	goodputs = goodputs[:len(o.entrants)]
	trials := make([]contest.Trial, len(o.entrants))
	for i := range trials {
		trials[i] = contest.Trial{Entrant: o.entrants[i], Goodput: goodputs[i]}
	}
	if best := contest.BestPeer(trials); best >= 0 {
		rates := contest.MatchedRates(trials[best].Goodput)
		err := parallel(o.jobs, len(trials), func(i int) (err error) {
			trials[i].Matched, err = c.At(trials[i].Entrant, o.seeds, rates)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	result, err := c.Result(trials, bound, o.seeds)
	if err != nil {
		return nil, err
	}
	if o.sensitivity {
		fmt.Fprintln(env.stderr, "         under other costs")
		if err := o.vary(c, result, goodputs); err != nil {
			return nil, err
		}
	}
	if o.tuned && len(c.Scenario.Engines) <= tunedReplicas {
		fmt.Fprintln(env.stderr, "         tuned peers")
		if err := o.tune(c, result, trials); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// goodputs searches the goodput of each of the entrants; near has rates that they are known to
// be near, or is nil.
func (o *resultsOptions) goodputs(c *contest.Cell, entrants []contest.Entrant, search contest.Search, near []float64) ([]*contest.Goodput, error) {
	out := make([]*contest.Goodput, len(entrants))
	return out, parallel(o.jobs, len(entrants), func(i int) (err error) {
		s := search
		if near != nil {
			s.Near = near[i]
		}
		out[i], err = c.Goodput(entrants[i], s)
		return err
	})
}

const (
	variedEntrants, variedSeeds = 4, 3
	tuningSeeds, tunedPeers     = 2, 3

	// tunedReplicas is how large a pool may be whose peers are tuned: a grid on a larger one
	// takes as long as all the rest.
	tunedReplicas = 8
)

// vary finds the order of the best entrants under other costs.
func (o *resultsOptions) vary(c *contest.Cell, result *contest.Result, goodputs []*contest.Goodput) error {
	search := contest.Search{Seeds: o.seeds[:min(variedSeeds, len(o.seeds))], Tolerance: o.tolerance}
	var entrants []contest.Entrant
	var profile []*contest.Goodput
	var near []float64
	for _, i := range contest.Leaders(goodputs, variedEntrants) {
		g := goodputs[i].First(len(search.Seeds))
		entrants, profile, near = append(entrants, o.entrants[i]), append(profile, g), append(near, g.MeanRate())
	}
	for _, v := range sim.Variations() {
		varied, err := o.goodputs(c.Vary(v), entrants, search, near)
		if err != nil {
			return err
		}
		result.Order(v.Name, profile, varied)
	}
	return nil
}

// tune searches settings of the peers on the other half of the sessions, and plays the cell
// with the best of them.
func (o *resultsOptions) tune(c *contest.Cell, result *contest.Result, trials []contest.Trial) error {
	type peer struct {
		trial  *contest.Trial
		first  int // of its settings
		number int
	}
	var peers []peer
	var entrants []contest.Entrant
	var near []float64
	for i := range trials {
		t := &trials[i]
		grid := contest.Grid(t.Entrant.Name)
		if t.Entrant.Ours || len(grid) < 2 {
			continue
		}
		peers = append(peers, peer{t, len(entrants), len(grid)})
		for _, setting := range grid {
			e, err := contest.Policy(setting)
			if err != nil {
				return err
			}
			entrants, near = append(entrants, e), append(near, t.Goodput.MeanRate())
		}
	}
	search := contest.Search{Seeds: o.seeds[:min(tuningSeeds, len(o.seeds))], Tolerance: 2 * o.tolerance}
	found, err := o.goodputs(o.tuning[c.Name], entrants, search, near)
	if err != nil {
		return err
	}
	var best []contest.Entrant
	var bests []*contest.Goodput
	for _, p := range peers {
		i := p.first + contest.Leaders(found[p.first:p.first+p.number], 1)[0]
		best, bests = append(best, entrants[i]), append(bests, found[i])
	}
	var chosen []contest.Entrant
	near = nil
	for _, i := range contest.Leaders(bests, tunedPeers) {
		chosen, near = append(chosen, best[i]), append(near, bests[i].MeanRate())
	}
	search.Seeds, search.Tolerance = o.seeds, o.tolerance
	goodputs, err := o.goodputs(c, chosen, search, near)
	if err != nil {
		return err
	}
	tuned := make([]contest.Trial, len(chosen))
	for i := range tuned {
		tuned[i] = contest.Trial{Entrant: chosen[i], Goodput: goodputs[i]}
	}
	result.Tune(tuned, trials)
	return nil
}
