package flow

import (
	"sort"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/prefix"
)

// charge books the call's attempt on an endpoint, in the same step as the pick: no
// other decision can come between and see the endpoint without it (field case F19).
func (m *Machine) charge(now mono.Time, i int32, slot selection.Slot) {
	c := &m.calls[i]
	c.phase, c.slot, c.dispatched = running, slot, now
	c.committed, c.unseen, c.recalled = false, true, false
	m.watch(i)

	s := &m.state[slot]
	if s.unanswered == 0 {
		s.life = now
	}
	if s.unanswered++; s.unanswered == m.health.StallCalls && m.health.Stall > 0 {
		// Those before may have waited for longer than that already.
		m.silenceAt = min(m.silenceAt, max(s.life.Add(m.health.Stall), now+1))
		m.requestWake(m.silenceAt)
	}
	c.older, c.newer = s.newest, none
	if s.newest != none {
		m.calls[s.newest].newer = i
	}
	s.newest = i
	s.dispatched++
	m.charged++
	m.touch(slot)

	tokens := int64(c.request.InputTokens)
	b := &m.books[slot]
	b.Outstanding++
	b.OutstandingTokens += tokens
	b.PendingTokens += tokens
	b.Unseen++
	b.UnseenTokens += tokens
	m.await(now, i)
	m.mention(WordSent, c)
	if m.adapters != nil {
		m.adapters.charge(slot, c.request.Adapter)
	}

	m.open(c, s.pool)

	c.probe = !c.resort && s.breaker.Dispatch(m.health, now)
	if c.probe {
		s.pool.dirty = true                                           // one probe at a time
		if s.breaker.Cause() == health.Silent && m.health.Stall > 0 { // it may hang as those before it
			m.recallAt = min(m.recallAt, now.Add(m.health.Stall))
			m.requestWake(m.recallAt)
		}
	}
	if s.pool.usesActive {
		m.occupy(c)
	}
	c.believed = prefix.Belief{}
	if m.index != nil {
		m.index.SetCapacity(slot, 0, m.capacity(slot, &c.request))
		if m.fits(c) {
			c.believed = m.index.Promise(now, slot, c.request.Blocks)
		}
	}
}

// release takes the running attempt's charge back. It is called once for each charge:
// whoever calls it moves the call out of the running phase, or frees it, at once.
func (m *Machine) release(now mono.Time, i int32) {
	c := &m.calls[i]
	s := &m.state[c.slot]
	m.unwatch(i)
	if c.older != none {
		m.calls[c.older].newer = c.newer
	}
	if c.newer != none {
		m.calls[c.newer].older = c.older
	} else {
		s.newest = c.older
	}

	tokens := int64(c.request.InputTokens)
	b := &m.books[c.slot]
	m.touch(c.slot)
	m.charged--
	b.Outstanding--
	b.OutstandingTokens -= tokens
	if c.pending {
		m.served(now, i)
	}
	if !c.committed {
		s.unanswered--
		m.lost(now, i)
		m.withdraw(c)
	}
	if c.unseen {
		b.Unseen--
		b.UnseenTokens -= tokens
	}
	if c.occupies {
		c.occupies = false
		b.ActiveBlocks -= m.active.Remove(c.slot, c.request.Blocks)
	}
	if x := s.pool.shadow; x != nil {
		x.release(i, c)
	}
	if m.adapters != nil {
		m.adapters.release(c.slot, c.request.Adapter)
	}
	c.shut()
	if s.leaving && b.Outstanding == 0 {
		m.freeSlot(c.slot)
	}
}

// withdraw takes back what was promised of a prompt that its endpoint did not compute, but for
// what another call brings there.
func (m *Machine) withdraw(c *call) {
	if m.index == nil {
		return
	}
	from := 0
	for i := m.state[c.slot].newest; i != none; i = m.calls[i].older {
		if other := &m.calls[i]; other != c && !other.committed {
			from = max(from, common(c.request.Blocks, other.request.Blocks))
		}
	}
	m.index.Withdraw(c.slot, c.request.Blocks, from)
}

// common returns how many blocks two chains have in common: where one is equal all before are.
func common(a, b []kvblock.Hash) int {
	return sort.Search(min(len(a), len(b)), func(i int) bool { return a[i] != b[i] })
}

// occupy counts a running call's blocks among those in use at its endpoint.
func (m *Machine) occupy(c *call) {
	c.occupies = true
	m.books[c.slot].ActiveBlocks += m.active.Add(c.slot, c.request.Blocks)
}

// await puts a call among those that wait for their first content.
func (m *Machine) await(now mono.Time, i int32) {
	c := &m.calls[i]
	s, b := &m.state[c.slot], &m.books[c.slot]
	seen := m.found(s.pool, c.slot)
	c.work = c.request.Work(selection.OverlapAt(s.pool.view.Overlap, c.slot))
	c.ahead = seen.PendingWork
	c.context = seen.OutstandingTokens - seen.PendingTokens
	if x := s.pool.shadow; x != nil {
		x.charge(i, c, b, &seen)
	}
	c.olderWait, c.newerWait = s.lastWait, none
	if s.lastWait != none {
		m.calls[s.lastWait].newerWait = i
	} else {
		s.firstWait = i
		b.Head, b.HeadSince, b.HeadSilent = c.work, now, !c.showsStart()
	}
	s.lastWait, c.pending = i, true
	b.Pending++
	b.PendingWork = b.PendingWork.Plus(c.work)
	if c.showsStart() {
		s.begin(now, c.work)
	}
}

// served takes a call out of those that wait for their first content: it has come, or it
// will not, or that of a later call shows that the prefill is over.
func (m *Machine) served(now mono.Time, i int32) {
	c := &m.calls[i]
	s, b := &m.state[c.slot], &m.books[c.slot]
	c.pending = false
	if c.newerWait != none {
		m.calls[c.newerWait].olderWait = c.olderWait
	} else {
		s.lastWait = c.olderWait
	}
	if c.olderWait != none {
		m.calls[c.olderWait].newerWait = c.newerWait
	} else {
		m.next(now, c, b, s)
	}
	b.Pending--
	b.PendingTokens -= int64(c.request.InputTokens)
	b.PendingWork = b.PendingWork.Minus(c.work)
	if x := s.pool.shadow; x != nil {
		x.served(i, c)
	}
	if c.showsStart() {
		s.end(now, c.work, c.committed)
	}
}

// next makes the call after one that is served the oldest of those that wait for their first
// content. It can be worked on since the one before was served; if nobody saw when that was,
// since it came.
func (m *Machine) next(now mono.Time, before *call, b *selection.Book, s *endpointState) {
	since := b.HeadSince
	b.Head, b.HeadSince, b.HeadSilent = selection.Work{}, 0, false
	if s.firstWait = before.newerWait; s.firstWait == none {
		return
	}
	c := &m.calls[s.firstWait]
	b.Head, b.HeadSince, b.HeadSilent = c.work, now, !c.showsStart()
	if !before.showsStart() {
		b.HeadSince = max(since, c.dispatched)
	}
}

// passed takes the calls out that came before one whose first content has come and show
// nothing until their answers are whole: engines prefill in the order of coming.
func (m *Machine) passed(now mono.Time, i int32) {
	for i = m.calls[i].olderWait; i != none; {
		older := m.calls[i].olderWait
		if !m.calls[i].showsStart() {
			m.served(now, i)
		}
		i = older
	}
}
