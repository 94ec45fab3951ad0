package flow

import (
	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// Where a pool's queue goes by what principals have had, each call is charged to its own: for
// its prompt when it is sent, also if it has not waited, for its answer as that comes, and at
// its end what its usage says makes both true.

// bill is what a running attempt was charged so far.
type bill struct {
	queue  *admission.Queue // nil: nobody is charged
	payer  admission.Payer
	prompt float64 // in weighted tokens, not divided by the share
	cached int     // prompt tokens that were believed to be cached
	answer int     // tokens
}

// principal returns who pays for a call that waits for the pool, or would.
func (p *pool) principal(q *selection.Request) kvblock.Hash {
	if p.queue.Config().Fairness.By == admission.ByConversation {
		return q.Conversation
	}
	return q.Tenant
}

// fair reports whether principals are charged for what the pool does.
func (p *pool) fair() bool { return p.queue != nil && p.queue.Config().Order.Fair() }

// open begins the bill of a call that is being sent to the pool.
func (m *Machine) open(c *call, p *pool) {
	b := &c.bill
	if b.queue != p.queue && b.queue != nil { // it waited for another pool, or for one as it was
		b.queue.End(b.payer)
		*b = bill{}
	}
	if !p.fair() {
		return
	}
	if b.queue == nil {
		b.queue, b.payer = p.queue, p.queue.Enter(c.request.Priority, p.principal(&c.request))
	}
	f := p.queue.Config().Fairness
	b.cached = int(int64(c.request.InputTokens) - min(c.work.Tokens, int64(c.request.InputTokens)))
	b.prompt, b.answer = f.Prompt(c.request.InputTokens, b.cached), 0
	c.pay(b.prompt)
}

// pay charges the call's principal.
func (c *call) pay(cost float64) {
	if c.request.Share > 0 {
		cost /= c.request.Share
	}
	c.bill.queue.Charge(c.bill.payer, cost)
}

// progress charges for what of the answer has come.
func (m *Machine) progress(r *report) {
	_, c := m.running(r.ticket, r.attempt)
	if c == nil || c.bill.queue == nil || r.tokens <= c.bill.answer {
		return
	}
	c.pay(c.bill.queue.Config().Fairness.Answer(r.tokens - c.bill.answer))
	c.bill.answer = r.tokens
}

// square makes the bill of an attempt that has ended true. What its principal did not get is
// given back: it will be charged for another attempt. A client that leaves is charged for what
// it has set off.
func (m *Machine) square(c *call, o attempt.Outcome, u Usage) {
	b := &c.bill
	if b.queue == nil {
		return
	}
	f := b.queue.Config().Fairness
	switch {
	case !c.committed && o != attempt.Success:
		c.pay(-b.prompt - f.Answer(b.answer))
	case u.Known:
		cached := min(b.cached, u.Prompt)
		if u.CachedKnown {
			cached = u.Cached
		}
		c.pay(f.Prompt(u.Prompt, cached) - b.prompt + f.Answer(u.Output-b.answer))
	}
}

// shut ends the bill of a call's attempt.
func (c *call) shut() {
	if c.bill.queue != nil {
		c.bill.queue.End(c.bill.payer)
	}
	c.bill = bill{}
}

// preferring lets the pool's queue prefer calls whose prefix an endpoint with room holds.
func (m *Machine) preferring(p *pool) {
	if !p.usesOverlap || p.queue.Config().Order != admission.FairLocal {
		return
	}
	p.queue.Prefer(func(i int32) int64 {
		if len(p.roomy) == 0 {
			return 0
		}
		q := &m.calls[i].request
		m.index.Match(m.last, q.Blocks, m.overlap)
		m.mistrust()
		most := int32(0)
		for _, slot := range p.roomy {
			most = max(most, m.overlap[slot])
		}
		return int64(q.Tokens(int(most)))
	})
}

// findRoom notes which of the pool's endpoints have room, for preferring.
func (m *Machine) findRoom(now mono.Time, p *pool) {
	if p.queue.Config().Order != admission.FairLocal {
		return
	}
	p.roomy = p.roomy[:0]
	for _, slot := range p.view.Members {
		s := &m.state[slot]
		if !s.draining && s.breaker.Permits(now) && now >= s.busyUntil && m.hasRoom(now, p, slot) {
			p.roomy = append(p.roomy, slot)
		}
	}
}
