package flow

import (
	"cmp"
	"slices"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// backoff is a call that waits for another attempt.
type backoff struct {
	until  mono.Time
	ticket Ticket
}

// wake decides what waited for this instant: the fate of failed calls, then the calls whose
// backoff is over, then what becomes of calls that wait for the silent, and at last the first
// of the held calls that can go.
func (m *Machine) wake(now mono.Time) {
	m.wakeAt = mono.Never
	for _, t := range m.verdicts {
		m.verdict(now, t)
	}
	m.verdicts = m.verdicts[:0]
	m.endPatience(now)
	m.endBackoffs(now)
	m.watchSilence(now)
	m.recall(now)
	m.sendHedges(now)
	if now >= m.admitAt {
		m.admit(now)
	}

	next := min(m.silenceAt, m.hedgeAt, m.recallAt, m.followAt, m.admitAt)
	if len(m.backoffs) > 0 {
		next = min(next, m.backoffs[0].until)
	}
	// A failure of this very instant is not folded yet; its verdict comes next.
	if slices.ContainsFunc(m.pending, m.needsVerdict) || m.following > 0 && slices.ContainsFunc(m.pending, report.ends) {
		next = now + 1
	}
	m.requestWake(max(next, now+1))
}

// needsVerdict reports whether a queued report will leave its call waiting for one: whether
// another attempt follows, or which of two goes on.
func (m *Machine) needsVerdict(r report) bool {
	if r.kind != reportFirst && r.kind != reportClaim && r.kind != reportDone {
		return false
	}
	c := m.lookup(r.ticket)
	return c != nil && (!c.settled || r.resumes) && (c.twin != none || r.kind == reportDone && r.outcome.Retryable())
}

// verdict decides whether a failed call gets another attempt.
func (m *Machine) verdict(now mono.Time, t Ticket) {
	c := m.lookup(t)
	if c == nil || c.phase != failed {
		return // its client left meanwhile
	}
	// A connection that was closed while it was idle is nobody's failure, and those to one
	// endpoint tend to go together: a fresh one is had at once, and for nothing, once a call.
	fresh := c.last == attempt.StaleConnection && !c.stale
	c.stale = c.stale || fresh
	paid := fresh || c.last == attempt.Recalled && c.recalled
	payer := m.alternative(now, c, none)
	elsewhere := payer != nil
	if !elsewhere && c.nTried > 0 {
		payer = c.tried[c.nTried-1].pool
	}
	switch {
	case c.attempt >= m.retry.Ceiling():
		m.giveUp(t.index, AttemptsSpent)
	case !elsewhere && c.failures(nil) >= mostFailures:
		m.giveUp(t.index, FailsElsewhere)
	case !elsewhere && !m.patient(c):
		m.giveUp(t.index, NoAlternative)
	case !paid && !m.pay(now, payer, c):
		m.giveUp(t.index, BudgetSpent)
	case fresh:
		m.backOff(now, t, c, 0)
	case elsewhere:
		r := seed.New(m.seed, seed.Backoff, uint64(c.request.ID), uint64(c.attempt+1))
		m.backOff(now, t, c, m.retry.Delay(c.attempt+1, &r))
	default:
		c.nTried-- // it may go there again, once the time is over that its endpoint named
		m.backOff(now, t, c, c.wait)
	}
}

func (m *Machine) backOff(now mono.Time, t Ticket, c *call, d time.Duration) {
	c.attempt++
	c.phase = backingOff
	m.addBackoff(backoff{until: now.Add(max(d, 1)), ticket: t})
}

// patient reports whether a call waits for the endpoint that has just named a time after
// which it has room, and a short one.
func (m *Machine) patient(c *call) bool {
	return c.last.Pushed() && c.wait >= 0 && c.wait <= m.retry.MaxWait
}

// addBackoff keeps the waiting calls in the order (instant, call).
func (m *Machine) addBackoff(b backoff) {
	at, _ := slices.BinarySearchFunc(m.backoffs, b, func(x, y backoff) int {
		return cmp.Or(cmp.Compare(x.until, y.until), cmp.Compare(x.ticket.Call, y.ticket.Call))
	})
	m.backoffs = slices.Insert(m.backoffs, at, b)
}

// endBackoffs sends every call whose backoff is over.
func (m *Machine) endBackoffs(now mono.Time) {
	n := 0
	var again []backoff // few, and seldom
	for ; n < len(m.backoffs) && m.backoffs[n].until <= now; n++ {
		b := m.backoffs[n]
		c := m.lookup(b.ticket)
		if c == nil || c.phase != backingOff {
			continue // its client left meanwhile
		}
		switch p, f := m.dispatch(now, b.ticket.index); f {
		case nowhere:
			if at, ok := m.outlasts(now, c); ok {
				again = append(again, backoff{until: at, ticket: b.ticket})
			} else {
				m.giveUp(b.ticket.index, NoAlternative)
			}
		case passed:
			m.giveUp(b.ticket.index, DeadlinePassed)
		case noRoom, sibling: // it was let in before: the queue's bounds are for those who come
			m.wait(now, b.ticket.index, p, f)
		}
	}
	m.backoffs = slices.Delete(m.backoffs, 0, n)
	for _, b := range again {
		m.addBackoff(b)
	}
}

// outlasts returns when a call that has nobody to go to now may find somebody, who has asked to
// be left alone till then: while it backed off, others asked for that who were to have it. It
// waits so for MaxWait in all, and may go again to those that had no room for it.
func (m *Machine) outlasts(now mono.Time, c *call) (mono.Time, bool) {
	if !c.last.Pushed() {
		return 0, false
	}
	until, at := c.pushed.Add(m.retry.MaxWait), mono.Never
	for _, p := range m.pools {
		if c.failures(p) >= mostFailures {
			continue
		}
		for _, slot := range p.view.Members {
			s := &m.state[slot]
			if now < s.busyUntil && !s.draining && s.breaker.Permits(s.busyUntil) && !c.refuses(slot, m.endpoints[slot].Generation) {
				at = min(at, s.busyUntil)
			}
		}
	}
	if at > until {
		return 0, false
	}
	c.nTried = len(slices.DeleteFunc(c.tried[:c.nTried], func(t trial) bool { return t.outcome.Pushed() }))
	return at, true
}

// giveUp ends a call that has no further attempt.
func (m *Machine) giveUp(i int32, why Reason) {
	c := &m.calls[i]
	m.actions = append(m.actions, Action{
		Kind: GiveUp, Reason: why, Ticket: Ticket{Call: c.request.ID, index: i}, Attempt: c.attempt, Wait: c.waited,
	})
	m.forget(i)
}

// alternative returns the pool in which the call, if it were sent now, would find an endpoint
// other than but; nil: there is none that it may still go to.
func (m *Machine) alternative(now mono.Time, c *call, but selection.Slot) *pool {
	for among := rested; among <= everybody; among++ {
		if among == bothered && !c.mayBother() || !c.mayAsk(among) {
			continue
		}
		for _, p := range m.pools {
			if c.failures(p) >= mostFailures {
				continue
			}
			for _, slot := range p.view.Members {
				s := &m.state[slot]
				if slot == but || s.draining || c.excludes(slot, m.endpoints[slot].Generation) {
					continue
				}
				if among == everybody || s.breaker.Permits(now) && (among == bothered || now >= s.busyUntil) {
					return p
				}
			}
		}
	}
	return nil
}

// requestWake asks the driver for a wake-up at the instant, unless an earlier one is due.
func (m *Machine) requestWake(at mono.Time) {
	if at >= m.wakeAt {
		return
	}
	m.wakeAt = at
	m.actions = append(m.actions, Action{Kind: WakeAt, At: at})
}
