package policy

import (
	"math"

	"kvasir/internal/seed"
	"kvasir/selection"
)

// ReasonSpill: those that hold the match have too many calls, so the least load of all.
const ReasonSpill selection.Reason = "spill"

// CacheAwareSpill is cache-aware as the Shepherd Model Gateway (SMG, SGLang's gateway
// after its move) has had it since August 2026: whether affinity is given up is decided
// for each call by the endpoint it would get, not for all by how far the loads differ:
//
//	holders  the candidates with the longest match
//	match ratio <= cache_threshold:  the least load of all
//	else:                            the least load of the holders, which spills to the
//	                                 least load of all where its load is
//	                                 > mean · balance_rel_threshold
//	                                 and > mean + balance_abs_threshold
//
// Load is outstanding calls, its mean over the candidates; of equal loads one at random.
// (SMG has since gone over to the expected wait, from reports, for the choice among holders, and
// among all; whether a call spills still goes by its calls, and it spills to those that are
// not above the mean. That form had between 0.94 and 1.02 of cache-aware's goodput in four cells
// of docs/results.md, and like this one 0 in fan-outs. Nor is there its mode of KV events, which
// has no threshold.) The match ratio is that of CacheAware. A
// prefix that is in demand is so copied to one endpoint after the other: the call that spills
// makes its endpoint a holder, too.
//
// With an overlap_decay above 0 the holders with the least prefill to do compete alone:
// their affinity is
//
//	1 / (1 + overlap_decay · (pending - the least pending of the holders) / input)
//
// where pending is the tokens of the calls there without a first token that weren't in
// the prefix cache, and input those of this call's prompt. A selection_temperature above 0
// as well draws one of them with the softmax of affinity / ((highest - lowest affinity) ·
// temperature) as its probability, and those of the same affinity compete. SMG reads
// pending from the engine's report and doesn't decay an endpoint without one; here it is
// this router's own book, which is never without. Names and defaults are SMG's. Its KV
// usage triggers, which are off by default, and its index by hashes don't exist here.
//
// Score: outstanding calls, of those that compete by load; NaN for the rest.
type CacheAwareSpill struct {
	CacheThreshold       float64 `config:"cache_threshold" doc:"share of the prompt that must match for affinity to win; 0 to 1"`
	BalanceAbsThreshold  int     `config:"balance_abs_threshold" doc:"calls above the mean from which on a call spills; at least 0"`
	BalanceRelThreshold  float64 `config:"balance_rel_threshold" doc:"factor above the mean that must be exceeded as well; at least 1"`
	OverlapDecay         float64 `config:"overlap_decay" doc:"how fast affinity falls with the prefill that waits; at least 0, 0 for not at all"`
	SelectionTemperature float64 `config:"selection_temperature" doc:"how evenly calls are spread against affinities that decay; at least 0, 0 for the highest always"`
}

// Validate reports a cache threshold outside 0 to 1, a negative absolute threshold, a
// relative one that is not finite or below 1, and a decay or a temperature that is not
// finite or below 0.
func (c *CacheAwareSpill) Validate() []ParamError {
	switching := CacheAware{c.CacheThreshold, c.BalanceAbsThreshold, c.BalanceRelThreshold}
	errs := switching.Validate()
	if !finite(c.OverlapDecay) || c.OverlapDecay < 0 {
		errs = append(errs, ParamError{"overlap_decay", c.OverlapDecay, "a number of at least 0"})
	}
	if !finite(c.SelectionTemperature) || c.SelectionTemperature < 0 {
		errs = append(errs, ParamError{"selection_temperature", c.SelectionTemperature, "a number of at least 0"})
	}
	return errs
}

// New returns the policy.
func (c *CacheAwareSpill) New() selection.Policy { return cacheAwareSpill{*c} }

type cacheAwareSpill struct{ config CacheAwareSpill }

// UsesOverlap marks the policy as one that reads View.Overlap.
func (cacheAwareSpill) UsesOverlap() {}

func (p cacheAwareSpill) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	longest := longestOverlap(v)
	if prompt := span(len(q.Blocks)); prompt == 0 || span(int(longest))/prompt <= p.config.CacheThreshold {
		outstanding(v)
		return selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonNoMatch}
	}
	pending := p.pending(v, q, longest, r)
	outstanding(v)
	sum := 0.0
	for i, slot := range v.Candidates {
		sum += v.Scores[i]
		if selection.OverlapAt(v.Overlap, slot) < longest || pending >= 0 && v.Book[slot].PendingWork.Tokens != pending {
			v.Scores[i] = math.NaN()
		}
	}
	best := argmin(v.Scores, r)
	mean := sum / float64(len(v.Scores))
	load := v.Scores[best]
	if load > float64(mean*p.config.BalanceRelThreshold) && load > mean+float64(p.config.BalanceAbsThreshold) {
		outstanding(v)
		return selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonSpill}
	}
	return selection.Choice{Index: best, Reason: ReasonMatch}
}

// pending returns how many tokens to prefill those holders have that may compete, -1 where
// all may. Affinity is a function of these tokens.
func (p cacheAwareSpill) pending(v *selection.View, q *selection.Request, longest int32, r *seed.Rand) int64 {
	if p.config.OverlapDecay == 0 {
		return -1
	}
	least := int64(math.MaxInt64)
	for _, slot := range v.Candidates {
		if selection.OverlapAt(v.Overlap, slot) == longest {
			least = min(least, v.Book[slot].PendingWork.Tokens)
		}
	}
	if p.config.SelectionTemperature == 0 {
		return least
	}
	input := float64(max(q.InputTokens, 1))
	for i, slot := range v.Candidates {
		v.Scores[i] = math.NaN()
		if selection.OverlapAt(v.Overlap, slot) == longest {
			excess := float64(v.Book[slot].PendingWork.Tokens-least) / input
			v.Scores[i] = -1 / (1 + float64(p.config.OverlapDecay*excess))
		}
	}
	soften(v.Scores, p.config.SelectionTemperature, r)
	return v.Book[v.Candidates[argmin(v.Scores, r)]].PendingWork.Tokens
}

var _ selection.OverlapUser = cacheAwareSpill{}
