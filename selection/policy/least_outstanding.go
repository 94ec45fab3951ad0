package policy

import (
	"kvasir/internal/seed"
	"kvasir/selection"
)

// ReasonFewest: no other candidate has fewer outstanding calls.
const ReasonFewest selection.Reason = "fewest"

// LeastOutstanding picks the candidate with the fewest calls that this router has sent
// and that have not finished, scanning all of them (article section 4.1). The count
// only stands for work: it is blind to how long prompts and answers are, and to what
// other routers send.
//
// Score: outstanding calls.
type LeastOutstanding struct{}

// Validate reports nothing: there are no parameters.
func (*LeastOutstanding) Validate() []ParamError { return nil }

// New returns the policy.
func (*LeastOutstanding) New() selection.Policy { return leastOutstanding{} }

type leastOutstanding struct{}

func (leastOutstanding) Pick(v *selection.View, _ *selection.Request, r *seed.Rand) selection.Choice {
	outstanding(v)
	return selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonFewest}
}
