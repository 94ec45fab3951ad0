package flow

import (
	"time"

	"kvasir/internal/mono"
	"kvasir/selection"
)

// learnLimit lets the endpoint's limit on calls in flight learn from a first token: how long it
// took from the dispatch, over what the call's own prefill takes there by itself. Calls that wait in
// the engine for others' prefill, for a place in its batch or for KV blocks are late, whatever their
// length.
func (m *Machine) learnLimit(now mono.Time, c *call) {
	s := &m.state[c.slot]
	p := s.pool
	if p.queue == nil || !p.queue.Config().Adaptive || !c.showsStart() {
		return
	}
	alone, known := m.alone(p, c.slot, c.work)
	if !known {
		return
	}
	s.limit.Learn(p.queue.Config().Gradient, now.Sub(c.dispatched).Seconds()/alone.Seconds(), int(m.books[c.slot].Outstanding))
}

// alone predicts how long the endpoint takes for the work while it has nothing else to do: as its
// policy does, else at its speed while its KV cache had room.
func (m *Machine) alone(p *pool, slot selection.Slot, w selection.Work) (time.Duration, bool) {
	if p.predictor != nil {
		if d, ok := p.predictor.PrefillTime(slot, w); ok {
			return max(d, leastAlone), true
		}
	}
	d, ok := m.state[slot].roomy.Time(1, w.Tokens)
	return max(d, leastAlone), ok
}

// leastAlone is a few steps of a batch, which the shortest prompt waits for, too.
const leastAlone = 50 * time.Millisecond
