package health

import (
	"testing"
	"time"

	"kvasir/internal/mono"
)

func TestBreaker_OpensAfterConsecutiveFailures(t *testing.T) {
	c := Default()
	var b Breaker
	for i := range 2 {
		if b.Fail(c, false) {
			t.Fatalf("failure %d of 3 took the endpoint out", i+1)
		}
	}
	b.Succeed()
	for range 2 {
		b.Fail(c, false)
	}
	if !b.Fail(c, false) {
		t.Fatal("three failures in a row did not take the endpoint out")
	}
	b.Eject(c, 100)
	if b.Permits(100) || b.Permits(mono.Time(c.Ejection)+99) {
		t.Error("an ejected endpoint is permitted before its time")
	}
	if !b.Permits(mono.Time(c.Ejection) + 100) {
		t.Error("an ejected endpoint is not probed after its time")
	}
}

func TestBreaker_ProbesWithOneCall(t *testing.T) {
	c := Config{Failures: 1, Ejection: time.Second}
	open := func() Breaker {
		var b Breaker
		b.Fail(c, false)
		b.Eject(c, 0)
		return b
	}
	due := mono.Time(time.Second)

	b := open()
	if !b.Dispatch(c, due) || b.State() != Probing || b.Permits(due+1) {
		t.Fatal("a second call may go out beside the probe")
	}
	if b.Fail(c, false) {
		t.Error("a call from before the ejection counted as the probe")
	}
	if !b.Fail(c, true) {
		t.Error("a failed probe does not take the endpoint out")
	}
	b.Eject(c, due)
	if b.Permits(due + mono.Time(c.Ejection) - 1) {
		t.Error("after a failed probe the endpoint is permitted at once")
	}

	b = open()
	b.Dispatch(c, due)
	if !b.Succeed() || !b.Permits(due) || b.State() != InRotation {
		t.Error("a good probe does not bring the endpoint back")
	}

	b = open()
	b.Dispatch(c, due)
	if b.Permits(due+mono.Time(c.Ejection)-1) || !b.Permits(due+mono.Time(c.Ejection)) {
		t.Error("a probe without a verdict does not make room for the next one in its time")
	}

	b = open()
	b.Dispatch(c, due)
	b.ProbeLost(due + 5)
	if !b.Permits(due+5) || b.State() == InRotation {
		t.Error("a probe without a verdict does not leave the next call to probe")
	}
}
