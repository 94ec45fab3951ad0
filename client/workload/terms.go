package workload

import (
	"fmt"
	"iter"
	"math"
	"time"
)

// Terms are what a session's calls are served on: who pays for them, how urgent they are, and
// for how long their answers are of use. The zero Terms are those of a call of which nothing
// is said.
//
// An experiment sets them on each Session that its Source yields, gives each class of a Mix
// its own (Part.Terms), or lays them over a source with Source.On. The simulator hands them to
// the gateways (selection.Request has the fields' meaning) and measures by tenant, too
// (sim.Summary.Tenants).
type Terms struct {
	Tenant   string        // who pays; empty: not known
	Share    float64       // of a pool's service that the tenant has, relative to others; 0: 1
	Priority int           // higher first; below 0 the call is shed first
	Deadline time.Duration // after a call's coming its first token is worth nothing; 0: there is none
}

// The bounds of Terms: Priority is from -MaxPriority to MaxPriority, Share at most MaxShare.
const (
	MaxPriority = 1000
	MaxShare    = 1e6
)

func (t *Terms) validate() error {
	switch {
	case !(t.Share >= 0 && t.Share <= MaxShare):
		return fmt.Errorf("share is %v; allowed: 0 to %v", t.Share, float64(MaxShare))
	case t.Priority < -MaxPriority || t.Priority > MaxPriority:
		return fmt.Errorf("priority is %d; allowed: %d to %d", t.Priority, -MaxPriority, MaxPriority)
	case t.Deadline < 0 || t.Deadline > math.MaxInt64/2:
		return fmt.Errorf("deadline is %v; allowed: 0 or more", t.Deadline)
	}
	return nil
}

// On returns the source with terms of one's own: of gives those of each session, which it sees
// as the source yields it.
func (s Source) On(of func(*Session) Terms) Source {
	return Source{Name: s.Name, BlockTokens: s.BlockTokens, Loop: s.Loop, Sessions: on(s.Sessions, of)}
}

func on(all iter.Seq2[Session, error], of func(*Session) Terms) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		for s, err := range all {
			if err == nil {
				s.Terms = of(&s)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}
