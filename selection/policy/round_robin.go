package policy

import (
	"slices"

	"kvasir/internal/seed"
	"kvasir/selection"
)

// ReasonTurn: it was the endpoint's turn.
const ReasonTurn selection.Reason = "turn"

// RoundRobin picks the candidate that follows the endpoint picked last, in the order
// of slots (article section 4.1). It equalises counts, not work.
//
// What it remembers is a slot, not a count: a count taken modulo a changed number of
// endpoints would favour some. So whoever stays is picked once between two picks of
// any other that stays, whatever joins, leaves or sits out. The first turn is drawn,
// so that routers that start together don't march in step.
//
// Score: how many turns away the candidate is; 0 is the one chosen.
type RoundRobin struct{}

// Validate reports nothing: there are no parameters.
func (*RoundRobin) Validate() []ParamError { return nil }

// New returns the policy.
func (*RoundRobin) New() selection.Policy { return &roundRobin{last: selection.None} }

type roundRobin struct {
	last selection.Slot // picked last; None before the first pick
}

func (p *roundRobin) Pick(v *selection.View, _ *selection.Request, r *seed.Rand) selection.Choice {
	n := len(v.Candidates)
	next := 0
	if p.last == selection.None {
		next = r.Intn(n)
	} else if i, _ := slices.BinarySearch(v.Candidates, p.last+1); i < n {
		next = i
	}
	for i := range v.Scores {
		turns := i - next
		if turns < 0 {
			turns += n
		}
		v.Scores[i] = float64(turns)
	}
	p.last = v.Candidates[next]
	return selection.Choice{Index: next, Reason: ReasonTurn}
}
