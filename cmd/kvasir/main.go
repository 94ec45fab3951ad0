// Command kvasir is the load balancer for LLM calls: gateway, emulated engines and
// demo in one binary. Each subcommand has a file of its own; this one only finds it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// environment is what a subcommand may touch of the process.
type environment struct {
	stdout, stderr io.Writer
	getenv         func(string) string
}

// misused prints every mistake of a command line, a line each, and where what it may have is
// listed. It returns the exit code.
func (e environment) misused(command string, err error, listed string) int {
	for _, mistake := range flatten(err) {
		fmt.Fprintf(e.stderr, "kvasir %s: %v\n", command, mistake)
	}
	fmt.Fprintf(e.stderr, "kvasir %s -h lists %s.\n", command, listed)
	return 2
}

// flatten returns the errors that were joined, none for nil.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if err == nil {
			return nil
		}
		return []error{err}
	}
	var flat []error
	for _, e := range joined.Unwrap() {
		flat = append(flat, flatten(e)...)
	}
	return flat
}

// command is one subcommand. run returns the process's exit code: 0 done, 1 failed,
// 2 called wrongly.
type command struct {
	name, summary string
	run           func(ctx context.Context, env environment, args []string) int
}

var commands = []command{
	{"demo", "run emulated engines, the gateway and some traffic in one process", runDemo},
	{"serve", "run the gateway of a configuration file", runServe},
	{"config", "check a configuration file, or print an example or the schema", runConfig},
	{"key", "make a client's key, or hash one", runKey},
	{"sim", "play a workload under any policies, in virtual time", runSim},
	{"results", "set policies beside each other on many pools and workloads", runResults},
	{"bench", "send load to an endpoint and measure how it is answered", runBench},
	{"trace", "describe, convert and show traces of LLM calls", runTrace},
	{"plan", "size a pool by closed forms", runPlan},
	{"lab", "run the article's experiments", runLab},
	{"engine", "run one emulated engine behind vLLM's HTTP API", runEngine},
	{"version", "say which source this binary was built from", runVersion},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGPIPE) // whoever reads the log may go; the service does not
	context.AfterFunc(ctx, stop)   // a second signal ends the process at once
	env := environment{stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	code := run(ctx, env, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, env environment, args []string) int {
	if len(args) == 0 {
		usage(env.stderr)
		return 2
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(env.stdout)
		return 0
	case "-version", "--version":
		return runVersion(ctx, env, nil)
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, env, args[1:])
		}
	}
	fmt.Fprintf(env.stderr, "kvasir: no command %q\n\n", args[0])
	usage(env.stderr)
	return 2
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Kvasir balances LLM calls over the endpoints that can answer them.\n\nusage: kvasir COMMAND [flags]\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-8s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\nkvasir COMMAND -h lists a command's flags.\n")
}
