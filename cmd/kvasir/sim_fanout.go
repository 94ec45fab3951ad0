package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kvasir/config"
	"kvasir/gateway/limit"
	"kvasir/sim"
)

// parseFanOut reads --fan-out: KEY=VALUE, separated by commas; the defaults are the file's.
// nil: conversations have no bound. The error has every mistake.
func parseFanOut(text string) (*sim.Limits, error) {
	if text == "" {
		return nil, nil
	}
	usual := config.DefaultFanOut()
	l := &sim.Limits{Config: limit.Config{FanOut: limit.FanOut{Waiting: usual.Waiting}}, MaxWait: usual.MaxWait}
	k := keys{flag: "--fan-out"}
	for key, value := range k.all(text) {
		switch key {
		case "concurrency":
			l.FanOut.Concurrency = k.integer(key, value, 1, 100_000)
		case "waiting":
			l.FanOut.Waiting = k.integer(key, value, 0, 100_000)
		case "max-wait":
			l.MaxWait = k.duration(key, value, 10*time.Millisecond, time.Hour, "10ms to 1h")
		default:
			k.wrong("unknown key %q; allowed: concurrency, waiting, max-wait", key)
		}
	}
	if !k.seen["concurrency"] {
		k.wrong("%q has no concurrency: nothing would wait", text)
	}
	return l, k.err()
}

// joined joins the texts that are not empty.
func joined(between string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), between)
}

// fanOutText names what bounds a session's calls; "": nothing does.
func fanOutText(l *sim.Limits) string {
	if l == nil || l.FanOut.Concurrency == 0 {
		return ""
	}
	return fmt.Sprintf("a session has %d calls at a time, and at most %d wait for %v", l.FanOut.Concurrency, l.FanOut.Waiting, l.MaxWait)
}
