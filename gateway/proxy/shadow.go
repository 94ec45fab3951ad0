package proxy

import (
	"errors"
	"fmt"
	"net/http"

	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// What-if on live traffic: another policy ranks a pool's calls beside the one that decides
// (flow.Machine.Shadow). It takes no call, and a pick takes about twice as long meanwhile.

// ShadowTally is what has come of a shadow since it was switched on.
type ShadowTally struct {
	Policy  string  `json:"policy"`
	Seconds float64 `json:"seconds"` // since it is on
	ShadowCount
	Reasons []ShadowReason `json:"reasons"` // by the shadow's own reason
}

// ShadowReason is what has come of the picks for which the shadow gave a reason.
type ShadowReason struct {
	Reason string `json:"reason"`
	ShadowCount
}

// ShadowCount counts picks. The sums are over those that differ: what the shadow's choice had
// more than the one that was made.
type ShadowCount struct {
	Picks       int64 `json:"picks"`
	Agreed      int64 `json:"agreed"`
	Overlap     int64 `json:"overlap_tokens_gained"` // believed to be there of the prompts
	Outstanding int64 `json:"outstanding_added"`     // calls before them
}

func shadowTally(s *flow.ShadowState, now mono.Time) *ShadowTally {
	if s == nil {
		return nil
	}
	t := &ShadowTally{Policy: s.Policy, Seconds: now.Sub(s.Since).Seconds(), ShadowCount: shadowCount(s.ShadowCount), Reasons: []ShadowReason{}}
	for _, r := range s.Reasons {
		t.Reasons = append(t.Reasons, ShadowReason{string(r.Reason), shadowCount(r.ShadowCount)})
	}
	return t
}

func shadowCount(c flow.ShadowCount) ShadowCount {
	return ShadowCount{Picks: c.Picks, Agreed: c.Agreed, Overlap: c.OverlapTokens, Outstanding: c.Outstanding}
}

// shadow has the policy that an operation names rank the pool's calls, or none.
func (g *Gateway) shadow(op operation, policies func(string) (selection.Policy, error)) error {
	pool, _, err := g.members(op)
	if err != nil {
		return err
	}
	var p selection.Policy
	switch {
	case op.Policy == "":
	case policies == nil:
		return statusError{http.StatusNotImplemented, errors.New("policy: this gateway has none to choose from")}
	default:
		if p, err = policies(op.Policy); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
	}
	m := g.service.Load().byName[op.Model]
	if m == nil || !m.router.shadow(pool, op.Policy, p) {
		return statusError{http.StatusNotFound, fmt.Errorf("pool: model %q has no %q", shorten(op.Model), pool)}
	}
	return nil
}

func (r *router) shadow(pool, name string, p selection.Policy) bool {
	r.mu.Lock()
	defer r.unlock()
	return r.machine.Shadow(pool, name, p)
}
