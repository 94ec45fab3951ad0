// Command validation plays one trace twice, policy by policy: with kvasir bench against eight
// emulated engines behind kvasir serve, in real time over sockets, and with kvasir sim. It
// prints both side by side, and ends with status 1 where they are further apart than they
// may be, or rank the policies otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"kvasir/test/validation/stage"
)

// What the two may differ by, as a share of the real-time figure.
const (
	mostP50 = 0.10
	mostP95 = 0.15
)

// options are the flags.
type options struct {
	trace    string
	length   time.Duration
	rate     float64
	replicas int
	profile  string
	policies string
	binary   string
	keep     string
	report   bool
}

func main() {
	var o options
	flag.StringVar(&o.trace, "trace", "../../testdata/traces/mooncake-conversation-10min.jsonl.zst", "the trace")
	flag.DurationVar(&o.length, "for", 4*time.Minute, "how much of it, by its own clock")
	flag.Float64Var(&o.rate, "rate", 2, "how many times as fast sessions come")
	flag.IntVar(&o.replicas, "replicas", 8, "engines")
	flag.StringVar(&o.profile, "profile", "llama-3.1-8b/h100", "of the engines, as kvasir engine names it")
	flag.StringVar(&o.policies, "policies", "random,least-outstanding,cache-aware", "separated by commas")
	flag.StringVar(&o.binary, "binary", "", "a kvasir that is built already")
	flag.StringVar(&o.keep, "keep", "", "a folder for every call of both sides, in files POLICY.json and POLICY.csv")
	flag.BoolVar(&o.report, "report-only", false, "don't fail where the two differ: does it work, on a machine too busy for figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "validation:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// pair is one policy by both.
type pair struct {
	policy    string
	real, sim stage.Figures
}

// run reports whether simulator and real time agree.
func (o *options) run(ctx context.Context) (bool, error) {
	s, err := stage.New(ctx, o.binary)
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(s.Dir)
	s.Replicas, s.Profile = o.replicas, o.profile
	if o.report {
		s.LagBound = time.Minute
	}
	// Both play the same file.
	if err := s.Settle(ctx, o.trace, o.length, o.rate); err != nil {
		return false, err
	}
	if o.keep != "" {
		s.Dir, s.Detailed = o.keep, true
	}
	var pairs []pair
	for policy := range strings.SplitSeq(o.policies, ",") {
		fmt.Fprintf(os.Stderr, "%s: in real time, about %v\n", policy, time.Duration(float64(o.length)/o.rate).Round(time.Second))
		live, err := s.Live(ctx, policy)
		if err != nil {
			return false, fmt.Errorf("%s in real time: %w", policy, err)
		}
		simulated, err := s.Simulated(ctx, stage.Seed, 1, policy)
		if err != nil {
			return false, fmt.Errorf("%s simulated: %w", policy, err)
		}
		pairs = append(pairs, pair{policy, live.Figures, simulated[0]})
	}
	return o.judge(pairs) || o.report, nil
}

// judge prints the table and reports whether all is within bounds.
func (o *options) judge(pairs []pair) bool {
	fmt.Printf("%s, %v of it at %g times its rate, %d × %s\n\n", filepath.Base(o.trace), o.length, o.rate, o.replicas, o.profile)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\t\tcalls\tTTFT mean\tTTFT P50\tTTFT P95\tTPOT mean ms\tE2E P50\tcached %\t")
	ok := true
	for _, p := range pairs {
		for _, x := range []struct {
			what string
			of   stage.Figures
		}{{"real time", p.real}, {"simulated", p.sim}} {
			cached := "-"
			if x.of.Cached != nil {
				cached = fmt.Sprintf("%.1f", 100**x.of.Cached)
			}
			fmt.Fprintf(t, "%s\t%s\t%.0f\t%.3f\t%.3f\t%.3f\t%.2f\t%.2f\t%s\t\n", p.policy, x.what, x.of.Calls, x.of.TTFT.Mean, x.of.TTFT.P50, x.of.TTFT.P95, 1e3*x.of.TPOT.Mean, x.of.E2E.P50, cached)
		}
		off := func(real, sim float64) float64 { return sim/real - 1 }
		p50, p95 := off(p.real.TTFT.P50, p.sim.TTFT.P50), off(p.real.TTFT.P95, p.sim.TTFT.P95)
		fmt.Fprintf(t, "\toff by\t\t%+.1f %%\t%+.1f %%\t%+.1f %%\t%+.1f %%\t%+.1f %%\t\t\n", 100*off(p.real.TTFT.Mean, p.sim.TTFT.Mean), 100*p50, 100*p95,
			100*off(p.real.TPOT.Mean, p.sim.TPOT.Mean), 100*off(p.real.E2E.P50, p.sim.E2E.P50))
		ok = ok && math.Abs(p50) <= mostP50 && math.Abs(p95) <= mostP95
	}
	_ = t.Flush() // standard output
	rank := func(of func(pair) stage.Figures) []string {
		sorted := slices.Clone(pairs)
		slices.SortFunc(sorted, func(a, b pair) int {
			if of(a).TTFT.Mean < of(b).TTFT.Mean {
				return -1
			}
			return 1
		})
		var names []string
		for _, p := range sorted {
			names = append(names, p.policy)
		}
		return names
	}
	real, sim := rank(func(p pair) stage.Figures { return p.real }), rank(func(p pair) stage.Figures { return p.sim })
	same := slices.Equal(real, sim)
	fmt.Printf("\nby mean TTFT: %s in real time, %s simulated\n", strings.Join(real, " < "), strings.Join(sim, " < "))
	fmt.Printf("allowed: TTFT P50 within %.0f %%, P95 within %.0f %%, the same ranking: %s\n", 100*mostP50, 100*mostP95, map[bool]string{true: "kept", false: "NOT kept"}[ok && same])
	return ok && same
}
