package proxy_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/limit"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

const acmeKey = "Authorization: Bearer key-of-acme"

// limited gives a client, acme's, these caps.
func limited(s setup, caps limit.Caps, change ...func(*proxy.Config)) setup {
	s.config = func(c *proxy.Config) {
		c.Access = proxy.Access{Keys: map[[sha256.Size]byte]string{
			sha256.Sum256([]byte("key-of-acme")): "one", sha256.Sum256([]byte("second-of-acme")): "two", sha256.Sum256([]byte("key-of-other")): "other",
		}}
		c.Tenancy = proxy.Tenancy{
			Tenants: map[string]proxy.Tenant{"acme": {}},
			Clients: map[string]proxy.Client{"one": {Tenant: "acme"}, "two": {Tenant: "acme"}},
		}
		c.Caps = append(c.Caps, limit.Rule{Scope: limit.Scope{Kind: limit.Tenant, Name: "acme"}, Caps: caps})
		for _, f := range change {
			f(c)
		}
	}
	return s
}

// acme returns what the tenant uses, once nothing is in flight.
func (r *rig) acme() proxy.TenantView {
	r.t.Helper()
	r.settle()
	return r.gateway.Tenants().Tenants[0]
}

// TestF25_ALocalRefusalIsNotTheEndpointsFault: what a limit refuses is a 429 that says when to
// come again, no endpoint hears of it, and none is blamed.
func TestF25_ALocalRefusalIsNotTheEndpointsFault(t *testing.T) {
	r := newRig(t, limited(ordered(good), limit.Caps{RPM: 1}))
	defer r.close()
	if a := r.post(chatPath, unstreamed, acmeKey); a.status != 200 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	for range 2 {
		a := r.post(chatPath, unstreamed, acmeKey)
		e := envelope(t, a.body)
		seconds, _ := strconv.Atoi(a.header.Get("Retry-After"))
		ms, _ := strconv.Atoi(a.header.Get("Retry-After-Ms"))
		if a.status != 429 || e.Code != "rate_limit_exceeded" || seconds < 55 || seconds > 60 || ms < 55_000 || ms > 60_000 {
			t.Errorf("status %d, %q, Retry-After %d s, %d ms", a.status, e.Code, seconds, ms)
		}
		for _, said := range []string{"tenant acme", "caps.rpm", "limit 1", "used 1", "requested 1"} {
			if !strings.Contains(e.Message, said) {
				t.Errorf("%q does not say %q", e.Message, said)
			}
		}
	}
	if a := r.post(chatPath, unstreamed, "Authorization: Bearer key-of-other"); a.status != 200 {
		t.Errorf("another tenant: status %d", a.status)
	}
	r.settle()
	if n := r.upstreamCalls(); n != 2 {
		t.Errorf("%d calls upstream, want one of each tenant", n)
	}
	for _, e := range r.gateway.Pools()[0].Pools[0].Endpoints {
		if e.Failures != 0 || e.State != "in_rotation" || e.BusySeconds != 0 || !e.Healthy {
			t.Errorf("%+v", e)
		}
	}
	if n := r.metric("kvasir_limit_refusals_total", "scope=tenant", "limit=rpm"); n != 2 {
		t.Errorf("%v refusals are counted", n)
	}
	if n := r.metric("kvasir_refusals_total", "reason=rate_limited"); n != 2 {
		t.Errorf("%v refusals are counted by reason", n)
	}
	if n := r.metric("kvasir_tenant_requests_total", "tenant=acme"); n != 1 {
		t.Errorf("%v calls of the tenant are counted", n)
	}
}

// TestF56_NoFailureKeepsAPlace: whatever an endpoint does, and however its client leaves, a
// call's place among those that run is given back.
func TestF56_NoFailureKeepsAPlace(t *testing.T) {
	var current atomic.Pointer[scripted.Script]
	script := func(c *scripted.Call) { (*current.Load())(c) }
	for name, fault := range map[string]scripted.Script{
		"hangs": func(c *scripted.Call) { c.Hold() },
		"502":   status(502), "504": status(504), "400": status(400),
		"reset":           func(c *scripted.Call) { c.RST() },
		"cut in a stream": func(c *scripted.Call) { events(c, roleEvent, textEvent("a")); c.RST() },
		"error event":     func(c *scripted.Call) { c.Stream(roleEvent, errorEvent) },
	} {
		t.Run(name, func(t *testing.T) {
			current.Store(&fault)
			r := newRig(t, limited(ordered(script), limit.Caps{Concurrency: 10}, func(c *proxy.Config) {
				c.Timeouts.FirstToken = 50 * time.Millisecond
				c.Models[0].Machine.Retry.Attempts = 0
			}))
			defer r.close()
			for range 2 {
				var calls sync.WaitGroup
				for range 10 {
					calls.Go(func() {
						if a := r.post(chatPath, streamed, acmeKey); a.status == 429 {
							t.Errorf("refused: %s", a.body)
						}
					})
				}
				calls.Wait()
				r.settle()
			}
			ok := scripted.Script(func(c *scripted.Call) { c.Pause(20 * time.Millisecond); c.Stream(wholeStream("fine")...) })
			current.Store(&ok)
			var calls sync.WaitGroup
			for range 10 {
				calls.Go(func() {
					a := r.post(chatPath, streamed, acmeKey)
					if a.status != 200 && a.status != 503 { // the endpoint may be out of rotation
						t.Errorf("status %d: %s", a.status, a.body)
					}
				})
			}
			calls.Wait()
			if v := r.acme(); v.Running != 0 || v.Total.Refused != 0 {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestF57_AReservationIsCappedAndGivenBack: the first call of a fresh key passes though its
// answer might be longer than the limit, refusals leave no mark, and what was not used is
// there at once.
func TestF57_AReservationIsCappedAndGivenBack(t *testing.T) {
	gate := make(chan bool)
	r := newRig(t, limited(ordered(func(c *scripted.Call) {
		select {
		case <-gate:
			c.Reply(200, "application/json", jsonAnswer) // 9 and 2 tokens
		case <-c.Gone():
		}
	}), limit.Caps{TPM: 100}))
	defer r.close()
	var first sync.WaitGroup
	first.Go(func() {
		if a := r.post(chatPath, unstreamed, acmeKey); a.status != 200 {
			t.Errorf("the first call: status %d: %s", a.status, a.body)
		}
	})
	waitForCall(t, r.upstreams[0])
	for range 20 {
		if a := r.post(chatPath, unstreamed, acmeKey); a.status != 429 || !strings.Contains(a.body, "caps.tpm") {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
	}
	gate <- true
	first.Wait()
	v := r.acme()
	if left := v.Tokens.Remaining; left < 89 || left > 92 { // some of it has come back by now
		t.Errorf("%d tokens are left of 100, after 11 were used", left)
	}
	if v.Total.Input != 9 || v.Total.Output != 2 || v.Total.Requests != 1 || v.Total.Refused != 20 || v.Total.Estimated != 0 {
		t.Errorf("%+v", v.Total)
	}
}

// atOnce is a client that goes as soon as its call is upstream.
const atOnce = "at once"

// charge is what a call of a script costs its tenant. leave, where set, is what the client
// reads before it goes.
func charge(t *testing.T, script scripted.Script, path, body, leave string, change ...func(*proxy.Config)) proxy.TotalView {
	t.Helper()
	r := newRig(t, limited(ordered(script), limit.Caps{TPM: 1e6}, change...))
	defer r.close()
	if leave != "" {
		c := r.send(rawPost(path, body, acmeKey))
		waitForCall(t, r.upstreams[0])
		if leave != atOnce {
			readUntil(t, c, leave)
		}
		closeAll(t, c)
		r.settle()
	} else {
		r.post(path, body, acmeKey)
	}
	v := r.acme()
	if n := len(r.records.all()); n != 1 {
		t.Errorf("%d records of one call", n)
	}
	if used := 1e6 - int64(v.Tokens.Remaining); used > v.Total.Input+v.Total.Output {
		t.Errorf("%d tokens are taken of the rate, and %d are charged", used, v.Total.Input+v.Total.Output)
	}
	return v.Total
}

// helloTokens is the estimate for "Hello".
func helloTokens(t *testing.T) int64 {
	t.Helper()
	r := newRig(t, ordered(good))
	defer r.close()
	r.post(chatPath, streamed)
	r.settle()
	return int64(r.record().int("input_tokens_estimated"))
}

// TestF58_AStreamWithoutUsageIsNotFree: its contents are counted, and marked as an estimate.
func TestF58_AStreamWithoutUsageIsNotFree(t *testing.T) {
	hello := helloTokens(t)
	noUsage := append([]string{roleEvent}, textEvent("a"), textEvent("b"), textEvent("c"), finishEvent, doneEvent)
	for name, x := range map[string]struct {
		path, body string
		script     scripted.Script
		want       proxy.TotalView
	}{
		"no usage at all": {chatPath, streamed, func(c *scripted.Call) { c.Stream(noUsage...) },
			proxy.TotalView{Requests: 1, Input: hello, Output: 3, Estimated: 1}},
		"a large event without usage": {chatPath, streamed, func(c *scripted.Call) {
			c.Stream(roleEvent, textEvent("a"), textEvent(strings.Repeat("x", 40_001)), finishEvent, doneEvent)
		}, proxy.TotalView{Requests: 1, Input: hello, Output: 10_000, Estimated: 1}},
		"an event beyond limits.event": {"/v1/messages", `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hello"}]}`, func(c *scripted.Call) {
			c.Stream(deltaOf("a"), deltaOf(strings.Repeat("x", 1<<20)), deltaOf("b"), "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
		}, proxy.TotalView{Requests: 1, Input: hello, Output: (1<<20 - 81) / 4, Estimated: 1}},
		"usage reported": {chatPath, streamed, func(c *scripted.Call) { c.Stream(wholeStream("a", "b", "c")...) },
			proxy.TotalView{Requests: 1, Input: 9, Cached: 4, Output: 3}},
		"not streamed, without usage": {chatPath, unstreamed, func(c *scripted.Call) {
			c.Reply(200, "application/json", `{"id":"c1","choices":[{"message":{"content":"12345678901234567890"}}]}`)
		}, proxy.TotalView{Requests: 1, Input: hello, Output: 18, Estimated: 1}}, // 70 bytes
		"messages": {"/v1/messages", `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hello"}]}`, func(c *scripted.Call) {
			c.Stream("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\n",
				"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n",
				"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\n",
				"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
		}, proxy.TotalView{Requests: 1, Input: 10, Cached: 3, Output: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := charge(t, x.script, x.path, x.body, ""); got != x.want {
				t.Errorf("charged %+v, want %+v", got, x.want)
			}
		})
	}
}

func usageOf(prompt, completion int) string {
	return fmt.Sprintf(`data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`+"\n\n", prompt, completion)
}

// TestF59_ZeroUsageIsNotBelieved: where text came and usage says zero, the text counts; what
// is reported again and again is not added up, and null in between takes nothing back.
func TestF59_ZeroUsageIsNotBelieved(t *testing.T) {
	hello := helloTokens(t)
	const nothing = `data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":null}` + "\n\n"
	for name, x := range map[string]struct {
		events []string
		want   proxy.TotalView
	}{
		"zeros":      {[]string{roleEvent, textEvent("a"), textEvent("b"), finishEvent, usageOf(0, 0), doneEvent}, proxy.TotalView{Requests: 1, Input: hello, Output: 2, Estimated: 1}},
		"cumulative": {[]string{roleEvent, textEvent("a"), usageOf(9, 1), textEvent("b"), usageOf(9, 2), finishEvent, doneEvent}, proxy.TotalView{Requests: 1, Input: 9, Output: 2}},
		"null":       {[]string{roleEvent, textEvent("a"), usageOf(9, 1), nothing, textEvent("b"), usageOf(9, 2), nothing, finishEvent, doneEvent}, proxy.TotalView{Requests: 1, Input: 9, Output: 2}},
		"zero last":  {[]string{roleEvent, textEvent("a"), usageOf(9, 1), finishEvent, usageOf(0, 0), doneEvent}, proxy.TotalView{Requests: 1, Input: 9, Output: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := charge(t, func(c *scripted.Call) { c.Stream(x.events...) }, chatPath, streamed, ""); got != x.want {
				t.Errorf("charged %+v, want %+v", got, x.want)
			}
		})
	}
}

// TestF60_AnAbnormalEndIsSettledToWhatWasUsed: who leaves pays for the prompt and what had
// come; errors, in whatever form, cost no tokens; attempts that another one followed cost
// nothing.
func TestF60_AnAbnormalEndIsSettledToWhatWasUsed(t *testing.T) {
	hello := helloTokens(t)
	once := func(first, then scripted.Script) scripted.Script {
		var n atomic.Int32
		return func(c *scripted.Call) {
			if n.Add(1) == 1 {
				first(c)
			} else {
				then(c)
			}
		}
	}
	for name, x := range map[string]struct {
		script scripted.Script
		leave  string
		want   proxy.TotalView
	}{
		"(a) leaves after 50 contents": {func(c *scripted.Call) {
			c.EventStream()
			_ = c.Chunk(roleEvent)
			for i := range 50 {
				_ = c.Chunk(textEvent(fmt.Sprintf("word%d ", i)))
			}
			c.Hold()
		}, "word49", proxy.TotalView{Requests: 1, Input: hello, Output: 50, Estimated: 1}},
		"leaves before any content": {func(c *scripted.Call) { events(c, roleEvent); c.Hold() }, atOnce, proxy.TotalView{Requests: 1, Input: hello, Estimated: 1}},
		"leaves before the header":  {func(c *scripted.Call) { c.Hold() }, atOnce, proxy.TotalView{Requests: 1, Input: hello, Estimated: 1}},
		"(b) an error in a stream":  {func(c *scripted.Call) { c.Stream(roleEvent, quotaEvent, doneEvent) }, "", proxy.TotalView{Requests: 1}},
		"(b) an error's text":       {func(c *scripted.Call) { c.Stream(errorEvent) }, "", proxy.TotalView{Requests: 1}},
		"(c) 500":                   {status(500), "", proxy.TotalView{Requests: 1}},
		"(c) 400":                   {status(400), "", proxy.TotalView{Requests: 1}},
		"(d) an empty stream":       {func(c *scripted.Call) { c.Stream(doneEvent) }, "", proxy.TotalView{Requests: 1}},
		"cut after two contents": {func(c *scripted.Call) { events(c, roleEvent, textEvent("a"), textEvent("b")); c.RST() }, "",
			proxy.TotalView{Requests: 1, Input: hello, Output: 2, Estimated: 1}},
		"a second attempt": {once(status(502), func(c *scripted.Call) { c.Stream(wholeStream("a", "b", "c")...) }), "",
			proxy.TotalView{Requests: 1, Input: 9, Cached: 4, Output: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			both := func(c *proxy.Config) { // two addresses of one script, so that there is somebody else to ask
				m := &c.Models[0]
				m.Machine.Pools[0].Endpoints = append(m.Machine.Pools[0].Endpoints, m.Machine.Pools[0].Endpoints[0])
				m.Machine.Pools[0].Endpoints[1].Name = "again"
				m.Pools[0].Endpoints = append(m.Pools[0].Endpoints, proxy.Endpoint{URL: strings.Replace(m.Pools[0].Endpoints[0].URL, "127.0.0.1", "localhost", 1)})
			}
			if got := charge(t, x.script, chatPath, streamed, x.leave, both); got != x.want {
				t.Errorf("charged %+v, want %+v", got, x.want)
			}
		})
	}
}

// TestLimits_WhatIsRefusedLaterCostsNothing: a call that its limits let in and the machine
// refuses is no request.
func TestLimits_WhatIsRefusedLaterCostsNothing(t *testing.T) {
	r := newRig(t, limited(ordered(good), limit.Caps{RPM: 5, TPM: 1000}, func(c *proxy.Config) {
		c.Models[0].Machine.Pools[0].Endpoints, c.Models[0].Pools[0].Endpoints = nil, nil
	}))
	defer r.close()
	for range 10 {
		if a := r.post(chatPath, unstreamed, acmeKey); a.status != 503 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
	}
	if v := r.acme(); v.Requests.Remaining != 5 || v.Tokens.Remaining != 1000 || v.Total != (proxy.TotalView{}) {
		t.Errorf("%+v %+v %+v", v.Requests, v.Tokens, v.Total)
	}
}

// TestLimits_APanicIsSettled and so is whatever came before it.
func TestLimits_APanicIsSettled(t *testing.T) {
	s := limited(pooled(func(c *scripted.Call) { c.Stream(wholeStream("a", "b")...) }), limit.Caps{Concurrency: 1, TPM: 1000})
	config := s.config
	var armed atomic.Bool
	s.config = func(c *proxy.Config) {
		config(c)
		inner := c.Transport
		c.Transport = transportFunc(func(q *http.Request) (*http.Response, error) {
			resp, err := inner.RoundTrip(q)
			if err == nil && armed.CompareAndSwap(true, false) {
				resp.Body = &explosive{resp.Body, func() { panic("boom") }, 0}
			}
			return resp, err
		})
	}
	r := newRig(t, s)
	defer r.close()
	armed.Store(true)
	_, _ = r.do(t.Context(), "POST", chatPath, strings.NewReader(streamed), acmeKey)
	r.settle()
	if a := r.post(chatPath, streamed, acmeKey); a.status != 200 {
		t.Errorf("afterwards: status %d: %s", a.status, a.body)
	}
}

// TestLimits_HeadersTellTheCallersOwn as OpenAI's API has them, and nothing of others.
func TestLimits_HeadersTellTheCallersOwn(t *testing.T) {
	r := newRig(t, limited(ordered(func(c *scripted.Call) {
		c.Reply(200, "application/json", jsonAnswer, "X-Ratelimit-Limit-Requests: 999999")
	}), limit.Caps{RPM: 60, TPM: 6000}, func(c *proxy.Config) {
		c.Caps = append(c.Caps, limit.Rule{Scope: limit.Scope{Kind: limit.Key, Name: "two"}, Caps: limit.Caps{RPM: 10}})
		c.Caps[0].Caps = limit.Caps{RPM: 7} // the model's: nobody's business
	}))
	defer r.close()
	a := r.post(chatPath, `{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"Hello"}]}`, acmeKey)
	for name, want := range map[string]string{
		"X-Ratelimit-Limit-Requests": "60", "X-Ratelimit-Remaining-Requests": "59", "X-Ratelimit-Reset-Requests": "1s", "X-Ratelimit-Limit-Tokens": "6000",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	left, _ := strconv.Atoi(a.header.Get("X-Ratelimit-Remaining-Tokens"))
	reset, err := time.ParseDuration(a.header.Get("X-Ratelimit-Reset-Tokens"))
	if left >= 6000-10 || left < 5900 || err != nil || reset != time.Duration(6000-left)*10*time.Millisecond {
		t.Errorf("%d tokens left, reset in %v", left, reset)
	}
	a = r.post(chatPath, unstreamed, "Authorization: Bearer second-of-acme")
	if got := a.header.Get("X-Ratelimit-Limit-Requests"); got != "10" { // of the two the one with the smaller part left
		t.Errorf("the second key is told of %q requests", got)
	}
	a = r.post(chatPath, unstreamed, "Authorization: Bearer key-of-other")
	if got := a.header.Get("X-Ratelimit-Remaining-Requests") + a.header.Get("X-Ratelimit-Limit-Tokens"); got != "" {
		t.Errorf("another tenant is told %q", got)
	}
	r.settle()
	for range 10 {
		a = r.post(chatPath, unstreamed, "Authorization: Bearer key-of-other")
	}
	if e := envelope(t, a.body); a.status != 429 || !strings.Contains(e.Message, "model m") || strings.Contains(e.Message, "used") {
		t.Errorf("of the model's limit it is told %q", e.Message)
	}
}

// fanning is a gateway whose conversations have so many calls at a time, and how many its
// endpoint has had at most.
func fanning(t *testing.T, f proxy.FanOut, hold func(*scripted.Call)) (*rig, *atomic.Int32) {
	var now, most atomic.Int32
	r := newRig(t, limited(pooled(func(c *scripted.Call) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		hold(c)
		now.Add(-1)
		c.Stream(wholeStream("fine")...)
	}), limit.Caps{Concurrency: 1000}, func(c *proxy.Config) { c.FanOut = f }))
	return r, &most
}

// TestFanOut_ChildrenWaitAndAllAreServed: forty children of one conversation under a cap of
// eight; no more than that run, none is refused, and another conversation goes past them.
func TestFanOut_ChildrenWaitAndAllAreServed(t *testing.T) {
	r, most := fanning(t, proxy.FanOut{Concurrency: 8, Waiting: 100, MaxWait: 10 * time.Second}, func(c *scripted.Call) { c.Pause(20 * time.Millisecond) })
	defer r.close()
	var calls sync.WaitGroup
	for range 40 {
		calls.Go(func() {
			if a := r.post(chatPath, streamed, acmeKey, "X-Session-Id: swarm"); a.status != 200 || !strings.Contains(a.body, "fine") {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	calls.Wait()
	r.settle()
	if n := most.Load(); n != 8 {
		t.Errorf("%d calls at a time, want 8", n)
	}
	held := 0
	for _, c := range r.records.all() {
		if c.has("held_seconds") {
			held++
		}
	}
	if held < 32 {
		t.Errorf("%d records say that they were held, want 32", held)
	}
}

// waiting waits until so many calls of acme's stand in line.
func (r *rig) waiting(n int) {
	r.t.Helper()
	eventually(r.t, 2*time.Second, func() bool { return r.gateway.Tenants().Tenants[0].Waiting == n }, func() string {
		return fmt.Sprintf("%+v", r.gateway.Tenants().Tenants[0].UseView)
	})
}

// TestFanOut_WhoLeavesTheLineDoesNotHoldItUp, a full line is a 429, and other conversations
// know nothing of it.
func TestFanOut_WhoLeavesTheLineDoesNotHoldItUp(t *testing.T) {
	gate := make(chan bool)
	r, _ := fanning(t, proxy.FanOut{Concurrency: 1, Waiting: 2, MaxWait: 10 * time.Second}, func(c *scripted.Call) {
		select {
		case <-gate:
		case <-c.Gone():
		}
	})
	defer r.close()
	const session = "X-Session-Id: swarm"
	var calls sync.WaitGroup
	ask := func(ctx context.Context, want int, headers ...string) {
		calls.Go(func() {
			a, err := r.do(ctx, "POST", chatPath, strings.NewReader(streamed), append(headers, acmeKey)...)
			if want == 0 && err == nil {
				t.Errorf("who left got status %d", a.status)
			} else if want > 0 && a.status != want {
				t.Errorf("status %d, %v, want %d: %s", a.status, err, want, a.body)
			}
		})
	}
	ask(t.Context(), 200, session)
	waitForCall(t, r.upstreams[0])
	ctx, leave := context.WithCancel(t.Context())
	ask(ctx, 0, session)
	r.waiting(1)
	ask(t.Context(), 200, session)
	r.waiting(2)
	a := r.post(chatPath, streamed, acmeKey, session)
	if e := envelope(t, a.body); a.status != 429 || a.header.Get("Retry-After") != "1" || !strings.Contains(e.Message, "fan_out.waiting") {
		t.Errorf("a full line: status %d, %q", a.status, e.Message)
	}
	leave()
	r.waiting(1)
	ask(t.Context(), 200, "X-Session-Id: another")
	eventually(t, 2*time.Second, func() bool { return r.upstreamCalls() == 2 }, func() string { return "another conversation waits" })
	for range 3 {
		gate <- true
	}
	calls.Wait()
}

// TestFanOut_AWaitHasAnEnd: who waits for too long gets a 503, in the stream where a
// heartbeat has opened it.
func TestFanOut_AWaitHasAnEnd(t *testing.T) {
	for name, beat := range map[string]time.Duration{"answer": 0, "stream": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan bool)
			s := limited(pooled(gated(gate)), limit.Caps{}, func(c *proxy.Config) {
				c.FanOut = proxy.FanOut{Concurrency: 1, Waiting: 9, MaxWait: 80 * time.Millisecond}
				c.Heartbeat = beat
			})
			r := newRig(t, s)
			defer r.close()
			var first sync.WaitGroup
			first.Go(func() { r.post(chatPath, streamed, acmeKey) })
			waitForCall(t, r.upstreams[0])
			a := r.post(chatPath, streamed, acmeKey)
			if beat == 0 && (a.status != 503 || a.header.Get("Retry-After") == "") || beat > 0 && (a.status != 200 || !strings.Contains(a.body, ": waiting")) {
				t.Errorf("status %d: %s", a.status, a.body)
			}
			if !strings.Contains(a.body, "fan_out_timeout") {
				t.Errorf("%s", a.body)
			}
			gate <- true
			first.Wait()
			if n := r.metric("kvasir_refusals_total", "reason=fan_out_timeout"); n != 1 {
				t.Errorf("%v are counted", n)
			}
		})
	}
}

// TestFanOut_ADeadlineEndsTheWait: nobody waits in line for what is worth nothing any more, and
// nothing of it reaches an endpoint.
func TestFanOut_ADeadlineEndsTheWait(t *testing.T) {
	gate := make(chan bool)
	r, _ := fanning(t, proxy.FanOut{Concurrency: 1, Waiting: 9, MaxWait: time.Minute}, func(*scripted.Call) { <-gate })
	defer r.close()
	var first sync.WaitGroup
	first.Go(func() { r.post(chatPath, streamed, acmeKey) })
	waitForCall(t, r.upstreams[0])
	a := r.post(chatPath, streamed, acmeKey, "X-Kvasir-Deadline: 80ms")
	if e := envelope(t, a.body); a.status != 504 || e.Code != "deadline_passed" || a.header.Get("X-Should-Retry") != "false" {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	gate <- true
	first.Wait()
	r.settle()
	if n := r.upstreamCalls(); n != 1 {
		t.Errorf("%d calls upstream", n)
	}
	if n := r.metric("kvasir_refusals_total", "reason=deadline_passed"); n != 1 {
		t.Errorf("%v are counted", n)
	}
	if u := r.acme(); u.Running != 0 || u.Waiting != 0 || u.Total.Requests != 1 {
		t.Errorf("%+v", u)
	}
}

// TestDeadline_MayPassBeforeTheBodyIsThere.
func TestDeadline_MayPassBeforeTheBodyIsThere(t *testing.T) {
	r := newRig(t, limited(ordered(good), limit.Caps{}))
	defer r.close()
	body := &slowly{Reader: strings.NewReader(unstreamed), pause: 60 * time.Millisecond}
	a, err := r.do(t.Context(), "POST", chatPath, body, acmeKey, "X-Kvasir-Deadline: 30ms")
	if err != nil || a.status != 504 || !strings.Contains(a.body, "deadline_passed") {
		t.Errorf("status %d, %v: %s", a.status, err, a.body)
	}
	if n := r.upstreamCalls(); n != 0 {
		t.Errorf("%d calls upstream", n)
	}
}

// slowly waits before its end.
type slowly struct {
	io.Reader
	pause time.Duration
}

func (s *slowly) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		time.Sleep(s.pause)
	}
	return n, err
}

// TestLimits_AReloadKeepsWhatIsUsed, and a new limit holds at once.
func TestLimits_AReloadKeepsWhatIsUsed(t *testing.T) {
	var before proxy.Config
	r := newRig(t, limited(ordered(good), limit.Caps{RPM: 3}, func(c *proxy.Config) { before = *c }))
	defer r.close()
	r.post(chatPath, unstreamed, acmeKey)
	r.post(chatPath, unstreamed, acmeKey)
	after := before
	after.Caps = []limit.Rule{before.Caps[0], {Scope: before.Caps[1].Scope, Caps: limit.Caps{RPM: 3, Concurrency: 5}}}
	if err := r.gateway.Apply(after); err != nil {
		t.Fatal(err)
	}
	if v := r.acme(); v.Requests.Remaining != 1 || *v.Concurrency != 5 {
		t.Errorf("%+v", v.Requests)
	}
	r.post(chatPath, unstreamed, acmeKey)
	if a := r.post(chatPath, unstreamed, acmeKey); a.status != 429 {
		t.Errorf("status %d", a.status)
	}
}

// TestFanOut_AReloadLetsTheLineGo where it raises the bound, and a call that waits holds its
// body within limits.buffered.
func TestFanOut_AReloadLetsTheLineGo(t *testing.T) {
	gate := make(chan bool)
	var before proxy.Config
	r := newRig(t, limited(pooled(gated(gate)), limit.Caps{}, func(c *proxy.Config) {
		c.FanOut = proxy.FanOut{Concurrency: 1, Waiting: 9, MaxWait: 10 * time.Second}
		before = *c
	}))
	defer r.close()
	var calls sync.WaitGroup
	ask := func() {
		calls.Go(func() {
			if a := r.post(chatPath, streamed, acmeKey); a.status != 200 {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	ask()
	waitForCall(t, r.upstreams[0])
	ask()
	ask()
	r.waiting(2)
	if _, buffered := r.gateway.Load(); buffered < 3*int64(len(streamed)) {
		t.Errorf("%d bytes are booked for three bodies", buffered)
	}
	after := before
	after.FanOut.Concurrency = 3
	if err := r.gateway.Apply(after); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Second, func() bool { return r.upstreamCalls() == 3 }, func() string { return "the line still waits" })
	for range 3 {
		gate <- true
	}
	calls.Wait()
}

// TestFanOut_ADrainEndsTheWait as it ends any call that could not be waited for.
func TestFanOut_ADrainEndsTheWait(t *testing.T) {
	gate := make(chan bool)
	r := newRig(t, limited(pooled(gated(gate)), limit.Caps{}, func(c *proxy.Config) {
		c.FanOut = proxy.FanOut{Concurrency: 1, Waiting: 9, MaxWait: 10 * time.Second}
	}))
	defer r.close()
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			if a := r.post(chatPath, unstreamed, acmeKey); a.status != 503 || !strings.Contains(a.body, "draining") {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	r.waiting(1)
	waitForCall(t, r.upstreams[0])
	r.gateway.Cut()
	calls.Wait()
}

// TestTenants_AreShownToOperators with what is used and what is left.
func TestTenants_AreShownToOperators(t *testing.T) {
	r := newRig(t, limited(ordered(good), limit.Caps{RPM: 100, Concurrency: 4}, func(c *proxy.Config) {
		c.Tenancy.Tenants["acme"] = proxy.Tenant{Class: "background", Share: 2}
		c.Caps = append(c.Caps, limit.Rule{Scope: limit.Scope{Kind: limit.TenantModel, Name: "acme", Model: testModel}, Caps: limit.Caps{TPM: 5000}},
			limit.Rule{Scope: limit.Scope{Kind: limit.Key, Name: "two"}, Caps: limit.Caps{RPM: 10}})
		c.FanOut = proxy.FanOut{Concurrency: 8, Waiting: 9, MaxWait: time.Second}
	}))
	defer r.close()
	r.post(chatPath, unstreamed, acmeKey)
	r.settle()
	code, body := r.admin("/v1/tenants")
	var v proxy.TenantsView
	if err := json.Unmarshal([]byte(body), &v); err != nil || code != 200 {
		t.Fatalf("%d, %v: %s", code, err, body)
	}
	if len(v.Tenants) != 1 || len(v.Keys) != 1 || len(v.Models) != 1 || v.FanOut == nil || v.FanOut.Concurrency != 8 {
		t.Fatalf("%s", body)
	}
	a := v.Tenants[0]
	if a.Name != "acme" || a.Class != "background" || a.Priority != -1 || a.Share != 2 || *a.Concurrency != 4 || a.Requests.Limit != 100 || a.Requests.Remaining != 99 ||
		a.Tokens != nil || a.Total != (proxy.TotalView{Requests: 1, Input: 9, Output: 2}) {
		t.Errorf("%s", body)
	}
	if m := a.Models[0]; m.Name != testModel || m.Tokens.Limit != 5000 || m.Total.Output != 2 {
		t.Errorf("%+v", m)
	}
}

// deltaOf is an event of Messages with some text.
func deltaOf(text string) string {
	return `event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + text + `"}}

`
}
