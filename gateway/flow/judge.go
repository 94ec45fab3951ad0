package flow

import (
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
)

// judge draws from the end of a call's attempt what it says of the endpoint.
func (m *Machine) judge(r *report, c *call) {
	s, o := &m.state[c.slot], r.outcome
	if o == attempt.Success {
		s.life, s.torn, s.unheard = r.at, 0, 0
	}
	if o.Pushed() {
		s.pushes++
		m.shun(r.at, c.slot, m.health.BusyFor(r.wait, s.pushes), true)
	}
	switch {
	case c.committed:
		m.tear(r, c.slot)
	case m.trip(r, c):
	case o == attempt.Success:
		m.succeed(r.at, c)
	case c.resort:
		// That it is out of rotation is known.
	case o.Evidence() == attempt.Certain,
		o.Evidence() == attempt.Probable && m.root(c).nTried == 0,
		o.Evidence() == attempt.Doubtful && c.probe:
		m.fail(r.at, c.slot, o, c.probe)
	case c.probe:
		m.probeLost(r.at, c.slot)
	case o.Evidence() == attempt.Doubtful:
		s.doubts++
	}
}

// trip goes by the rules that name statuses, which do not ask whose fault an answer was. It
// reports whether they took the endpoint out, or keep it out.
func (m *Machine) trip(r *report, c *call) bool {
	s, status := &m.state[c.slot], r.status
	if status < 300 { // an answer that was none, or an error in place of content
		status = r.outcome.Status()
	}
	if status == 0 || s.leaving {
		return false
	}
	verdict, term := s.breaker.Answered(s.pool.rules, r.at, status, r.wait, c.probe)
	return verdict != health.Stays && m.eject(r.at, c.slot, health.Tripped, true, term)
}

// suspect reports whether the endpoint fails at one call after the other, so that one more
// failure says little of its call: what fails fast looks idle, and two such endpoints would
// draw every call, and no call would get to one that answers and so shows whose fault it was.
func (s *endpointState) suspect(c health.Config) bool {
	return s.doubts >= c.Failures || s.breaker.State() != health.InRotation
}

// tear judges an answer that went wrong after its first content. Such content has brought
// the endpoint back each time, so these failures are counted by themselves.
func (m *Machine) tear(r *report, slot selection.Slot) {
	s := &m.state[slot]
	switch r.outcome {
	case attempt.Stalled, attempt.Broken, attempt.StreamError:
	default:
		return
	}
	m.fail(r.at, slot, r.outcome, false)
	if s.torn++; s.torn >= m.health.Failures && !s.leaving && s.breaker.State() == health.InRotation {
		m.eject(r.at, slot, causeOf(r.outcome), true, m.health.Term())
	}
}

// shun leaves an endpoint alone for a while, as long as others can be asked; asked says that it
// wants that itself.
func (m *Machine) shun(at mono.Time, slot selection.Slot, d time.Duration, asked bool) {
	s := &m.state[slot]
	s.asked = asked || s.asked && at < s.busyUntil
	s.busyUntil = max(s.busyUntil, at.Add(d))
	s.pool.dirty = true
}

// succeed books content from the call's endpoint: it is in rotation, whatever it was.
// Endpoints that did not answer the same call have themselves to blame.
func (m *Machine) succeed(at mono.Time, c *call) {
	s := &m.state[c.slot]
	s.life, s.pushes, s.doubts, s.unheard = at, 0, 0, 0
	if s.breaker.Succeed(s.pool.rules, at, c.probe || c.resort) {
		m.refresh(at, c.slot)
		m.notice(Action{Kind: Returned, Slot: c.slot})
	}
	root := m.root(c)
	for i, t := range root.tried[:root.nTried] {
		if t.outcome.Evidence() == attempt.Doubtful && !t.judged && m.endpoints[t.slot].Generation == t.generation {
			m.fail(at, t.slot, t.outcome, false)
		}
		root.tried[i].outcome = attempt.Success // it counts once
	}
}

// fail books a failure before content. probe says that the call was the endpoint's probe.
func (m *Machine) fail(at mono.Time, slot selection.Slot, o attempt.Outcome, probe bool) {
	s := &m.state[slot]
	if s.pool == nil || s.leaving {
		return
	}
	switch verdict, term := s.breaker.Fail(s.pool.rules, at, probe); verdict {
	case health.Leaves:
		m.eject(at, slot, causeOf(o), o.Evidence() == attempt.Doubtful, term)
	case health.LeavesIfOthersStay:
		m.eject(at, slot, causeOf(o), true, term)
	}
}

func causeOf(o attempt.Outcome) health.Cause {
	switch o {
	case attempt.ConnectFailed, attempt.ConnectTimeout, attempt.Broken:
		return health.Unreachable
	case attempt.HeaderTimeout, attempt.FirstTokenTimeout, attempt.Stalled:
		return health.Silent
	default:
		return health.Failing
	}
}

// eject takes an endpoint out of rotation, unless too few others are left. It reports
// whether the endpoint is out.
func (m *Machine) eject(at mono.Time, slot selection.Slot, why health.Cause, doubtful bool, term health.Term) bool {
	s := &m.state[slot]
	in := s.breaker.State() == health.InRotation
	if in && !s.pool.canSpare(m, slot, doubtful) {
		m.shun(at, slot, term.For, false) // it stays, and is asked last: what fails fast looks idle
		return false
	}
	s.breaker.Eject(at, why, term)
	s.pool.dirty = true
	if m.holding > 0 { // who waits there may have to go elsewhere
		m.admitAt = min(m.admitAt, at+1)
	}
	if in {
		m.notice(Action{Kind: Ejected, Slot: slot, Cause: why})
	}
	return true
}

func (m *Machine) probeLost(at mono.Time, slot selection.Slot) {
	s := &m.state[slot]
	s.breaker.ProbeLost(at)
	s.pool.dirty = true
}

// asked takes the answer to a request to an endpoint's health path.
func (m *Machine) asked(r *report) {
	if !m.has(r.slot, r.generation) {
		return
	}
	s := &m.state[r.slot]
	s.pool.dirty = true
	if s.breaker.Asked(r.at, r.healthy, max(s.pool.misses, 1)) {
		m.eject(r.at, r.slot, health.Unhealthy, true, m.health.Term())
	}
}

// has reports whether the slot belongs to the endpoint that is meant.
func (m *Machine) has(slot selection.Slot, generation uint32) bool {
	return int(slot) < len(m.state) && m.state[slot].pool != nil && m.endpoints[slot].Generation == generation
}

// refresh begins an endpoint's slow start.
func (m *Machine) refresh(at mono.Time, slot selection.Slot) {
	s := &m.state[slot]
	s.pool.dirty = true
	if m.health.SlowStart > 0 {
		s.fresh, s.freshSince = true, at
	}
}

// notice tells the driver of something that has become of an endpoint.
func (m *Machine) notice(a Action) {
	a.Pool, a.Generation = m.state[a.Slot].pool.position, m.endpoints[a.Slot].Generation
	m.actions = append(m.actions, a)
}
