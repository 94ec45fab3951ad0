// Command validation plays one trace twice, policy by policy: with kvasir bench against eight
// emulated engines behind kvasir serve, in real time over sockets, and with kvasir sim. It
// prints both side by side, and ends with status 1 where they are further apart than they
// may be, or rank the policies otherwise.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
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

// figures are what both tools tell, in seconds; the keys of their JSON.
type figures struct {
	Calls  float64   `json:"calls"`
	TTFT   quantiles `json:"ttft_s"`
	TPOT   quantiles `json:"tpot_s"`
	E2E    quantiles `json:"e2e_s"`
	Cached *float64  `json:"cached_token_ratio"`
}

type quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
}

// pair is one policy by both.
type pair struct {
	policy    string
	real, sim figures
}

// run reports whether simulator and real time agree.
func (o *options) run(ctx context.Context) (bool, error) {
	dir, err := os.MkdirTemp("", "kvasir-validation-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	s := &stage{options: o, dir: dir, kvasir: o.binary}
	if s.kvasir == "" {
		s.kvasir = filepath.Join(dir, "kvasir")
		if out, err := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("..", ".."), "-o", s.kvasir, "./cmd/kvasir").CombinedOutput(); err != nil {
			return false, fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	// Both play the same file: times, lengths and prefixes are settled before.
	s.calls = filepath.Join(dir, "calls.jsonl")
	if _, err := s.output(ctx, "trace", "convert", "--seed", "1", "--for", o.length.String(), "--rate", fmt.Sprint(o.rate), o.trace, s.calls); err != nil {
		return false, err
	}
	var pairs []pair
	for policy := range strings.SplitSeq(o.policies, ",") {
		fmt.Fprintf(os.Stderr, "%s: in real time, about %v\n", policy, time.Duration(float64(o.length)/o.rate).Round(time.Second))
		p := pair{policy: policy}
		if p.real, err = s.live(ctx, policy); err != nil {
			return false, fmt.Errorf("%s in real time: %w", policy, err)
		}
		if p.sim, err = s.simulated(ctx, policy); err != nil {
			return false, fmt.Errorf("%s simulated: %w", policy, err)
		}
		pairs = append(pairs, p)
	}
	return o.judge(pairs) || o.report, nil
}

// stage is where the trace is played.
type stage struct {
	*options
	dir, kvasir, calls string
}

// output runs kvasir and returns what it prints.
func (s *stage) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.kvasir, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kvasir %s: %w\n%s%s", args[0], err, complaint.String(), out)
	}
	return out, nil
}

// simulated plays the trace in virtual time.
func (s *stage) simulated(ctx context.Context, policy string) (figures, error) {
	model, device, _ := strings.Cut(s.profile, "/")
	args := []string{
		"sim", "--trace", s.calls, "--policy", policy, "--replicas", strconv.Itoa(s.replicas),
		"--model", model, "--device", device, "--block-size", "16", "--warmup", "0", "--seed", strconv.Itoa(seed), "--format", "json",
	}
	if s.keep != "" {
		args = append(args, "--calls", filepath.Join(s.keep, policy+".csv"))
	}
	out, err := s.output(ctx, args...)
	if err != nil {
		return figures{}, err
	}
	var report struct{ Results []figures }
	if err := json.Unmarshal(out, &report); err != nil {
		return figures{}, err
	}
	if len(report.Results) != 1 {
		return figures{}, fmt.Errorf("%d results", len(report.Results))
	}
	return report.Results[0], nil
}

// live plays it over sockets.
func (s *stage) live(ctx context.Context, policy string) (figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ports, err := freePorts(s.replicas + 2)
	if err != nil {
		return figures{}, err
	}
	gateway, admin := ports[0], ports[1]
	config := fmt.Sprintf("listen: %s\nadmin: %s\nseed: %d\ndrain: 1s\ndrain_delay: 0s\nmodels:\n  m:\n    policy: %s\n    endpoints:\n", gateway, admin, seed, policy)
	var all []*exec.Cmd
	start := func(args ...string) error {
		cmd := exec.CommandContext(ctx, s.kvasir, args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		all = append(all, cmd)
		return cmd.Start()
	}
	defer func() {
		cancel()
		for _, cmd := range all {
			_ = cmd.Wait() // it was told to end
		}
	}()
	for _, address := range ports[2:] {
		config += "      - http://" + address + "\n"
		if err := start("engine", "--listen", address, "--model", "m", "--profile", s.profile, "--shutdown-timeout", "1s"); err != nil {
			return figures{}, err
		}
	}
	file := filepath.Join(s.dir, "kvasir.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return figures{}, err
	}
	if err := start("serve", "--config", file); err != nil {
		return figures{}, err
	}
	if err := ready(ctx, "http://"+admin+"/readyz"); err != nil {
		return figures{}, err
	}
	// Slow start and the first scrapes are over then, as they are in the simulator.
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return figures{}, ctx.Err()
	}
	result := filepath.Join(cmp.Or(s.keep, s.dir), policy+".json")
	args := []string{
		"bench", "--base-url", "http://" + gateway, "--model", "m", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
		"--dataset-name", "kvasir", "--dataset-path", s.calls, "--self-timed", "--ignore-eos", "--ready-check-timeout-sec", "0", "--save-result", "--result-filename", result,
	}
	if o := s.options; o.report {
		args = append(args, "--lag-bound", "1m")
	}
	if s.keep != "" {
		args = append(args, "--save-detailed")
	}
	if _, err := s.output(ctx, args...); err != nil {
		return figures{}, err
	}
	text, err := os.ReadFile(result)
	if err != nil {
		return figures{}, err
	}
	var report struct {
		Kvasir figures
		Failed int
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return figures{}, err
	}
	if report.Failed > 0 {
		return figures{}, fmt.Errorf("%d calls failed", report.Failed)
	}
	return report.Kvasir, nil
}

// seed is that of both sides' draws: a rule that picks at random picks the same endpoint for
// the n-th call of a gateway, live and simulated.
const seed = 1

// settle is longer than health.slow_start.
const settle = 12 * time.Second

// ready waits until the gateway can route.
func ready(ctx context.Context, url string) error {
	for range 300 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("the gateway is not ready after 30 s")
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
			of   figures
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
	rank := func(of func(pair) figures) []string {
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
	real, sim := rank(func(p pair) figures { return p.real }), rank(func(p pair) figures { return p.sim })
	same := slices.Equal(real, sim)
	fmt.Printf("\nby mean TTFT: %s in real time, %s simulated\n", strings.Join(real, " < "), strings.Join(sim, " < "))
	fmt.Printf("allowed: TTFT P50 within %.0f %%, P95 within %.0f %%, the same ranking: %s\n", 100*mostP50, 100*mostP95, map[bool]string{true: "kept", false: "NOT kept"}[ok && same])
	return ok && same
}
