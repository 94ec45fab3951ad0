// Command live sets the simulator's ranking of policies beside what they do in real time, and
// the default policy's predictions beside what came of them. It plays a stretch of a trace with
// kvasir bench against eight emulated engines behind kvasir serve, policy by policy, and the
// same calls with kvasir sim. It prints both, and ends with status 1 where the policies that
// the simulator tells apart rank otherwise in real time, or predictions are off by more than
// they may be. A run for which the machine was too slow is refused.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"kvasir/test/validation/stage"
)

// options are the flags.
type options struct {
	trace    string
	length   time.Duration
	rate     float64
	replicas int
	blocks   int
	profile  string
	policies string
	runs     int
	binary   string
	keep     string
	ranking  bool
}

func main() {
	var o options
	flag.StringVar(&o.trace, "trace", "../../testdata/traces/mooncake-synthetic-from-10min.jsonl.zst", "the trace")
	flag.DurationVar(&o.length, "for", 0, "how much of it, by its own clock (0: all)")
	flag.Float64Var(&o.rate, "rate", 4.3, "how many times as fast calls come")
	flag.IntVar(&o.replicas, "replicas", 8, "engines")
	flag.IntVar(&o.blocks, "num-gpu-blocks", 96001, "KV blocks of an engine, of 16 tokens")
	flag.StringVar(&o.profile, "profile", "llama-3.1-8b/h100", "of the engines, as kvasir engine names it")
	flag.StringVar(&o.policies, "policies", "least-outstanding,kv-cost,cache-aware,sticky-until-saturated,"+predictor, "separated by commas")
	flag.IntVar(&o.runs, "runs", 8, "simulated runs, whose spread is the noise")
	flag.StringVar(&o.binary, "binary", "", "a kvasir that is built already")
	flag.StringVar(&o.keep, "keep", "", "a folder for files, results and logs of the live runs")
	flag.BoolVar(&o.ranking, "ranking-only", false, "judge the ranking alone, also on a machine that is too busy for figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// The SLO, which the policies are told and calls are judged by.
const (
	boundTTFT = 2 * time.Second
	boundTPOT = 100 * time.Millisecond
)

// run reports whether all that is judged holds.
func (o *options) run(ctx context.Context) (bool, error) {
	s, err := stage.New(ctx, o.binary)
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(s.Dir)
	s.Replicas, s.Profile, s.Blocks, s.TTFT, s.TPOT = o.replicas, o.profile, o.blocks, boundTTFT, boundTPOT
	if err := s.Settle(ctx, o.trace, o.length, o.rate); err != nil {
		return false, err
	}
	if o.keep != "" {
		s.Dir = o.keep
	}
	if o.ranking {
		s.LagBound = time.Minute
	}
	policies := strings.Split(o.policies, ",")
	fmt.Printf("%s at %g times its rate, %d × %s with %d KV blocks, SLO ttft %v, tpot %v\n\n",
		filepath.Base(o.trace), o.rate, o.replicas, o.profile, o.blocks, boundTTFT, boundTPOT)

	all := make([]result, len(policies))
	for k := range o.runs {
		// What jitter does to a run in real time: the same calls, the last of them some
		// milliseconds earlier with each run, and ties drawn otherwise.
		figures, err := s.Simulated(ctx, stage.Seed+uint64(k), 1+1e-4*float64(k), policies...)
		if err != nil {
			return false, fmt.Errorf("simulated: %w", err)
		}
		for i, f := range figures {
			all[i].simulated = append(all[i].simulated, f)
		}
	}
	for i, policy := range policies {
		all[i].policy = policy
		if err := o.play(ctx, s, &all[i]); err != nil {
			return false, fmt.Errorf("%s in real time: %w", policy, err)
		}
	}
	wrong := o.judge(os.Stdout, all)
	for _, w := range wrong {
		fmt.Println("WRONG:", w)
	}
	return len(wrong) == 0, nil
}

// tries is how often a run is made until the machine was fast enough for it.
const tries = 3

// play makes a policy's run in real time.
func (o *options) play(ctx context.Context, s *stage.Stage, r *result) (err error) {
	for n := 1; n == 1 || n <= tries && r.late() != ""; n++ {
		if n > 1 {
			fmt.Fprintln(os.Stderr, r.late())
		}
		fmt.Fprintf(os.Stderr, "%s: in real time\n", r.policy)
		if r.live, err = s.Live(ctx, r.policy); err != nil {
			return err
		}
		if o.ranking {
			break
		}
	}
	if r.said, err = readPredictions(r.live.Log); err != nil {
		return err
	}
	if n := r.simulated[0].Calls; n != r.live.Calls {
		return fmt.Errorf("%.0f calls, %.0f simulated", r.live.Calls, n)
	}
	return nil
}
