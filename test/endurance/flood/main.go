// Command flood keeps thousands of streams open through the gateway, with clients that
// leave at random and clients that read slowly or not at all, and looks at what the
// gateway's process holds: before, at most, and after. Everything must come back to where
// it was. It ends with tables, and with status 1 where a promise was broken.
//
//	go run ./flood -for 10s -streams 500
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
	streams int
	seed    uint64
	every   time.Duration
	events  int
	binary  string
	abort   time.Duration
	rss     int64
	heap    int64
}

func main() {
	o, err := parse(os.Args[1:], os.Getenv)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(2)
	}
	broken, err := run(os.Stdout, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(1)
	}
	if broken > 0 {
		fmt.Printf("FAILED: %d violations, seed %d\n", broken, o.seed)
		os.Exit(1)
	}
	fmt.Printf("ok: no violation, seed %d\n", o.seed)
}

func parse(args []string, getenv func(string) string) (options, error) {
	length := time.Minute
	if s := getenv("FLOOD"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			return options{}, fmt.Errorf("FLOOD is %q; allowed: a duration such as 10s", s)
		}
		length = d
	}
	var o options
	f := flag.NewFlagSet("flood", flag.ContinueOnError)
	f.DurationVar(&o.length, "for", length, "how long new streams are begun; the variable FLOOD sets the default")
	f.IntVar(&o.streams, "streams", 2000, "streams at a time")
	f.Uint64Var(&o.seed, "seed", 0, "of everything that is random; 0 takes one from the clock")
	f.DurationVar(&o.every, "every", 400*time.Millisecond, "between two events of a stream")
	f.IntVar(&o.events, "events", 24, "most events of a stream")
	f.StringVar(&o.binary, "binary", "", "a kvasir to run; empty builds one")
	f.DurationVar(&o.abort, "abort", 4*time.Second, "until an abort must have reached the upstream: 500ms, by eight for a machine that is full")
	f.Int64Var(&o.rss, "rss", 1024, "MiB of resident memory that the gateway may have")
	f.Int64Var(&o.heap, "heap", 24, "MiB of heap that may stay behind")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%q is not a flag", f.Arg(0))
	case o.streams < 1 || o.events < 2:
		return o, fmt.Errorf("-streams is %d and -events %d; allowed: 1 and 2, or more", o.streams, o.events)
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	return o, nil
}

// run makes a run and returns how many violations it found.
func run(out io.Writer, o options) (broken int, err error) {
	f, err := newFlood(out, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	f.load()
	if err := f.settle(); err != nil {
		return 0, err
	}
	f.print()
	return f.book.Rules.Broken(), nil
}
