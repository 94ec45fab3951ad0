package policy

import (
	"kvasir/internal/seed"
	"kvasir/selection"
)

// WeightedRoundRobin picks in turn, each endpoint as often as its weight says and its
// turns spread as evenly as possible: weights 5, 1, 1 give a a b a c a a, not
// a a a a a b c. The rule is nginx's smooth weighted round robin (article section 4.1).
//
// Score: the negated credit (see smooth), in units of weight.
type WeightedRoundRobin struct{}

// Validate reports nothing: weights belong to the endpoints.
func (*WeightedRoundRobin) Validate() []ParamError { return nil }

// New returns the policy.
func (*WeightedRoundRobin) New() selection.Policy { return &weightedRoundRobin{} }

type weightedRoundRobin struct{ smooth }

// UsesWeight implements selection.WeightUser.
func (*weightedRoundRobin) UsesWeight() {}

func (p *weightedRoundRobin) Pick(v *selection.View, _ *selection.Request, r *seed.Rand) selection.Choice {
	for i, slot := range v.Candidates {
		v.Scores[i] = v.Endpoints[slot].Weight
	}
	return selection.Choice{Index: p.pick(v, r), Reason: ReasonTurn}
}

// smooth is smooth weighted round robin over weights that may differ at every pick.
// Each candidate earns its weight as credit; the one with the most credit is picked
// and pays the total of the weights. Credit not spent is kept while an endpoint is
// out of rotation, as in nginx; a new endpoint starts with none, so it doesn't catch
// up in a burst.
//
// Two things differ from nginx. Credit is worth a share of a turn: when the total
// changes, all credit is scaled with it, so that what was saved under large weights
// doesn't starve anyone under small ones. And among equal credits the order is not
// the order of slots but drawn once for each endpoint when it first appears: the
// sequence stays periodic and evenly spaced, but routers that start together don't
// march in step.
type smooth struct {
	turns []turn  // by slot
	total float64 // of the weights at the last pick
}

type turn struct {
	credit float64 // in units of weight
	order  uint64  // lower goes first among equals; 0: not met yet
}

// pick reads the candidates' weights from v.Scores and leaves negated credit there.
func (s *smooth) pick(v *selection.View, r *seed.Rand) int {
	total := s.meet(v, r)
	if total != s.total && s.total > 0 {
		scale := total / s.total
		for i := range s.turns {
			s.turns[i].credit = float64(s.turns[i].credit * scale)
		}
	}
	s.total = total

	best := 0
	var top turn
	for i, slot := range v.Candidates {
		t := &s.turns[slot]
		t.credit += v.Scores[i]
		v.Scores[i] = -t.credit
		if i == 0 || t.credit > top.credit || t.credit == top.credit && t.order < top.order {
			best, top = i, *t
		}
	}
	s.turns[v.Candidates[best]].credit -= total
	return best
}

// meet gives every candidate that is new its place among equals, and returns the total
// of the candidates' weights.
func (s *smooth) meet(v *selection.View, r *seed.Rand) float64 {
	if n := int(v.Candidates[len(v.Candidates)-1]) + 1; n > len(s.turns) {
		s.turns = append(s.turns, make([]turn, n-len(s.turns))...)
	}
	total := 0.0
	for i, slot := range v.Candidates {
		total += v.Scores[i]
		if t := &s.turns[slot]; t.order == 0 {
			t.order = r.Uint64() | 1
		}
	}
	return total
}

// Forget takes back the slot's credit and its place among equals.
func (s *smooth) Forget(slot selection.Slot) {
	if int(slot) < len(s.turns) {
		s.turns[slot] = turn{}
	}
}

var _ selection.Forgetter = (*weightedRoundRobin)(nil)
