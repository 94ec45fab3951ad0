package proxy_test

import (
	"encoding/json"
	"testing"

	"kvasir/gateway/admission"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// TestLimit_IsShown: what calls an endpoint may have, where that is found.
func TestLimit_IsShown(t *testing.T) {
	r := newRig(t, oneAtATime(pooled(func(c *scripted.Call) { c.Stream(wholeStream("good")...) }), func(q *admission.Config, _ *proxy.Config) {
		q.Tokens, q.Adaptive, q.Gradient.Min, q.Gradient.Max = 0, true, 5, 7
	}))
	defer r.close()
	if a := r.post(chatPath, streamed); a.status != 200 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	var views []proxy.ModelView
	if _, body := r.admin("/v1/pools"); json.Unmarshal([]byte(body), &views) != nil || views[0].Pools[0].Endpoints[0].Limit != 7 {
		t.Errorf("%s", body)
	}
	if l := r.gateway.State().Models[0].Endpoints[0].Limit; l.V != 7 || !l.Known {
		t.Errorf("for metrics: %+v", l)
	}
}
