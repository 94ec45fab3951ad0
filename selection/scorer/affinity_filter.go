package scorer

import (
	"math"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// Verdict says what a PrefixCacheAffinity has decided.
type Verdict uint8

// The verdicts.
const (
	Warm      Verdict = iota // only those that hold the prompt stay
	Cold                     // none of them holds it
	Saturated                // those that hold it have too much to do
	Explored                 // who holds it was not asked, by chance
)

// PrefixCacheAffinity keeps the endpoints that hold the prompt, unless they have too much
// prefill to do (llm-d's prefix-cache-affinity-filter):
//
//	warm       = those whose share of the prompt's full blocks is at least Threshold
//	ttft       = pending / PeakPrefillThroughput, of an endpoint
//	saturated  = lowest ttft of the warm - lowest ttft of the others > MaxTTFTPenalty
//
// where pending is the tokens of the calls there without a first token that weren't in
// the prefix cache when they were sent. Everyone stays where none is warm, where the warm
// are saturated, and for a share of ExplorationProbability of the calls, by chance.
type PrefixCacheAffinity struct {
	Threshold              float64       // 0 to 1, 0 for no affinity; llm-d's default 0.8
	MaxTTFTPenalty         time.Duration // at least 0, 0 for any; llm-d's default 18 s
	PeakPrefillThroughput  float64       // tokens a second; llm-d's default 15,928
	ExplorationProbability float64       // 0 to 1; llm-d's default 0
}

// Judge decides over the slots of left: those that hold at least so many leading blocks of
// the prompt stay.
func (f *PrefixCacheAffinity) Judge(v *selection.View, q *selection.Request, left []selection.Slot, r *seed.Rand) (blocks int32, verdict Verdict) {
	if f.ExplorationProbability > 0 && r.Float64() < f.ExplorationProbability {
		return 0, Explored
	}
	enough := enoughBlocks(f.Threshold, len(q.Blocks))
	warm, others := int64(math.MaxInt64), int64(math.MaxInt64) // the fewest pending tokens; above all where nobody is
	for _, slot := range left {
		pending := v.Book[slot].PendingWork.Tokens
		if selection.OverlapAt(v.Overlap, slot) >= enough {
			warm = min(warm, pending)
		} else {
			others = min(others, pending)
		}
	}
	switch {
	case warm == math.MaxInt64:
		return 0, Cold
	case f.MaxTTFTPenalty > 0 && float64(warm-others)/f.PeakPrefillThroughput > f.MaxTTFTPenalty.Seconds():
		return 0, Saturated
	}
	return enough, Warm
}

// Keep returns those that stay.
func (f *PrefixCacheAffinity) Keep(v *selection.View, q *selection.Request, left []selection.Slot, r *seed.Rand) []selection.Slot {
	blocks, _ := f.Judge(v, q, left, r)
	kept := left[:0]
	for _, slot := range left {
		if selection.OverlapAt(v.Overlap, slot) >= blocks {
			kept = append(kept, slot)
		}
	}
	return kept
}

// enoughBlocks returns of how many leading blocks the length is at least the share of
// that of all n; more than n where no number is: of a prompt without full blocks, and for
// a share of 0, which asks for no affinity.
func enoughBlocks(share float64, n int) int32 {
	if n == 0 || share <= 0 {
		return math.MaxInt32
	}
	whole := span(n)
	blocks := max(1, kvblock.Within(int(share*whole)))
	for span(blocks)/whole < share {
		blocks++
	}
	return int32(blocks)
}

var _ Filter = (*PrefixCacheAffinity)(nil)
