package flow

import (
	"slices"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/internal/stats"
	"kvasir/selection/health"
)

// Hedging: a call whose first token is late gets a second attempt, elsewhere in the same pool,
// beside the first. Whose first content comes first goes on; the other one is aborted before it
// has cost more than a prefill. A hedge is a record of its own, so that it is charged, awaited
// and released as every attempt is; the call's own record has the ticket. An attempt that was
// beaten says nothing against its endpoint, and its charge lasts until its upstream has ended.
//
// Source: article sections 9.2 and 9.4; Dean and Barroso, The Tail at Scale (CACM 2013).

const (
	hedgeWindow  = 512                    // newest times to first token of a pool
	hedgeSamples = 100                    // fewest of them that a quantile is taken of
	hedgeEvery   = 100 * time.Millisecond // how often a late call is looked at again for which there was nobody, or no budget
)

// pairing is what a call's record has of the attempt beside it.
type pairing struct {
	twin    int32 // the call's other record; none: it has no other attempt
	hedge   bool  // it is the second one: tickets name its twin
	hedged  bool  // the call has had its hedge: one is enough
	settled bool  // one of its attempts goes on, and no other may follow
	final   bool  // one of its attempts has ended so that none may follow, once the other has failed, too
	beaten  bool  // the other attempt was first: the driver was told to abort this one
	latest  int   // number of the hedge, while the call's own attempt has a lower one

	watched bool // it is in its pool's line
	before  int32
	behind  int32
}

// Of each pool two lines wait for their content: calls whose first token will be seen, and those
// whose answers come whole.
const (
	streams = iota
	wholes

	lines
)

func (c *call) line() int {
	if c.showsStart() {
		return streams
	}
	return wholes
}

// hedging is a pool's part of it.
type hedging struct {
	lines [lines]hedgeLine
	seen  *stats.Window // nanoseconds to first token of attempts that are no hedges
	after time.Duration // their quantile; 0: too few were seen
	HedgeCount
}

func newHedging() hedging {
	return hedging{lines: [lines]hedgeLine{{none, none}, {none, none}}}
}

// hedgeLine is the running attempts that may be hedged, in the order of their dispatch.
type hedgeLine struct{ first, last int32 }

// HedgeCount counts hedges by what came of them; those that run are the rest.
type HedgeCount struct {
	Sent   int64
	Won    int64 // their content was first
	Lost   int64 // in vain: the first attempt's content was first, or the client left
	Failed int64 // they ended without content before the first attempt had any
	Wasted int64 // prompt tokens of beaten attempts, computed or not: of whichever of the two
}

// HedgeState is what is known of a pool's hedges.
type HedgeState struct {
	HedgeCount
	After time.Duration // without content until a call is hedged; 0: too few first tokens were seen to know
}

// ticket returns the ticket of the record's call.
func (m *Machine) ticket(i int32) Ticket {
	c := &m.calls[i]
	if c.hedge {
		i = c.twin
	}
	return Ticket{Call: c.request.ID, index: i}
}

// root returns the call's own record.
func (m *Machine) root(c *call) *call {
	if c.hedge {
		return &m.calls[c.twin]
	}
	return c
}

// twinRuns reports whether the call's other attempt runs.
func (m *Machine) twinRuns(c *call) bool { return c.twin != none && m.calls[c.twin].phase == running }

// watch puts an attempt that was just sent into its pool's line, if it may be hedged. What is shed
// first gets no second attempt.
func (m *Machine) watch(i int32) {
	c := &m.calls[i]
	if !m.hedging.On() || c.hedged || c.hedge || c.request.Once || c.request.Owned || c.request.Priority < 0 {
		return
	}
	kind := c.line()
	if kind == wholes && m.hedging.Whole == 0 {
		return
	}
	p := m.state[c.slot].pool
	l := &p.hedging.lines[kind]
	c.watched, c.before, c.behind = true, l.last, none
	if l.last != none {
		m.calls[l.last].behind = i
	} else {
		l.first = i
	}
	l.last = i
	m.arm(p, kind)
}

// unwatch takes an attempt out of its line, if it is in one.
func (m *Machine) unwatch(i int32) {
	c := &m.calls[i]
	if !c.watched {
		return
	}
	c.watched = false
	l := &m.state[c.slot].pool.hedging.lines[c.line()]
	if c.before != none {
		m.calls[c.before].behind = c.behind
	} else {
		l.first = c.behind
	}
	if c.behind != none {
		m.calls[c.behind].before = c.before
	} else {
		l.last = c.before
	}
}

// hedgeAfter returns how long the pool's attempts of a kind may be without content; false where
// that is not known.
func (m *Machine) hedgeAfter(p *pool, kind int) (time.Duration, bool) {
	d := p.hedging.after
	switch {
	case kind == wholes:
		d = m.hedging.Whole
	case m.hedging.After > 0:
		d = m.hedging.After
	}
	return d, d > 0
}

// arm asks for the wake-up at which the first of a line is due.
func (m *Machine) arm(p *pool, kind int) {
	i := p.hedging.lines[kind].first
	if d, known := m.hedgeAfter(p, kind); known && i != none {
		m.hedgeAt = min(m.hedgeAt, max(m.calls[i].dispatched.Add(d), m.last+1))
		m.requestWake(m.hedgeAt)
	}
}

func (m *Machine) armHedges() {
	for _, p := range m.pools {
		for kind := range lines {
			m.arm(p, kind)
		}
	}
}

// learnFirst takes the time to first token of an attempt that is no hedge. One that was beaten
// would have taken longer than is known: it counts among those above the quantile all the same.
func (m *Machine) learnFirst(p *pool, c *call, took time.Duration) {
	if !m.hedging.On() || m.hedging.After > 0 || c.hedge || !c.showsStart() {
		return
	}
	h := &p.hedging
	if h.seen == nil {
		h.seen = stats.NewWindow(hedgeWindow)
	}
	h.seen.Add(int64(took))
	known := h.after > 0
	m.requantile(p)
	if !known && h.after > 0 {
		m.arm(p, streams)
	}
}

func (m *Machine) requantile(p *pool) {
	h := &p.hedging
	h.after = 0
	if h.seen != nil && h.seen.Len() >= hedgeSamples {
		h.after = max(time.Duration(h.seen.Quantile(m.hedging.Quantile)), 1)
	}
}

// sendHedges hedges the first call that is late, at an instant of its own.
func (m *Machine) sendHedges(now mono.Time) {
	if now < m.hedgeAt {
		return
	}
	m.hedgeAt = mono.Never
	sent := false
	for _, p := range m.pools {
		for kind := range lines {
			after, known := m.hedgeAfter(p, kind)
			if !known {
				continue
			}
			next := int32(none)
			for i := p.hedging.lines[kind].first; i != none; i = next {
				next = m.calls[i].behind
				if due := m.calls[i].dispatched.Add(after); due > now {
					m.hedgeAt = min(m.hedgeAt, due)
					break
				}
				if sent {
					m.hedgeAt = min(m.hedgeAt, now+1)
					return
				}
				switch m.hedge(now, p, i) {
				case hedgeSent:
					sent = true
				case hedgeUnsure:
					m.hedgeAt = min(m.hedgeAt, now+1)
				case hedgeNobody:
					m.hedgeAt = min(m.hedgeAt, now.Add(hedgeEvery))
				case hedgeUnpaid:
					m.hedgeAt = min(m.hedgeAt, now.Add(hedgeEvery))
					return
				}
			}
		}
	}
}

// hedgeFate is what becomes of a late call.
type hedgeFate uint8

const (
	hedgeNever hedgeFate = iota // it has had all its attempts, is taken back, or its deadline is over
	hedgeSent
	hedgeUnsure // a report of this very instant, which is not folded yet, may be about it
	hedgeNobody // no endpoint in rotation has room that it has not tried
	hedgeUnpaid // the budget is spent
)

// hedge sends a late call's second attempt, if there is somebody who may have it. It stays in
// the pool: a lower one is for what the higher ones can't serve. It takes no room from calls
// that wait in the pool's queue.
func (m *Machine) hedge(now mono.Time, p *pool, i int32) hedgeFate {
	c := &m.calls[i]
	t := m.ticket(i)
	if slices.ContainsFunc(m.pending, func(r report) bool { return r.ticket == t }) {
		return hedgeUnsure
	}
	if c.recalled || c.attempt >= m.retry.Ceiling() || now >= c.due() {
		m.unwatch(i)
		return hedgeNever
	}
	if p.queue != nil && p.queue.Len() > 0 {
		return hedgeNobody
	}
	h := m.record(&c.request)
	c = &m.calls[i] // the records may have moved
	x := &m.calls[h]
	x.hedge, x.twin, x.attempt, x.arrived, x.waited = true, i, c.attempt+1, c.arrived, c.waited
	x.tried, x.nTried = c.tried, c.nTried+1
	x.tried[c.nTried] = trial{pool: p, slot: c.slot, generation: m.endpoints[c.slot].Generation}
	why := hedgeSent
	switch {
	case !p.refresh(m, now, x, rested):
		why = hedgeNobody
	case !m.hedges.Spend(now):
		why = hedgeUnpaid
	}
	if why != hedgeSent {
		m.forget(h)
		return why
	}
	m.unwatch(i)
	c.hedged, c.twin, c.latest = true, h, x.attempt
	p.hedging.Sent++
	m.pick(now, h, p)
	return hedgeSent
}

// settle ends the time in which another attempt may follow, or run beside the record's: that
// one goes on.
func (m *Machine) settle(at mono.Time, i int32) {
	c := &m.calls[i]
	own := m.root(c)
	if own.settled {
		return
	}
	own.settled = true
	m.unwatch(i)
	p := m.state[c.slot].pool
	if c.hedge {
		p.hedging.Won++
	}
	if !m.twinRuns(c) {
		return
	}
	other := &m.calls[c.twin]
	m.unwatch(c.twin)
	other.beaten = true
	s := &m.state[other.slot]
	s.beaten++
	if other.hedge {
		s.pool.hedging.Lost++
	}
	m.learnFirst(s.pool, other, at.Sub(other.dispatched))
	m.actions = append(m.actions, Action{
		Kind: Won, Ticket: m.ticket(i), Attempt: c.attempt,
		Pool: p.position, Slot: c.slot, Generation: m.endpoints[c.slot].Generation,
	})
}

// claimed settles the call on an attempt without content.
func (m *Machine) claimed(r *report) {
	if i, c := m.running(r.ticket, r.attempt); c != nil && !c.beaten {
		m.settle(r.at, i)
	}
}

// outrun releases an attempt that was beaten. However it ended says nothing of its endpoint.
func (m *Machine) outrun(r *report, i int32) {
	m.waste(&m.calls[i])
	c := &m.calls[i]
	if !c.committed && c.showsStart() {
		m.unheard(r.at, c.slot, c.dispatched)
	}
	if c.probe && m.state[c.slot].breaker.Cause() != health.Silent { // that one has not answered this one either
		m.probeLost(r.at, c.slot)
	}
	m.release(r.at, i)
	m.conclude(i)
}

// waste books what an attempt has cost that was beaten: to nobody, since the other one is paid for.
func (m *Machine) waste(c *call) {
	m.state[c.slot].pool.hedging.Wasted += int64(c.request.InputTokens)
	m.square(c, attempt.Beaten, Usage{})
}

// conclude ends a call whose attempt is over, once the other one is, too.
func (m *Machine) conclude(i int32) {
	c := &m.calls[i]
	if m.twinRuns(c) {
		m.retire(i)
		return
	}
	if t := c.twin; t != none {
		m.forget(t)
	}
	m.forget(i)
}

// retire ends the attempt of a record while the other one runs.
func (m *Machine) retire(i int32) {
	c := &m.calls[i]
	if !c.hedge {
		c.phase = spent // it has the call's ticket
		return
	}
	m.calls[c.twin].twin = none
	m.forget(i)
}

// rejoin leaves the call its own record alone, after the last of its attempts that ran.
func (m *Machine) rejoin(i int32) {
	c := &m.calls[i]
	own := m.root(c)
	own.attempt = max(own.attempt, own.latest)
	own.recalled = c.recalled // whichever it was: its retry is paid for
	if c.hedge {
		own.recalled = c.recalled
		own.twin = none
		m.forget(i)
	}
}

// leaveTwin ends a call's hedge, if it runs, whose client is gone.
func (m *Machine) leaveTwin(at mono.Time, c *call) {
	i := c.twin
	if i == none {
		return
	}
	x := &m.calls[i]
	switch {
	case x.beaten:
		m.waste(x)
	case !c.settled:
		m.state[x.slot].pool.hedging.Lost++
		if c.phase == running { // that one is paid for
			m.square(x, attempt.Beaten, Usage{})
		}
	}
	m.release(at, i)
	m.forget(i)
}

// rehedge gives the machine what its configuration says of hedges. Who runs already is watched
// on where that is still right, and not watched anew.
func (m *Machine) rehedge(c attempt.HedgeConfig) {
	if m.hedges == nil || c.Ratio != m.hedging.Ratio {
		m.hedges = c.Budget()
	}
	changed := c != m.hedging
	m.hedging = c
	if !changed {
		return
	}
	m.hedgeAt = mono.Never
	for _, p := range m.pools {
		m.requantile(p)
	}
	for i := range m.calls {
		if x := &m.calls[i]; x.watched && (!c.On() || x.line() == wholes && c.Whole == 0) {
			m.unwatch(int32(i))
		}
	}
}

// describeHedges returns what is known of the pool's hedges.
func (m *Machine) describeHedges(p *pool) *HedgeState {
	if !m.hedging.On() && p.hedging.Sent == 0 {
		return nil
	}
	after, _ := m.hedgeAfter(p, streams)
	return &HedgeState{HedgeCount: p.hedging.HedgeCount, After: after}
}
