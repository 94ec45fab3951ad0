package policy

import (
	"kvasir/internal/portable"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// WeightedLeastRequest takes turns by a weight that outstanding calls depress
// (article section 4.3):
//
//	weight = endpoint's weight / (outstanding + 1)^active_request_bias
//
// The formula, the parameter and its default of 1.0 are Envoy's. At a bias of 0 the
// weights are the endpoints' own and the choices are exactly those of
// weighted-round-robin; the larger the bias, the closer to least-outstanding. As Envoy
// says of its own rule, it balances well at steady state, adapts slowly to a sudden
// imbalance, and never quite drains an endpoint.
//
// Envoy schedules such weights by earliest deadline first and fixes an endpoint's
// weight when it is put back into the schedule; here they are scheduled by smooth
// weighted round robin (see smooth), with all weights computed at the pick. Envoy
// does so only where the endpoints' weights differ and falls back to power-of-two
// where they don't; here equal weights are not a special case, power-of-two is a rule
// of its own.
//
// Score: the negated credit, in units of weight.
type WeightedLeastRequest struct {
	ActiveRequestBias float64 `config:"active_request_bias" doc:"exponent of outstanding + 1; at least 0, where 0 ignores the load"`
}

// Validate reports a bias that is negative or not finite.
func (c *WeightedLeastRequest) Validate() []ParamError {
	if !finite(c.ActiveRequestBias) || c.ActiveRequestBias < 0 {
		return []ParamError{{"active_request_bias", c.ActiveRequestBias, "a number of at least 0"}}
	}
	return nil
}

// New returns the policy.
func (c *WeightedLeastRequest) New() selection.Policy {
	p := &weightedLeastRequest{bias: c.ActiveRequestBias}
	for n := range p.powers {
		p.powers[n] = portable.Pow(float64(n+1), p.bias)
	}
	return p
}

type weightedLeastRequest struct {
	smooth
	bias   float64
	powers [256]float64 // (n+1)^bias, which is costly, for the loads that are common
}

// UsesWeight implements selection.WeightUser.
func (*weightedLeastRequest) UsesWeight() {}

func (p *weightedLeastRequest) Pick(v *selection.View, _ *selection.Request, r *seed.Rand) selection.Choice {
	for i, slot := range v.Candidates {
		v.Scores[i] = v.Endpoints[slot].Weight / p.power(v.Book[slot].Outstanding)
	}
	return selection.Choice{Index: p.pick(v, r), Reason: ReasonTurn}
}

// power returns (outstanding + 1)^bias.
func (p *weightedLeastRequest) power(outstanding int32) float64 {
	if int(outstanding) < len(p.powers) {
		return p.powers[outstanding]
	}
	return portable.Pow(float64(outstanding)+1, p.bias)
}

var _ selection.Forgetter = (*weightedLeastRequest)(nil)
