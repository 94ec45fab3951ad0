package proxy

import (
	"strings"
	"testing"
	"time"

	"kvasir/gateway/admission"
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
		kind, e := refusal(x.why, bounds{calls: 5})
		if kind != x.kind || e.Status != x.status || e.Code != x.why.String() || e.Message == "" {
			t.Errorf("%v: %v, %+v", x.why, kind, e)
		}
		if got := x.why.Final(0); got != x.final {
			t.Errorf("%v: SDKs are told not to try again: %v", x.why, got)
		}
	}
}

// TestRefusal_NamesItsBound: the key and the value, or the key alone where pools differ.
func TestRefusal_NamesItsBound(t *testing.T) {
	b := bounds{calls: 5, queue: admission.Config{Length: 7, Bytes: 4096, MaxWait: 2 * time.Second}, deadline: 300 * time.Millisecond}
	for why, want := range map[flow.Reason]string{
		flow.TooManyCalls: "5 calls", flow.QueueFull: "(queue.length: 7)", flow.QueueBytes: "(queue.bytes: 4096)",
		flow.QueueWait: "(queue.max_wait: 2s)", flow.QueueTimeout: "(queue.max_wait: 2s)",
		flow.DeadlineUnmet: "its deadline, 300ms from", flow.DeadlinePassed: "deadline, 300ms from",
	} {
		if _, e := refusal(why, b); !strings.Contains(e.Message, want) {
			t.Errorf("%v: %s, want %s", why, e.Message, want)
		}
	}
	if _, e := refusal(flow.QueueFull, bounds{}); !strings.Contains(e.Message, "(queue.length)") {
		t.Error(e.Message)
	}
	pools := func(lengths ...int) *call {
		c := &call{model: &model{}}
		for _, n := range lengths {
			c.model.Machine.Pools = append(c.model.Machine.Pools, flow.Pool{Queue: admission.Config{Length: n, Work: 1}})
		}
		return c
	}
	if n := pools(3, 3).bounds().queue.Length; n != 3 {
		t.Errorf("pools that agree: %d", n)
	}
	if n := pools(3, 4, 4).bounds().queue.Length; n != 0 {
		t.Errorf("pools that differ: %d", n)
	}
	if m := tooManyCalls(8, 7).Message; !strings.Contains(m, "8 calls in flight (limits.calls)") || !strings.Contains(m, "first 7,") {
		t.Error(m)
	}
	if m := tooManyCalls(8, 8).Message; !strings.Contains(m, "has its 8 calls in flight") {
		t.Error(m)
	}
}
