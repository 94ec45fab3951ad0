package flow

import (
	"time"

	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
)

// recallEvery is how often the retry budgets are asked anew for calls that wait at an
// endpoint from which nothing is to be expected.
const recallEvery = 250 * time.Millisecond

// watchSilence takes out of rotation the endpoints of which nothing was heard for too
// long while several calls wait there: an engine that hangs behind a server that lives
// answers its health path (field case F34).
func (m *Machine) watchSilence(now mono.Time) {
	if now < m.silenceAt {
		return
	}
	m.silenceAt = mono.Never
	for i := range m.state {
		slot, s := selection.Slot(i), &m.state[i]
		if s.pool == nil || s.leaving || s.unanswered < m.health.StallCalls || m.health.Stall <= 0 {
			continue
		}
		if due := s.life.Add(m.health.Stall); due > now {
			m.silenceAt = min(m.silenceAt, due)
			continue
		}
		s.life = now // it is looked at again after as long
		m.silenceAt = min(m.silenceAt, now.Add(m.health.Stall))
		if s.breaker.State() == health.InRotation && m.eject(now, slot, health.Silent, true, m.health.Term()) {
			m.recallAt = now
		}
	}
}

// unheard counts an attempt that was beaten and has brought nothing. It says nothing by itself,
// but where all are beaten for so long none waits for long either, and watchSilence sees nothing.
func (m *Machine) unheard(now mono.Time, slot selection.Slot, sent mono.Time) {
	s := &m.state[slot]
	if s.unheard == 0 {
		s.unheardAt = sent
	}
	s.unheard++
	if m.health.Stall <= 0 || s.leaving || s.unheard < m.health.StallCalls || now < s.unheardAt.Add(m.health.Stall) {
		return
	}
	s.unheard = 0
	if s.breaker.State() == health.InRotation && m.eject(now, slot, health.Silent, true, m.health.Term()) {
		m.recallAt = now
		m.requestWake(m.last + 1)
	}
}

// abandoned reports whether calls that wait at an endpoint do so in vain: it is leaving,
// or was found silent.
func (s *endpointState) abandoned() bool {
	return s.pool != nil && s.unanswered > 0 &&
		(s.leaving || s.breaker.State() != health.InRotation && s.breaker.Cause() == health.Silent)
}

// recall takes waiting calls back from endpoints where they wait in vain, the oldest
// first, as many as the retry budgets grant: without another attempt a call loses nothing
// by waiting on. The rest is looked at again in a while.
func (m *Machine) recall(now mono.Time) {
	if now < m.recallAt {
		return
	}
	m.recallAt = mono.Never
	for i := range m.state {
		if m.state[i].abandoned() && !m.recallFrom(now, selection.Slot(i)) {
			m.recallAt = min(m.recallAt, now.Add(recallEvery))
		}
	}
}

// recallFrom reports whether it is through with the endpoint's calls.
func (m *Machine) recallFrom(now mono.Time, slot selection.Slot) bool {
	i := m.state[slot].newest
	for i != none && m.calls[i].older != none {
		i = m.calls[i].older
	}
	for ; i != none; i = m.calls[i].newer {
		c := &m.calls[i]
		if c.recalled || c.beaten || m.root(c).settled || c.attempt >= m.retry.Ceiling() {
			continue
		}
		if m.twinRuns(c) { // it has another attempt, unless that one fails
			m.recallAt = min(m.recallAt, now.Add(recallEvery))
			continue
		}
		if c.probe && now.Sub(c.dispatched) < m.health.Stall { // it may yet be answered
			m.recallAt = min(m.recallAt, c.dispatched.Add(m.health.Stall))
			continue
		}
		if p := m.alternative(now, c, slot); p == nil || !m.pay(now, p, c) {
			return false
		}
		c.recalled = true
		m.actions = append(m.actions, Action{
			Kind: Recall, Ticket: m.ticket(i), Attempt: c.attempt,
			Pool: m.state[slot].pool.position, Slot: slot, Generation: m.endpoints[slot].Generation,
		})
	}
	return true
}
