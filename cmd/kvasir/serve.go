package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"kvasir/config"
	"kvasir/telemetry"
)

const serveUsage = `usage: kvasir serve --config FILE

Serves the models of the configuration file. SIGTERM or SIGINT drains: readiness goes
first, drain_delay later the listener, and calls in flight get the time that drain gives
them. A second signal ends the process at once. SIGHUP reads the file anew, and so does a
change of it where watch_file is set: what stays keeps its calls and all that was learned,
and a file that is wrong changes nothing.

example:
  kvasir config example > kvasir.yaml
  kvasir serve --config kvasir.yaml
`

// keptLogLines bounds the log lines that wait for a stderr that nobody reads.
const keptLogLines = 4096

// runServe is kvasir serve: the gateway of a configuration file.
func runServe(ctx context.Context, env environment, args []string) int {
	flags := flag.NewFlagSet("kvasir serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	file := flags.String("config", "", "")
	switch err := flags.Parse(args); {
	case err == flag.ErrHelp:
		fmt.Fprint(env.stdout, serveUsage)
		return 0
	case err != nil:
		fmt.Fprintf(env.stderr, "kvasir serve: %v\n\n%s", err, serveUsage)
		return 2
	case *file == "" || flags.NArg() > 0:
		fmt.Fprintf(env.stderr, "kvasir serve: expected --config FILE and nothing else\n\n%s", serveUsage)
		return 2
	}
	// Caught from the first to the last: a SIGHUP that comes while it starts or drains would
	// end the process, and the calls with it.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	c, err := config.Load(*file, config.Env{Getenv: env.getenv})
	if err != nil {
		if problems, ok := errors.AsType[config.Problems](err); ok {
			fmt.Fprintln(env.stderr, problems)
			err = fmt.Errorf("%s in %s", count(len(problems), "problem"), *file)
		}
		fmt.Fprintf(env.stderr, "kvasir serve: %v\n", err)
		return 1
	}
	lines := telemetry.NewLines(env.stderr, keptLogLines)
	defer lines.Close()
	var level slog.LevelVar
	level.Set(logLevel(c))
	log := newLogger(lines, &level)
	r := &reloader{path: *file, env: env}
	n, err := startNode(c, nodeOptions{log: log, level: &level, reload: r.reload})
	if err != nil {
		fmt.Fprintf(env.stderr, "kvasir serve: %v\n", err)
		return 1
	}
	r.node = n
	reloading, stopReloading := context.WithCancel(ctx)
	defer stopReloading()
	go r.run(reloading, hangups, c.WatchFile)
	log.Info("serving", "version", buildVersion(), "listen", n.dataAddr, "admin", n.adminAddr, "page", "http://"+n.adminAddr+"/", "models", len(c.Models), "seed", c.Seed)
	code := 0
	select {
	case <-ctx.Done():
		c = n.current()
		log.Info("draining", "delay", c.DrainDelay.String(), "grace", c.Drain.String())
	case err := <-n.failed:
		log.Error("a listener failed", "error", err.Error())
		code = 1
	}
	if err := n.stop(c.DrainDelay, c.Drain); err != nil {
		log.Warn("stopped", "error", err.Error())
		return code
	}
	log.Info("stopped")
	return code
}
