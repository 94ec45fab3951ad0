package policy

import (
	"kvasir/internal/seed"
	"kvasir/selection"
)

// ReasonLeastProduct: no other candidate has a lower product of prefill and calls.
const ReasonLeastProduct selection.Reason = "least-product"

// LMetric picks the lowest product of the prefill work that an endpoint would have with
// this call and the calls that it would have (Zhang et al., LMetric: Simple is Better,
// arXiv 2603.15202):
//
//	score = prefill · batch
//
//	prefill  tokens to compute before all first tokens there: those of the pending
//	         calls and of this one that aren't in the prefix cache
//	batch    outstanding calls, this one included
//
// A product needs no weights: a factor that is common to all endpoints changes no order.
// What it needs is that neither factor is 0, or an endpoint without calls would win
// whatever its cache holds, and of several such none would be told apart by what it
// holds. Both factors are therefore those of the endpoint with this call, as the paper
// says of the first one ("if routed to"): batch is at least 1, and so is prefill because
// one token of a prompt is always computed. Dynamo's variant of the rule, adjusted prefill
// blocks · (decode blocks + 1), and llm-d's lmetric-scorer, this call's uncached tokens ·
// (calls in flight + 1), add 1 in the same way.
//
// Score: prefill · batch, in tokens times calls.
type LMetric struct{}

// Validate reports nothing: there are no parameters.
func (*LMetric) Validate() []ParamError { return nil }

// New returns the policy.
func (*LMetric) New() selection.Policy { return lMetric{} }

type lMetric struct{}

// UsesOverlap marks the policy as one that reads View.Overlap.
func (lMetric) UsesOverlap() {}

func (lMetric) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	scores, book, overlap := v.Scores, v.Book, v.Overlap
	for i, slot := range v.Candidates {
		b := &book[slot]
		prefill := b.PendingWork.Tokens + q.Work(selection.OverlapAt(overlap, slot)).Tokens
		scores[i] = float64(prefill) * float64(b.Outstanding+1)
	}
	return selection.Choice{Index: argmin(scores, r), Reason: ReasonLeastProduct}
}

var _ selection.OverlapUser = lMetric{}
