package lab

import (
	"math"
	"testing"

	"kvasir/internal/seed"
)

// call makes one call through the layers and returns how many upstream attempts it came to.
func (x *retries) call(r *seed.Rand, layers []layer) (attempts int, ok bool) {
	if len(layers) == 0 {
		return 1, r.Float64() >= x.failure
	}
	for range layers[0].attempts {
		n, ok := x.call(r, layers[1:])
		attempts += n
		if ok {
			return attempts, true
		}
	}
	return attempts, false
}

// TestNested_IsWhatLayersMake compares the closed form with calls that are made.
func TestNested_IsWhatLayersMake(t *testing.T) {
	x := retriesLab().settings().(*retries)
	for _, x.failure = range []float64{0, 0.3, 0.9, 1} {
		r := seed.New(1, seed.Workload, 0, 0)
		const calls = 20_000
		attempts, failed := 0, 0
		for range calls {
			n, ok := x.call(&r, x.layers())
			attempts += n
			if !ok {
				failed++
			}
		}
		wantAttempts, wantFailed := nested(x.layers(), x.failure)
		got, gotFailed := float64(attempts)/calls, float64(failed)/calls
		if math.Abs(got-wantAttempts) > 0.02*wantAttempts || math.Abs(gotFailed-wantFailed) > 0.01 {
			t.Errorf("failure %v: %v attempts and %v failed, the formula says %v and %v", x.failure, got, gotFailed, wantAttempts, wantFailed)
		}
	}
}

// TestBudgeted_KeepsTheBudget: retries are what is wanted, or the budget's share of what succeeds.
func TestBudgeted_KeepsTheBudget(t *testing.T) {
	for _, budget := range []float64{0, 0.1, 0.5, 1} {
		for percent := range 101 {
			failure := float64(percent) / 100
			sent := budgeted(3, failure, budget)
			wanted, _ := nested([]layer{{"", 3}}, failure)
			succeed := sent * (1 - failure)
			if sent < 1 || sent > wanted+1e-12 || sent-1 > budget*succeed+1e-12 || sent < wanted-1e-12 && sent-1 < budget*succeed-1e-12 {
				t.Errorf("budget %v, failure %v: %v attempts a call, %v wanted, %v succeed", budget, failure, sent, wanted, succeed)
			}
		}
	}
}

// TestRetries_SettleIsAState: what is sent in the end is what the users' load comes to with the
// failures that it causes.
func TestRetries_SettleIsAState(t *testing.T) {
	for _, load := range []float64{0.1, 0.5, 0.9, 1.5} {
		for _, waste := range []float64{0, 0.3, 0.9} {
			x := retriesLab().settings().(*retries)
			x.load, x.waste = load, waste
			for _, w := range x.ways() {
				sent, failure := x.settle(w)
				if got := load * w.sent(failure); math.Abs(got-sent) > 1e-6*sent {
					t.Errorf("%s, load %v, waste %v: %v is sent, and %v would be", w.name, load, waste, sent, got)
				}
				answered := sent * (1 - failure)
				if sent > 1 && answered > 0 && math.Abs(answered+waste*(sent-answered)-1) > 1e-6 {
					t.Errorf("%s, load %v, waste %v: %v answers and %v failures are not the capacity", w.name, load, waste, answered, sent-answered)
				}
			}
		}
	}
}

// TestWorst_IsWhatJitterLeaves compares the densest window with clients that are drawn.
func TestWorst_IsWhatJitterLeaves(t *testing.T) {
	r := seed.New(1, seed.Workload, 0, 0)
	const clients, bins = 400_000, 80 // of a window each, over 8 s
	var counts [jitterRetries][bins]int
	for range clients {
		at := 0.0
		for n := range jitterRetries {
			at += r.Float64() * backoff(n+1)
			counts[n][int(at/jitterWindow)]++
		}
	}
	for n := range jitterRetries {
		most := 0
		for _, c := range counts[n] {
			most = max(most, c)
		}
		if got, want := float64(most)/clients, worst(n+1, true); math.Abs(got-want) > 0.05*want {
			t.Errorf("retry %d: %v of the clients in the worst window, want %v", n+1, got, want)
		}
		if worst(n+1, false) != 1 {
			t.Errorf("retry %d: without jitter %v", n+1, worst(n+1, false))
		}
	}
}
