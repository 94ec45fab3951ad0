package proxy_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/selection/policy"
)

// status answers with a status and an error body.
func status(code int) scripted.Script {
	return func(c *scripted.Call) {
		c.Reply(code, "application/json", fmt.Sprintf(`{"error":{"message":"status %d","code":%d}}`, code, code))
	}
}

func good(c *scripted.Call) { c.Reply(200, "application/json", jsonAnswer) }

func refuse(c *scripted.Call) { c.RST() }

// upstreamCalls counts the requests that all upstreams got.
func (r *rig) upstreamCalls() int {
	n := 0
	for _, up := range r.upstreams {
		n += len(up.Calls())
	}
	return n
}

// Field case F21: there is a hard ceiling of attempts, a caller's fault is never retried,
// what two endpoints fail at is not tried at a third (F30), and what the client gets are
// the last endpoint's own words.
func TestAttemptsHaveACeiling(t *testing.T) {
	for code, attempts := range map[int]int{400: 1, 401: 2, 404: 2, 422: 1, 429: 3, 500: 2, 501: 2, 502: 2, 503: 3, 504: 2} {
		for _, request := range []string{unstreamed, streamed} {
			r := newRig(t, pooled(status(code), status(code), status(code), status(code), status(code)))
			a := r.post(chatPath, request, "X-Request-Id: one-call", "Idempotency-Key: k", "X-Idempotency-Key: k")
			want := code
			if code == 401 { // an endpoint's word on the gateway's key is none on the client's
				want = 502
			}
			if a.status != want || !strings.Contains(a.body, fmt.Sprintf("status %d", code)) {
				t.Errorf("%d: client got %d %q", code, a.status, a.body)
			}
			if n := r.upstreamCalls(); n != attempts {
				t.Errorf("%d: %d attempts, want %d", code, n, attempts)
			}
			for i, up := range r.upstreams {
				if n := up.Attempts("one-call"); n > 1 {
					t.Errorf("%d: endpoint %d was tried %d times", code, i, n)
				}
			}
			if c := r.record(); c.int("attempts") != attempts {
				t.Errorf("%d: record %v", code, c)
			}
			r.close()
		}
	}
}

// Field case F21: no setting passes the ceiling, and nothing is tried after the client left.
func TestNoSettingRetriesForEver(t *testing.T) {
	var scripts []scripted.Script
	for range 12 {
		scripts = append(scripts, status(503))
	}
	s := pooled(scripts...)
	s.config = func(c *proxy.Config) { c.Models[0].Machine.Retry.Attempts = 5 }
	r := newRig(t, s)
	defer r.close()
	r.attempts = 6
	if a := r.post(chatPath, unstreamed); a.status != 503 {
		t.Errorf("status %d", a.status)
	}
	if n := r.upstreamCalls(); n != 6 {
		t.Errorf("%d attempts for 1 + 5 allowed", n)
	}
}

// Field case F22: in steady failure the retries of all calls have a budget, and a client
// whose call had all its attempts is told not to multiply them.
func TestRetryBudgetBoundsUpstreamCalls(t *testing.T) {
	for _, code := range []int{429, 503} {
		s := pooled(status(code), status(code), status(code))
		s.config = func(c *proxy.Config) { c.Models[0].Machine.Retry.Ratio, c.Models[0].Machine.Retry.Floor = 0.1, 0 }
		r := newRig(t, s)
		const calls = 200
		told := 0
		for range calls {
			a := r.post(chatPath, unstreamed)
			if a.status != code {
				t.Fatalf("status %d", a.status)
			}
			if a.header.Get("X-Should-Retry") == "false" || a.header.Get("Retry-After") != "" {
				told++
			}
		}
		if n := r.upstreamCalls(); n > calls*12/10 {
			t.Errorf("%d: %d upstream calls for %d", code, n, calls)
		}
		if told < calls {
			t.Errorf("%d: only %d of %d answers say that a retry is of no use, or when it is", code, told, calls)
		}
		r.close()
	}
}

// Field case F26: affinity does not bind a call to a broken endpoint: the retry goes
// elsewhere, and later calls of the session stay where they then are.
func TestF26_AffinityYieldsToHealth(t *testing.T) {
	const numbered = `{"model":"m","messages":[{"role":"user","content":"prompt %d"}]}`
	byHeader := func(c *proxy.Config) {
		rule := policy.ConsistentHash{Key: "header", Header: "X-Session-Id", Blocks: 1, LoadFactor: 1.25}
		c.Models[0].Machine.Pools[0].Policy, c.Models[0].KeyHeader = rule.New(), "X-Session-Id"
	}
	for name, x := range map[string]struct {
		broken scripted.Script
		config func(*proxy.Config)
		prompt string // %d: the call's number
	}{
		"prefix, reset":   {refuse, nil, unstreamed},
		"prefix, busy":    {status(503), nil, unstreamed},
		"prefix, limited": {limitedFor("Retry-After: 3600"), nil, unstreamed},
		"header, reset":   {refuse, byHeader, numbered},
		"header, busy":    {status(503), byHeader, numbered},
		"header, limited": {limitedFor("Retry-After: 3600"), byHeader, numbered},
	} {
		t.Run(name, func(t *testing.T) {
			s := pooled(good, good, good, good)
			s.policy, s.config = "consistent-hash", x.config
			r := newRig(t, s)
			defer r.close()
			calls := 0
			at := func() string {
				calls++
				a := r.post(chatPath, strings.Replace(x.prompt, "%d", fmt.Sprint(calls), 1), "X-Session-Id: one")
				if a.status != 200 {
					t.Fatalf("status %d: %s", a.status, a.body)
				}
				return a.header.Get("X-Kvasir-Endpoint")
			}
			home := at()
			for range 4 {
				if again := at(); again != home {
					t.Fatalf("no affinity: %s, then %s", home, again)
				}
			}
			for i := range r.upstreams {
				if endpointName(i) == home {
					r.upstreams[i].SetScript(x.broken)
				}
			}
			seen := map[string]bool{}
			for range 5 {
				seen[at()] = true
			}
			if len(seen) != 1 {
				t.Errorf("calls go back and forth between %v", seen)
			}
			most := 1 // then it is left alone
			if strings.HasSuffix(name, "reset") {
				most = 3 + 1 // and a connection that was idle may be stale
			}
			for i, up := range r.upstreams {
				if n := len(up.Calls()) - 5; endpointName(i) == home && n > most {
					t.Errorf("the broken endpoint was tried %d times by 5 calls", n)
				}
			}
			if seen[home] || strings.HasSuffix(name, "reset") && r.metric("kvasir_endpoint_in_rotation", "endpoint="+home) != 0 {
				t.Errorf("calls went to %v; %s is broken", seen, home)
			}
		})
	}
}

// Field case F28: callers' faults are passed on in the endpoint's own words, tried once,
// and neutral to the endpoint's health.
func TestCallersFaultsOpenNoBreaker(t *testing.T) {
	bad := strings.Replace(unstreamed, "Hello", "MARKER", 1)
	script := func(c *scripted.Call) {
		rec := c.Record()
		if strings.Contains(string(rec.Body), "MARKER") {
			code := 400 + int(rec.BodyHash+uint64(rec.Turn))%2*22 // 400 and 422
			status(code)(c)
			return
		}
		good(c)
	}
	r := newRig(t, pooled(script, script))
	defer r.close()
	for i := range 60 {
		if a := r.post(chatPath, bad); a.status/100 != 4 || !strings.Contains(a.body, "status 4") {
			t.Fatalf("call %d: %d %s", i, a.status, a.body)
		}
		if i%3 == 0 {
			if a := r.post(chatPath, unstreamed); a.status != 200 {
				t.Fatalf("a good call got %d: %s", a.status, a.body)
			}
		}
	}
	if n := r.metric("kvasir_endpoint_in_rotation"); n != 2 {
		t.Errorf("%v of 2 endpoints in rotation", n)
	}
	if n := r.upstreamCalls(); n != 80 {
		t.Errorf("%d upstream calls for 80", n)
	}
	if n := r.metric("kvasir_calls_total", "outcome=caller_fault"); n != 60 {
		t.Errorf("%v calls counted as the caller's fault", n)
	}
}

// Field case F29: an endpoint that is full is not dead: after the burst it serves at once, also
// where it is the only one.
func TestBusyIsNotDead(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) { busyIsNotDead(t, workers) })
	}
}

func busyIsNotDead(t *testing.T, workers int) {
	full := func() scripted.Script {
		var running atomic.Int32
		return func(c *scripted.Call) {
			defer running.Add(-1)
			if running.Add(1) > 4 {
				status(503)(c)
				return
			}
			c.Pause(20 * time.Millisecond)
			good(c)
		}
	}
	var scripts []scripted.Script
	for range workers {
		scripts = append(scripts, full())
	}
	r := newRig(t, pooled(scripts...))
	defer r.close()
	var clients sync.WaitGroup
	for range 60 {
		clients.Go(func() {
			if a := r.post(chatPath, unstreamed); a.status != 200 && a.status != 503 {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	clients.Wait()
	if n := r.metric("kvasir_calls_total", "outcome=back_pressure"); n < 10 {
		t.Errorf("only %v calls met back-pressure: the test shows nothing", n)
	}
	if said := r.records.said(); len(said) != 0 {
		t.Errorf("back-pressure counts against health: %v", said)
	}
	if a := r.post(chatPath, unstreamed); a.status != 200 {
		t.Errorf("after the burst: status %d", a.status)
	}
}

// Field case F29's other half: what refuses connections leaves rotation, gets a probe
// after a while, and comes back with the first content.
func TestDeadEndpointLeavesRotationAndComesBack(t *testing.T) {
	s := pooled(refuse, good)
	s.config = func(c *proxy.Config) { c.Models[0].Machine.Health.Ejection = 200 * time.Millisecond }
	r := newRig(t, s)
	defer r.close()
	for range 12 {
		if a := r.post(chatPath, unstreamed); a.status != 200 {
			t.Fatalf("status %d", a.status)
		}
	}
	if n := len(r.upstreams[0].Calls()); n != 3 {
		t.Errorf("the dead endpoint was tried %d times, want 3", n)
	}
	r.upstreams[0].SetScript(good)
	time.Sleep(220 * time.Millisecond)
	for range 4 {
		r.post(chatPath, unstreamed)
	}
	if n := r.metric("kvasir_endpoint_in_rotation"); n != 2 {
		t.Errorf("%v of 2 endpoints in rotation", n)
	}
}

// A lower pool is used when the higher one has no endpoint in rotation, and for a call
// that has tried them all.
func TestLowerPoolIsForWhatTheHigherCannotTake(t *testing.T) {
	s := setup{pools: [][]scripted.Script{{good, good}, {good}}}
	s.config = func(c *proxy.Config) { c.Models[0].Machine.Health.Ejection = time.Hour }
	r := newRig(t, s)
	defer r.close()
	for range 10 {
		if a := r.post(chatPath, unstreamed); a.header.Get("X-Kvasir-Endpoint") == "e3" {
			t.Fatal("the lower pool was used while the higher one is in rotation")
		}
	}
	r.upstreams[0].Close()
	r.upstreams[1].Close()
	time.Sleep(20 * time.Millisecond) // the pool sees its idle connections closed
	for range 4 {
		if a := r.post(chatPath, unstreamed); a.status != 200 || a.header.Get("X-Kvasir-Endpoint") != "e3" {
			t.Fatalf("status %d from %q: %s", a.status, a.header.Get("X-Kvasir-Endpoint"), a.body)
		}
	}
	if n := r.metric("kvasir_attempts_total", "pool=p1", "outcome=endpoint_failure"); n != 6 {
		t.Errorf("the dead pool was tried %v times, want 6: then it is out of rotation", n)
	}
	if n := r.metric("kvasir_calls_total", "pool=p2", "outcome=success"); n != 4 {
		t.Errorf("%v calls counted for the lower pool", n)
	}
}

// A redirect is not followed: it could carry the call, and its key, anywhere.
func TestRedirectIsNotFollowed(t *testing.T) {
	var elsewhere *rig
	r := newRig(t, ordered(func(c *scripted.Call) {
		c.Head(307, "Location: http://"+elsewhere.upstreams[0].Addr()+"/v1/chat/completions", "Content-Length: 0")
	}))
	elsewhere = newRig(t, ordered(good))
	defer elsewhere.close()
	defer r.close()
	for _, code := range []int{301, 302, 303, 307, 308, 304, 101} {
		r.upstreams[0].SetScript(func(c *scripted.Call) {
			c.Head(code, "Location: http://"+elsewhere.upstreams[0].Addr()+"/", "Content-Length: 0")
		})
		a := r.post(chatPath, unstreamed)
		if a.status != 502 || a.header.Get("Location") != "" {
			t.Errorf("%d: status %d, Location %q", code, a.status, a.header.Get("Location"))
		}
		envelope(t, a.body)
	}
	if n := elsewhere.upstreamCalls(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// The last endpoint of a model's last pool stays in rotation, however it fares: there is
// nothing better to try.
func TestLastEndpointStaysInRotation(t *testing.T) {
	s := setup{pools: [][]scripted.Script{{refuse}, {refuse}}}
	s.config = func(c *proxy.Config) {
		c.Models[0].Machine.Health.Ejection = time.Hour
		c.Models[0].Machine.Health.Failures = 1
	}
	r := newRig(t, s)
	defer r.close()
	for _, up := range r.upstreams {
		up.Close() // its connections are refused
	}
	for range 3 {
		if a := r.post(chatPath, unstreamed); a.status != 502 {
			t.Errorf("status %d", a.status)
		}
	}
	if n := r.metric("kvasir_endpoint_in_rotation", "endpoint=e2"); n != 1 {
		t.Error("the last endpoint left rotation")
	}
	if n := r.metric("kvasir_endpoint_in_rotation", "endpoint=e1"); n != 0 {
		t.Error("the first pool's endpoint is still in rotation")
	}
	if ok, why := r.gateway.Ready(); !ok {
		t.Errorf("not ready: %s", why)
	}
}

// Bounds on calls refuse at once with 503 and Retry-After; the machine's bound is the
// model's.
func TestBoundsOnCallsRefuse(t *testing.T) {
	for _, x := range []struct {
		name, code string
		config     func(*proxy.Config)
	}{
		{"gateway", "too_many_calls", func(c *proxy.Config) { c.Limits.Calls = 2 }},
		{"model", "too_many_calls", func(c *proxy.Config) { c.Models[0].Machine.Calls = 2 }},
	} {
		t.Run(x.name, func(t *testing.T) {
			release := make(chan bool)
			s := pooled(func(c *scripted.Call) { <-release; good(c) })
			s.config = x.config
			r := newRig(t, s)
			defer r.close()
			var held sync.WaitGroup
			for range 2 {
				held.Go(func() {
					if a := r.post(chatPath, unstreamed); a.status != 200 {
						t.Errorf("status %d", a.status)
					}
				})
			}
			eventually(t, 2*time.Second, func() bool { return r.upstreamCalls() == 2 }, func() string { return "calls not upstream" })
			a := r.post(chatPath, unstreamed)
			if a.status != 503 || a.header.Get("Retry-After") == "" {
				t.Errorf("status %d, Retry-After %q", a.status, a.header.Get("Retry-After"))
			}
			if e := envelope(t, a.body); e.Code != x.code {
				t.Errorf("envelope %+v", e)
			}
			close(release)
			held.Wait()
			r.settle()
			if n := r.metric("kvasir_refusals_total", "reason=too_many_calls"); n != 1 {
				t.Errorf("counted %v times", n)
			}
			if a := r.post(chatPath, unstreamed); a.status != 200 {
				t.Errorf("afterwards: status %d", a.status)
			}
		})
	}
}

// An attempt that can't connect is told apart from one that broke.
func TestUnreachableEndpointIsA502(t *testing.T) {
	r := newRig(t, pooled(good))
	defer r.close()
	r.upstreams[0].Close()
	a := r.post(chatPath, unstreamed)
	if a.status != 502 {
		t.Errorf("status %d", a.status)
	}
	if e := envelope(t, a.body); e.Code != "upstream_connect_failed" || e.RequestID == "" {
		t.Errorf("envelope %+v", e)
	}
}
