package policy

import (
	"math"
	"slices"
	"testing"
	"time"

	"kvasir/selection"
)

// waits gives the slot so many calls, of which some wait with so many uncached tokens.
func waits(v *selection.View, slot, calls, tokens int) {
	v.Book[slot].Outstanding = int32(calls)
	v.Book[slot].PendingWork.Tokens = int64(tokens)
}

// sameScores compares to the bit, but for NaN, of which one is as good as another.
func sameScores(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })
}

func TestLMetricInNumbers(t *testing.T) {
	v, q := newView(4), newRequest(1, 10) // 650 tokens in blocks of 64
	waits(v, 0, 5, 0)                     // (0 + 650) · 6
	waits(v, 1, 9, 100)                   // (100 + 10) · 10
	v.Overlap[1] = 10
	waits(v, 2, 1, 1000) // (1000 + 330) · 2
	v.Overlap[2] = 5
	waits(v, 3, 0, 400) // (400 + 650) · 1
	c := pick(build("lmetric"), v, q, 0)
	if want := []float64{3900, 1100, 2660, 1050}; !slices.Equal(v.Scores, want) || c != (selection.Choice{Index: 3, Reason: ReasonLeastProduct}) {
		t.Errorf("chose %+v by %v, want 3 by %v", c, v.Scores, want)
	}
}

// TestLMetricHasNoZero: an endpoint without calls doesn't hide what it holds, nor one that
// holds the whole prompt how many calls it has.
func TestLMetricHasNoZero(t *testing.T) {
	v, q := newView(3), newRequest(1, 10)
	v.Overlap[1] = 9
	if c := pick(build("lmetric"), v, q, 0); c.Index != 1 {
		t.Errorf("of three idle endpoints the one that holds the prompt has lost: %v", v.Scores)
	}
	q.InputTokens = q.Tokens(10)
	v = newView(3)
	copy(v.Overlap, []int32{10, 10, 10})
	waits(v, 0, 2, 0)
	waits(v, 1, 1, 0)
	waits(v, 2, 3, 0)
	if c := pick(build("lmetric"), v, q, 0); c.Index != 1 {
		t.Errorf("of three that hold all the one with the fewest calls has lost: %v", v.Scores)
	}
}

func TestLeastPrefillLeftInNumbers(t *testing.T) {
	v, q := newView(4), newRequest(1, 10) // 650 tokens
	waits(v, 0, 0, 300)
	waits(v, 1, 40, 100)
	v.Overlap[1] = 10 // 10 left
	waits(v, 2, 1, 1000)
	v.Overlap[2] = 10
	waits(v, 3, 0, 0)
	c := pick(build("least-prefill-left"), v, q, 0)
	if want := []float64{950, 110, 1010, 650}; !slices.Equal(v.Scores, want) || c != (selection.Choice{Index: 1, Reason: ReasonLeastPrefill}) {
		t.Errorf("chose %+v by %v, want 1 by %v", c, v.Scores, want)
	}
	q.InputTokens = 600 // an estimate under what the blocks say
	if pick(build("least-prefill-left"), v, q, 0); v.Scores[1] != 100 {
		t.Errorf("a hit beyond the prompt scores %v, want 100", v.Scores[1])
	}
}

func TestStickyUntilSaturatedBranches(t *testing.T) {
	const most = 18 * 15928 // tokens that the warm may be behind
	nan := math.NaN()
	q := newRequest(1, 10) // 650 tokens
	for _, test := range []struct {
		name    string
		overlap []int32
		pending []int
		scores  []float64
		want    selection.Choice
	}{
		{"the warm, whatever their queue", []int32{8, 0, 7}, []int{5000, 0, 0}, []float64{5138, nan, nan}, selection.Choice{Index: 0, Reason: ReasonWarm}},
		{"of the warm the least work", []int32{8, 10, 0}, []int{500, 600, 0}, []float64{638, 610, nan}, selection.Choice{Index: 1, Reason: ReasonWarm}},
		{"nobody is warm", []int32{7, 0, 2}, []int{500, 10, 0}, []float64{702, 660, 522}, selection.Choice{Index: 2, Reason: ReasonCold}},
		{"the penalty at its bound", []int32{8, 0, 0}, []int{most + 30, 40, 30}, []float64{most + 168, nan, nan}, selection.Choice{Index: 0, Reason: ReasonWarm}},
		{"and above it", []int32{8, 0, 0}, []int{most + 31, 40, 30}, []float64{most + 169, 690, 680}, selection.Choice{Index: 2, Reason: ReasonSaturated}},
		{"the least of the warm counts", []int32{8, 8, 0}, []int{most + 100, most, 0}, []float64{most + 238, most + 138, nan}, selection.Choice{Index: 1, Reason: ReasonWarm}},
		{"all are warm", []int32{8, 9, 10}, []int{9 * most, 8 * most, 7 * most}, []float64{9*most + 138, 8*most + 74, 7*most + 10}, selection.Choice{Index: 2, Reason: ReasonWarm}},
	} {
		v := newView(3)
		copy(v.Overlap, test.overlap)
		for slot, tokens := range test.pending {
			waits(v, slot, 1, tokens)
		}
		if c := pick(build("sticky-until-saturated"), v, q, 0); c != test.want || !sameScores(v.Scores, test.scores) {
			t.Errorf("%s: chose %+v by %v, want %+v by %v", test.name, c, v.Scores, test.want, test.scores)
		}
	}
}

func TestStickyUntilSaturatedParameters(t *testing.T) {
	v, q := newView(2), newRequest(1, 10)
	v.Overlap[0] = 10
	waits(v, 0, 1, 1000)
	config := func(change func(c *StickyUntilSaturated)) selection.Policy {
		rule, _ := Lookup("sticky-until-saturated")
		c := rule.Params().(*StickyUntilSaturated)
		change(c)
		return c.New()
	}
	for name, test := range map[string]struct {
		change func(c *StickyUntilSaturated)
		want   selection.Reason
	}{
		"as they are":   {func(*StickyUntilSaturated) {}, ReasonWarm},
		"no affinity":   {func(c *StickyUntilSaturated) { c.AffinityThreshold = 0 }, ReasonCold},
		"impatient":     {func(c *StickyUntilSaturated) { c.MaxTTFTPenalty = 62 * time.Millisecond }, ReasonSaturated}, // 1000/15928 s is 62.8 ms
		"patient":       {func(c *StickyUntilSaturated) { c.MaxTTFTPenalty = 63 * time.Millisecond }, ReasonWarm},
		"never":         {func(c *StickyUntilSaturated) { c.MaxTTFTPenalty, c.PeakPrefillThroughput = 0, 1e-3 }, ReasonWarm},
		"a slow engine": {func(c *StickyUntilSaturated) { c.PeakPrefillThroughput = 50 }, ReasonSaturated},
		"explores":      {func(c *StickyUntilSaturated) { c.ExplorationProbability = 1 }, ReasonExplored},
	} {
		if c := pick(config(test.change), v, q, 0); c.Reason != test.want {
			t.Errorf("%s: chose %+v, want %s", name, c, test.want)
		}
	}
	explored := 0
	p := config(func(c *StickyUntilSaturated) { c.ExplorationProbability = 0.1 })
	for draw := range 5000 {
		if pick(p, v, q, draw).Reason == ReasonExplored {
			explored++
		}
	}
	if explored < 400 || explored > 600 {
		t.Errorf("%d of 5000 calls explored, want about 500", explored)
	}
}

// TestEnoughBlocks compares with a look at every number of blocks.
func TestEnoughBlocks(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 10, 63, 64, 65, 66, 100, 300} {
		for step := 1; step <= 100; step++ {
			share := float64(step) / 100
			want := int32(1)
			for span(int(want))/span(n) < share {
				want++
			}
			if got := enoughBlocks(share, n); got != want {
				t.Fatalf("%v of %d blocks: %d, want %d", share, n, got, want)
			}
		}
		if enoughBlocks(0, n) <= int32(n) {
			t.Errorf("a share of 0 of %d blocks can be had", n)
		}
	}
	if enoughBlocks(0.5, 0) == 0 {
		t.Error("everybody holds a prompt without blocks")
	}
}
