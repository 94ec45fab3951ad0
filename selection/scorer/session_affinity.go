package scorer

import (
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// maxSessions bounds what SessionAffinity remembers: twice as many sessions.
const maxSessions = 1 << 16

// SessionAffinity prefers the endpoint that the session's last call was sent to: it scores
// 1, all others 0 (llm-d's session-affinity-scorer with a session's id in a header). A
// session is known for TTL after its last call, or until 65,536 others have come. A call without a session scores 0 everywhere.
type SessionAffinity struct {
	TTL time.Duration // above 0; llm-d's default 300 s

	// Header has Request.Key be the session, as llm-d has it, and not Request.Conversation.
	Header bool

	// Sessions are written to recent. Once it is full, or TTL old, it becomes former and what
	// was in that is dropped: whatever is in neither is too old, or too long ago.
	recent, former map[kvblock.Hash]session
	since          mono.Time // of recent
	forgotten      []uint32  // by slot: how often
}

type session struct {
	slot  selection.Slot
	epoch uint32 // of the slot, see forgotten
	at    mono.Time
}

// of returns the call's session; 0: none.
func (s *SessionAffinity) of(q *selection.Request) kvblock.Hash {
	if s.Header {
		return q.Key
	}
	return q.Conversation
}

// Score sets out.
func (s *SessionAffinity) Score(v *selection.View, q *selection.Request, left []selection.Slot, out []float64) {
	all(out, 0)
	id := s.of(q)
	last, ok := s.recent[id]
	if !ok {
		last, ok = s.former[id]
	}
	if !ok || v.Now.Sub(last.at) > s.TTL || last.epoch != s.epoch(last.slot) {
		return
	}
	for i, slot := range left {
		if slot == last.slot {
			out[i] = 1
		}
	}
}

// Picked remembers where the session's call was sent.
func (s *SessionAffinity) Picked(v *selection.View, q *selection.Request, slot selection.Slot) {
	id := s.of(q)
	if id == 0 {
		return
	}
	if s.recent == nil {
		s.recent, s.former, s.since = map[kvblock.Hash]session{}, map[kvblock.Hash]session{}, v.Now
	}
	if len(s.recent) >= maxSessions || v.Now.Sub(s.since) > s.TTL {
		clear(s.former)
		s.recent, s.former, s.since = s.former, s.recent, v.Now
	}
	s.recent[id] = session{slot, s.epoch(slot), v.Now}
}

// Forget ends the affinity of every session to the slot.
func (s *SessionAffinity) Forget(slot selection.Slot) {
	if missing := int(slot) + 1 - len(s.forgotten); missing > 0 {
		s.forgotten = append(s.forgotten, make([]uint32, missing)...)
	}
	s.forgotten[slot]++
}

func (s *SessionAffinity) epoch(slot selection.Slot) uint32 {
	if int(slot) < len(s.forgotten) {
		return s.forgotten[slot]
	}
	return 0
}

var (
	_ Scorer              = (*SessionAffinity)(nil)
	_ Witness             = (*SessionAffinity)(nil)
	_ selection.Forgetter = (*SessionAffinity)(nil)
)
