package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"kvasir/client/arrival"
	"kvasir/client/load"
	"kvasir/client/load/report"
	"kvasir/client/workload"
)

// runBench is kvasir bench: load on a real endpoint, measured.
func runBench(ctx context.Context, env environment, args []string) int {
	o, err := parseBench(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(env.stdout, benchUsage)
		return 0
	}
	if err == nil && o.list {
		fmt.Fprint(env.stdout, workload.Describe())
		return 0
	}
	var data dataset
	if err == nil {
		data, err = chooseDataset(o, env.stderr)
	}
	if err == nil {
		err = o.fit(data)
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "kvasir bench: %v\nkvasir bench -h lists the flags.\n", err)
		return 2
	}
	if key := env.getenv("OPENAI_API_KEY"); key != "" && o.target.Header.Get("Authorization") == "" {
		o.target.Header.Set("Authorization", "Bearer "+key)
	}
	b := &bench{env: env, o: o, data: data, client: load.NewClient()}
	defer b.client.CloseIdleConnections()
	ok, err := b.run(ctx)
	if err != nil {
		fmt.Fprintf(env.stderr, "kvasir bench: %v\n", err)
		return 1
	}
	if !ok {
		return 1
	}
	return 0
}

// fit reports what of the flags does not fit the dataset.
func (o *benchOptions) fit(d dataset) error {
	if o.selfTimed && !d.timed {
		return fmt.Errorf("--self-timed is given, but the dataset %s has no times", d.Name)
	}
	if o.speedup != 1 && !o.selfTimed {
		return errors.New("--speedup is given without --self-timed")
	}
	return nil
}

// bench is the command at work.
type bench struct {
	env    environment
	o      *benchOptions
	data   dataset
	client *http.Client
	runs   uint64 // runs so far, for prompts that no run before has left in a cache
}

// run does what was asked for. It reports false where a result is not what it was meant to be.
func (b *bench) run(ctx context.Context) (bool, error) {
	if err := load.Ready(ctx, &b.o.target, b.client, b.o.ready, b.o.timeout); err != nil {
		return false, err
	}
	if err := b.tryFiles(); err != nil {
		return false, err
	}
	if b.o.sweep != nil {
		return b.sweep(ctx)
	}
	r, err := b.measure(ctx, b.o.rate)
	if err != nil {
		return false, err
	}
	if err := r.Table(b.env.stdout); err != nil {
		return false, err
	}
	return len(r.Invalid()) == 0 && r.Complete(), b.save(r)
}

// measure makes one run.
func (b *bench) measure(ctx context.Context, rate float64) (*report.Result, error) {
	o := b.o
	arrivals, err := b.arrivals(rate)
	if err != nil {
		return nil, err
	}
	// Each run of a sweep has a text of its own: what one run has left in caches is of no use
	// to the next.
	source := load.Fresh(b.data.Source, b.runs)
	b.runs++
	l := &load.Bench{
		Target: &o.target, Client: b.client, Source: source,
		Text:     workload.Text{BlockTokens: source.BlockTokens, BytesPerToken: o.tokenBytes},
		Arrivals: arrivals, ClosedLoop: math.IsInf(rate, 1), Concurrency: o.concurrency,
		Calls: o.numPrompts, Until: o.duration, Recorded: o.recorded,
		Timeout: o.timeout, SLO: o.slo, Detailed: o.saveDetailed, Progress: &load.Progress{},
	}
	if o.warmups > 0 {
		if err := l.WarmUp(ctx, o.warmups); err != nil {
			return nil, err
		}
	}
	before, err := load.ReadTimings(ctx, b.client, o.pages)
	if err != nil {
		return nil, fmt.Errorf("--metrics-url: %w", err)
	}
	date := time.Now()
	done := b.watch(l.Progress)
	c, stopped := l.Run(ctx)
	done()
	about := b.about(rate, date)
	if stopped != nil {
		about.Stopped = stopped.Error()
		if errors.Is(stopped, context.Canceled) {
			about.Stopped = "interrupted"
		}
	}
	r := c.Result(about)
	if ctx.Err() != nil {
		// Of an interrupted run they are of use, too, but not worth a long wait.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
	}
	after, err := load.ReadTimings(ctx, b.client, o.pages)
	if err != nil {
		fmt.Fprintf(b.env.stderr, "kvasir bench: --metrics-url: %v; the result has nothing of it\n", err)
		return r, nil
	}
	r.Spans = append(r.Spans, after.Since(before)...)
	return r, nil
}

// about says of a run what was not measured.
func (b *bench) about(rate float64, date time.Time) report.Run {
	o := b.o
	ramp := o.ramp
	ramp.Changes = o.rateChanges()
	return report.Run{
		Date: date, Label: o.label, Backend: o.target.Backend.Name, Model: o.target.Model,
		Workload: o.describe(b.data), ClosedLoop: b.closedLoop(rate), Seed: o.seed, Prompts: o.numPrompts,
		Rate: rate, Burstiness: o.burstiness, MaxConcurrency: o.concurrency, Ramp: ramp, SLO: o.slo,
		Metadata: o.metadata, Metrics: o.metrics, Percentiles: o.percentiles, LagBound: o.lagBound,
	}
}

// closedLoop says what of a run waits for answers.
func (b *bench) closedLoop(rate float64) string {
	var waits []string
	if math.IsInf(rate, 1) {
		waits = append(waits, fmt.Sprintf("%d sessions at once, the next one begins when one has ended", b.o.concurrency))
	}
	if !b.data.single && !b.o.recorded {
		waits = append(waits, "within a session a call is sent after the answers that it follows")
	}
	return strings.Join(waits, "; ")
}

// arrivals returns when sessions begin; nil where the dataset or a closed loop says.
func (b *bench) arrivals(rate float64) (iter.Seq[time.Duration], error) {
	o := b.o
	var process arrival.Process
	switch {
	case o.selfTimed, math.IsInf(rate, 1):
		return nil, nil
	case o.ramp.Strategy != "":
		process = o.rampUp()
	default:
		// As in vLLM's benchmark the last of n calls comes at n/rate exactly.
		exactly := 0
		if b.data.single {
			exactly = o.numPrompts
		}
		process = arrival.Gamma{Rate: rate, Burstiness: o.burstiness, Exactly: exactly}
	}
	if err := process.Validate(); err != nil {
		return nil, err
	}
	return process.Instants(o.seed), nil
}

// rampUp is the ramp for so many sessions as there are calls.
func (o *benchOptions) rampUp() arrival.Ramp {
	return arrival.Ramp{Start: o.ramp.Start, End: o.ramp.End, Strategy: o.ramp.Strategy, Burstiness: o.burstiness}.Lasting(o.numPrompts)
}

// mostChanges bounds the list of a ramp's whole rates.
const mostChanges = 10000

// rateChanges returns when a ramp reaches each whole rate.
func (o *benchOptions) rateChanges() []report.RateChange {
	if o.ramp.Strategy == "" {
		return nil
	}
	over := o.rampUp().Over.Seconds()
	start, end := o.ramp.Start, o.ramp.End
	var changes []report.RateChange
	low, high := math.Ceil(min(start, end)), math.Floor(max(start, end))
	for rate := low; rate <= high && len(changes) < mostChanges; rate++ {
		part := 0.0
		if start != end {
			part = (rate - start) / (end - start)
			if o.ramp.Strategy == "exponential" {
				part = math.Log(rate/start) / math.Log(end/start)
			}
		}
		changes = append(changes, report.RateChange{Rate: int(rate), At: time.Duration(part * over * 1e9)})
	}
	if end < start {
		slices.Reverse(changes)
	}
	return changes
}

// watch shows how far a run is, where somebody looks.
func (b *bench) watch(p *load.Progress) (done func()) {
	f, ok := b.env.stderr.(*os.File)
	if !ok || !isTerminal(f) {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				fmt.Fprint(f, "\r\x1b[K")
				return
			case <-tick.C:
				sent, ended := p.Sent.Load(), p.Ended.Load()
				fmt.Fprintf(f, "\r\x1b[K%d of %d sent, %d in flight, %d failed", sent, b.o.numPrompts, sent-ended, p.Failed.Load())
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// sweep makes a run for each rate until the knee is found.
func (b *bench) sweep(ctx context.Context) (bool, error) {
	s := b.o.sweep
	valid := true
	for rate, ok := s.Next(); ok; rate, ok = s.Next() {
		fmt.Fprintf(b.env.stderr, "kvasir bench: %.4g req/s\n", rate)
		r, err := b.measure(ctx, rate)
		if err != nil && ctx.Err() != nil {
			fmt.Fprintf(b.env.stdout, "INCOMPLETE: interrupted before %.4g req/s\n", rate)
			valid = false
			break
		}
		if err != nil {
			return false, err
		}
		left := r.Stopped != "" && ctx.Err() != nil
		if !left {
			s.Add(rate, r)
		}
		if b.o.saveResult {
			if err := b.saveJSON(r); err != nil {
				return false, err
			}
		}
		if left {
			fmt.Fprintf(b.env.stdout, "INCOMPLETE: %s at %.4g req/s, which is left out\n", r.Stopped, rate)
			valid = false
			break
		}
		if lag, late := r.Late(); late {
			fmt.Fprintf(b.env.stderr, "kvasir bench: this run does not count: the generator fell behind, by %.4g ms at its 99th percentile, over the bound of %v\n", lag*1e3, r.LagBound)
		}
	}
	if err := s.Table(b.env.stdout); err != nil {
		return false, err
	}
	_, found := s.Knee()
	_, unmeasured := s.Unmeasured()
	return valid && found && !unmeasured, b.saveSweep(s)
}
