package flow

import (
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection/signal"
)

// compare takes what an answer says was cached of its prompt to what was believed at the
// dispatch: a shortfall corrects the index, and how much of what was predicted came true
// says how far beliefs about the endpoint may be relied on.
//
// The two count differently: the router estimates tokens, and the engine's blocks and the
// router's end elsewhere. So only a shortfall of more than a coarse block and an eighth of
// the prompt is one. A prediction of no more than that proves nothing where it fails; where it
// comes true it does, and so those few who have an engine read no cache are outvoted.
func (m *Machine) compare(at mono.Time, c *call, u Usage) {
	q := &c.request
	if m.index == nil || c.believed.Held == 0 || u.Prompt <= 0 {
		return
	}
	predicted := q.Tokens(int(c.believed.Held))
	cached := u.CachedOf(q.InputTokens)
	slack := max(kvblock.CoarseFactor*q.BlockTokens, q.InputTokens/8)
	short := predicted-cached > slack
	there := int(c.believed.Held)
	if short {
		there = kvblock.Within(cached / q.BlockTokens)
	}
	m.index.Correct(c.slot, c.believed, q.Blocks, there)
	s := &m.state[c.slot]
	if !s.pool.usesOverlap {
		return
	}
	found := min(cached, predicted)
	s.compared.Predicted += int64(predicted)
	s.compared.Found += int64(found)
	switch {
	case predicted <= slack && found < predicted/2:
		return
	case predicted > slack && !short:
		found = predicted
	}
	if led, changed := s.trust.Compare(int64(predicted), int64(found)); changed {
		m.countLoadOnly()
		if s.trust.State() == signal.LoadOnly {
			m.disband(at, c.slot)
		}
		m.notice(Action{Kind: TrustChanged, Slot: c.slot, Trust: s.trust.State(), Compared: led})
	}
}

// mistrust takes overlap out of what was found at endpoints of which beliefs have proved
// wrong. What they are sent is promised all the same, so that predictions go on.
func (m *Machine) mistrust() {
	if m.loadOnly == 0 {
		return
	}
	for i := range m.state {
		if m.state[i].trust.State() == signal.LoadOnly {
			m.overlap[i], m.held[i] = 0, 0
		}
	}
}

// countLoadOnly is called when the trust in an endpoint may have changed.
func (m *Machine) countLoadOnly() {
	m.loadOnly = 0
	for i := range m.state {
		if m.state[i].trust.State() == signal.LoadOnly {
			m.loadOnly++
		}
	}
}
