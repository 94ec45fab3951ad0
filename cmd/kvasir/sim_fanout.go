package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	var errs []error
	number := func(key, value string, least int) int {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > 100_000 {
			errs = append(errs, fmt.Errorf("--fan-out: %s: %q is not allowed; allowed: %d to 100000", key, value, least))
		}
		return n
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		if seen[key] {
			errs = append(errs, fmt.Errorf("--fan-out: %s is given twice", key))
		}
		seen[key] = true
		switch key {
		case "concurrency":
			l.FanOut.Concurrency = number(key, value, 1)
		case "waiting":
			l.FanOut.Waiting = number(key, value, 0)
		case "max-wait":
			d, err := time.ParseDuration(value)
			if err != nil || d < 10*time.Millisecond || d > time.Hour {
				errs = append(errs, fmt.Errorf("--fan-out: %s: %q is not allowed; allowed: 10ms to 1h", key, value))
			}
			l.MaxWait = d
		default:
			errs = append(errs, fmt.Errorf("--fan-out: unknown key %q; allowed: concurrency, waiting, max-wait", key))
		}
	}
	if !seen["concurrency"] {
		errs = append(errs, fmt.Errorf("--fan-out: %q has no concurrency: nothing would wait", text))
	}
	return l, errors.Join(errs...)
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
