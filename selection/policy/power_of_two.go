package policy

import (
	"math"

	"kvasir/internal/seed"
	"kvasir/selection"
)

// ReasonLighter: of those drawn, no other has fewer outstanding calls.
const ReasonLighter selection.Reason = "lighter"

// PowerOfTwo draws ChoiceCount different candidates and picks the one with the fewest
// outstanding calls (article section 4.1; Azar, Broder, Karlin and Upfal 1994;
// Mitzenmacher 1996). With many independent routers it avoids that all of them run to
// the endpoint that is idlest at the moment.
//
// Envoy, whose parameter this is, may draw the same endpoint twice; here the draws
// are distinct, so two candidates are always compared where there are two. Where
// there are no more candidates than choices, all are compared.
//
// Score: outstanding calls of those drawn, NaN for the rest.
type PowerOfTwo struct {
	ChoiceCount int `config:"choice_count" doc:"how many endpoints are drawn and compared; at least 2"`
}

// Validate reports a choice count below 2.
func (c *PowerOfTwo) Validate() []ParamError {
	if c.ChoiceCount < 2 {
		return []ParamError{{"choice_count", c.ChoiceCount, "an integer of at least 2"}}
	}
	return nil
}

// New returns the policy.
func (c *PowerOfTwo) New() selection.Policy { return powerOfTwo{choices: c.ChoiceCount} }

type powerOfTwo struct{ choices int }

func (p powerOfTwo) Pick(v *selection.View, _ *selection.Request, r *seed.Rand) selection.Choice {
	n := len(v.Candidates)
	if n <= p.choices {
		outstanding(v)
		return selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonLighter}
	}
	unscored(v)
	// Floyd's sampling: every set of that many candidates is equally likely, and a
	// score that is set already tells that the candidate was drawn before.
	for last := n - p.choices; last < n; last++ {
		i := r.Intn(last + 1)
		if !math.IsNaN(v.Scores[i]) {
			i = last
		}
		v.Scores[i] = float64(v.Book[v.Candidates[i]].Outstanding)
	}
	return selection.Choice{Index: argmin(v.Scores, r), Reason: ReasonLighter}
}
