package flow

import (
	"slices"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/prefix"
)

// Placed says which slot an endpoint of a configuration has.
type Placed struct {
	Pool, Endpoint int // indices into the Config
	Slot           selection.Slot
	Generation     uint32
}

// Reconfigure makes the machine's model what c says, which must be valid as New's. Pools
// are known by name, endpoints by pool, name and revision; what stays keeps all that was
// learned of it, its charges and its calls. A pool keeps its policy's state where c has
// the same Policy value. An endpoint that c does not have gets no new calls; those that it
// runs end there, but the ones without content are taken back as the retry budgets allow.
// Another prefix.Config empties the index. The seed never changes.
//
// The actions are to be carried out as Step's are.
func (m *Machine) Reconfigure(now mono.Time, c Config) ([]Placed, []Action) {
	m.actions = m.actions[:m.carried]
	m.carried = 0
	m.last = max(m.last, now)
	m.fold(m.last)
	placed := m.configure(m.last, c)
	m.speak(m.last)
	return placed, m.actions
}

// Placement says which slots the endpoints of the configuration have, which must be the
// machine's newest.
func (m *Machine) Placement(c Config) []Placed {
	var placed []Placed
	for i, pc := range c.Pools {
		for j, ec := range pc.Endpoints {
			slot := m.find(m.pools[i], ec)
			placed = append(placed, Placed{Pool: i, Endpoint: j, Slot: slot, Generation: m.endpoints[slot].Generation})
		}
	}
	return placed
}

// configure does Reconfigure's work and says which slots the endpoints have.
func (m *Machine) configure(now mono.Time, c Config) []Placed {
	anew := c.Retry != m.retry
	m.total = c.Total
	m.rehedge(c.Hedge)
	m.bound, m.retry, m.health, m.explain = c.Calls, c.Retry, c.Health, c.Explain

	former := m.pools
	m.pools = make([]*pool, 0, len(c.Pools))
	for i, pc := range c.Pools {
		at := slices.IndexFunc(former, func(p *pool) bool { return p.name == pc.Name })
		p := &pool{view: selection.View{Version: 1}, hedging: newHedging()}
		if at >= 0 {
			p = former[at]
		}
		p.become(pc, i, i == len(c.Pools)-1)
		m.rule(p, c.Health.Rules(pc.Breaker))
		if anew || p.budget == nil {
			p.budget = attempt.NewBudget(c.Retry)
		}
		m.requeue(now, p, pc.Queue)
		if p.queue != nil {
			m.preferring(p)
		}
		m.reflight(now, p, pc.Flights)
		p.view.SLO = c.SLO
		m.pools = append(m.pools, p)
	}
	for _, p := range former {
		if !slices.Contains(m.pools, p) {
			m.requeue(now, p, admission.Config{})
			m.reflight(now, p, admission.FlightConfig{})
		}
	}
	if m.holding > 0 {
		m.admitAt = min(m.admitAt, now+1)
		m.requestWake(now + 1)
	}
	m.dismiss(now, c.Pools)
	var placed []Placed
	for i, pc := range c.Pools {
		for j, ec := range pc.Endpoints {
			slot := m.find(m.pools[i], ec)
			if slot == none {
				slot = m.join(now, m.pools[i], ec)
			}
			s := &m.state[slot]
			begins := ec.Draining && !s.draining
			s.weight, s.draining = ec.Weight, ec.Draining
			if begins {
				m.disband(now, slot)
			}
			m.endpoints[slot].Weight = ec.Weight
			placed = append(placed, Placed{Pool: i, Endpoint: j, Slot: slot, Generation: m.endpoints[slot].Generation})
		}
	}
	m.reindex(c.Prefix)
	m.retell(c.Sharing)
	m.occupyAll()
	m.rebook()
	m.rebind()
	m.armHedges()
	return placed
}

// rule gives the pool its breaker's rules. What was counted for others is forgotten; who is
// out stays out.
func (m *Machine) rule(p *pool, rules []health.Rule) {
	if slices.EqualFunc(p.rules, rules, func(a, b health.Rule) bool { return a.Equal(&b) }) {
		return
	}
	p.rules = rules
	for i := range m.state {
		if m.state[i].pool == p {
			m.state[i].breaker.Recount()
		}
	}
}

// dismiss lets go the endpoints that the pools, parallel to m.pools, do not have.
func (m *Machine) dismiss(now mono.Time, pools []Pool) {
	stays := make([]bool, len(m.state))
	for i, pc := range pools {
		for _, ec := range pc.Endpoints {
			if slot := m.find(m.pools[i], ec); slot != none {
				stays[slot] = true
			}
		}
	}
	for slot := range stays {
		if m.state[slot].pool != nil && !stays[slot] && !m.state[slot].leaving {
			m.leave(now, selection.Slot(slot))
		}
	}
}

// find returns the slot of an endpoint that stays, or none.
func (m *Machine) find(p *pool, ec Endpoint) selection.Slot {
	for i := range m.state {
		s := &m.state[i]
		if s.pool == p && !s.leaving && s.revision == ec.Revision && m.endpoints[i].Name == ec.Name {
			return selection.Slot(i)
		}
	}
	return none
}

// join gives a new endpoint a slot.
func (m *Machine) join(now mono.Time, p *pool, ec Endpoint) selection.Slot {
	var slot selection.Slot
	if n := len(m.free); n > 0 {
		slot, m.free = m.free[n-1], m.free[:n-1]
		m.endpoints[slot] = selection.Endpoint{Name: ec.Name, Generation: m.endpoints[slot].Generation + 1}
	} else {
		slot = selection.Slot(len(m.endpoints))
		m.endpoints = append(m.endpoints, selection.Endpoint{Name: ec.Name})
		m.books = append(m.books, selection.Book{})
		m.overlap = append(m.overlap, 0)
		m.inUse = append(m.inUse, 0)
		m.held = append(m.held, 0)
		m.state = append(m.state, endpointState{})
	}
	m.state[slot] = endpointState{pool: p, revision: ec.Revision, newest: none, firstWait: none, lastWait: none}
	if now.Duration() >= m.health.SlowStart { // at the start all are new, also those that are found a little later
		m.refresh(now, slot)
	}
	if now.Duration() >= m.health.Blackout { // likewise
		m.state[slot].darkUntil = now.Add(m.health.Blackout)
	}
	return slot
}

// leave begins an endpoint's end.
func (m *Machine) leave(now mono.Time, slot selection.Slot) {
	s := &m.state[slot]
	s.leaving, s.draining = true, true
	m.disband(now, slot)
	if m.books[slot].Outstanding == 0 {
		m.freeSlot(slot)
		return
	}
	m.recallAt = now
	m.requestWake(now + 1)
}

// freeSlot ends an endpoint that has left and has no calls any more.
func (m *Machine) freeSlot(slot selection.Slot) {
	m.notice(Action{Kind: Freed, Slot: slot})
	m.unlearn(slot)
	m.state[slot] = endpointState{newest: none, firstWait: none, lastWait: none}
	m.books[slot] = selection.Book{}
	m.peers.freed(slot)
	m.endpoints[slot] = selection.Endpoint{Generation: m.endpoints[slot].Generation}
	m.free = append(m.free, slot)
}

// reindex gives the machine the index that its policies, and their shadows, need.
func (m *Machine) reindex(c prefix.Config) {
	needed := slices.ContainsFunc(m.pools, func(p *pool) bool { return p.usesOverlap || p.shadow != nil && p.shadow.usesOverlap })
	if !needed {
		m.index, m.prefixing = nil, c
		return
	}
	if m.index == nil || c != m.prefixing {
		m.prefixing = c
		c.Endpoints = len(m.endpoints)
		m.index = prefix.New(c)
		for i := range m.calls {
			m.calls[i].believed = prefix.Belief{} // by the index before
		}
	}
	m.index.Grow(len(m.endpoints))
}

// occupyAll counts the blocks of calls that were sent when their pool's policy did not use
// that. Those of a pool whose policy no longer does stay counted until the calls end.
func (m *Machine) occupyAll() {
	for i := range m.calls {
		if c := &m.calls[i]; c.phase == running && !c.occupies && m.state[c.slot].pool.usesActive {
			m.occupy(c)
		}
	}
}

// rebind lists the pools' members and points their views at the dense state, which may
// have moved.
func (m *Machine) rebind() {
	for _, p := range m.pools {
		var members []selection.Slot
		for i := range m.state {
			if m.state[i].pool == p && !m.state[i].leaving {
				members = append(members, selection.Slot(i))
			}
		}
		if !slices.Equal(members, p.view.Members) {
			p.view.Members = members
			p.view.Version++
		}
		p.bind(m)
	}
}
