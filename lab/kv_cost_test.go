package lab

import (
	"math"
	"testing"
)

// TestKVCost_ByHand: what a worker has to prefill is in its cost block by block, and with a decay its
// credit is overlap/(1 + decay · pending/prompt).
func TestKVCost_ByHand(t *testing.T) {
	x := &kvCost{credit: 1, scale: 1}
	for _, c := range []struct {
		pending int
		decay   float64
		want    float64 // worker 2: (10 + pending − 5/(1 + decay·pending/10)) + 5
	}{{0, 0, 10}, {3, 0, 13}, {0, 1, 10}, {10, 1, 22.5}, {10, 3, 23.75}} {
		costs, _ := x.costs(exampleWorkers, 1, c.pending, c.decay)
		if math.Abs(costs[1]-c.want) > 1e-9 || costs[0] != 18 || costs[2] != 11 {
			t.Errorf("%d blocks pending, decay %v: costs %v, want 18, %v, 11", c.pending, c.decay, costs, c.want)
		}
	}
	x.active = 2
	if costs, _ := x.costs(exampleWorkers, 1, 0, 0); costs[0] != 20 {
		t.Errorf("a call that costs two blocks: %v", costs)
	}
}
