package flow

import (
	"math"
	"time"

	"kvasir/gateway/admission"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// What a pool does while it has too little for all: calls of low priority give way to others,
// those that may be shed stay out while the pool is saturated, and one whose deadline can't be
// kept is refused when it comes.

// againAfter is how often it is looked whether a pool is saturated still for which calls wait
// that may be shed: what is known of it may become too old meanwhile.
const againAfter = time.Second

// saturation returns that of the pool's endpoints in rotation.
func (m *Machine) saturation(now mono.Time, p *pool) admission.Saturation {
	var g admission.Gauge
	slo, wait := p.view.SLO.TTFT, time.Duration(0)
	if p.queue != nil && slo > 0 {
		wait = p.queue.Wait(admission.Asking{Tokens: math.MaxInt32, Rate: m.drainRate(now, p)}) // until all have gone who may not be shed
	}
	for _, slot := range p.view.Members {
		s := &m.state[slot]
		if s.draining || !s.breaker.Permits(now) {
			continue
		}
		var r admission.Reading
		along := func(a admission.Axis, v, full float64, known bool) {
			if l := v / full; known && full > 0 && (!r[a].Known || l > r[a].Value) {
				r[a] = admission.AtLevel(l)
			}
		}
		load, c := &m.endpoints[slot].Load, &p.overload
		waiting, known := load.Waiting.Fresh(now, p.view.MaxAge)
		along(admission.Waiting, waiting, c.Waiting, known)
		usage, known := load.KVUsageMax().Fresh(now, p.view.MaxAge)
		along(admission.KVUsage, usage, c.KVUsage, known)
		rate, known := s.preempting.Rate(now, p.view.MaxAge)
		along(admission.Preemptions, rate, c.Preemptions, known)
		begin, known := m.prefillTime(p, slot, s.unstarted, s.unstartedCalls)
		along(admission.Waiting, begin.Seconds(), slo.Seconds(), known && c.Waiting > 0)
		along(admission.TTFT, (wait + begin).Seconds(), slo.Seconds(), known)
		g.Add(r)
	}
	return g.Saturation()
}

// keepsOut reports whether the call may be shed and the pool is saturated.
func (m *Machine) keepsOut(now mono.Time, c *call, p *pool) bool {
	if c.request.Priority >= 0 {
		return false
	}
	s := m.saturation(now, p)
	return s.Saturated()
}

// releaseFrom lets those of the pool's queue stay that may be shed, while the pool is saturated.
func (m *Machine) releaseFrom(now mono.Time, p *pool) {
	from := int32(admission.MinPriority)
	if _, sheddable := p.queue.Least(0); sheddable {
		if s := m.saturation(now, p); s.Saturated() {
			from = 0
		}
	}
	p.queue.Release(from)
}

// preempts reports whether the endpoint puts calls back for want of KV blocks: another one would
// make it do so more.
func (m *Machine) preempts(now mono.Time, p *pool, slot selection.Slot) bool {
	most := p.overload.Preemptions
	if most <= 0 || m.books[slot].Outstanding == 0 {
		return false
	}
	rate, known := m.state[slot].preempting.Rate(now, p.view.MaxAge)
	return known && rate >= most
}

// leastHeld returns who gives way first of all calls that are held with a priority below: of
// the lowest band the one that has waited for the shortest time.
func (m *Machine) leastHeld(priority int32) int32 {
	least := int32(none)
	for _, p := range m.pools {
		if p.queue == nil {
			continue
		}
		i, ok := p.queue.Least(priority)
		if !ok {
			continue
		}
		if least == none || m.before(i, least) {
			least = i
		}
	}
	return least
}

// before reports whether one held call gives way before another.
func (m *Machine) before(i, j int32) bool {
	a, b := &m.calls[i].request, &m.calls[j].request
	if x, y := admission.Band(a.Priority), admission.Band(b.Priority); x != y {
		return x < y
	}
	return a.ID > b.ID
}

// shed gives up a held call for the sake of others.
func (m *Machine) shed(now mono.Time, i int32) {
	c := &m.calls[i]
	p := c.queued
	m.unhold(now, i)
	again := p.queue.Wait(p.asking(&c.request, m.drainRate(now, p)))
	m.giveUp(i, Shed)
	m.actions[len(m.actions)-1].Again = again
}

// giveWay sheds those whom a call pushes out that is about to wait for the pool.
func (m *Machine) giveWay(now mono.Time, i int32, p *pool) {
	q := p.asking(&m.calls[i].request, 0)
	calls, bytes := p.queue.Len(), p.queue.Bytes()
	for {
		j, ok := p.queue.GivesWay(q, calls-p.queue.Len(), bytes-p.queue.Bytes())
		if !ok {
			return
		}
		m.shed(now, j)
	}
}

// due returns when the call's answer begins to be worth nothing; Never, where it does not say.
func (c *call) due() mono.Time {
	if !c.request.Firm || c.request.Deadline <= 0 {
		return mono.Never
	}
	return c.arrived.Add(c.request.Deadline)
}

// tooLate reports whether a new call, whose own prefill takes so long after such a wait, is
// refused for its deadline's sake.
func (m *Machine) tooLate(now mono.Time, c *call, p *pool, wait, own time.Duration) bool {
	r := seed.New(m.seed, seed.Deadline, uint64(c.request.ID), uint64(c.attempt))
	return p.overload.Ramp.Refuses(wait, c.due().Sub(now)-own, r.Float64())
}

// beginsAtOnce reports whether one of the slots has no prefill to do. A new call is not refused
// there, whatever is thought of how long it takes: only a call that is tried teaches what is true.
func (m *Machine) beginsAtOnce(p *pool, slots []selection.Slot) bool {
	for _, slot := range slots {
		if m.found(p, slot).Pending == 0 {
			return true
		}
	}
	return false
}

// soonest predicts what a call takes to its first token that is sent now to one of the slots, on
// the endpoint that is best for that: the wait for those before it, and its own prefill; false
// where nothing is known. Without a queue only a pool whose policy predicts is asked.
func (m *Machine) soonest(now mono.Time, c *call, p *pool, slots []selection.Slot) (wait, own time.Duration, known bool) {
	if p.predictor == nil && p.queue == nil {
		return 0, 0, false
	}
	if p.usesOverlap {
		m.index.Match(now, c.request.Blocks, m.overlap)
		m.mistrust()
	}
	best := time.Duration(0)
	for _, slot := range slots {
		if s := &m.state[slot]; s.draining || !s.breaker.Permits(now) {
			continue
		}
		before := m.found(p, slot)
		work := c.request.Work(selection.OverlapAt(p.view.Overlap, slot))
		all, ok := m.prefillTime(p, slot, work.Plus(before.PendingWork), int(before.Pending)+1)
		if !ok || known && all >= best {
			continue
		}
		alone, _ := m.prefillTime(p, slot, work, 1)
		best, own, known = all, min(alone, all), true
	}
	return best - own, own, known
}
