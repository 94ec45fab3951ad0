// Command gateway measures what a gateway costs: Kvasir beside a bare
// httputil.ReverseProxy and nginx, all before the same upstream, in one interleaved run.
// It needs Linux: CPU time is read from /proc.
//
// Every part is a process of its own, so that its CPU time is its own: this program
// orders the run and starts itself again as upstream, as bare proxy and as client.
// README.md says how to read the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-gateway: %v\n", err)
		os.Exit(1)
	}
}

// run is the whole program. The first argument may name a part that a run starts.
func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "upstream":
			return serveUpstream(ctx, args[1:])
		case "reverse-proxy":
			return serveReverseProxy(ctx, args[1:])
		case "load":
			return serveLoad(os.Stdin, os.Stdout)
		}
	}
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	return measure(ctx, o)
}

// options is what a run can be told.
type options struct {
	quick   bool
	rounds  int
	slot    time.Duration // how long one cell of one target runs in one round
	kvasir  string        // binary; empty: it is built
	beside  []beside
	targets *regexp.Regexp
	cells   *regexp.Regexp
	out     string
	profile string
	args    []string
}

// beside is a further kvasir binary to measure in the same run.
type beside struct{ name, binary string }

const usage = `usage: bench/gateway/run [flags]

Measures CPU per call and latency of kvasir, httputil.ReverseProxy and nginx before one
upstream, and of direct calls.

examples:
  bench/gateway/run                                     all of it, five minutes
  bench/gateway/run -quick                              does it work: no figures to quote
  bench/gateway/run -with old=/tmp/kvasir-old           two builds in one run
  bench/gateway/run -cells '^4 KB' -targets '^kvasir$'  a part of it
  bench/gateway/run -profile /tmp/p -cells '^400 KB'    where the CPU goes (needs perf)

`

func parseOptions(args []string) (options, error) {
	o := options{args: args}
	f := flag.NewFlagSet("bench-gateway", flag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(f.Output(), usage); f.PrintDefaults() }
	f.BoolVar(&o.quick, "quick", false, "a short run over fewer cells, to see that everything works")
	f.IntVar(&o.rounds, "rounds", 0, "rounds over all targets (default 7, quick 2)")
	f.DurationVar(&o.slot, "slot", 0, "time of one cell of one target in one round (default 700ms, quick 100ms)")
	f.StringVar(&o.kvasir, "kvasir", "", "kvasir binary to measure (default: built from this tree)")
	f.Func("with", "NAME=BINARY: a further kvasir binary to measure beside; may be repeated", func(v string) error {
		name, binary, ok := strings.Cut(v, "=")
		if !ok || name == "" || binary == "" {
			return fmt.Errorf("expected NAME=BINARY")
		}
		o.beside = append(o.beside, beside{name, binary})
		return nil
	})
	targets := f.String("targets", "", "regular expression of the targets to measure; direct and reverse-proxy always are")
	cells := f.String("cells", "", "regular expression of the cells to measure")
	f.StringVar(&o.out, "out", "", "file to write the raw results to, as JSON")
	f.StringVar(&o.profile, "profile", "", "instead of measuring: profile the targets with perf, reports go to this folder")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; -h lists the flags", f.Arg(0))
	}
	if o.rounds < 0 || o.slot < 0 {
		return o, fmt.Errorf("-rounds and -slot must not be negative")
	}
	o.fill()
	var err error
	if o.targets, err = regexp.Compile(*targets); err != nil {
		return o, fmt.Errorf("-targets: %w", err)
	}
	if o.cells, err = regexp.Compile(*cells); err != nil {
		return o, fmt.Errorf("-cells: %w", err)
	}
	return o, nil
}

// fill sets what was not given.
func (o *options) fill() {
	rounds, slot := 7, 700*time.Millisecond
	if o.quick {
		rounds, slot = 2, 100*time.Millisecond
	}
	if o.rounds == 0 {
		o.rounds = rounds
	}
	if o.slot == 0 {
		o.slot = slot
	}
}
