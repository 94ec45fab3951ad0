package flow

import (
	"slices"
	"time"

	"kvasir/gateway/admission"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// What waits at the gateway. A pool with a queue gives an endpoint a call only while the
// endpoint has little unstarted prefill; a call for which no endpoint in rotation has room is
// held, and placed when one has. One call goes at a time, each at an instant of its own, so
// that engines learn of them in their order.

// showsStart reports whether the end of the call's prefill is seen: that of an answer which
// comes whole is not. Such a call waits for room like any other, and takes none.
func (c *call) showsStart() bool { return c.request.Stream || c.request.Kind == selection.Embed }

// begin books prefill that the endpoint was sent.
func (s *endpointState) begin(now mono.Time, w selection.Work) {
	if s.unstartedCalls == 0 {
		s.busySince = now
	}
	s.unstartedCalls++
	s.unstarted = s.unstarted.Plus(w)
}

// end books that it has brought its first token, or will not. Since the one before, the
// endpoint has worked on this one or another: in the sum that is the time they took.
func (s *endpointState) end(now mono.Time, w selection.Work, answered bool) {
	s.unstartedCalls--
	s.unstarted = s.unstarted.Minus(w)
	if answered {
		s.speed.Learn(w.Tokens, now.Sub(s.busySince))
		if !s.crammed {
			s.roomy.Learn(w.Tokens, now.Sub(s.busySince))
		}
		s.busySince = now
	}
}

// hasRoom reports whether the endpoint may be given another call.
func (m *Machine) hasRoom(now mono.Time, p *pool, slot selection.Slot) bool {
	s, c := &m.state[slot], p.queue.Config()
	if m.preempts(now, p, slot) {
		return false
	}
	if c.Adaptive && int(m.books[slot].Outstanding) >= s.limit.Limit(c.Gradient) {
		return false
	}
	if s.unstartedCalls == 0 {
		return true
	}
	if c.Tokens > 0 && s.unstarted.Tokens >= c.Tokens {
		return false
	}
	if c.Work == 0 {
		return true
	}
	d, known := m.prefillTime(p, slot, s.unstarted, s.unstartedCalls)
	return known && d < c.Work
}

// prefillTime predicts how long the endpoint takes for the work of so many calls: as it has taken
// lately, or, before it has shown that, as its policy says. A policy that learns what is usual
// hears of a slow spell as of outliers at first, and while an engine lacks KV blocks prefill is
// not what takes the time.
func (m *Machine) prefillTime(p *pool, slot selection.Slot, w selection.Work, calls int) (time.Duration, bool) {
	if d, seen := m.state[slot].speed.Time(calls, w.Tokens); seen {
		return d, true
	}
	if p.predictor != nil {
		return p.predictor.PrefillTime(slot, w)
	}
	return 0, false
}

// makesRoom reports whether a report may change who can go.
func (r *report) makesRoom() bool { return r.kind != reportAlive && r.kind != reportProgress }

// needs returns the least prefill that the call brings to one of the pool's endpoints, and
// the least time that one takes for it, 0 where that is not known.
func (m *Machine) needs(now mono.Time, c *call, p *pool) (tokens int64, d time.Duration) {
	if p.usesOverlap {
		m.index.Match(now, c.request.Blocks, m.overlap)
		m.mistrust()
	}
	found := false
	for i, slot := range p.view.Members {
		w := c.request.Work(selection.OverlapAt(p.view.Overlap, slot))
		if i == 0 || w.Tokens < tokens {
			tokens = w.Tokens
		}
		if t, ok := m.prefillTime(p, slot, w, 1); ok && (!found || t < d) {
			d, found = t, true
		}
	}
	return tokens, d
}

// drainRate returns how many tokens of prefill a second leave the pool's queue, admission.CallTokens
// for each call among them: as they have done lately while calls waited, but no more than the
// endpoints in rotation do together by themselves; 0 where neither is known. Endpoints that decode,
// or lack KV blocks, do less than their prefill alone would let them.
func (m *Machine) drainRate(now mono.Time, p *pool) float64 {
	rate := m.prefillRate(now, p)
	if lately := p.drain.Rate(); lately > 0 && (rate == 0 || lately < rate) {
		rate = lately
	}
	return rate
}

// prefillRate returns how many tokens of prefill a second, likewise, the pool's endpoints in
// rotation do together; 0 where none is known.
func (m *Machine) prefillRate(now mono.Time, p *pool) float64 {
	const probe = 1000 // of which the time is asked
	rate := 0.0
	for _, slot := range p.view.Members {
		s := &m.state[slot]
		if s.draining || !s.breaker.Permits(now) {
			continue
		}
		if d, ok := m.prefillTime(p, slot, selection.Prefill(probe, 0), 1); ok && d > 0 {
			rate += (probe + admission.CallTokens) / d.Seconds()
		}
	}
	return rate
}

// askable returns when an endpoint of any pool may be asked for anything: now, unless all have
// asked to be left alone, or are out of rotation. Never, where there is none.
func (m *Machine) askable(now mono.Time) mono.Time {
	at := mono.Never
	for _, p := range m.pools {
		for _, slot := range p.view.Members {
			s := &m.state[slot]
			if s.draining {
				continue
			}
			from := max(now, s.busyUntil)
			if due, out := s.breaker.ProbeDue(); out {
				from = max(from, due)
			}
			at = min(at, from)
		}
	}
	return at
}

// refusal returns why the call may not wait, if it may not, and how long others will. Nobody
// waits in vain: where all endpoints want to be left alone for longer than a call may wait,
// it is refused at once. So is one whose deadline comes before its turn would.
func (m *Machine) refusal(now mono.Time, i int32, p *pool) (Reason, time.Duration) {
	if at := m.askable(now); at > now.Add(p.queue.Config().MaxWait) {
		return QueueWait, at.Sub(now)
	}
	c := &m.calls[i]
	bound, wait := p.queue.Refuses(p.asking(&c.request, m.drainRate(now, p)))
	switch bound {
	case admission.LengthMost:
		return QueueFull, wait
	case admission.BytesMost:
		return QueueBytes, wait
	case admission.WaitMost:
		return QueueWait, wait
	}
	if c.due() != mono.Never {
		if then, own, known := m.soonest(now, c, p, p.view.Members); known && m.tooLate(now, c, p, wait+then, own) {
			return DeadlineUnmet, wait
		}
	}
	return NoReason, 0
}

// asking returns what the pool's queue goes by when it is asked about a call.
func (p *pool) asking(q *selection.Request, rate float64) admission.Asking {
	return admission.Asking{
		Priority: q.Priority, Principal: p.principal(q), Bytes: q.Bytes, Tokens: int64(q.InputTokens), Rate: rate, Service: p.service.Mean(),
	}
}

// hold puts a call into the pool's queue. The pools' newest lists of candidates must be the
// call's. What it has waited before counts, here and elsewhere.
func (m *Machine) hold(now mono.Time, i int32, p *pool) {
	c := &m.calls[i]
	c.phase, c.queued = held, p
	tokens, own := m.needs(now, c, p)
	rank := c.arrived
	switch p.queue.Config().Order {
	case admission.LeastSlack:
		rank = max(rank, c.deadline(p).Add(-own)) // now is the same for all of them
	case admission.Deadline:
		rank = c.deadline(p)
	}
	due, until := c.due(), mono.Time(0)
	if due != mono.Never {
		until = max(due, 1)
	}
	if p.queue.Len() == 0 {
		p.drainSince = now
	}
	p.queue.Push(admission.Waiter{
		Call: i, Rank: int64(rank), ID: uint64(c.request.ID), Since: now.Add(-c.waited),
		Bytes: c.request.Bytes, Tokens: tokens, Tied: c.request.Owned || c.nTried > 0,
		Priority: c.request.Priority, Principal: p.principal(&c.request), Until: until,
	})
	m.holding++
	m.admitAt = min(m.admitAt, m.untilListed(now), max(now.Add(p.queue.Config().MaxWait-c.waited), now+1), max(due, now+1))
	if c.request.Priority < 0 {
		m.admitAt = min(m.admitAt, now.Add(againAfter))
	}
	m.expectRoom(now)
	m.requestWake(m.admitAt)
}

// deadline returns when the call's first token is wanted: as it says, else as the model's SLO
// says, but no later than when it will have waited for half as long as calls may. Who comes
// after that goes after it, so that others cannot keep it waiting until it is given up.
func (c *call) deadline(p *pool) mono.Time {
	d := p.queue.Config().MaxWait / 2
	switch {
	case c.request.Deadline > 0:
		d = min(d, c.request.Deadline)
	case p.view.SLO.TTFT > 0:
		d = min(d, p.view.SLO.TTFT)
	}
	return c.arrived.Add(d)
}

// untilListed returns when the time of an endpoint is over for which it is left out, in
// whichever pool: a call that waits may go to each.
func (m *Machine) untilListed(now mono.Time) mono.Time {
	at := mono.Never
	for _, p := range m.pools {
		if p.until > now {
			at = min(at, p.until)
		}
	}
	return at
}

// unhold takes a held call out of its queue that is not sent.
func (m *Machine) unhold(now mono.Time, i int32) {
	w, _ := m.calls[i].queued.queue.Remove(i)
	m.waitedFor(now, i, w)
}

// depart takes a held call out of its queue that is.
func (m *Machine) depart(now mono.Time, i int32) {
	c := &m.calls[i]
	q := c.queued.queue
	w, payer := q.Depart(i)
	if p := c.queued; q.Len() > 0 || now > p.drainSince {
		p.drain.Learn(w.Tokens, now.Sub(p.drainSince))
		p.drainSince = now
	}
	if payer != admission.NoPayer {
		c.bill = bill{queue: q, payer: payer}
	}
	m.waitedFor(now, i, w)
}

// waitedFor notes how long a call has waited that is in no queue any more.
func (m *Machine) waitedFor(now mono.Time, i int32, w admission.Waiter) {
	c := &m.calls[i]
	c.waited = now.Sub(w.Since)
	c.queued = nil
	if m.holding--; m.holding == 0 {
		m.admitAt = mono.Never
	}
}

// expectRoom notes that reports of this very instant, which are not folded yet, may let
// somebody go.
func (m *Machine) expectRoom(now mono.Time) {
	if slices.ContainsFunc(m.pending, func(r report) bool { return r.makesRoom() }) {
		m.admitAt = min(m.admitAt, now+1)
	}
}

// admit gives up those who have waited too long and lets the first go that can. It reports
// whether one goes, so that another one may be able to.
func (m *Machine) admit(now mono.Time) bool {
	went := false
	m.admitAt = mono.Never
	for _, p := range m.pools {
		if p.queue == nil {
			continue
		}
		limit := p.queue.Config().MaxWait
		for w, ok := p.queue.Oldest(); ok && w.Since.Add(limit) <= now; w, ok = p.queue.Oldest() {
			m.unhold(now, w.Call)
			m.giveUp(w.Call, QueueTimeout)
		}
		for w, ok := p.queue.Ending(); ok && w.Until <= now; w, ok = p.queue.Ending() {
			m.unhold(now, w.Call)
			m.giveUp(w.Call, DeadlinePassed)
		}
		if went = m.admitFrom(now, p); went {
			break
		}
		if w, ok := p.queue.Oldest(); ok {
			m.admitAt = min(m.admitAt, w.Since.Add(limit))
		}
		if w, ok := p.queue.Ending(); ok {
			m.admitAt = min(m.admitAt, w.Until)
		}
		if _, ok := p.queue.Least(0); ok { // they may be kept out by what is soon too old
			m.admitAt = min(m.admitAt, now.Add(againAfter))
		}
	}
	if m.holding > 0 {
		m.admitAt = min(m.admitAt, m.untilListed(now))
		if went {
			m.admitAt = now + 1
		}
		m.expectRoom(now)
		m.requestWake(m.admitAt)
	}
	return went
}

// admitFrom lets the first call of the pool's queue go that can, and reports whether there
// was one. Those that any endpoint may have can all go, or none of them can; one that is
// tied to an endpoint without room is passed over. Who has nobody to wait for here is given
// up, or waits for another pool.
func (m *Machine) admitFrom(now mono.Time, p *pool) bool {
	m.releaseFrom(now, p)
	m.findRoom(now, p)
	over, open := 0, true
	for {
		w, ok := p.queue.Next(over, open)
		if !ok {
			return false
		}
		q, f := m.dispatch(now, w.Call)
		switch {
		case f == sent:
			return true
		case f == noRoom && q == p && w.Tied:
			over++
		case f == noRoom && q == p:
			open = false
		default:
			m.unhold(now, w.Call)
			switch f {
			case nowhere:
				m.giveUp(w.Call, NoEndpoint)
			case passed:
				m.giveUp(w.Call, DeadlinePassed)
			default:
				m.wait(now, w.Call, q, f)
			}
		}
	}
}

// requeue gives the pool the queue that its configuration says. Who waits in one that goes,
// or whose order changes, is placed anew.
func (m *Machine) requeue(now mono.Time, p *pool, c admission.Config) {
	switch {
	case p.queue != nil && c.On() && p.queue.Config().Alike(c):
		p.queue.Bound(c)
		return
	case p.queue != nil:
		m.disperse(now, p)
		p.queue = nil
	}
	if c.On() {
		p.queue = admission.New(c)
	}
}

// disperse lets everybody who waits for the pool look for a place anew, in their order.
func (m *Machine) disperse(now mono.Time, p *pool) {
	at := now
	p.queue.Release(admission.MinPriority)
	for w, ok := p.queue.Next(0, true); ok; w, ok = p.queue.Next(0, true) {
		at++
		m.unhold(now, w.Call)
		m.sendAt(at, w.Call)
		m.requestWake(now + 1)
	}
}

// sendAt lets a call that waited look for an endpoint at the instant.
func (m *Machine) sendAt(at mono.Time, i int32) {
	c := &m.calls[i]
	c.phase = backingOff
	m.addBackoff(backoff{until: at, ticket: Ticket{Call: c.request.ID, index: i}})
}

// describeQueue returns what waits for the pool.
func (m *Machine) describeQueue(p *pool) *QueueState {
	q := p.queue
	if q == nil {
		return nil
	}
	s := &QueueState{Calls: q.Len(), Bytes: q.Bytes(), Tokens: q.Tokens(), Wait: q.Drain(m.drainRate(m.last, p))}
	if w, ok := q.Oldest(); ok {
		s.Oldest = m.last.Sub(w.Since)
	}
	return s
}
