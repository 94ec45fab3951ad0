package proxy_test

import (
	"strings"
	"testing"
	"time"

	"kvasir/internal/testkit/scripted"
)

// Field case F37, its hard end: calls that are still in flight when the grace is over are
// cut, and their clients are told as far as their answers still allow.
func TestF37_Cut_TellsClients(t *testing.T) {
	for name, x := range map[string]struct {
		request string
		script  func(c *scripted.Call)
		judge   func(t *testing.T, a answer)
	}{
		"in a stream": {streamed, func(c *scripted.Call) { events(c, roleEvent, textEvent("one")); c.Hold() }, func(t *testing.T, a answer) {
			rest, ok := strings.CutPrefix(a.body, roleEvent+textEvent("one")+"data: ")
			if a.err != nil || !ok || strings.Contains(a.body, "[DONE]") {
				t.Fatalf("%v after %q", a.err, a.body)
			}
			if e := envelope(t, rest); e.Code != "draining" {
				t.Errorf("envelope %+v", e)
			}
		}},
		"in an event": {streamed, func(c *scripted.Call) { events(c, roleEvent, textEvent("one")+"data: {"); c.Hold() }, func(t *testing.T, a answer) {
			if a.err == nil {
				t.Errorf("half an event ends cleanly: %q", a.body)
			}
		}},
		"before the answer": {unstreamed, func(c *scripted.Call) { c.Hold() }, func(t *testing.T, a answer) {
			if e := envelope(t, a.body); a.status != 503 || e.Code != "draining" || a.header.Get("Retry-After") == "" {
				t.Errorf("status %d, %q", a.status, a.body)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(x.script))
			defer r.close()
			got := make(chan answer)
			go func() { got <- r.post(chatPath, x.request) }()
			waitForCall(t, r.upstreams[0])
			time.Sleep(50 * time.Millisecond) // what the script sends arrives
			r.gateway.Drain()
			r.gateway.Cut()
			x.judge(t, <-got)
			if c := r.record(); c.string("outcome") != "refused" || c.string("refusal") != "draining" {
				t.Errorf("record %v", c)
			}
			eventually(t, 2*time.Second, func() bool { return !r.upstreams[0].Calls()[0].Aborted.IsZero() },
				func() string { return "the upstream saw no abort" })
		})
	}
}

// A client whose body is still coming is told, too.
func TestCut_TellsAClientThatStillSends(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	c := r.send("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 1000000\r\n\r\n{")
	defer closeAll(t, c)
	eventually(t, 5*time.Second, func() bool { return r.gateway.InFlight() == 1 }, func() string { return "the call did not come" })
	time.Sleep(20 * time.Millisecond) // it reads
	r.gateway.Drain()
	r.gateway.Cut()
	a := readAnswer(t, c)
	if a.status != 503 || !strings.Contains(a.body, "draining") {
		t.Errorf("status %d, %q", a.status, a.body)
	}
}
