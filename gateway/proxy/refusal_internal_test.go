package proxy

import (
	"testing"

	"kvasir/gateway/flow"
	"kvasir/telemetry"
)

// TestRefusal_OfOverload: what a client can do about it decides about the status, and whether SDKs
// try again by themselves.
func TestRefusal_OfOverload(t *testing.T) {
	for _, x := range []struct {
		why    flow.Reason
		status int
		kind   telemetry.Refusal
		final  bool
	}{
		{flow.QueueFull, 429, telemetry.QueueFull, false},
		{flow.QueueBytes, 429, telemetry.QueueBytes, false},
		{flow.QueueWait, 429, telemetry.QueueWait, false},
		{flow.QueueTimeout, 503, telemetry.QueueTimeout, false},
		{flow.Shed, 429, telemetry.Shed, false},
		{flow.DeadlineUnmet, 503, telemetry.DeadlineUnmet, true},
		{flow.DeadlinePassed, 504, telemetry.DeadlinePassed, true},
		{flow.TooManyCalls, 503, telemetry.TooManyCalls, false},
		{flow.NoEndpoint, 503, telemetry.NoEndpoint, false},
	} {
		kind, e := refusal(x.why, 5)
		if kind != x.kind || e.Status != x.status || e.Code != x.why.String() || e.Message == "" {
			t.Errorf("%v: %v, %+v", x.why, kind, e)
		}
		if got := x.why.Final(0); got != x.final {
			t.Errorf("%v: SDKs are told not to try again: %v", x.why, got)
		}
	}
}
