package scorer

import (
	"kvasir/selection"
)

// NoHitLRU spreads the calls of which nobody holds a block, so that caches grow evenly: it
// prefers the endpoints that were given such a call the longest ago (llm-d's
// no-hit-lru-scorer). The n endpoints left score 1 - rank / (n - 1), where those that never
// got one come first. Of a call of which somebody holds a block all score 0.5.
//
// In llm-d those that never got one are ranked among each other by the order in which they
// are listed; here they all score 1.
type NoHitLRU struct {
	links []link  // by slot plus 1; the first is the list's end
	at    []int32 // scratch, by slot: position in left plus 1
	cold  bool    // nobody held a block of the call that was scored last
}

// link is a slot's place among those that got a cold call. Slots are plus 1; 0 is the end.
type link struct {
	older, newer int32
	listed       bool
}

// Score sets out.
func (s *NoHitLRU) Score(v *selection.View, _ *selection.Request, left []selection.Slot, out []float64) {
	s.cold = true
	for _, slot := range v.Candidates {
		s.cold = s.cold && selection.OverlapAt(v.Overlap, slot) == 0
	}
	if !s.cold {
		all(out, 0.5)
		return
	}
	all(out, 1)
	if len(left) == 1 {
		return
	}
	s.grow(len(v.Endpoints))
	rank := 0 // of the oldest: how many never got one
	for i, slot := range left {
		s.at[slot] = int32(i) + 1
		if !s.links[slot+1].listed {
			rank++
		}
	}
	for n := s.links[0].newer; n != 0; n = s.links[n].newer {
		if i := s.at[n-1]; i > 0 {
			out[i-1] = 1 - float64(rank)/float64(len(left)-1)
			rank++
		}
	}
	for _, slot := range left {
		s.at[slot] = 0
	}
}

// Picked notes who got a cold call.
func (s *NoHitLRU) Picked(v *selection.View, _ *selection.Request, slot selection.Slot) {
	if !s.cold {
		return
	}
	s.grow(len(v.Endpoints))
	s.Forget(slot)
	last, n := s.links[0].older, int32(slot)+1
	s.links[n] = link{older: last, newer: 0, listed: true}
	s.links[last].newer = n
	s.links[0].older = n
}

// Forget makes slot one that never got a cold call.
func (s *NoHitLRU) Forget(slot selection.Slot) {
	n := int(slot) + 1
	if n >= len(s.links) || !s.links[n].listed {
		return
	}
	l := s.links[n]
	s.links[l.older].newer, s.links[l.newer].older = l.newer, l.older
	s.links[n] = link{}
}

func (s *NoHitLRU) grow(slots int) {
	if len(s.at) < slots {
		s.at = append(s.at, make([]int32, slots-len(s.at))...)
		s.links = append(s.links, make([]link, slots+1-len(s.links))...)
	}
}

var (
	_ Scorer              = (*NoHitLRU)(nil)
	_ Witness             = (*NoHitLRU)(nil)
	_ selection.Forgetter = (*NoHitLRU)(nil)
)
