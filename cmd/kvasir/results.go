package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"kvasir/client/workload/trace"
	"kvasir/sim/contest"
)

const resultsUsage = `usage: kvasir results [--traces DIR] [--cells PATTERNS] [--policies NAMES] [--seeds N] [--tolerance SHARE] [--jobs N]
`

type resultsOptions struct {
	traces, cells, policies string
	seeds, jobs             int
	tolerance               float64
}

func runResults(ctx context.Context, env environment, args []string) int {
	o := resultsOptions{}
	f := flag.NewFlagSet("kvasir results", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.traces, "traces", env.getenv("KVASIR_TRACES"), "")
	f.StringVar(&o.cells, "cells", "*", "")
	f.StringVar(&o.policies, "policies", "all", "")
	f.IntVar(&o.seeds, "seeds", 10, "")
	f.IntVar(&o.jobs, "jobs", runtime.GOMAXPROCS(0), "")
	f.Float64Var(&o.tolerance, "tolerance", 0.03, "")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(env.stdout, resultsUsage)
		return 0
	case err != nil:
		fmt.Fprintf(env.stderr, "kvasir results: %v\n", err)
		return 2
	}
	if err := o.run(ctx, env); err != nil {
		fmt.Fprintf(env.stderr, "kvasir results: %v\n", err)
		return 1
	}
	return 0
}

func (o *resultsOptions) run(ctx context.Context, env environment) error {
	plan := contest.Plan{Half: contest.Report, Share: 0.8, Open: func(name string) trace.File {
		return traceFile(filepath.Join(o.traces, filepath.FromSlash(name)))
	}}
	cells, err := plan.Cells()
	if err != nil {
		return err
	}
	var entrants []contest.Entrant
	var errs []error
	for _, p := range parsePolicies(o.policies, &errs) {
		e, err := contest.Policy(p.name)
		errs = append(errs, err)
		entrants = append(entrants, e)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	search := contest.Search{Attainment: contest.Attainment, Tolerance: o.tolerance}
	for i := range o.seeds {
		search.Seeds = append(search.Seeds, uint64(i+1))
	}
	for i := range cells {
		c := &cells[i]
		if ok, err := matchAny(o.cells, c.Name); err != nil || !ok {
			if err != nil {
				return err
			}
			continue
		}
		c.Draw = remember(c.Draw)
		c.Scenario.Stopped = func() bool { return ctx.Err() != nil }
		all := entrants
		if b, ok := c.Bound(); ok {
			all = append(all[:len(all):len(all)], b)
		}
		began := time.Now()
		results := make([]*contest.Goodput, len(all))
		took := make([]time.Duration, len(all))
		err := parallel(o.jobs, len(all), func(i int) (err error) {
			t := time.Now()
			results[i], err = c.Goodput(all[i], search)
			took[i] = time.Since(t)
			return err
		})
		if err != nil {
			return err
		}
		d, err := c.Draw(1)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.stdout, "%s: %d calls in %.0f s; took %.1f s\n", c.Name, d.Calls, d.Length.Seconds(), time.Since(began).Seconds())
		t := tabwriter.NewWriter(env.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		for i, g := range results {
			m, half := g.Mean()
			fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%d\t%.2f\t\n", all[i].Name, m, half, g.Runs, took[i].Seconds()/float64(g.Runs))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// matchAny reports whether a name matches one of the patterns, which commas separate.
func matchAny(patterns, name string) (bool, error) {
	for pattern := range strings.SplitSeq(patterns, ",") {
		ok, err := path.Match(pattern, name)
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// remember makes a function keep what it returned for each seed.
func remember(draw func(uint64) (*contest.Draw, error)) func(uint64) (*contest.Draw, error) {
	type kept struct {
		once sync.Once
		draw *contest.Draw
		err  error
	}
	var all sync.Map
	return func(seed uint64) (*contest.Draw, error) {
		k, _ := all.LoadOrStore(seed, &kept{})
		x := k.(*kept)
		x.once.Do(func() { x.draw, x.err = draw(seed) })
		return x.draw, x.err
	}
}

// parallel calls f for 0 to n-1, so many at a time.
func parallel(jobs, n int, f func(int) error) error {
	slots := make(chan struct{}, jobs)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = f(i)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
