package flow

import (
	"cmp"
	"slices"

	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// backoff is a call that waits for another attempt.
type backoff struct {
	until  mono.Time
	ticket Ticket
}

// wake decides what waited for this instant: the fate of failed calls, then the calls
// whose backoff is over.
func (m *Machine) wake(now mono.Time) {
	m.wakeAt = mono.Never
	for _, t := range m.verdicts {
		m.verdict(now, t)
	}
	m.verdicts = m.verdicts[:0]
	m.endBackoffs(now)

	// A failure of this very instant is not folded yet; its verdict comes next.
	if slices.ContainsFunc(m.pending, m.needsVerdict) {
		m.requestWake(now + 1)
	} else if len(m.backoffs) > 0 {
		m.requestWake(m.backoffs[0].until)
	}
}

// needsVerdict reports whether a queued report will leave its call waiting for one.
func (m *Machine) needsVerdict(r report) bool {
	if r.kind != reportDone || !r.outcome.Retryable() {
		return false
	}
	c := m.lookup(r.ticket)
	return c != nil && !c.committed
}

// verdict decides whether a failed call gets another attempt.
func (m *Machine) verdict(now mono.Time, t Ticket) {
	c := m.lookup(t)
	if c == nil || c.phase != failed {
		return // its client left meanwhile
	}
	i := t.index
	switch {
	case c.attempt >= m.retry.Attempts:
		m.giveUp(i, AttemptsSpent)
	case !m.hasAlternative(now, c):
		m.giveUp(i, NoAlternative)
	case !m.budget.Spend(now):
		m.giveUp(i, BudgetSpent)
	default:
		c.attempt++
		c.phase = backingOff
		r := seed.New(m.seed, seed.Backoff, uint64(c.request.ID), uint64(c.attempt))
		until := now.Add(max(m.retry.Delay(c.attempt, &r), 1))
		m.addBackoff(backoff{until: until, ticket: t})
	}
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
	for ; n < len(m.backoffs) && m.backoffs[n].until <= now; n++ {
		b := m.backoffs[n]
		c := m.lookup(b.ticket)
		if c == nil || c.phase != backingOff {
			continue // its client left meanwhile
		}
		if !m.dispatch(now, b.ticket.index) {
			m.giveUp(b.ticket.index, NoAlternative)
		}
	}
	m.backoffs = slices.Delete(m.backoffs, 0, n)
}

// giveUp ends a call that has no further attempt.
func (m *Machine) giveUp(i int32, why Reason) {
	c := &m.calls[i]
	m.actions = append(m.actions, Action{
		Kind: GiveUp, Reason: why, Ticket: Ticket{Call: c.request.ID, index: i}, Attempt: c.attempt,
	})
	m.freeCall(i)
}

// hasAlternative reports whether there is an endpoint that the call may still go to.
func (m *Machine) hasAlternative(now mono.Time, c *call) bool {
	for slot := range m.state {
		if !c.hasTried(selection.Slot(slot)) && (c.mayResort() || m.state[slot].breaker.Permits(now)) {
			return true
		}
	}
	return false
}

// requestWake asks the driver for a wake-up at the instant, unless an earlier one is due.
func (m *Machine) requestWake(at mono.Time) {
	if at >= m.wakeAt {
		return
	}
	m.wakeAt = at
	m.actions = append(m.actions, Action{Kind: WakeAt, At: at})
}
