package proxy_test

import (
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/selection/health"
)

// provisioned gives the first pool the rule of article section 14.4.
func provisioned(c *proxy.Config) {
	c.Models[0].Machine.Pools[0].Breaker = []health.Rule{{
		Failures: 1, Statuses: []health.Statuses{{From: 429, To: 429}}, Trip: time.Second, MaxTrip: time.Minute,
		RetryAfter: true, MaxAfter: 24 * time.Hour,
	}}
}

// limitedFor answers 429 with the header.
func limitedFor(header ...string) scripted.Script {
	return func(c *scripted.Call) { c.Reply(429, "application/json", `{"error":{"message":"quota"}}`, header...) }
}

// Article section 14.4 over sockets: provisioned throughput spills to pay as you go for as long
// as its 429 says, a day here, and no call goes there meanwhile.
func TestProvisionedSpillsForAsLongAsItIsTold(t *testing.T) {
	s := setup{pools: [][]scripted.Script{{limitedFor("Retry-After: 86400")}, {good}}}
	s.config = provisioned
	r := newRig(t, s)
	defer r.close()
	for i := range 20 {
		a := r.post(chatPath, unstreamed)
		want := "1"
		if i == 0 { // the call that met the 429 has gone on
			want = "2"
		}
		if a.status != 200 || a.header.Get("X-Kvasir-Endpoint") != "e2" || a.header.Get("X-Kvasir-Attempts") != want {
			t.Fatalf("call %d: status %d from %s after %s attempts", i, a.status, a.header.Get("X-Kvasir-Endpoint"), a.header.Get("X-Kvasir-Attempts"))
		}
	}
	if n := len(r.upstreams[0].Calls()); n != 1 {
		t.Errorf("%d calls went to the pool that asked to be left alone for a day", n)
	}
	if n := r.metric("kvasir_endpoint_in_rotation", "endpoint=e1"); n != 0 {
		t.Error("it is in rotation")
	}
	e := r.gateway.Pools()[0].Pools[0].Endpoints[0]
	if e.Cause != "tripped" || e.ProbeIn < 86000 || e.ProbeIn > 86400 {
		t.Errorf("/v1/pools says %+v", e)
	}
}

// With the time over one call probes it, and its content brings it back.
func TestProvisionedReturnsWhenItsTimeIsOver(t *testing.T) {
	s := setup{pools: [][]scripted.Script{{limitedFor("Retry-After-Ms: 150", "Retry-After: 60")}, {good}}}
	s.config = provisioned
	r := newRig(t, s)
	defer r.close()
	if a := r.post(chatPath, unstreamed); a.header.Get("X-Kvasir-Endpoint") != "e2" {
		t.Fatalf("status %d from %s", a.status, a.header.Get("X-Kvasir-Endpoint"))
	}
	r.upstreams[0].SetScript(good)
	eventually(t, 3*time.Second, func() bool {
		return r.post(chatPath, unstreamed).header.Get("X-Kvasir-Endpoint") == "e1"
	}, func() string { return "the first pool's time is over and it gets no call" })
	if n := r.metric("kvasir_endpoint_in_rotation", "endpoint=e1"); n != 1 {
		t.Error("its content did not bring it back")
	}
}

// A rule goes by the status that came, not by what statuses are called together.
func TestBreakerGoesByTheStatus(t *testing.T) {
	for code, out := range map[int]bool{503: false, 529: true} {
		s := setup{pools: [][]scripted.Script{{status(code)}, {good}}}
		s.config = func(c *proxy.Config) {
			c.Models[0].Machine.Pools[0].Breaker = []health.Rule{{Failures: 1, Statuses: []health.Statuses{{From: 529, To: 529}}, Trip: time.Minute}}
		}
		r := newRig(t, s)
		if a := r.post(chatPath, unstreamed); a.status != 200 {
			t.Errorf("%d: status %d", code, a.status)
		}
		if n := r.metric("kvasir_endpoint_in_rotation", "endpoint=e1"); (n == 0) != out {
			t.Errorf("%d: in rotation %v", code, n)
		}
		r.close()
	}
}
