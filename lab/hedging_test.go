package lab

import (
	"math"
	"slices"
	"testing"

	"kvasir/internal/seed"
	"kvasir/internal/stats"
)

// TestRace_TheArticlesExample: 920 ms alone, 700 hedged at 400 ms with a duplicate that takes 300,
// 300 always duplicated.
func TestRace_TheArticlesExample(t *testing.T) {
	for _, c := range []struct {
		threshold float64
		want      raced
	}{
		{math.Inf(1), raced{took: 920, busy: 920}},
		{400, raced{took: 700, duplicated: true, busy: 1000}}, // A until B answers, B 300 ms
		{0, raced{took: 300, duplicated: true, busy: 600}},
		{800, raced{took: 920, duplicated: true, busy: 1040}}, // A answers before B
	} {
		if got := race(920, 300, c.threshold); got != c.want {
			t.Errorf("threshold %v: %+v, want %+v", c.threshold, got, c.want)
		}
	}
}

// TestHedging_AgreesWithItsDistributions: an attempt's time is lognormal whatever is shared, and the
// better of two that share nothing has the distribution's square in its tail.
func TestHedging_AgreesWithItsDistributions(t *testing.T) {
	for _, shared := range []float64{0, 0.5, 1} {
		x := hedgingLab().settings().(*hedging)
		x.calls, x.shared = 200_000, shared
		first, second := x.latencies(1)
		// P99 of a lognormal time is the median times e^(2.3263·σ).
		want := x.median * math.Exp(2.3263*x.spread)
		for _, values := range [][]float64{first, second} {
			if got := stats.Quantile(slices.Sorted(slices.Values(values)), 0.99); math.Abs(got-want) > want/50 {
				t.Errorf("shared %v: P99 is %v, want %v", shared, got, want)
			}
		}
		h := x.play(first, second, 0)
		switch shared {
		case 0:
			// P(min > t) = P(X > t)², so P99 of the better one is P90 of one, at 1.2816 σ.
			if want := x.median * math.Exp(1.2816*x.spread); math.Abs(h.p99-want) > want/50 {
				t.Errorf("the better of two has P99 %v, want %v", h.p99, want)
			}
		case 1:
			if alone := x.play(first, second, 100); h.p99 != alone.p99 || math.Abs(h.extra-100) > 1e-6 {
				t.Errorf("the same twice: P99 %v and %v, %v %% more time", h.p99, alone.p99, h.extra)
			}
		}
	}
}

// TestNormal_HasItsMoments.
func TestNormal_HasItsMoments(t *testing.T) {
	r := seed.New(1, seed.Workload, 0, 0)
	const n = 400_000
	var sum, squares, beyond float64
	for range n {
		z := normal(&r)
		sum, squares = sum+z, squares+z*z
		if math.Abs(z) > 1.96 {
			beyond++
		}
	}
	if math.Abs(sum/n) > 0.01 || math.Abs(squares/n-1) > 0.01 || math.Abs(beyond/n-0.05) > 0.002 {
		t.Errorf("mean %v, variance %v, %v beyond 1.96", sum/n, squares/n, beyond/n)
	}
}

// TestTail_HasBothEnds, also where the setting is one of them.
func TestTail_HasBothEnds(t *testing.T) {
	for value, want := range map[string]int{"100": 2, "0": 2, "95": 3} {
		r, err := hedgingLab().Run(Options{Settings: []Setting{{"threshold", value}, {"calls", "1000"}}, Seeds: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Plots {
			if p.Name == "tail" && (len(p.Series) != want || p.Series[0].Name != "duplicate never" || p.Series[want-1].Name != "duplicate at once") {
				t.Errorf("threshold %s: %d series, the last is %q", value, len(p.Series), p.Series[len(p.Series)-1].Name)
			}
		}
	}
}
