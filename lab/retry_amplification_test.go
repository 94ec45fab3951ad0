package lab

import (
	"math"
	"testing"

	"kvasir/internal/seed"
)

// call makes one call through the layers and returns how many upstream attempts it came to.
func (x *amplification) call(r *seed.Rand, layers []layer) (attempts int, ok bool) {
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
	x := amplificationLab().settings().(*amplification)
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

// TestAmplification_SettleIsAState: what is sent in the end is what the users' load comes to with the
// failures that it causes.
func TestAmplification_SettleIsAState(t *testing.T) {
	for _, load := range []float64{0.1, 0.5, 0.9, 1.5} {
		for _, waste := range []float64{0, 0.3, 0.9} {
			x := amplificationLab().settings().(*amplification)
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

// TestTuned_IsWherePoolsLetGo: just below, what is sent stays above the capacity.
func TestTuned_IsWherePoolsLetGo(t *testing.T) {
	x := amplificationLab().settings().(*amplification)
	for i, w := range x.ways() {
		enough := x.tuned(w)
		if i >= 2 && enough != 1 {
			t.Errorf("%s: recovers at %v times the capacity", w.name, enough)
		}
		if i == 0 && !math.IsInf(enough, 1) {
			t.Errorf("%s: recovers at %v times the capacity", w.name, enough)
		}
		if i != 1 {
			continue
		}
		below := *x
		below.load = x.load / (enough - 0.01)
		if sent, _ := below.settle(w); enough < 1.02 || enough > 1.1 || sent <= 1 {
			t.Errorf("%s: recovers at %v times the capacity; a hundredth below %v is sent", w.name, enough, sent)
		}
	}
}

// TestByFailure_HasEachRateOnceAndInOrder, the setting's among them.
func TestByFailure_HasEachRateOnceAndInOrder(t *testing.T) {
	for value, want := range map[string]int{"0.1": 5, "0.95": 6} {
		r, err := amplificationLab().Run(Options{Seeds: 1, Settings: []Setting{{"failure", value}}})
		if err != nil {
			t.Fatal(err)
		}
		before := -1.0
		rows := tableOf(t, r, "by-failure").Rows
		for _, row := range rows {
			if row[0].Value() <= before {
				t.Errorf("failure %s: %v comes after %v", value, row[0].Value(), before)
			}
			before = row[0].Value()
		}
		if len(rows) != want {
			t.Errorf("failure %s: %d rows", value, len(rows))
		}
	}
}
