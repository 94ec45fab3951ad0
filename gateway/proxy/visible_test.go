package proxy_test

import (
	"strings"
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// Article section 9.5: where reasoning is not shown, an answer that breaks off in it can be had
// elsewhere, and the client sees one preamble, one reasoning and one answer; where it is shown, that
// ends in an error.
func TestFirstVisible_BreakInReasoningGoesElsewhere(t *testing.T) {
	for name, d := range dialects() {
		if name == "completions" {
			continue // they have no reasoning
		}
		for _, visible := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				s := ordered(
					func(c *scripted.Call) { events(c, d.preamble, d.think, d.think); c.FIN() },
					streams(d.preamble, d.think, d.text, d.end),
				)
				s.config = func(c *proxy.Config) { c.Models[0].FirstVisible = visible }
				r := newRig(t, s)
				defer r.close()
				a := r.post(d.path, d.request)
				c := r.record()
				if !visible {
					if c.int("attempts") != 1 || c.string("outcome") != "endpoint_failure" || c.has("first_reasoning_seconds") {
						t.Errorf("shown: %v", c)
					}
					return
				}
				if a.status != 200 || a.body != d.preamble+d.think+d.text+d.end {
					t.Errorf("status %d, %q", a.status, a.body)
				}
				if c.int("attempts") != 2 || c.string("outcome") != "success" {
					t.Errorf("record %v", c)
				}
				if think, ttft := c.get("first_reasoning_seconds").Float64(), c.get("ttft_seconds").Float64(); think <= 0 || think > ttft {
					t.Errorf("the first reasoning came after %v s, the first visible token after %v", think, ttft)
				}
			})
		}
	}
}

// A hedge may win while the first attempt thinks, and thinking is progress: no time to first token
// ends it.
func TestFirstVisible_TheHedgeMayWinWhileTheFirstThinks(t *testing.T) {
	d := dialects()["chat"]
	s := hedged(2, func(c *scripted.Call, before int) {
		if before == 0 {
			c.EventStream()
			_ = c.Chunk(d.preamble)
			for c.Chunk(d.think) == nil && c.Pause(20*time.Millisecond) {
			}
			return
		}
		c.Stream(d.preamble, textEvent("second"), d.end)
	})
	on := s.config
	s.config = func(c *proxy.Config) {
		on(c)
		c.Models[0].FirstVisible = true
		c.Models[0].Machine.Hedge = attempt.HedgeConfig{Ratio: 1, After: 5 * hedgeAfter}
		c.Timeouts.FirstToken = 2 * hedgeAfter
	}
	r := newRig(t, s)
	defer r.close()
	a := r.post(d.path, d.request)
	one(t, a, "second", "hm")
	if a.header.Get("X-Kvasir-Hedged") != "won" || r.upstreamCalls() != 2 {
		t.Errorf("%v after %d requests upstream", a.header, r.upstreamCalls())
	}
}

// More reasoning than limits.preamble is let go, and ends the choice.
func TestFirstVisible_HoldsNoMoreThanThePreamble(t *testing.T) {
	d := dialects()["chat"]
	think := strings.Replace(d.think, "hm", strings.Repeat("m", 4000), 1)
	s := ordered(
		func(c *scripted.Call) {
			c.EventStream()
			for range 40 {
				_ = c.Chunk(think)
			}
			c.Pause(20 * time.Millisecond)
			c.FIN()
		},
		streams(d.preamble, d.text, d.end),
	)
	s.config = func(c *proxy.Config) { c.Models[0].FirstVisible = true }
	r := newRig(t, s)
	defer r.close()
	if a := r.post(d.path, d.request); !strings.Contains(a.body, "mmmm") || !strings.Contains(a.body, "upstream_broke_off") {
		t.Errorf("status %d: %.100q … %.200q", a.status, a.body, a.body[max(len(a.body)-200, 0):])
	}
	if c := r.record(); c.int("attempts") != 1 {
		t.Errorf("record %v", c)
	}
}
