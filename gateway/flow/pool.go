package flow

import (
	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/gateway/demand"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/health"
)

// pool is one pool's part of the machine: its policy and what may be picked.
type pool struct {
	ranker
	name     string
	shadow   *shadow            // nil: none ranks beside the policy
	queue    *admission.Queue   // nil: the pool holds no calls
	flights  *admission.Flights // nil: none of its calls waits for another
	overload admission.Overload
	hedging  hedging

	drain      admission.Speed // of the queue, while calls wait
	drainSince mono.Time       // when one left it last, or it began to hold any
	service    admission.ServiceTime
	staying    admission.ServiceTime // from the first token on, of answers that show it
	meter      demand.Meter          // of what is asked of it
	roomy      []selection.Slot      // endpoints with room; of a queue that prefers whose prefix they hold
	misses     int
	rules      []health.Rule   // what takes an endpoint out
	budget     *attempt.Budget // of the retries that are sent here
	position   int             // among the model's pools
	last       bool            // the model's last pool

	// view is what the policy sees. Its candidates are those of a call that has tried
	// nothing yet, unless dirty.
	view     selection.View
	dirty    bool      // a member's state changed since candidates were listed
	roomless bool      // of a pool with a queue: of those asked, members were left out for want of room
	until    mono.Time // a member's time is over then: list anew
}

// ranker is a policy, and what it takes part in.
type ranker struct {
	policyName   string
	policy       selection.Policy
	learner      selection.Learner    // nil unless the policy is one
	endLearner   selection.EndLearner // likewise
	predictor    selection.Predictor  // likewise
	witness      selection.Witness    // likewise
	forgetter    selection.Forgetter  // likewise
	usesOverlap  bool
	usesActive   bool
	usesWeight   bool
	usesAdapters bool
}

func newRanker(name string, p selection.Policy) ranker {
	r := ranker{policyName: name, policy: p}
	r.learner, _ = selection.As[selection.Learner](p)
	r.endLearner, _ = selection.As[selection.EndLearner](p)
	r.predictor, _ = selection.As[selection.Predictor](p)
	r.witness, _ = selection.As[selection.Witness](p)
	r.forgetter, _ = selection.As[selection.Forgetter](p)
	_, r.usesOverlap = selection.As[selection.OverlapUser](p)
	_, r.usesActive = selection.As[selection.ActiveUser](p)
	_, r.usesWeight = selection.As[selection.WeightUser](p)
	_, r.usesAdapters = selection.As[selection.AdapterUser](p)
	return r
}

// among says who is asked for a candidate, the better ones first.
type among uint8

const (
	rested    among = iota // those in rotation that do not want to be left alone
	bothered               // those in rotation; where the pool has a queue, who asked to be left alone is waited for
	everybody              // all that the call has not tried
)

// become takes over what a configuration says of the pool, but for its endpoints.
func (p *pool) become(c Pool, position int, last bool) {
	p.ranker, p.name, p.misses = newRanker(c.PolicyName, c.Policy), c.Name, c.Misses
	p.overload = c.Overload
	p.position, p.last, p.dirty = position, last, true
	p.view.MaxAge = c.MaxAge
}

// bind points the pool's view at the machine's dense state.
func (p *pool) bind(m *Machine) {
	v := &p.view
	v.Candidates = make([]selection.Slot, 0, len(v.Members))
	v.Scores = make([]float64, 0, len(v.Members))
	v.Position = make([]int32, len(m.endpoints))
	v.Endpoints, v.Book, v.Overlap, v.Held, v.Active = m.endpoints, m.loads, nil, nil, nil
	if p.usesOverlap {
		v.Overlap, v.Held = m.overlap, m.held
	}
	if p.usesActive {
		v.Active = m.inUse
	}
	v.AdapterCalls, v.Adapters = nil, nil
	if p.usesAdapters {
		v.AdapterCalls, v.Adapters = m.adapters.calls, m.adapters.distinct
	}
	p.dirty = true
	if p.shadow != nil {
		p.shadow.bind(m)
	}
}

// refresh makes the view true for a call at now and reports whether there is anybody to
// pick. The list of candidates is kept from pick to pick while nothing changes.
func (p *pool) refresh(m *Machine, now mono.Time, c *call, a among) bool {
	v := &p.view
	v.Now = now
	if p.dirty || now >= p.until || c.nTried > 0 || a != rested || c.request.Owned || p.queue != nil {
		p.list(m, now, c, a)
	}
	return len(v.Candidates) > 0
}

// list writes the view's candidates.
func (p *pool) list(m *Machine, now mono.Time, c *call, a among) {
	v := &p.view
	v.Candidates = v.Candidates[:0]
	p.until, p.roomless = mono.Never, false
	fresh, whole := 0, 0
	for _, slot := range v.Members {
		s := &m.state[slot]
		if !p.candidate(m, now, c, a, slot) {
			continue
		}
		if p.queue != nil && a != everybody && (now < s.busyUntil && (s.asked || !c.mayBother()) || !m.hasRoom(now, p, slot)) {
			p.roomless = true
			continue
		}
		v.Candidates = append(v.Candidates, slot)
		if s.fresh {
			fresh++
		} else {
			whole++
		}
	}
	if fresh > 0 {
		p.share(m, now, c, whole > 0)
	}
	for i := range v.Position {
		v.Position[i] = selection.None
	}
	for i, slot := range v.Candidates {
		v.Position[slot] = int32(i)
	}
	v.Scores = v.Scores[:len(v.Candidates)]
	// A list that depends on this call, or on the moment, holds for this call alone.
	p.dirty = c.nTried > 0 || a != rested || fresh > 0 || c.request.Owned
}

// candidate reports whether the call may be sent to the endpoint, and notes when that
// may change by itself.
func (p *pool) candidate(m *Machine, now mono.Time, c *call, a among, slot selection.Slot) bool {
	s := &m.state[slot]
	if due, out := s.breaker.ProbeDue(); out && due > now {
		p.until = min(p.until, due)
	}
	if s.busyUntil > now {
		p.until = min(p.until, s.busyUntil)
	}
	if s.draining && !c.request.Owned || c.excludes(slot, m.endpoints[slot].Generation) {
		return false
	}
	if c.hedge && s.breaker.State() != health.InRotation {
		return false // a hedge is no probe
	}
	return a == everybody || s.breaker.Permits(now) && (a == bothered || now >= s.busyUntil)
}

// share gives endpoints that are new a part of their share: of the weight where the
// policy goes by weights, else of the calls, by chance. It does nothing where all are new.
func (p *pool) share(m *Machine, now mono.Time, c *call, others bool) {
	v := &p.view
	r := seed.New(m.seed, seed.SlowStart, uint64(c.request.ID), uint64(c.attempt))
	kept := v.Candidates[:0]
	for _, slot := range v.Candidates {
		s := &m.state[slot]
		part := 1.0
		if s.fresh {
			part = m.health.Warmth(s.freshSince, now)
			s.fresh = part < 1
		}
		m.endpoints[slot].Weight = s.weight
		switch {
		case part == 1 || !others: // so it is where only the owner of what is asked for can answer
		case p.usesWeight:
			m.endpoints[slot].Weight = float64(s.weight * part)
		case r.Float64() >= part:
			continue
		}
		kept = append(kept, slot)
	}
	v.Candidates = kept
}

// canSpare reports whether slot's endpoint may leave rotation. Of the model's last pool
// one stays: with nobody else to ask, a refused connection costs less than a refusal of
// ours. What is doubtful may take out a part of the pool only.
func (p *pool) canSpare(m *Machine, slot selection.Slot, doubtful bool) bool {
	out, others := 1, 0
	for _, s := range p.view.Members {
		switch st := &m.state[s]; {
		case s == slot:
		case st.breaker.State() != health.InRotation:
			out++
		case !st.draining:
			others++
		}
	}
	if p.last && others == 0 {
		return false
	}
	// Behind another pool stands one that may answer: whose failures they are was seen.
	return !doubtful || !p.last || out <= max(1, int(m.health.MaxEjected*float64(len(p.view.Members))))
}
