package flow

import (
	"time"

	"kvasir/gateway/demand"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// What is asked of a pool, for whoever decides how many replicas it has. A model's first pool is
// asked for every call that comes, also for those that are refused or that another pool takes; a
// further one for those that come to it.

// ask counts a call that comes, with the prefill that it brings. p is the pool that it was sent
// to, waits for or was refused by; nil: none.
func (m *Machine) ask(now mono.Time, i int32, p *pool, sent bool) {
	if len(m.pools) == 0 { // the model is gone
		return
	}
	c, first := &m.calls[i], m.pools[0]
	tokens := c.work.Tokens
	if p == nil {
		p = first
	}
	if !sent {
		tokens = m.brings(now, &c.request, p)
	}
	p.meter.Come(now, tokens)
	if p != first {
		first.meter.Come(now, m.brings(now, &c.request, first))
	}
}

// askInVain counts a call that is refused before anybody looks for a place.
func (m *Machine) askInVain(now mono.Time, q *selection.Request) {
	if len(m.pools) > 0 {
		p := m.pools[0]
		p.meter.Come(now, m.brings(now, q, p))
	}
}

// brings returns the least prefill that a call brings to one of the pool's endpoints.
func (m *Machine) brings(now mono.Time, q *selection.Request, p *pool) int64 {
	if p.usesOverlap {
		m.index.Match(now, q.Blocks, m.overlap)
		m.mistrust()
	}
	most := int32(0)
	for _, slot := range p.view.Members {
		most = max(most, selection.OverlapAt(p.view.Overlap, slot))
	}
	return q.Work(most).Tokens
}

// DemandState is what is asked of a pool beside what it can do.
type DemandState struct {
	demand.Asked                // lately
	Replica      demand.Replica // the mean over those in rotation
	demand.Need                 // at the model's SLO
	InRotation   int            // endpoints that take calls

	Held       int   // calls that wait at the gateway
	HeldTokens int64 // of prefill that they bring
	Unstarted  int64 // tokens of prefill that endpoints have been sent, and whose first tokens have not come
	Engines    Spread
	Wait       time.Duration // until a call that comes now would be begun, at the mean endpoint
	WaitKnown  bool

	Outstanding Spread // calls, by endpoint
	Begin       Spread // predicted time until an endpoint would begin what comes now, in seconds
}

// Spread is a number by endpoint: the sum, the mean and the greatest of those that are known.
type Spread struct {
	Sum, Mean, Worst float64
	At               selection.Slot // where it is the greatest
	Known            int            // endpoints that are; 0: nothing is
}

func (s *Spread) add(slot selection.Slot, x float64) {
	if s.Known == 0 || x > s.Worst {
		s.Worst, s.At = x, slot
	}
	s.Known++
	s.Sum += x
	s.Mean = s.Sum / float64(s.Known)
}

// demands returns what is asked of the pool.
func (m *Machine) demands(now mono.Time, p *pool) DemandState {
	d := DemandState{Asked: p.meter.Lately(now)}
	usual := selection.Prefill(usualPrompt, 0)
	if d.Calls > 0 {
		usual = selection.Prefill(int64(d.Tokens/d.Calls), 0)
	}
	var speed, places Spread
	for _, slot := range p.view.Members {
		s, b := &m.state[slot], m.found(p, slot)
		if s.draining || !s.breaker.Permits(now) {
			continue
		}
		d.InRotation++
		d.Unstarted += b.PendingWork.Tokens
		d.Outstanding.add(slot, float64(b.Outstanding))
		if t, ok := m.prefillTime(p, slot, b.PendingWork, int(b.Pending)); ok {
			d.Begin.add(slot, t.Seconds())
		}
		t, ok := s.roomy.Time(1, usual.Tokens)
		if !ok {
			t, ok = m.prefillTime(p, slot, usual, 1)
		}
		if ok && t > 0 {
			speed.add(slot, float64(usual.Tokens)/t.Seconds())
		}
		load := &m.endpoints[slot].Load
		if n, ok := load.Waiting.Fresh(now, p.view.MaxAge); ok {
			d.Engines.add(slot, n)
		}
		if n, ok := m.places(now, p, slot); ok {
			places.add(slot, n)
		}
	}
	if q := p.queue; q != nil {
		d.Held, d.HeldTokens = q.Len(), q.Tokens()
		d.Wait = q.Drain(m.drainRate(now, p))
	}
	if d.Begin.Known > 0 {
		d.Wait, d.WaitKnown = d.Wait+mono.FromSeconds(d.Begin.Mean), true
	}
	d.Replica = demand.Replica{Speed: speed.Mean, Places: places.Mean, Residence: p.service.Mean()}
	if stays := p.staying.Mean(); stays > 0 && speed.Mean > 0 { // without the wait in engines, which more replicas end
		d.Replica.Residence = stays + mono.FromSeconds(float64(usual.Tokens)/speed.Mean)
	}
	d.Need = demand.Of(d.Asked, d.Replica, p.view.SLO.TTFT)
	return d
}

// usualPrompt stands for the prompt of a pool that has had no calls lately.
const usualPrompt = 1000

// places returns how many calls of the present kind the endpoint holds before its KV cache is full:
// those that run, by the share of the blocks that they take. Where they take next to none that says
// nothing.
func (m *Machine) places(now mono.Time, p *pool, slot selection.Slot) (float64, bool) {
	load := &m.endpoints[slot].Load
	running, known := load.Running.Fresh(now, p.view.MaxAge)
	usage, also := load.KVUsageMax().Fresh(now, p.view.MaxAge)
	if !known || !also || !(running >= 1) || !(usage >= leastUsage && usage <= 1) {
		return 0, false
	}
	return running / usage, true
}

// crammedUsage is the share of KV blocks in use from which on first tokens wait for blocks rather
// than for prefill, so that they say nothing of how fast that is: Replica.Places does.
const crammedUsage = 0.9

// leastUsage is the share of KV blocks in use from which on it is taken to be of the calls that run.
const leastUsage = 0.05
