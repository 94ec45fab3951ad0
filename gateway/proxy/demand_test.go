package proxy_test

import (
	"encoding/json"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/selection"
)

// TestDemand_IsShown: calls that were answered and such as were refused count; what is not known
// is null.
func TestDemand_IsShown(t *testing.T) {
	s := pooled(func(c *scripted.Call) { c.Stream(wholeStream("good")...) })
	s.config = func(c *proxy.Config) {
		c.Models[0].Machine.SLO = selection.SLO{TTFT: time.Minute}
		c.Models[0].Machine.Calls = 1
	}
	r := newRig(t, s)
	defer r.close()
	demand := func() *proxy.DemandView {
		t.Helper()
		var views []proxy.ModelView
		code, body := r.admin("/v1/pools")
		if err := json.Unmarshal([]byte(body), &views); code != 200 || err != nil {
			t.Fatalf("%d, %v: %s", code, err, body)
		}
		return views[0].Pools[0].Demand
	}
	if d := demand(); d.Calls != 0 || d.Variation != nil || d.Wait != nil || d.Replica.Speed != nil || *d.Needed.Desired != 1 || d.InRotation != 1 {
		t.Errorf("before any call: %+v", d)
	}
	for range 3 {
		if a := r.post(chatPath, streamed); a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
	}
	eventually(t, 2*time.Second, func() bool { d := demand(); return d.Replica.Residence != nil && *d.Endpoints.Worst == 0 },
		func() string { return "no residence is known after three answers" })
	d := demand()
	if !(d.Calls > 0) || !(d.Tokens > 0) || *d.Variation != 0 || !(*d.Replica.Speed > 0) || !(*d.Knee > 0.9) || *d.Needed.Desired != 1 || *d.Wait != 0 || d.Replica.Places != nil || d.Waiting.Engine != nil {
		t.Errorf("after three calls: %+v", d)
	}
	if *d.Endpoints.At == "" || d.Waiting.Gateway != 0 {
		t.Errorf("%+v", d)
	}
	m := r.gateway.State().Models[0].Demand[0]
	if m.Desired.V != 1 || !m.Knee.Known || m.Waiting.Known || m.InRotation != 1 {
		t.Errorf("for metrics: %+v", m)
	}
}
