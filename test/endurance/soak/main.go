// Command soak runs the gateway under random faults on both sides and holds every call
// against the invariants: kvasir serve in a process of its own, six upstreams that write
// byte for byte what a seeded plan says, clients of twenty kinds. What the client saw, the
// gateway recorded and the upstreams noted is joined by the call's id. It ends with tables, a
// summary, and status 1 where a promise was broken.
//
//	go run ./soak -for 1m
//	go run ./soak -seed 7 -call 1234 -repeat 50    plays one call of seed 7 again
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// options is what a run can be told.
type options struct {
	length  time.Duration
	seed    uint64
	clients int
	call    uint64
	repeat  int
	binary  string
	abort   time.Duration
	bound   time.Duration
	rss     int64
	verbose bool
}

func main() {
	o, err := parse(os.Args[1:], os.Getenv)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	broken, err := run(os.Stdout, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	if broken > 0 {
		fmt.Printf("FAILED: %d violations, seed %d\n", broken, o.seed)
		os.Exit(1)
	}
	fmt.Printf("ok: no violation, seed %d\n", o.seed)
}

func parse(args []string, getenv func(string) string) (options, error) {
	length := 10 * time.Minute
	if s := getenv("SOAK"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			return options{}, fmt.Errorf("SOAK is %q; allowed: a duration such as 1m", s)
		}
		length = d
	}
	var o options
	f := flag.NewFlagSet("soak", flag.ContinueOnError)
	f.DurationVar(&o.length, "for", length, "how long calls are made; the variable SOAK sets the default")
	f.Uint64Var(&o.seed, "seed", 0, "of everything that is random; 0 takes one from the clock")
	f.IntVar(&o.clients, "clients", 48, "clients at a time")
	f.Uint64Var(&o.call, "call", 0, "make this call only, as a run of the seed would have; 0: all")
	f.IntVar(&o.repeat, "repeat", 1, "make the one call so often")
	f.StringVar(&o.binary, "binary", "", "a kvasir to run; empty builds one")
	f.DurationVar(&o.abort, "abort", 2*time.Second, "until an abort must have reached the upstream: 500ms, by four for a busy machine")
	f.DurationVar(&o.bound, "bound", 20*time.Second, "until a client that stays must have its answer")
	f.Int64Var(&o.rss, "rss", 512, "MiB of resident memory that the gateway may have")
	f.BoolVar(&o.verbose, "v", false, "print the gateway's warnings")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%q is not a flag", f.Arg(0))
	case o.clients < 1 || o.repeat < 1:
		return o, fmt.Errorf("-clients is %d and -repeat %d; allowed: 1 or more", o.clients, o.repeat)
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	return o, nil
}

// run makes a run and returns how many violations it found.
func run(out io.Writer, o options) (broken int, err error) {
	s, err := newSoak(out, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.warm(); err != nil {
		return 0, err
	}
	s.load()
	if err := s.settle(); err != nil {
		return 0, err
	}
	s.print()
	s.summary()
	return s.book.Rules.Broken(), nil
}
