package flow

import (
	"kvasir/gateway/admission"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// Single-flight: when an agent fans out, several calls come at once whose long common prefix
// no endpoint holds. If each goes elsewhere, each endpoint computes all of it. So the first
// one goes, and its siblings wait until its first token shows that its endpoint holds the
// prefix; then they go where the policy says, at instants of their own.

// ends reports whether a report ends an attempt's prefill.
func (r report) ends() bool {
	return r.kind == reportFirst || r.kind == reportDone || r.kind == reportLeft
}

// shouldFollow reports whether the call should wait for a sibling. It is worth that where the
// sibling computes enough of what the call needs and no other endpoint has or is promised, and
// will be done sooner than the call would have computed it.
func (m *Machine) shouldFollow(now mono.Time, c *call, p *pool) bool {
	q := &c.request
	if c.patient || q.Owned || len(q.Blocks) == 0 {
		return false
	}
	_, depth, leader, ok := p.flights.Find(q.Blocks)
	if !ok {
		return false
	}
	saved, least := m.saves(now, c, p, depth, leader), int64(p.flights.Config().MinTokens)
	if saved.Tokens < least {
		return false
	}
	l := &m.calls[leader]
	gain, known := m.prefillTime(p, l.slot, saved)
	left, both := m.prefillTime(p, l.slot, l.ahead.Plus(l.work))
	return !known || !both || left-now.Sub(l.dispatched) <= gain
}

// saves returns the prefill that the call needs not do once the leader has done the first
// depth blocks of it, other than what is there by now.
func (m *Machine) saves(now mono.Time, c *call, p *pool, depth int, leader int32) selection.Work {
	m.index.Match(now, c.request.Blocks, m.overlap)
	l := &m.calls[leader]
	there := min(l.found, int32(depth))
	for _, slot := range p.view.Candidates {
		if slot != l.slot {
			there = max(there, min(m.overlap[slot], int32(depth)))
		}
	}
	return c.request.Work(there).Minus(c.request.Work(int32(depth)))
}

// follow lets the call wait for the sibling that shouldFollow has found: as long as calls may,
// and no longer than it takes to compute what there is to be saved.
func (m *Machine) follow(now mono.Time, i int32, p *pool) {
	c := &m.calls[i]
	number, depth, leader, _ := p.flights.Find(c.request.Blocks)
	most := p.flights.Config().MaxWait
	if gain, known := m.prefillTime(p, m.calls[leader].slot, m.saves(now, c, p, depth, leader)); known {
		most = min(most, max(gain, 1))
	}
	c.phase, c.follows, c.patient = held, p, true
	p.flights.Follow(i, uint64(c.request.ID), number, now, now.Add(most))
	m.following++
	m.followAt = min(m.followAt, now.Add(most))
	for _, r := range m.pending { // the sibling's first token may be of this very instant
		if r.ends() {
			m.followAt = min(m.followAt, now+1)
		}
	}
	m.requestWake(m.followAt)
}

// unfollow ends a call's wait for its sibling.
func (m *Machine) unfollow(now mono.Time, i int32) {
	c := &m.calls[i]
	c.waited += now.Sub(c.follows.flights.Leave(i))
	c.follows = nil
	if m.following--; m.following == 0 {
		m.followAt = mono.Never
	}
}

// lead notes that the call is being sent to the slot, and what of its prompt nobody held.
func (m *Machine) lead(i int32, slot selection.Slot) {
	c, p := &m.calls[i], m.state[slot].pool
	if p.flights == nil || !c.showsStart() {
		return // who waited for an answer that comes whole would wait for its end
	}
	c.found = m.overlap[slot]
	most := int32(0)
	for _, s := range p.view.Candidates {
		most = max(most, m.overlap[s])
	}
	p.flights.Lead(i, c.request.Blocks, int(most))
}

// landed lets those go who have waited for what the call's endpoint holds now.
func (m *Machine) landed(at mono.Time, c *call) {
	if p := m.state[c.slot].pool; p.flights != nil {
		p.flights.Landed(c.request.Blocks, func(i int32) { m.freeSibling(at, at+1, i) })
	}
}

// lost lets those go who have waited for a call that computes no longer.
func (m *Machine) lost(at mono.Time, i int32) {
	c := &m.calls[i]
	if p := m.state[c.slot].pool; p.flights != nil {
		p.flights.Lost(i, c.request.Blocks, func(i int32) { m.freeSibling(at, at+1, i) })
	}
}

// freeSibling ends a call's wait for its sibling at an instant. It goes at the next one named,
// or after those that were freed before it.
func (m *Machine) freeSibling(at, next mono.Time, i int32) {
	m.unfollow(at, i)
	m.freedAt = max(m.freedAt+1, next)
	m.sendAt(m.freedAt, i)
}

// endPatience lets those go who have waited for a sibling long enough.
func (m *Machine) endPatience(now mono.Time) {
	if now < m.followAt {
		return
	}
	m.followAt = mono.Never
	for _, p := range m.pools {
		if p.flights == nil {
			continue
		}
		i, until, ok := p.flights.Next()
		for ; ok && until <= now; i, until, ok = p.flights.Next() {
			m.freeSibling(now, now, i)
		}
		if ok {
			m.followAt = min(m.followAt, until)
		}
	}
}

// reflight gives the pool the bounds of single-flight that its configuration says.
func (m *Machine) reflight(now mono.Time, p *pool, c admission.FlightConfig) {
	switch {
	case c.On() && p.flights != nil:
		p.flights.Bound(c)
	case c.On():
		p.flights = admission.NewFlights(c)
	case p.flights != nil:
		for i, _, ok := p.flights.Next(); ok; i, _, ok = p.flights.Next() {
			m.freeSibling(now, now+1, i)
			m.requestWake(now + 1)
		}
		p.flights = nil
	}
}
