package policy

import (
	"math"
	"slices"
	"testing"
	"time"

	"kvasir/internal/mono"
	"kvasir/selection"
)

const second = mono.Time(time.Second)

// approx reports whether two numbers are the same to within a rounding.
func approx(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Abs(b) }

// TestEWMAInNumbers: decay 10 s, times in seconds.
func TestEWMAInNumbers(t *testing.T) {
	e := math.Exp
	for _, test := range []struct {
		name string
		obs  [][2]float64 // instant, time to first token
		want float64
	}{
		{"the first", [][2]float64{{0, 2}}, 2},
		{"a higher one replaces it at once", [][2]float64{{0, 2}, {0.001, 5}}, 5},
		{"a lower one after a decay weighs 1 - 1/e", [][2]float64{{0, 2}, {10, 1}}, 2*e(-1) + 1*(1-e(-1))},
		{"a lower one at once weighs nothing", [][2]float64{{3, 2}, {3, 1}}, 2},
		{"two lower ones", [][2]float64{{0, 4}, {5, 1}, {7, 2}}, (4*e(-.5)+1*(1-e(-.5)))*e(-.2) + 2*(1-e(-.2))},
		{"an equal one", [][2]float64{{0, 2}, {5, 2}}, 2},
		{"none at all", [][2]float64{{0, 0}}, 1e-9},
	} {
		p := build("ewma-latency")
		for _, o := range test.obs {
			p.(selection.Learner).Learn(&selection.Sample{At: mono.Time(o[0] * 1e9), Slot: 3, TTFT: time.Duration(o[1] * 1e9)})
		}
		if got := p.(*ewmaLatency).averages[3].ttft; !approx(got, test.want) {
			t.Errorf("%s: average %v, want %v", test.name, got, test.want)
		}
	}
}

// learned returns the policy after an observation of each endpoint at instant 0.
func learned(seconds ...float64) selection.Policy {
	p := build("ewma-latency")
	for slot, s := range seconds {
		if s > 0 {
			p.(selection.Learner).Learn(&selection.Sample{Slot: selection.Slot(slot), TTFT: time.Duration(s * 1e9)})
		}
	}
	return p
}

func TestEWMACostIsLatencyTimesLoad(t *testing.T) {
	v := loaded(3, 0, 1)
	v.Now = 0
	c := pick(learned(0.5, 3, 0.8), v, nil, 0)
	if want := []float64{2, 3, 1.6}; !slices.Equal(v.Scores, want) || c.Index != 2 || c.Reason != ReasonLowestCost {
		t.Errorf("chose %+v by %v, want %v", c, v.Scores, want)
	}
}

// TestEWMAForgives: a slow endpoint's latency decays, to the fastest's average and no
// further, so that it is tried again but never gets everything.
func TestEWMAForgives(t *testing.T) {
	p, v := learned(1, 8), loaded(0, 0)
	for _, test := range []struct {
		after time.Duration
		want  float64
	}{{0, 8}, {10 * time.Second, 8 * math.Exp(-1)}, {20 * time.Second, 8 * math.Exp(-2)}, {21 * time.Second, 1}, {time.Hour, 1}} {
		v.Now = mono.Time(test.after)
		if pick(p, v, nil, 0); !approx(v.Scores[1], test.want) || v.Scores[0] != 1 {
			t.Errorf("after %v: costs %v, want 1 and %v", test.after, v.Scores, test.want)
		}
	}
}

// TestEWMAQuietPoolDoesNotHerd: after an hour without calls a burst is spread, though
// the endpoints' last observations lie far apart.
func TestEWMAQuietPoolDoesNotHerd(t *testing.T) {
	p := build("ewma-latency")
	for slot := range 4 {
		p.(selection.Learner).Learn(&selection.Sample{At: mono.Time(slot) * 60 * second, Slot: selection.Slot(slot), TTFT: time.Second})
	}
	v := loaded(0, 0, 0, 0)
	v.Now = 3600 * second
	for draw := range 40 {
		charge(v, picked(p, v, nil, draw), 1)
	}
	for slot, b := range v.Book {
		if b.Outstanding != 10 {
			t.Errorf("slot %d got %d of 40 calls", slot, b.Outstanding)
		}
	}
}

// TestEWMAUnmeasuredIsTriedNotFlooded: a new endpoint gets a call as soon as the others
// have some, and until it has answered counts as the slowest.
func TestEWMAUnmeasuredIsTriedNotFlooded(t *testing.T) {
	p, v := learned(1, 2, 0), loaded(1, 1, 0)
	v.Now = 0
	if c := pick(p, v, nil, 0); c.Index != 2 || c.Reason != ReasonUnmeasured || !slices.Equal(v.Scores, []float64{2, 4, 1}) {
		t.Fatalf("idle and new: chose %+v by %v", c, v.Scores)
	}
	charge(v, 2, 1)
	if c := pick(p, v, nil, 0); c.Index != 0 || !slices.Equal(v.Scores, []float64{2, 4, 4}) {
		t.Fatalf("new with a call: chose %+v by %v", c, v.Scores)
	}
	for draw := range 60 {
		charge(v, picked(p, v, nil, draw), 1)
	}
	if n := v.Book[2].Outstanding; n > v.Book[1].Outstanding+1 {
		t.Errorf("the unmeasured endpoint holds %d, the slowest %d", n, v.Book[1].Outstanding)
	}
}

func TestEWMAWithoutObservationsCountsCalls(t *testing.T) {
	v := loaded(2, 0, 1)
	c := pick(build("ewma-latency"), v, nil, 0)
	if want := []float64{3, 1, 2}; c.Index != 1 || c.Reason != ReasonUnmeasured || !slices.Equal(v.Scores, want) {
		t.Errorf("chose %+v by %v, want %v", c, v.Scores, want)
	}
}

func TestEWMAForgetsOneSlot(t *testing.T) {
	p, v := learned(1, 8), loaded(0, 0)
	v.Now = 0
	p.(selection.Forgetter).Forget(1)
	p.(selection.Forgetter).Forget(100)
	if pick(p, v, nil, 0); !slices.Equal(v.Scores, []float64{1, 1}) {
		t.Errorf("costs %v", v.Scores)
	}
}
