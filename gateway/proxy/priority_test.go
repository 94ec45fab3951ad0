package proxy_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"kvasir/gateway/limit"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/upstream"
)

// TestBackground_NeverFillsTheSharedBound: of eight calls that may be in flight, seven may be
// of who can wait, so that one more of an urgent class finds room; and one that is refused is
// so before its body is read.
func TestBackground_NeverFillsTheSharedBound(t *testing.T) {
	gate := make(chan bool)
	r := newRig(t, limited(pooled(gated(gate)), limit.Caps{}, func(c *proxy.Config) {
		c.Limits.Calls = 8
	}))
	defer r.close()
	const background = "X-Kvasir-Class: background"
	var calls sync.WaitGroup
	ask := func(headers ...string) {
		calls.Go(func() {
			if a := r.post(chatPath, streamed, append(headers, acmeKey)...); a.status != 200 {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	inFlight := func(n int) {
		eventually(t, 2e9, func() bool { return r.upstreamCalls() == n }, func() string { return "not so many calls upstream" })
	}
	for range 7 {
		ask(background)
	}
	inFlight(7)
	early := r.send("POST " + chatPath + " HTTP/1.1\r\nHost: gateway\r\n" + acmeKey + "\r\n" + background + "\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n")
	if text := readUntil(t, early, "too_many_calls"); strings.Contains(text, "100 Continue") {
		t.Errorf("the body of a refused call was asked for: %q", text)
	}
	closeAll(t, early)
	ask()
	inFlight(8)
	if a := r.post(chatPath, streamed, acmeKey); a.status != 503 {
		t.Errorf("a ninth call: status %d", a.status)
	}
	for range 8 {
		gate <- true
	}
	calls.Wait()
}

// TestHeaders_WhatIsWrongIsAnErrorBeforeTheBody and reaches no endpoint.
func TestHeaders_WhatIsWrongIsAnErrorBeforeTheBody(t *testing.T) {
	r := newRig(t, limited(ordered(good), limit.Caps{}))
	defer r.close()
	for header, want := range map[string]int{
		"X-Kvasir-Deadline: never": 400, "X-Request-Timeout: never": 400, "X-Kvasir-Class: none": 400, "X-Kvasir-Priority: 2": 403, "X-Kvasir-Priority: x": 400,
	} {
		a := r.post(chatPath, unstreamed, acmeKey, header)
		name, value, _ := strings.Cut(header, ": ")
		e := envelope(t, a.body)
		if a.status != want || !strings.Contains(e.Message, strings.ToLower(name)) || !strings.Contains(e.Message, value) || !strings.Contains(e.Message, "allowed") {
			t.Errorf("%s: status %d, %q", header, a.status, e.Message)
		}
	}
	r.settle()
	if n := r.upstreamCalls(); n != 0 {
		t.Errorf("%d calls upstream", n)
	}
	if a := r.post(chatPath, unstreamed, acmeKey, "X-Kvasir-Class: background", "X-Kvasir-Deadline: 20s"); a.status != 200 {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	r.settle()
	if all := r.records.all(); all[len(all)-1].string("class") != "background" || all[len(all)-1].string("tenant") != "acme" {
		t.Errorf("%v", all[len(all)-1])
	}
}

// TestPassPriority_TellsTheEngineAndLetsNobodyUp: in the body where it may be, with lower
// first, and in vLLM's header, which goes before it; what a client says to the engine itself
// can only lower its call.
func TestPassPriority_TellsTheEngineAndLetsNobodyUp(t *testing.T) {
	s := limited(pooled(func(c *scripted.Call) { c.Reply(200, "application/json", jsonAnswer) }), limit.Caps{}, func(c *proxy.Config) {
		c.Models[0].Pools[0].Dialect, c.Models[0].Pools[0].PassPriority = upstream.VLLM(), true
		c.SaltKey = []byte("a secret of the gateways'")
		c.Tenancy.Clients["two"] = proxy.Client{Tenant: "acme", Raise: true}
	})
	const raised = "Authorization: Bearer second-of-acme"
	r := newRig(t, s)
	defer r.close()
	for _, x := range []struct {
		path, body string
		headers    []string
		want       string // of the body; "": it is as it was
		header     string
	}{
		{chatPath, `{"model":"m","messages":[]}`, nil, `{SALT"priority":0,"model":"m","messages":[]}`, "0"},
		{chatPath, `{"model":"m","messages":[]}`, []string{"X-Kvasir-Class: background"}, `{SALT"priority":1,"model":"m","messages":[]}`, "1"},
		{chatPath, `{"model":"m","priority":-5,"messages":[]}`, nil, `{SALT"model":"m","priority":0,"messages":[]}`, "0"},
		{chatPath, `{"model":"m","priority":7,"messages":[]}`, nil, `{SALT"model":"m","priority":7,"messages":[]}`, "7"},
		{chatPath, `{"model":"m","messages":[]}`, []string{"X-Vllm-Priority: -100"}, `{SALT"priority":0,"model":"m","messages":[]}`, "0"},
		{chatPath, `{"model":"m","messages":[]}`, []string{"X-Vllm-Priority: 3", "X-Kvasir-Priority: -8"}, `{SALT"priority":8,"model":"m","messages":[]}`, "8"},
		{chatPath, `{"model":"m","messages":[]}`, []string{raised, "X-Kvasir-Priority: 5"}, `{SALT"priority":-5,"model":"m","messages":[]}`, "-5"},
		{chatPath, `{"model":"m","priority":-2,"messages":[]}`, []string{raised, "X-Kvasir-Priority: 5"}, `{SALT"model":"m","priority":-2,"messages":[]}`, "-2"},
		{chatPath, `{"model":"m","messages":[]}`, []string{raised, "X-Kvasir-Priority: 5", "X-Vllm-Priority: -9"}, `{SALT"priority":-5,"model":"m","messages":[]}`, "-5"},
		{"/v1/messages", `{"model":"m","max_tokens":1,"messages":[]}`, []string{"X-Kvasir-Priority: -2"}, `{SALT"model":"m","max_tokens":1,"messages":[]}`, "2"},
		{"/tokenize", `{"model":"m","prompt":""}`, nil, `{"model":"m","prompt":""}`, "0"},
	} {
		key := acmeKey
		if slices.Contains(x.headers, raised) {
			key = raised
		}
		got := r.sent(x.path, x.body, append(slices.DeleteFunc(x.headers, func(h string) bool { return h == raised }), key)...)
		if i := strings.Index(got, `"cache_salt":"`); i >= 0 {
			end := i + len(`"cache_salt":"`) + 43 + len(`",`)
			got = got[:i] + "SALT" + got[end:]
		}
		if got != x.want {
			t.Errorf("%s %v: the engine gets %s, want %s", x.body, x.headers, got, x.want)
		}
		calls := r.upstreams[0].Calls()
		last := calls[len(calls)-1]
		if v, _ := last.Get(http.CanonicalHeaderKey("X-Vllm-Priority")); v != x.header {
			t.Errorf("%s %v: the header says %q, want %q", x.body, x.headers, v, x.header)
		}
	}
}
