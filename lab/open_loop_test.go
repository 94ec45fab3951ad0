package lab

import (
	"math"
	"testing"
)

// TestOpenLoop_IsTheQueueOfTheClosedForm: an M/M/1 queue's call takes 1/(1−ρ) services, and n clients
// without a pause have n calls in the system, which by Little's law take n.
func TestOpenLoop_IsTheQueueOfTheClosedForm(t *testing.T) {
	x := openLoopLab().settings().(*openLoop)
	x.calls = 20_000
	open := x.repeat(20, func(root uint64) loopRun { return x.open(0.5, 1, root) })
	if got := average(open.mean); math.Abs(got-2) > 0.05 {
		t.Errorf("at ρ = 0.5 a call takes %v services, want 2", got)
	}
	for _, n := range []int{1, 7} {
		closed := x.repeat(20, func(root uint64) loopRun { return x.closed(n, 1, root) })
		if got := average(closed.mean); math.Abs(got-float64(n)) > 0.02*float64(n) {
			t.Errorf("with %d clients a call takes %v services", n, got)
		}
		if got := average(closed.rate); math.Abs(got-1) > 0.02 {
			t.Errorf("%d clients send %v calls a service, want 1", n, got)
		}
	}
	slow := x.repeat(20, func(root uint64) loopRun { return x.closed(3, 4, root) })
	if got := average(slow.rate); math.Abs(got-0.25) > 0.01 {
		t.Errorf("a server that takes four times as long gets %v calls a service", got)
	}
}
