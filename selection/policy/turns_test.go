package policy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kvasir/selection"
)

// sequence returns the slots of so many picks without anything happening in between.
func sequence(p selection.Policy, v *selection.View, picks int) []selection.Slot {
	q := newRequest(1, 4)
	out := make([]selection.Slot, picks)
	for i := range out {
		out[i] = picked(p, v, q, i)
	}
	return out
}

func weighted(weights ...float64) *selection.View {
	v := newView(len(weights))
	for i, w := range weights {
		v.Endpoints[i].Weight = w
	}
	return v
}

func TestRoundRobinGoesInSlotOrderFromADrawnStart(t *testing.T) {
	v := newView(4)
	starts := map[selection.Slot]bool{}
	for range 3 {
		got := sequence(build("round-robin"), v, 9)
		for i := 1; i < len(got); i++ {
			if got[i] != (got[i-1]+1)%4 {
				t.Fatalf("%v is not in turn", got)
			}
		}
	}
	for draw := range 50 {
		starts[picked(build("round-robin"), v, nil, draw)] = true
	}
	if len(starts) != 4 {
		t.Errorf("50 routers start at %v alone", starts)
	}
}

func TestRoundRobinScoresTheTurnsToGo(t *testing.T) {
	p, v := build("round-robin"), newView(4)
	p.(*roundRobin).last = 1
	if c := pick(p, v, nil, 0); c.Index != 2 || !slices.Equal(v.Scores, []float64{2, 3, 0, 1}) {
		t.Errorf("after slot 1: %v with scores %v", c, v.Scores)
	}
}

// TestRoundRobinStaysFairWhenMembersChange: however candidates come and go, between
// two picks of one that stays every other that stays is picked exactly once.
func TestRoundRobinStaysFairWhenMembersChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := newView(rapid.IntRange(3, 9).Draw(t, "endpoints"))
		p := build("round-robin")
		stays := []selection.Slot{0, selection.Slot(rapid.IntRange(1, len(v.Members)-1).Draw(t, "stays"))}
		counts := map[selection.Slot]int{}
		for draw := range 60 {
			mask := rapid.Uint16().Draw(t, "candidates")
			v.Scores = v.Scores[:cap(v.Scores)]
			restrict(v, func(s selection.Slot) bool { return slices.Contains(stays, s) || mask>>s&1 == 1 })
			counts[picked(p, v, nil, draw)]++
			if d := counts[stays[0]] - counts[stays[1]]; d < -1 || d > 1 {
				t.Fatalf("two that stay were picked %d and %d times", counts[stays[0]], counts[stays[1]])
			}
		}
	})
}

// TestWeightedRoundRobinIsNginxSequence is the example of nginx's commit: weights 5, 1
// and 1 give a a b a c a a; which of the equals b and c is first is drawn.
func TestWeightedRoundRobinIsNginxSequence(t *testing.T) {
	got := sequence(build("weighted-round-robin"), weighted(5, 1, 1), 21)
	want := []selection.Slot{0, 0, 1, 0, 2, 0, 0}
	if got[2] == 2 {
		want[2], want[4] = 2, 1
	}
	for cycle := range 3 {
		if part := got[7*cycle:][:7]; !slices.Equal(part, want) {
			t.Errorf("cycle %d is %v, want %v", cycle, part, want)
		}
	}
}

func TestWeightedRoundRobinSharesAreExactOverACycle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 8).Draw(t, "weights")
		v, cycle := newView(len(weights)), 0
		for i, w := range weights {
			v.Endpoints[i].Weight = float64(w)
			cycle += w
		}
		p := build("weighted-round-robin")
		for range 3 {
			counts := make([]int, len(weights))
			for _, slot := range sequence(p, v, cycle) {
				counts[slot]++
			}
			if !slices.Equal(counts, weights) {
				t.Fatalf("a cycle has %v, want the weights %v", counts, weights)
			}
		}
	})
}

// TestWeightedRoundRobinSpreadsTurns: with equal weights no endpoint waits longer than
// all others take one turn each.
func TestWeightedRoundRobinSpreadsTurns(t *testing.T) {
	got := sequence(build("weighted-round-robin"), newView(6), 60)
	for i := 6; i < len(got); i++ {
		if got[i] != got[i-6] {
			t.Fatalf("%v is not one fixed order repeated", got)
		}
	}
}

func TestWeightedRoundRobinHasNoBurst(t *testing.T) {
	burst := func(p selection.Policy, v *selection.View, slot selection.Slot) int {
		n := 0
		for _, s := range sequence(p, v, 12) {
			if s == slot {
				n++
			}
		}
		return n
	}
	t.Run("a new endpoint", func(t *testing.T) {
		p, v := build("weighted-round-robin"), newView(3)
		restrict(v, func(s selection.Slot) bool { return s < 2 })
		sequence(p, v, 1000)
		w := newView(3)
		if n := burst(p, w, 2); n < 3 || n > 5 {
			t.Errorf("it got %d of its first 12 calls among 3 equals", n)
		}
	})
	t.Run("another endpoint in a used slot", func(t *testing.T) {
		p, v := build("weighted-round-robin"), weighted(1, 1, 50)
		sequence(p, v, 30)
		before := p.(*weightedRoundRobin).turns[2].credit
		p.(selection.Forgetter).Forget(2)
		if after := p.(*weightedRoundRobin).turns[2].credit; before == 0 || after != 0 {
			t.Errorf("credit was %v, is %v after Forget", before, after)
		}
	})
	t.Run("weights that shrink", func(t *testing.T) {
		p, v := build("weighted-round-robin"), weighted(1000, 999, 1)
		sequence(p, v, 700)
		w := newView(3)
		for slot := range selection.Slot(3) {
			if n := burst(p, w, slot); n < 2 || n > 6 {
				t.Errorf("with weights 1, 1, 1 again, slot %d got %d of 12 calls", slot, n)
			}
		}
	})
	t.Run("a heavy endpoint that leaves", func(t *testing.T) {
		p, v := build("weighted-round-robin"), weighted(1000, 1, 1)
		sequence(p, v, 777)
		restrict(v, func(s selection.Slot) bool { return s > 0 })
		if n := burst(p, v, 1); n < 4 || n > 8 {
			t.Errorf("of two equals that are left, one got %d of 12 calls", n)
		}
	})
}

func TestWeightedLeastRequestWithoutBiasIsWeightedRoundRobin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		a, b := build("weighted-round-robin"), (&WeightedLeastRequest{ActiveRequestBias: 0}).New()
		live(t, v, a, b)
		for draw := range 20 {
			if x, y := picked(a, v, nil, draw), picked(b, v, nil, draw); x != y {
				t.Fatalf("pick %d: weighted-round-robin chose %d, bias 0 chose %d", draw, x, y)
			}
		}
	})
}

// TestWeightedLeastRequestTakesTurnsByEffectiveWeight is Envoy's formula in numbers:
// weights 4 and 1, with 3 and 0 calls outstanding, are 4/4 and 1/1 at bias 1, and 4/2
// and 1/1 at bias 0.5.
func TestWeightedLeastRequestTakesTurnsByEffectiveWeight(t *testing.T) {
	for _, test := range []struct {
		bias   float64
		shares []int // of 30 calls
	}{{0, []int{24, 6}}, {0.5, []int{20, 10}}, {1, []int{15, 15}}, {2, []int{6, 24}}} {
		v := weighted(4, 1)
		v.Book[0].Outstanding = 3
		counts := make([]int, 2)
		for _, slot := range sequence((&WeightedLeastRequest{test.bias}).New(), v, 30) {
			counts[slot]++
		}
		if !slices.Equal(counts, test.shares) {
			t.Errorf("bias %v: %v of 30 calls, want %v", test.bias, counts, test.shares)
		}
	}
}

// TestWeightedLeastRequestSettles: with calls that all last equally long, the calls that
// an endpoint holds are proportional to its picks, and these to weight/(calls + 1). So
// at bias 1 it comes to hold the square root of its weight: of 60 calls, weights 1 and
// 2 hold 25 and 35.
func TestWeightedLeastRequestSettles(t *testing.T) {
	p, v := build("weighted-least-request"), weighted(1, 2)
	var under []selection.Slot
	for draw := range 3000 {
		slot := picked(p, v, nil, draw)
		charge(v, slot, 1)
		if under = append(under, slot); len(under) > 60 {
			v.Book[under[0]].Outstanding--
			under = under[1:]
		}
	}
	if n := v.Book[1].Outstanding; n < 33 || n > 37 {
		t.Errorf("of 60 calls the endpoint of weight 2 holds %d, the other %d", n, v.Book[0].Outstanding)
	}
}

func TestWeightedLeastRequestBeyondItsTable(t *testing.T) {
	p := (&WeightedLeastRequest{ActiveRequestBias: 1.5}).New().(*weightedLeastRequest)
	below, above := p.power(255), p.power(256)
	if ratio := above / below; ratio < 1.0058 || ratio > 1.0060 { // (257/256)^1.5
		t.Errorf("257^1.5 / 256^1.5 = %v", ratio)
	}
}
