package policy

import (
	"kvasir/internal/seed"
	"kvasir/selection"
)

// ReasonDrawn: the endpoint was drawn, nothing was compared.
const ReasonDrawn selection.Reason = "drawn"

// Random picks uniformly among the candidates (article section 4.1). It reads no
// signal; the other rules are measured against it. No candidate has a score.
type Random struct{}

// Validate reports nothing: there are no parameters.
func (*Random) Validate() []ParamError { return nil }

// New returns the policy.
func (*Random) New() selection.Policy { return random{} }

type random struct{}

func (random) Pick(v *selection.View, _ *selection.Request, r *seed.Rand) selection.Choice {
	unscored(v)
	return selection.Choice{Index: r.Intn(len(v.Candidates)), Reason: ReasonDrawn}
}
