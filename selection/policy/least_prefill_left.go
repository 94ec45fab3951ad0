package policy

import (
	"kvasir/internal/seed"
	"kvasir/selection"
)

// ReasonLeastPrefill: no other candidate has less prefill before this call's first token.
const ReasonLeastPrefill selection.Reason = "least-prefill"

// LeastPrefillLeft picks the endpoint that has the least prefill left to compute before
// this call's first token (LPWL, least prefill work left, of the agentic-kvc project,
// May 2026):
//
//	score = pending + max(0, input - hit)
//
//	pending  tokens of the calls there without a first token that weren't in the prefix
//	         cache when they were sent
//	input    tokens of this call's prompt
//	hit      of those, what the endpoint is believed to hold
//
// It has no parameters, and it is blind to calls that decode: where answers are long,
// what they cost must be counted by another rule.
//
// Score: tokens.
type LeastPrefillLeft struct{}

// Validate reports nothing: there are no parameters.
func (*LeastPrefillLeft) Validate() []ParamError { return nil }

// New returns the policy.
func (*LeastPrefillLeft) New() selection.Policy { return leastPrefillLeft{} }

type leastPrefillLeft struct{}

// UsesOverlap marks the policy as one that reads View.Overlap.
func (leastPrefillLeft) UsesOverlap() {}

func (leastPrefillLeft) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	scores, book, overlap := v.Scores, v.Book, v.Overlap
	for i, slot := range v.Candidates {
		left := max(0, q.InputTokens-q.Tokens(int(selection.OverlapAt(overlap, slot))))
		scores[i] = float64(book[slot].PendingWork.Tokens + int64(left))
	}
	return selection.Choice{Index: argmin(scores, r), Reason: ReasonLeastPrefill}
}

var _ selection.OverlapUser = leastPrefillLeft{}
