package flow

import (
	"time"

	"kvasir/gateway/admission"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// Single-flight: when an agent fans out, several calls come at once whose long common prefix
// no endpoint holds. If each goes elsewhere, each endpoint computes all of it. So the first
// one goes, and its siblings wait until its first token shows that its endpoint holds the
// prefix; then they go where the policy says, at instants of their own.

// ends reports whether a report ends an attempt's prefill.
func (r report) ends() bool {
	return r.kind == reportFirst || r.kind == reportDone || r.kind == reportLeft
}

// plan is a wait for a sibling that was found to pay.
type plan struct {
	number int32 // of the flight
	most   time.Duration
}

// shouldFollow reports whether the call should wait for a sibling, and plans it. It is worth
// that where the sibling computes enough of what the call needs and no endpoint holds, and
// where the call's own first token is delayed by no more than the prefill that is saved. For
// that the sibling's must come within twice the time of what is saved.
func (m *Machine) shouldFollow(now mono.Time, c *call, p *pool) bool {
	q := &c.request
	if c.patient || q.Owned || len(q.Blocks) == 0 {
		return false
	}
	x, ok := p.flights.Find(q.Blocks)
	if !ok {
		return false
	}
	l := &m.calls[x.Leader]
	depth := common(q.Blocks, l.request.Blocks)                     // at the depths that are looked at it may show less
	there := min(max(x.Landed, int(m.calls[x.First].found)), depth) // as far as is known
	saved := q.Work(int32(there)).Minus(q.Work(int32(depth)))
	c.plan = plan{number: x.Number, most: p.flights.Config().MaxWait}
	if saved.Tokens < int64(p.flights.Config().MinTokens) {
		return false
	}
	gain, known := m.prefillTime(p, l.slot, saved, 0)
	left, both := m.prefillTime(p, l.slot, l.ahead.Plus(l.work), 1)
	if !known || !both {
		return true
	}
	c.plan.most = min(c.plan.most, max(2*gain, 1))
	return left-now.Sub(l.dispatched) <= 2*gain
}

// follow lets the call wait for the sibling that shouldFollow has just found.
func (m *Machine) follow(now mono.Time, i int32, p *pool) {
	c := &m.calls[i]
	until := now.Add(c.plan.most)
	c.phase, c.follows, c.patient = held, p, true
	p.flights.Follow(i, uint64(c.request.ID), c.plan.number, now, until)
	m.following++
	m.followAt = min(m.followAt, until)
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

// lead notes that the call is being sent to an endpoint, and what of its prompt nobody held
// who can be picked.
func (m *Machine) lead(now mono.Time, i int32, p *pool, slot selection.Slot) {
	c := &m.calls[i]
	if p.flights == nil || c.hedge || !c.showsStart() {
		return // who waited for an answer that comes whole would wait for its end
	}
	if !m.finds(slot) {
		return
	}
	c.found = 0
	for _, s := range p.view.Members {
		if m.finds(s) && m.state[s].breaker.Permits(now) {
			c.found = max(c.found, m.overlap[s])
		}
	}
	p.flights.Lead(i, c.request.Blocks, int(c.found))
}

// finds reports whether calls that come later find what the endpoint computes: they may be sent
// there, and its cache is relied on.
func (m *Machine) finds(slot selection.Slot) bool {
	s := &m.state[slot]
	return !s.draining && s.trust.State() != signal.LoadOnly
}

// disband lets those go who wait for what an endpoint computes, where nobody will find it.
func (m *Machine) disband(at mono.Time, slot selection.Slot) {
	if m.state[slot].pool.flights == nil {
		return
	}
	for i := m.state[slot].newest; i != none; i = m.calls[i].older {
		if !m.calls[i].committed {
			m.lost(at, i)
		}
	}
	if len(m.backoffs) > 0 {
		m.requestWake(m.backoffs[0].until)
	}
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
	on := c.On() && p.usesOverlap // who picks without a look at caches would not find what was waited for
	switch {
	case on && p.flights != nil:
		p.flights.Bound(c)
	case on:
		p.flights = admission.NewFlights(c)
	case p.flights != nil:
		for i, _, ok := p.flights.Next(); ok; i, _, ok = p.flights.Next() {
			m.freeSibling(now, now+1, i)
			m.requestWake(now + 1)
		}
		p.flights = nil
	}
}
