package sim

import (
	"testing"
	"time"

	"kvasir/accelerator"
	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
)

// An idle engine's first token comes when Unloaded says, to the nanosecond.
func TestUnloaded_IsAnIdleEnginesFirstToken(t *testing.T) {
	for _, device := range []string{"h100", "a100"} {
		profile, err := accelerator.Lookup("llama-3.1-8b/" + device)
		if err != nil {
			t.Fatal(err)
		}
		for _, chunked := range []bool{true, false} {
			c := engine.Defaults(profile)
			c.ChunkedPrefill = chunked
			for _, tokens := range []int{1, 16, 2047, 2048, 2049, 8192, 8193, 30000, 130000} {
				e, err := engine.New(c)
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Submit(0, engine.Request{ID: 1, PromptTokens: tokens, OutputTokens: 3, Reason: engine.Stop}); err != nil {
					t.Fatal(err)
				}
				first := mono.Time(0)
				for first == 0 {
					at, ok := e.Next()
					if !ok {
						t.Fatalf("%s: no first token of %d", device, tokens)
					}
					for _, o := range e.Advance(at) {
						if first == 0 && o.Tokens > 0 {
							first = o.At
						}
					}
				}
				if got := Unloaded(&c, tokens); mono.Time(got)+1 != first { // the first step begins a nanosecond after a request has come
					t.Errorf("%s, chunked %v, %d tokens: %v, and the engine takes %v", device, chunked, tokens, got, time.Duration(first))
				}
			}
		}
	}
}

func TestMeter_WidensTheBoundByTheUnloadedPrefill(t *testing.T) {
	m := NewMeter(0, mono.Never, SLO{TTFT: 2 * time.Second, Prefill: 3}, 1)
	m.Unloaded = func(tokens int) time.Duration { return time.Duration(tokens) * time.Millisecond }
	for _, c := range []struct {
		prompt int
		ttft   time.Duration
		good   bool
	}{
		{1, 2 * time.Second, true}, {1, 2*time.Second + 1, false},
		{1000, 3 * time.Second, true}, {1000, 3*time.Second + 1, false},
	} {
		m.good = 0
		m.Call(&Record{First: mono.Time(c.ttft), End: mono.Time(c.ttft), Prompt: c.prompt, Tokens: 1, Outcome: attempt.Success})
		if (m.good == 1) != c.good {
			t.Errorf("%d tokens after %v: good is %v", c.prompt, c.ttft, !c.good)
		}
	}
}
