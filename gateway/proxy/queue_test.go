package proxy_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// oneAtATime gives an endpoint one call whose first token has not come.
func oneAtATime(s setup, change func(*admission.Config, *proxy.Config)) setup {
	s.config = func(c *proxy.Config) {
		q := &c.Models[0].Machine.Pools[0].Queue
		*q = admission.Default()
		q.Tokens = 1
		change(q, c)
	}
	return s
}

// gated answers once it may.
func gated(gate chan bool) scripted.Script {
	return func(c *scripted.Call) {
		select {
		case <-gate:
			c.Stream(wholeStream("good")...)
		case <-c.Gone():
		}
	}
}

// held waits until so many calls are held.
func (r *rig) held(n int) {
	r.t.Helper()
	eventually(r.t, 2*time.Second, func() bool { return r.gateway.State().Models[0].Queues[0].Calls == n }, func() string { return "not so many calls are held" })
}

// A call for which no endpoint has room waits at the gateway; it is shown while it does, and
// counted afterwards.
func TestQueueHoldsCallsUntilThereIsRoom(t *testing.T) {
	gate := make(chan bool)
	r := newRig(t, oneAtATime(pooled(gated(gate)), func(*admission.Config, *proxy.Config) {}))
	defer r.close()
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			if a := r.post(chatPath, streamed); a.status != 200 || !strings.Contains(a.body, "good") {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	r.held(2)
	waitForCall(t, r.upstreams[0])
	if n := r.upstreamCalls(); n != 1 {
		t.Errorf("%d calls upstream, want 1", n)
	}
	if n := r.gateway.State().Models[0].Queues[0].Bytes; n != int64(2*len(streamed)) {
		t.Errorf("%d bytes are held, want %d", n, 2*len(streamed))
	}
	if q := r.gateway.Pools()[0].Pools[0].Queue; q == nil || q.Calls != 2 || q.Tokens == 0 || q.Oldest <= 0 {
		t.Errorf("the pool's queue is shown as %+v", q)
	}
	for range 3 {
		gate <- true
	}
	calls.Wait()
	r.settle()
	if n := r.metric("kvasir_queue_calls", "pool=p1"); n != 0 {
		t.Errorf("%v calls are held", n)
	}
	if n := r.metric("kvasir_queue_wait_seconds", "pool=p1"); n != 2 {
		t.Errorf("%v waits were counted, want 2", n)
	}
	waited := 0
	for _, c := range r.records.all() {
		if c.has("held_seconds") {
			waited++
		}
	}
	if waited != 2 {
		t.Errorf("%d records have a wait, want 2", waited)
	}
}

// Past each bound the answer is 429 at once (article section 9.3); who has waited too long
// gets 503. Both say when to come back.
func TestQueueRefusesPastItsBounds(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*admission.Config, *proxy.Config)
		status int
	}{
		{"queue_full", func(q *admission.Config, _ *proxy.Config) { q.Length = 1 }, 429},
		{"queue_bytes", func(q *admission.Config, _ *proxy.Config) { q.Bytes = int64(2*len(streamed) - 1) }, 429},
	} {
		t.Run(x.name, func(t *testing.T) {
			gate := make(chan bool)
			r := newRig(t, oneAtATime(pooled(gated(gate)), x.change))
			defer r.close()
			var calls sync.WaitGroup
			for range 2 {
				calls.Go(func() { r.post(chatPath, streamed) })
			}
			r.held(1)
			a := r.post(chatPath, streamed)
			if e := envelope(t, a.body); a.status != x.status || e.Code != x.name || a.header.Get("Retry-After") == "" {
				t.Errorf("status %d, Retry-After %q: %+v", a.status, a.header.Get("Retry-After"), e)
			}
			close(gate)
			calls.Wait()
			r.settle()
			if n := r.metric("kvasir_refusals_total", "reason="+x.name); n != 1 {
				t.Errorf("counted %v times", n)
			}
		})
	}
	t.Run("queue_timeout", func(t *testing.T) {
		gate := make(chan bool)
		r := newRig(t, oneAtATime(pooled(gated(gate)), func(q *admission.Config, _ *proxy.Config) { q.MaxWait = 50 * time.Millisecond }))
		defer r.close()
		var first sync.WaitGroup
		first.Go(func() { r.post(chatPath, streamed) })
		waitForCall(t, r.upstreams[0])
		a := r.post(chatPath, streamed)
		if e := envelope(t, a.body); a.status != 503 || e.Code != "queue_timeout" || a.header.Get("Retry-After") == "" {
			t.Errorf("status %d, Retry-After %q: %+v", a.status, a.header.Get("Retry-After"), e)
		}
		close(gate)
		first.Wait()
		if n := r.metric("kvasir_refusals_total", "reason=queue_timeout"); n != 1 {
			t.Errorf("counted %v times", n)
		}
	})
}

// The time that a whole call may take goes on while it is held, or waits for another attempt.
func TestQueueKeepsTheTotalTimeout(t *testing.T) {
	full := func(c *scripted.Call) { c.Reply(503, "application/json", "{}", "Retry-After: 5") }
	r := newRig(t, oneAtATime(pooled(full), func(_ *admission.Config, c *proxy.Config) {
		c.Timeouts.Total, c.Models[0].Machine.Retry.MaxWait = 300*time.Millisecond, 10*time.Second
	}))
	defer r.close()
	var calls sync.WaitGroup
	ask := func() {
		if a := r.post(chatPath, streamed); a.status != 504 || envelope(t, a.body).Code != "upstream_overdue" {
			t.Errorf("status %d: %s", a.status, a.body)
		}
	}
	calls.Go(ask) // once the endpoint has room again, it would be tried again
	eventually(t, 2*time.Second, func() bool { return r.gateway.Pools()[0].BetweenTwo == 1 }, func() string { return "no attempt has failed" })
	calls.Go(ask)
	r.held(1)
	calls.Wait()
	r.settle()
	if n := r.upstreamCalls(); n != 1 {
		t.Errorf("%d calls upstream, want 1", n)
	}
	if n := r.metric("kvasir_refusals_total", "reason=queue_timeout"); n != 1 {
		t.Errorf("%v refusals are counted, want 1", n)
	}
}

// A client that leaves while its call is held frees its place, and no attempt is made.
func TestQueueForgetsClientsThatLeave(t *testing.T) {
	gate := make(chan bool)
	r := newRig(t, oneAtATime(pooled(gated(gate)), func(q *admission.Config, _ *proxy.Config) { q.Length = 1 }))
	defer r.close()
	var first sync.WaitGroup
	first.Go(func() { r.post(chatPath, streamed) })
	waitForCall(t, r.upstreams[0])
	ctx, leave := context.WithCancel(t.Context())
	var second sync.WaitGroup
	second.Go(func() { _, _ = r.do(ctx, "POST", chatPath, strings.NewReader(streamed)) })
	r.held(1)
	leave()
	second.Wait()
	r.held(0)
	close(gate)
	first.Wait()
	r.settle()
	if n := r.upstreamCalls(); n != 1 {
		t.Errorf("%d calls upstream, want 1", n)
	}
}

// Field case F04: who is held hears heartbeats, and a refusal after one is an event.
func TestQueueSendsHeartbeats(t *testing.T) {
	gate := make(chan bool)
	r := newRig(t, oneAtATime(pooled(gated(gate)), func(q *admission.Config, c *proxy.Config) {
		q.MaxWait, c.Heartbeat = 200*time.Millisecond, 20*time.Millisecond
	}))
	defer r.close()
	var first sync.WaitGroup
	first.Go(func() { r.post(chatPath, streamed) })
	waitForCall(t, r.upstreams[0])
	a := r.post(chatPath, streamed)
	if a.status != 200 || !strings.HasPrefix(a.body, ":") || !strings.Contains(a.body, "queue_timeout") {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	close(gate)
	first.Wait()
}
