// Command kill ends processes under load and counts what that costs: one of four kvasir
// engine processes by SIGKILL, with calls that wait for their first token on it; the
// gateway by SIGTERM; the gateway by SIGKILL. It ends with tables, and with status 1 where
// a promise was broken.
//
//	go run ./kill -clients 200
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
	seed     uint64
	clients  int
	inFlight int
	awaiting int
	speed    float64
	seqs     int
	tokens   int
	binary   string
	gone     time.Duration
	ejection time.Duration
	hold     time.Duration
	verbose  bool
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(2)
	}
	broken, err := run(os.Stdout, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(1)
	}
	if broken > 0 {
		fmt.Printf("FAILED: %d violations, seed %d\n", broken, o.seed)
		os.Exit(1)
	}
	fmt.Printf("ok: no violation, seed %d\n", o.seed)
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("kill", flag.ContinueOnError)
	f.Uint64Var(&o.seed, "seed", 0, "of everything that is random; 0 takes one from the clock")
	f.IntVar(&o.clients, "clients", 360, "clients, each with one call at a time")
	f.IntVar(&o.inFlight, "in-flight", 200, "calls that must be in flight when something is killed")
	f.IntVar(&o.awaiting, "awaiting", 50, "calls that must wait for their first token on the engine that is killed")
	f.Float64Var(&o.speed, "speed", 0.2, "of the engines: engine seconds a real second")
	f.IntVar(&o.seqs, "seqs", 24, "requests that an engine runs at once; the others wait in it")
	f.IntVar(&o.tokens, "tokens", 40, "tokens of an answer")
	f.StringVar(&o.binary, "binary", "", "a kvasir to run; empty builds one")
	f.DurationVar(&o.gone, "gone", 2*time.Second, "until an engine that was killed must have left rotation")
	f.DurationVar(&o.ejection, "ejection", 5*time.Second, "health.ejection of the gateway")
	f.DurationVar(&o.hold, "hold", 3*time.Second, "load between two acts")
	f.BoolVar(&o.verbose, "v", false, "print the gateway's warnings")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%q is not a flag", f.Arg(0))
	case o.clients < o.inFlight || o.clients < 1 || o.tokens < 2:
		return o, fmt.Errorf("-clients is %d and -tokens %d; allowed: at least -in-flight (%d), and 2", o.clients, o.tokens, o.inFlight)
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	return o, nil
}

// run makes a run and returns how many violations it found.
func run(out io.Writer, o options) (broken int, err error) {
	k, err := newStage(out, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	for _, act := range []func() error{k.killEngine, k.drainGateway, k.killGateway} {
		if err := act(); err != nil {
			return 0, err
		}
	}
	fmt.Fprintln(out)
	k.rules.Print(out)
	return k.rules.Broken(), nil
}
