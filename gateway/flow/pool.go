package flow

import (
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
)

// pool is one pool's part of the machine: its policy and what may be picked.
type pool struct {
	name, policyName string
	policy           selection.Policy
	learner          selection.Learner // nil unless the policy is one
	usesOverlap      bool
	last             bool // the model's last pool

	// view is what the policy sees. Its candidates are those of a call that has tried
	// nothing yet, unless dirty.
	view  selection.View
	dirty bool      // a member's state changed since candidates were listed
	until mono.Time // an ejected member is due for a probe: list anew then
}

func newPool(p Pool, members []selection.Slot, last bool) pool {
	learner, _ := p.Policy.(selection.Learner)
	_, usesOverlap := p.Policy.(selection.OverlapUser)
	return pool{
		name: p.Name, policyName: p.PolicyName, policy: p.Policy,
		learner: learner, usesOverlap: usesOverlap, last: last, dirty: true,
		view: selection.View{MaxAge: p.MaxAge, Version: 1, Members: members},
	}
}

// bind points the pool's view at the machine's dense state.
func (p *pool) bind(m *Machine) {
	v := &p.view
	v.Candidates = make([]selection.Slot, 0, len(v.Members))
	v.Scores = make([]float64, 0, len(v.Members))
	v.Position = make([]int32, len(m.endpoints))
	v.Endpoints, v.Book = m.endpoints, m.books
	if p.usesOverlap {
		v.Overlap = m.overlap
	}
}

// refresh makes the view true for a call at now and reports whether there is anybody to
// pick. The list of candidates is kept from pick to pick while nothing changes. With
// resort set the candidates are all that the call has not tried, in rotation or not.
func (p *pool) refresh(m *Machine, now mono.Time, c *call, resort bool) bool {
	v := &p.view
	v.Now = now
	if p.dirty || now >= p.until || c.nTried > 0 || resort {
		p.list(m, now, c, resort)
	}
	return len(v.Candidates) > 0
}

// list writes the view's candidates.
func (p *pool) list(m *Machine, now mono.Time, c *call, resort bool) {
	v := &p.view
	v.Candidates = v.Candidates[:0]
	p.until = mono.Never
	for i := range v.Position {
		v.Position[i] = selection.None
	}
	for _, slot := range v.Members {
		b := &m.state[slot].breaker
		if due, out := b.ProbeDue(); out && due > now {
			p.until = min(p.until, due)
		}
		if c.hasTried(slot) || !resort && !b.Permits(now) {
			continue
		}
		v.Position[slot] = int32(len(v.Candidates))
		v.Candidates = append(v.Candidates, slot)
	}
	v.Scores = v.Scores[:len(v.Candidates)]
	// A list that depends on what this call has tried holds for this call alone.
	p.dirty = c.nTried > 0 || resort
}

// onlyInRotation reports whether no other member than slot is in rotation. One that is
// merely due for a probe is not.
func (p *pool) onlyInRotation(m *Machine, slot selection.Slot) bool {
	for _, s := range p.view.Members {
		if s != slot && m.state[s].breaker.State() == health.InRotation {
			return false
		}
	}
	return true
}

// decision builds the explanation of a pick, before the pick is charged.
func (m *Machine) decision(p *pool, c *call, choice selection.Choice) *selection.Decision {
	v := &p.view
	d := &selection.Decision{
		Call: c.request.ID, Attempt: c.attempt, At: v.Now, Pool: p.name, Policy: p.policyName,
		Reason: choice.Reason, Chosen: choice.Index,
		Candidates: make([]selection.Candidate, len(v.Candidates)),
	}
	for i, slot := range v.Candidates {
		e := selection.Candidate{
			Endpoint:    m.endpoints[slot].Name,
			Score:       v.Scores[i],
			Outstanding: int(m.books[slot].Outstanding),
			SignalAge:   m.endpoints[slot].Load.Age(v.Now),
		}
		if p.usesOverlap {
			e.Overlap = int(m.overlap[slot])
		}
		d.Candidates[i] = e
	}
	return d
}

// Snapshot is what a machine knows at an instant, for people and metrics.
type Snapshot struct {
	At          mono.Time
	InFlight    int // calls the machine holds
	Waiting     int // of those, between two attempts
	IndexBytes  int64
	IndexBlocks int
	Pools       []PoolState
}

// PoolState is one pool of a Snapshot.
type PoolState struct {
	Name, Policy string
	Endpoints    []EndpointState
}

// EndpointState is one endpoint of a Snapshot.
type EndpointState struct {
	selection.Endpoint
	Slot                       selection.Slot
	Book                       selection.Book
	Health                     health.State
	Failures                   int   // consecutive, before content
	Dispatched                 int64 // attempts ever sent
	PromptTokens, CachedTokens int64 // as answers reported them
}

// Snapshot folds what is older than now and returns a copy of the state.
func (m *Machine) Snapshot(now mono.Time) Snapshot {
	m.last = max(m.last, now)
	m.actions = m.actions[:m.carried]
	m.fold(m.last)
	m.carried = len(m.actions)
	s := Snapshot{At: m.last, InFlight: m.inFlight}
	for i := range m.calls {
		if ph := m.calls[i].phase; ph == failed || ph == backingOff {
			s.Waiting++
		}
	}
	if m.index != nil {
		s.IndexBytes, s.IndexBlocks = m.index.Bytes(), m.index.Len()
	}
	for i := range m.pools {
		p := &m.pools[i]
		ps := PoolState{Name: p.name, Policy: p.policyName}
		for _, slot := range p.view.Members {
			st := &m.state[slot]
			ps.Endpoints = append(ps.Endpoints, EndpointState{
				Endpoint: m.endpoints[slot], Slot: slot, Book: m.books[slot],
				Health: st.breaker.State(), Failures: st.breaker.Failures(),
				Dispatched: st.dispatched, PromptTokens: st.promptSeen, CachedTokens: st.cachedSeen,
			})
		}
		s.Pools = append(s.Pools, ps)
	}
	return s
}
