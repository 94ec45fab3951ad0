package telemetry

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Article section 2: TTFT + (n-1) × TPOT is the end-to-end time, and so is n times the
// normalized latency. Durations are whole nanoseconds, so each division loses below one.
func TestLatenciesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4096).Draw(t, "output tokens")
		ttft := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "ttft"))
		rest := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "rest"))
		c := &Call{Outcome: Success, Stream: true, UsageKnown: true, OutputTokens: n, TTFT: ttft, E2E: ttft + rest}
		tpot, ok := c.TPOT()
		if ok != (n > 1) {
			t.Fatalf("TPOT of %d tokens known: %v", n, ok)
		}
		if lost := rest - time.Duration(n-1)*tpot; ok && (lost < 0 || lost >= time.Duration(n-1)) {
			t.Fatalf("TTFT + %d × %v misses the end by %v", n-1, tpot, lost)
		}
		norm, ok := c.Normalized()
		if lost := c.E2E - time.Duration(n)*norm; !ok || lost < 0 || lost >= time.Duration(n) {
			t.Fatalf("%d × %v (known: %v) misses the end by %v", n, norm, ok, lost)
		}
	})
}

func TestLatenciesAreUnknown_WhenNotMeasured(t *testing.T) {
	whole := Call{Outcome: Success, Stream: true, UsageKnown: true, OutputTokens: 2, TTFT: 1, E2E: 3}
	if _, ok := whole.TPOT(); !ok {
		t.Fatal("TPOT of a whole call is unknown")
	}
	for name, change := range map[string]func(*Call){
		"failed":         func(c *Call) { c.Outcome = EndpointFailure },
		"not streamed":   func(c *Call) { c.Stream = false },
		"no usage":       func(c *Call) { c.UsageKnown = false },
		"one token":      func(c *Call) { c.OutputTokens = 1 },
		"no first token": func(c *Call) { c.TTFT = 0 },
		"ends early":     func(c *Call) { c.E2E = 0 },
	} {
		c := whole
		change(&c)
		if d, ok := c.TPOT(); ok {
			t.Errorf("%s: TPOT is %v, want unknown", name, d)
		}
	}
	for name, c := range map[string]Call{
		"failed":    {Outcome: ClientGone, UsageKnown: true, OutputTokens: 2, E2E: 3},
		"no usage":  {Outcome: Success, OutputTokens: 2, E2E: 3},
		"embedding": {Outcome: Success, UsageKnown: true, E2E: 3},
	} {
		if d, ok := c.Normalized(); ok {
			t.Errorf("%s: normalized latency is %v, want unknown", name, d)
		}
	}
}

func TestNamesAreDistinctAndTotal(t *testing.T) {
	seen := map[string]bool{}
	add := func(kind, name string) {
		if name == "" && kind != "refusal 0" {
			t.Errorf("%s has no name", kind)
		}
		if seen[kind[:3]+name] {
			t.Errorf("%s: %q is taken", kind, name)
		}
		seen[kind[:3]+name] = true
	}
	for o := range outcomes {
		add("outcome", o.String())
	}
	for r := range refusals {
		kind := "refusal"
		if r == NotRefused {
			kind = "refusal 0"
		}
		add(kind, r.String())
	}
	for o := range oddities {
		add("stream oddity", o.String())
	}
	for _, s := range []string{Outcome(200).String(), Refusal(200).String(), Oddity(200).String()} {
		if s != "unclassified" {
			t.Errorf("out of range: %q, want unclassified", s)
		}
	}
}
