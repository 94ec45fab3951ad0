package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/config"
	"kvasir/selection/health"
)

// Every key of a rule reaches the machine.
func TestBreaker_EveryKeyOfARule(t *testing.T) {
	got := breaker(config.BreakerRules{{
		Failures: 1, Ratio: 0.2, Volume: 3, Interval: 4, Statuses: []config.Statuses{{From: 429, To: 429}, {From: 500, To: 599}},
		Trip: 5, MaxTrip: 6, AcceptRetryAfter: true, MaxRetryAfter: 7,
	}})
	want := health.Rule{
		Failures: 1, Ratio: 0.2, Volume: 3, Interval: 4, Statuses: []health.Statuses{{From: 429, To: 429}, {From: 500, To: 599}},
		Trip: 5, MaxTrip: 6, RetryAfter: true, MaxAfter: 7,
	}
	if len(got) != 1 || !got[0].Equal(&want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Article section 14.4 by a file: provisioned throughput first, and pay as you go for as long as
// its 429 says.
func TestServe_ProvisionedThenPayAsYouGo(t *testing.T) {
	var full atomic.Bool
	var asked atomic.Int32
	serve := func(answer http.HandlerFunc) string {
		s := httptest.NewServer(answer)
		t.Cleanup(s.Close)
		return s.URL
	}
	const text = `{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}`
	ok := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text) // a client that left is noted elsewhere
	}
	ptu := serve(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"odd"`) {
			http.Error(w, `{"error":{"message":"I'm a teapot"}}`, http.StatusTeapot)
			return
		}
		asked.Add(1)
		if full.Load() {
			w.Header().Set("Retry-After-Ms", "1500")
			w.Header().Set("Retry-After", "86400")
			http.Error(w, `{"error":{"message":"quota"}}`, http.StatusTooManyRequests)
			return
		}
		ok(w)
	})
	payg := serve(func(w http.ResponseWriter, r *http.Request) { ok(w) })
	base := served(t, fmt.Sprintf(`
models:
  m:
    pools:
      - name: ptu
        endpoints: [{url: %q, name: ptu}]
        policy: least-outstanding
        signals: {scrape: 0s}
        probe: {interval: 0s}
        breaker: {statuses: [429], failures: 1, accept_retry_after: true}
      - name: payg
        endpoints: [{url: %q, name: payg}]
        policy: least-outstanding
        signals: {scrape: 0s}
        probe: {interval: 0s}
  odd:
    pools:
      - name: one
        endpoints: [{url: %q, name: one}]
        signals: {scrape: 0s}
        breaker: {statuses: [400-418], failures: 1, trip: 1m}
      - name: other
        endpoints: [{url: %q, name: other}]
        signals: {scrape: 0s}
`, ptu, payg, ptu, payg), nil)
	post := func(model string) *http.Response {
		resp, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Hello"}]}`, model)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body) // its status says enough
		return resp
	}
	call := func() (endpoint, attempts string) {
		resp := post("m")
		if resp.StatusCode != 200 {
			t.Fatalf("status %d", resp.StatusCode)
		}
		return resp.Header.Get("X-Kvasir-Endpoint"), resp.Header.Get("X-Kvasir-Attempts")
	}
	// What a rule names is what it says, whatever else becomes of such an answer.
	if first, second := post("odd"), post("odd"); first.StatusCode != http.StatusTeapot || second.StatusCode != 200 || second.Header.Get("X-Kvasir-Endpoint") != "other" {
		t.Errorf("a rule that names 418: status %d, then %d from %s", first.StatusCode, second.StatusCode, second.Header.Get("X-Kvasir-Endpoint"))
	}
	if at, _ := call(); at != "ptu" {
		t.Fatalf("the first call went to %s", at)
	}
	full.Store(true)
	if at, n := call(); at != "payg" || n != "2" {
		t.Errorf("the call that meets the 429 ends at %s after %s attempts", at, n)
	}
	before := asked.Load()
	for range 10 {
		if at, n := call(); at != "payg" || n != "1" {
			t.Errorf("a call while the breaker is open: %s, %s attempts", at, n)
		}
	}
	if n := asked.Load() - before; n != 0 {
		t.Errorf("%d calls went to the pool whose breaker is open", n)
	}
	full.Store(false)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if at, _ := call(); at == "ptu" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it does not come back")
		}
	}
}
