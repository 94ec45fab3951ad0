package policy

import (
	"math"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// The reasons of cache-aware.
const (
	ReasonImbalanced selection.Reason = "imbalanced" // the pool is, so the least load
	ReasonMatch      selection.Reason = "match"      // the longest match, long enough
	ReasonNoMatch    selection.Reason = "no-match"   // no match is long enough, so the least load
)

// CacheAware switches on a threshold between affinity and balance, as SGLang's gateway
// does (article section 5.5, with the names and defaults of the Rust gateway):
//
//	imbalanced = max load - min load > balance_abs_threshold
//	             and max load > min load · balance_rel_threshold
//	imbalanced:                      the least load
//	match ratio > cache_threshold:   the longest match; of equals the least load
//	else:                            the least load
//
// Load is outstanding calls, over the candidates; of equal loads one at random. (SGLang takes
// the one that was sent fewer calls so far; and of several endpoints that hold the longest
// match the last one that did, whatever its load, which is worse.)
//
// SGLang matches characters in a radix tree; here a match is a number of whole blocks
// in the pool's prefix index (View.Overlap), and
//
//	match ratio = length of the longest overlap / length of the prompt's full blocks
//
// Lengths are counted in fine blocks (kvblock.Span): behind the first 64 a block is 8
// long. With full blocks of length n and a tail of f, and a match of whole blocks of
// length j and a part g of the next, the tree's ratio is (j+g)/(n+f). The difference of the
// two is (j·f - n·g) / (n·(n+f)), which is less than max(f,g)/(n+f). Both f and g are
// less than the block that the prompt's end would have filled, which is the longest. So the
// two rules agree wherever the tree's ratio is at least such a block away from the
// threshold: 1/(n+f) of a prompt of under 64 fine blocks (16 KiB, where a block has 256
// bytes), and 8/(n+f) of a longer one, which is an eighth at most and 2 % at 100 KiB.
// (A guess of the tail's length would break that bound where it is too long.) A prompt
// under one block has no match.
//
// SGLang's eviction_interval and max_tree_size don't exist here because they could
// have no effect: the index is bounded in bytes, at all times, for the whole pool.
//
// Score: outstanding calls, for those that compete by load: everyone, or with a match
// those that have the longest. NaN for the rest.
type CacheAware struct {
	CacheThreshold      float64 `config:"cache_threshold" doc:"share of the prompt that must match for affinity to win; 0 to 1"`
	BalanceAbsThreshold int     `config:"balance_abs_threshold" doc:"calls by which the loads must differ for the pool to be imbalanced; at least 0"`
	BalanceRelThreshold float64 `config:"balance_rel_threshold" doc:"factor by which they must differ as well; at least 1"`
}

// Validate reports a cache threshold outside 0 to 1, a negative absolute threshold and
// a relative one that is not finite or below 1.
func (c *CacheAware) Validate() []ParamError {
	var errs []ParamError
	if !(0 <= c.CacheThreshold && c.CacheThreshold <= 1) {
		errs = append(errs, ParamError{"cache_threshold", c.CacheThreshold, "a number from 0 to 1"})
	}
	if c.BalanceAbsThreshold < 0 {
		errs = append(errs, ParamError{"balance_abs_threshold", c.BalanceAbsThreshold, "an integer of at least 0"})
	}
	if !finite(c.BalanceRelThreshold) || c.BalanceRelThreshold < 1 {
		errs = append(errs, ParamError{"balance_rel_threshold", c.BalanceRelThreshold, "a number of at least 1"})
	}
	return errs
}

// New returns the policy.
func (c *CacheAware) New() selection.Policy { return cacheAware{*c} }

type cacheAware struct{ config CacheAware }

// UsesOverlap marks the policy as one that reads View.Overlap.
func (cacheAware) UsesOverlap() {}

func (p cacheAware) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	outstanding(v)
	if p.imbalanced(v.Scores) {
		return selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonImbalanced}
	}
	longest := longestOverlap(v)
	if prompt := span(len(q.Blocks)); prompt == 0 || span(int(longest))/prompt <= p.config.CacheThreshold {
		return selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonNoMatch}
	}
	for i, slot := range v.Candidates {
		if v.Overlap[slot] < longest {
			v.Scores[i] = math.NaN()
		}
	}
	return selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonMatch}
}

// imbalanced reports whether the loads differ by more than both thresholds allow.
func (p cacheAware) imbalanced(loads []float64) bool {
	least, most := loads[0], loads[0]
	for _, l := range loads {
		if l < least {
			least = l
		} else if l > most {
			most = l
		}
	}
	return most-least > float64(p.config.BalanceAbsThreshold) && most > float64(least*p.config.BalanceRelThreshold)
}

// span is how long the first n blocks of a prompt are, in fine ones.
func span(n int) float64 { return float64(kvblock.Span(n)) }

// longestOverlap returns the most blocks of the prompt's head that a candidate holds.
func longestOverlap(v *selection.View) int32 {
	longest := int32(0)
	for _, slot := range v.Candidates {
		longest = max(longest, selection.OverlapAt(v.Overlap, slot))
	}
	return longest
}

var _ selection.OverlapUser = cacheAware{}
