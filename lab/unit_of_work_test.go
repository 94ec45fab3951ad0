package lab

import (
	"math"
	"testing"

	"kvasir/internal/seed"
)

// TestUnitOfWork_WaitIsWhatABatchWaits compares the formula with a queue to which five calls come
// at once.
func TestUnitOfWork_WaitIsWhatABatchWaits(t *testing.T) {
	u := &unitOfWork{rho: 0.7, replicas: 4}
	const batch, batches = 5, 40_000
	var waits []float64
	for root := range uint64(20) {
		r := seed.New(root, seed.Workload, 0, 0)
		work, sum := 0.0, 0.0
		for range batches {
			work = max(work-batch*exponential(&r)/u.rho, 0)
			for range batch {
				sum += work
				work += exponential(&r)
			}
		}
		waits = append(waits, sum/(batch*batches))
	}
	if got, want := average(waits), u.wait(batch); math.Abs(got-want) > want/20 {
		t.Errorf("a batch of %d waits %v, the formula says %v", batch, got, want)
	}
	if got := u.share(20); got != 5 {
		t.Errorf("of 20 children each of four replicas gets %v", got)
	}
	if got := u.share(2); got != 1 {
		t.Errorf("of 2 children one replica gets %v", got)
	}
}
