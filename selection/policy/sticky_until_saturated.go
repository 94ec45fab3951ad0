package policy

import (
	"math"
	"time"

	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/scorer"
)

// The reasons of sticky-until-saturated.
const (
	ReasonWarm      selection.Reason = "warm"      // some hold the prompt: the least loaded of those
	ReasonCold      selection.Reason = "cold"      // none holds it: the least loaded of all
	ReasonSaturated selection.Reason = "saturated" // those that hold it have too much to do: the least loaded of all
	ReasonExplored  selection.Reason = "explored"  // who holds it was not asked, by chance
)

// StickyUntilSaturated stays with the endpoints that hold the prompt until they have too
// much prefill to do (llm-d's prefix-cache-affinity-filter before its token-load-scorer,
// the router's recommended rule for long prompts since August 2026):
//
//	warm       = the candidates whose share of the prompt's full blocks is at least
//	             affinity_threshold
//	ttft       = pending / peak_prefill_throughput, of an endpoint
//	saturated  = lowest ttft of the warm - lowest ttft of the others > max_ttft_penalty
//	compete    = the warm, or everyone where none is warm or the warm are saturated
//	score      = pending + own
//
//	pending    tokens of the calls there without a first token that weren't in the
//	           prefix cache when they were sent
//	own        tokens of this call that aren't there
//
// Names and defaults are llm-d's. With exploration_probability everyone competes for that
// share of the calls, by chance. A max_ttft_penalty of 0 is none: the warm never
// saturate. The throughput is of one model on one device and engine (that of the default
// is Qwen3-32B on two H100), and the penalty is in seconds of a queue, far above what an
// interactive call may wait.
//
// llm-d counts whole blocks where shares are lengths here, since blocks differ in length
// (kvblock.Span), and above 4,194,304 tokens its scores are all the same.
//
// Score: tokens, of those that compete; NaN for the rest.
type StickyUntilSaturated struct {
	AffinityThreshold      float64       `config:"affinity_threshold" doc:"share of the prompt that an endpoint must hold to be warm; 0 to 1, 0 for no affinity"`
	MaxTTFTPenalty         time.Duration `config:"max_ttft_penalty" doc:"by how much the estimated wait of the warm may exceed that of the others; at least 0, 0 for any"`
	PeakPrefillThroughput  float64       `config:"peak_prefill_throughput" doc:"tokens a second that an endpoint can prefill; above 0"`
	ExplorationProbability float64       `config:"exploration_probability" doc:"share of the calls for which everyone competes; 0 to 1"`
}

// Validate reports a threshold or a probability outside 0 to 1, a negative penalty and a
// throughput that is not finite or not above 0.
func (c *StickyUntilSaturated) Validate() []ParamError {
	var errs []ParamError
	if !isShare(c.AffinityThreshold) {
		errs = append(errs, ParamError{"affinity_threshold", c.AffinityThreshold, "a number from 0 to 1"})
	}
	if c.MaxTTFTPenalty < 0 {
		errs = append(errs, ParamError{"max_ttft_penalty", c.MaxTTFTPenalty, "a duration of at least 0"})
	}
	if !finite(c.PeakPrefillThroughput) || c.PeakPrefillThroughput <= 0 {
		errs = append(errs, ParamError{"peak_prefill_throughput", c.PeakPrefillThroughput, "a number above 0"})
	}
	if !isShare(c.ExplorationProbability) {
		errs = append(errs, ParamError{"exploration_probability", c.ExplorationProbability, "a number from 0 to 1"})
	}
	return errs
}

// New returns the policy.
func (c *StickyUntilSaturated) New() selection.Policy {
	return stickyUntilSaturated{scorer.PrefixCacheAffinity{
		Threshold: c.AffinityThreshold, MaxTTFTPenalty: c.MaxTTFTPenalty,
		PeakPrefillThroughput: c.PeakPrefillThroughput, ExplorationProbability: c.ExplorationProbability,
	}}
}

type stickyUntilSaturated struct{ affinity scorer.PrefixCacheAffinity }

var verdictReasons = [...]selection.Reason{
	scorer.Warm: ReasonWarm, scorer.Cold: ReasonCold, scorer.Saturated: ReasonSaturated, scorer.Explored: ReasonExplored,
}

// UsesOverlap marks the policy as one that reads View.Overlap.
func (stickyUntilSaturated) UsesOverlap() {}

func (p stickyUntilSaturated) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	blocks, verdict := p.affinity.Judge(v, q, v.Candidates, r)
	scores, book, overlap := v.Scores, v.Book, v.Overlap
	for i, slot := range v.Candidates {
		if n := selection.OverlapAt(overlap, slot); n >= blocks {
			scores[i] = float64(book[slot].PendingWork.Tokens + q.Work(n).Tokens)
		} else {
			scores[i] = math.NaN()
		}
	}
	return selection.Choice{Index: argmin(scores, r), Reason: verdictReasons[verdict]}
}

var _ selection.OverlapUser = stickyUntilSaturated{}
