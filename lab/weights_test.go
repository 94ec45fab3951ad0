package lab

import (
	"math"
	"testing"
)

// TestWeights_ReplicasAlike share calls evenly, and none is lost.
func TestWeights_ReplicasAlike(t *testing.T) {
	slow := &weights{fast: 2, slow: 2, speed: 1, rho: 0.7, calls: 5000}
	ru := slow.rules()[leastCalls]
	a := slow.play(ru, 1)
	if len(a.picks) != slow.calls || a.mean <= 1 || a.p95 <= a.mean {
		t.Errorf("%d picks, mean %v, P95 %v", len(a.picks), a.mean, a.p95)
	}
	if a.share < 47 || a.share > 53 || math.Abs(a.held-1) > 0.1 {
		t.Errorf("equal replicas: %v %% of the calls, %v times the calls", a.share, a.held)
	}
}

// TestWeights_OneFastReplicaIsAnMM1Queue but for the calls that the slow one gets: with a speed of 100
// beside it these are few, and the time is 1/(μ − λ).
func TestWeights_OneFastReplicaIsAnMM1Queue(t *testing.T) {
	x := &weights{fast: 1, slow: 1, speed: 100, rho: 0.5, calls: 20_000}
	var means []float64
	for root := range uint64(10) {
		means = append(means, x.play(x.rules()[weightedTurns], root).mean)
	}
	// The fast one gets 100 of 101 calls at λ = 50 and serves 100; the slow one 1 at λ = 0.5 and serves 1.
	want := 100.0/101/50 + 1.0/101/0.5
	if got := average(means); math.Abs(got-want) > want/5 {
		t.Errorf("mean time %v, want about %v", got, want)
	}
}
