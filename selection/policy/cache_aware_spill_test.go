package policy

import (
	"math"
	"testing"

	"kvasir/selection"
)

func TestCacheAwareSpillBranches(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		name    string
		loads   []int32
		overlap []int32
		want    selection.Choice
		scores  []float64
	}{
		{"of those that hold the match the least load", []int32{9, 0, 5}, []int32{8, 7, 8}, selection.Choice{Index: 2, Reason: ReasonMatch}, []float64{9, nan, 5}},
		{"a match at the threshold is none", []int32{9, 0, 5}, []int32{3, 0, 3}, selection.Choice{Index: 1, Reason: ReasonNoMatch}, []float64{9, 0, 5}},
		{"how far others differ doesn't matter", []int32{1, 400, 0}, []int32{8, 0, 0}, selection.Choice{Index: 0, Reason: ReasonMatch}, []float64{1, nan, nan}},
		// The mean of the rest is chosen so that the bounds are met exactly.
		{"64 calls above the mean", []int32{96, 0, 0}, []int32{8, 0, 1}, selection.Choice{Index: 0, Reason: ReasonMatch}, []float64{96, nan, nan}},
		{"and more", []int32{97, 1, 0}, []int32{8, 0, 1}, selection.Choice{Index: 2, Reason: ReasonSpill}, []float64{97, 1, 0}},
		{"unless it is small for the load", []int32{300, 150, 150}, []int32{8, 0, 0}, selection.Choice{Index: 0, Reason: ReasonMatch}, []float64{300, nan, nan}},
		{"and more than that", []int32{301, 149, 150}, []int32{8, 0, 0}, selection.Choice{Index: 1, Reason: ReasonSpill}, []float64{301, 149, 150}},
		{"not while another one that holds it has room", []int32{500, 10, 0}, []int32{8, 8, 0}, selection.Choice{Index: 1, Reason: ReasonMatch}, []float64{500, 10, nan}},
	} {
		v := loaded(test.loads...)
		copy(v.Overlap, test.overlap)
		if c := pick(build("cache-aware-spill"), v, newRequest(1, 10), 0); c != test.want || !sameScores(v.Scores, test.scores) {
			t.Errorf("%s: chose %+v by %v, want %+v by %v", test.name, c, v.Scores, test.want, test.scores)
		}
	}
	if c := pick(build("cache-aware-spill"), loaded(1, 0), newRequest(1, 0), 0); c.Reason != ReasonNoMatch || c.Index != 1 {
		t.Errorf("a prompt under a block: chose %+v", c)
	}
}

// TestCacheAwareSpillDecays: with the decay the backlog decides among those that hold the
// match, and the load among those with the same backlog.
func TestCacheAwareSpillDecays(t *testing.T) {
	v, q := loaded(1, 5, 4, 0), newRequest(1, 10)
	copy(v.Overlap, []int32{8, 8, 8, 0})
	v.Book[0].PendingWork.Tokens, v.Book[1].PendingWork.Tokens, v.Book[2].PendingWork.Tokens = 500, 100, 100
	c := &CacheAwareSpill{CacheThreshold: 0.3, BalanceAbsThreshold: 64, BalanceRelThreshold: 1.5}
	if got := pick(c.New(), v, q, 0); got.Index != 0 {
		t.Errorf("without decay %d is chosen, want the least load", got.Index)
	}
	c.OverlapDecay = 1
	nan := math.NaN()
	if got := pick(c.New(), v, q, 0); got.Index != 2 || !sameScores(v.Scores, []float64{nan, 5, 4, nan}) {
		t.Errorf("with decay %d is chosen by %v", got.Index, v.Scores)
	}
}

// TestCacheAwareSpillDraws: with a temperature a group of the same backlog is drawn as often
// as the softmax says of all its members.
func TestCacheAwareSpillDraws(t *testing.T) {
	const draws, temperature, decay = 20000, 0.4, 3
	v, q := loaded(1, 5, 4, 7, 0), newRequest(1, 10) // 650 tokens
	copy(v.Overlap, []int32{8, 8, 8, 8, 0})
	for i, tokens := range []int64{1650, 1000, 1000, 1325} {
		v.Book[i].PendingWork.Tokens = tokens
	}
	p := (&CacheAwareSpill{CacheThreshold: 0.3, BalanceAbsThreshold: 64, BalanceRelThreshold: 1.5, OverlapDecay: decay, SelectionTemperature: temperature}).New()
	counts := make([]float64, 5)
	for draw := range draws {
		counts[pick(p, v, q, draw).Index]++
	}
	// The affinities are 1/4, 1, 1 and 1/(1 + 3/2), from 0 to 1: 0, 1, 1 and 0.2.
	low, middle := math.Exp(-1/temperature), math.Exp(-0.8/temperature)
	sum := low + 2 + middle
	for i, weight := range []float64{low, 0, 2, middle, 0} { // the second never has the least load of its group
		want := draws * weight / sum
		if d := math.Abs(counts[i] - want); d > 4*math.Sqrt(want) {
			t.Errorf("drawn %v times, want %.0f of %d for %d", counts, want, draws, i)
		}
	}
}
