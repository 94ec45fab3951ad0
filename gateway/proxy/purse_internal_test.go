package proxy

import (
	"sync"
	"testing"

	"kvasir/gateway/attempt"
)

// A reload leaves what was earned where the budget is the same, and begins another one anew.
func TestPurse_OutlastsAReload(t *testing.T) {
	var p purse
	c := attempt.Config{Ratio: 1, Floor: 1}
	p.become(c)
	p.Spend(0)
	p.Earn(0)
	p.become(c)
	if !p.Spend(0) {
		t.Error("what was earned is gone")
	}
	if p.Spend(0) {
		t.Error("the floor came back with the reload")
	}
	c.Floor = 2
	p.become(c)
	n := 0
	for p.Spend(0) {
		n++
	}
	if n != 2 {
		t.Errorf("another budget grants %d, want its floor of 2", n)
	}
}

// Of many that ask at once as many are granted as there are.
func TestPurse_IsSafeForMany(t *testing.T) {
	var p purse
	p.become(attempt.Config{Floor: 100})
	var askers sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for range 50 {
		askers.Go(func() {
			for range 10 {
				if p.Spend(0) {
					mu.Lock()
					granted++
					mu.Unlock()
				}
			}
		})
	}
	askers.Wait()
	if granted != 100 {
		t.Errorf("%d were granted of 100", granted)
	}
}
