package proxy_test

import (
	"strings"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

func withTimeouts(s setup, x proxy.Timeouts) setup {
	s.config = func(c *proxy.Config) { c.Timeouts = x }
	return s
}

const (
	short = 150 * time.Millisecond
	long  = 10 * time.Second
)

// Each timeout is kept apart from the others and has an error of its own; before the
// first content another attempt follows (field cases F32 and F33).
func TestTimeouts_EachHasItsEffectAndItsError(t *testing.T) {
	hold := func(c *scripted.Call) { c.Hold() }
	headerOnly := func(c *scripted.Call) { c.EventStream(); c.Hold() }
	pings := func(c *scripted.Call) {
		c.EventStream()
		for c.Chunk(": ping\n\n") == nil && c.Pause(20*time.Millisecond) {
		}
	}
	fewThenNothing := func(c *scripted.Call) { events(c, roleEvent, textEvent("one")); c.Hold() }
	fewThenPings := func(c *scripted.Call) {
		events(c, roleEvent, textEvent("one"))
		for c.Chunk(": ping\n\n") == nil && c.Pause(20*time.Millisecond) {
		}
	}
	tokens := func(c *scripted.Call) {
		events(c, roleEvent)
		for c.Chunk(textEvent("x")) == nil && c.Pause(20*time.Millisecond) {
		}
	}
	halfJSON := func(c *scripted.Call) {
		c.Head(200, "Content-Type: application/json", "Content-Length: 500")
		_ = c.Write(`{"id":`)
		c.Hold()
	}
	for name, x := range map[string]struct {
		limits  proxy.Timeouts
		script  scripted.Script
		request string
		before  bool // nothing was sent: an error with a status
		code    string
		outcome string
	}{
		"header":                  {proxy.Timeouts{Header: short, FirstToken: long}, hold, streamed, true, "upstream_header_timeout", "header_timeout"},
		"first token, no header":  {proxy.Timeouts{Header: long, FirstToken: short}, hold, streamed, true, "upstream_first_token_timeout", "first_token_timeout"},
		"first token, silence":    {proxy.Timeouts{Header: short, FirstToken: 2 * short}, headerOnly, streamed, true, "upstream_first_token_timeout", "first_token_timeout"},
		"first token, only pings": {proxy.Timeouts{FirstToken: short, Progress: long, Idle: long}, pings, streamed, true, "upstream_first_token_timeout", "first_token_timeout"},
		"idle":                    {proxy.Timeouts{FirstToken: long, Progress: long, Idle: short}, fewThenNothing, streamed, false, "upstream_stalled", "stalled"},
		"progress, pings":         {proxy.Timeouts{FirstToken: long, Progress: short, Idle: long}, fewThenPings, streamed, false, "upstream_stalled", "stalled"},
		"total, of a stream":      {proxy.Timeouts{FirstToken: long, Progress: long, Total: 2 * short}, tokens, streamed, false, "upstream_overdue", "overdue"},
		"total, before anything":  {proxy.Timeouts{Total: short}, hold, unstreamed, true, "upstream_overdue", "overdue"},
		"idle, in a body":         {proxy.Timeouts{Idle: short}, halfJSON, unstreamed, false, "", "stalled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withTimeouts(ordered(x.script), x.limits))
			defer r.close()
			began := time.Now()
			a := r.post(chatPath, x.request)
			if took := time.Since(began); took < short || took > 5*time.Second {
				t.Errorf("ended after %v", took)
			}
			switch {
			case x.code == "":
				if a.err == nil {
					t.Errorf("half an answer ends cleanly: %q", a.body)
				}
			case x.before:
				if e := envelope(t, a.body); a.status != 504 || e.Code != x.code {
					t.Errorf("status %d, %q", a.status, a.body)
				}
			default:
				_, last, _ := strings.Cut(a.body, `data: {"error"`)
				if e := envelope(t, `{"error"`+last); e.Code != x.code || strings.Contains(a.body, "[DONE]") {
					t.Errorf("%q", a.body)
				}
			}
			if n := r.metric("kvasir_attempt_failures_total", "kind="+x.outcome); n != 1 {
				t.Errorf("%v failures of kind %s are counted", n, x.outcome)
			}
			eventually(t, 2*time.Second, func() bool { return !r.upstreams[0].Calls()[0].Aborted.IsZero() },
				func() string { return "the upstream saw no abort" })
		})
	}
}

func TestTimeouts_BeforeContentAreTriedElsewhere(t *testing.T) {
	s := ordered(func(c *scripted.Call) { c.EventStream(); c.Hold() }, streams(wholeStream("yes")...))
	r := newRig(t, withTimeouts(s, proxy.Timeouts{FirstToken: short}))
	defer r.close()
	if a := r.post(chatPath, streamed); a.status != 200 || a.body != joined(wholeStream("yes")) {
		t.Errorf("status %d, %q", a.status, a.body)
	}
}

// A healthy stream outlives every timeout but the one on its total.
func TestF32_AHealthyStreamOutlivesTheRequestsTimeouts(t *testing.T) {
	s := ordered(func(c *scripted.Call) {
		events(c, roleEvent)
		for range 12 {
			if c.Chunk(textEvent("x")) != nil || !c.Pause(short/2) {
				return
			}
		}
		_ = c.Chunk(finishEvent + doneEvent)
		c.LastChunk()
	})
	r := newRig(t, withTimeouts(s, proxy.Timeouts{Header: short, FirstToken: short, Progress: 2 * short, Idle: 2 * short}))
	defer r.close()
	if a := r.post(chatPath, streamed); a.err != nil || !strings.HasSuffix(a.body, doneEvent) {
		t.Errorf("%v after %q", a.err, a.body)
	}
}

// A model that thinks for long before its first token is not idle.
func TestF33_TheWaitForTheFirstTokenIsNotIdleness(t *testing.T) {
	s := ordered(func(c *scripted.Call) {
		c.EventStream()
		if c.Pause(4 * short) {
			_ = c.Chunk(joined(wholeStream("at last")))
			c.LastChunk()
		}
	})
	r := newRig(t, withTimeouts(s, proxy.Timeouts{Header: short, FirstToken: long, Progress: short, Idle: short}))
	defer r.close()
	if a := r.post(chatPath, streamed); a.status != 200 || a.body != joined(wholeStream("at last")) {
		t.Errorf("status %d, %q", a.status, a.body)
	}
}

// An engine that hangs behind a server that lives leaves rotation, whatever its health
// path says, and its callers are served by others.
func TestF34_AHungEngineLeavesRotation(t *testing.T) {
	s := pooled(func(c *scripted.Call) { c.Hold() }, streams(wholeStream("b")...), streams(wholeStream("c")...))
	s.policy = "least-outstanding"
	r := newRig(t, withTimeouts(s, proxy.Timeouts{Header: short, FirstToken: short}))
	defer r.close()
	for range 40 {
		if a := r.post(chatPath, streamed); a.status != 200 {
			t.Fatalf("status %d, %q", a.status, a.body)
		}
	}
	if n := len(r.upstreams[0].Calls()); n > 4 {
		t.Errorf("%d calls went to the endpoint that hangs", n)
	}
	if n := r.metric("kvasir_endpoint_in_rotation", "endpoint=e1"); n != 0 {
		t.Error("it is in rotation")
	}
}

// An answer that has come to its end has done so in time: nothing follows its end mark,
// however close the timeouts are.
func TestTimeouts_NothingFollowsTheEnd(t *testing.T) {
	const gap = 30 * time.Millisecond
	s := ordered(func(c *scripted.Call) {
		events(c, roleEvent, textEvent("one"))
		c.Pause(gap)
		_ = c.Chunk(finishEvent + doneEvent)
		c.LastChunk()
	})
	s.config = func(c *proxy.Config) {
		c.Timeouts = proxy.Timeouts{Progress: gap, Idle: gap}
		c.Models[0].Machine.Health.Ratio, c.Models[0].Machine.Health.Failures = 0, 1000
	}
	r := newRig(t, s)
	defer r.close()
	late := 0
	for range 100 {
		a := r.post(chatPath, streamed)
		if i := strings.Index(a.body, doneEvent); i >= 0 && i+len(doneEvent) != len(a.body) {
			t.Fatalf("%q", a.body)
		} else if i < 0 {
			late++
		}
	}
	t.Logf("%d of 100 were late", late)
}
