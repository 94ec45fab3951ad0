package flow

import (
	"slices"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/prefix"
)

type phase uint8

const (
	unused     phase = iota
	running          // an attempt is charged to an endpoint
	failed           // waiting for the wake-up that decides whether another attempt follows
	backingOff       // waiting for the end of its backoff
	held             // waiting in a pool's queue, or for a sibling
	spent            // its own attempt is over, and the one beside it is not
)

// call is the machine's record of one client's call. Records are reused.
type call struct {
	phase   phase
	request selection.Request // a copy; Blocks is the record's own memory
	attempt int               // 0 is the first
	arrived mono.Time
	waited  time.Duration // in queues, until the last attempt
	queued  *pool         // whose queue it is in
	follows *pool         // where a sibling computes what it waits for
	patient bool          // it has waited so before: once is enough
	plan    plan          // of that wait

	// Of the running attempt.
	slot       selection.Slot
	dispatched mono.Time
	committed  bool // its first content has come
	probe      bool // its endpoint was out of rotation, and due
	resort     bool // its endpoint was out of rotation, and there was no other
	unseen     bool // counted in the book's Unseen
	recalled   bool // the driver was told to take it back; the retry is paid for
	occupies   bool // its blocks are counted in the book's ActiveBlocks
	stale      bool // it has met a stale connection before: the next one costs a retry
	older      int32
	newer      int32
	bill       bill // what its principal is charged

	// Of its prefill, as it was when the call was sent.
	work     selection.Work // as it is believed
	found    int32          // blocks that an endpoint was believed to hold or to compute; of a call that others may wait for
	ahead    selection.Work // of those that were pending there before
	context  int64          // prompt tokens of those there that had their first token
	believed prefix.Belief  // what it was believed to hold of the prompt; none since it restarted, or the index was emptied

	first     mono.Time // of its first content
	pending   bool      // among those at its endpoint whose prefill is not over, as far as is known
	olderWait int32     // neighbours among those that are pending there
	newerWait int32

	tried  [attempt.MaxAttempts + 1]trial
	nTried int
	last   attempt.Outcome // of the attempt before
	wait   time.Duration   // that its endpoint named with back-pressure
	pushed mono.Time       // when an endpoint had no room for it first; 0: each had some

	pairing

	next int32 // free list
}

// sample is what came of the running attempt's prefill. Its first content has come.
func (c *call) sample() selection.Sample {
	return selection.Sample{
		Slot: c.slot, At: c.first, TTFT: c.first.Sub(c.dispatched), Input: c.request.InputTokens,
		Own: c.work, Ahead: c.ahead, Context: c.context,
	}
}

// trial is an endpoint that a call has tried, and how that ended.
type trial struct {
	pool       *pool
	slot       selection.Slot
	generation uint32
	outcome    attempt.Outcome
	suspect    bool // it fails at one call after the other
	judged     bool // its failure has counted: its answer had begun
}

// hasTried reports whether the call must not go to the endpoint again.
func (c *call) hasTried(slot selection.Slot, generation uint32) bool {
	for _, t := range c.tried[:c.nTried] {
		if t.slot == slot && t.generation == generation {
			return true
		}
	}
	return false
}

// refuses is excludes, but for endpoints that had no room for the call.
func (c *call) refuses(slot selection.Slot, generation uint32) bool {
	q := &c.request
	return q.Owned && (slot != q.Owner || generation != q.OwnerGeneration) ||
		slices.ContainsFunc(c.tried[:c.nTried], func(t trial) bool {
			return t.slot == slot && t.generation == generation && !t.outcome.Pushed()
		})
}

// excludes reports whether the call must not go to the endpoint: it has tried it, or only
// another one can answer.
func (c *call) excludes(slot selection.Slot, generation uint32) bool {
	q := &c.request
	return q.Owned && (slot != q.Owner || generation != q.OwnerGeneration) || c.nTried > 0 && c.hasTried(slot, generation)
}

// failures returns how many endpoints of the pool, or of all pools where p is nil, have
// answered the call with a failure and are no suspects themselves.
func (c *call) failures(p *pool) int {
	n := 0
	for _, t := range c.tried[:c.nTried] {
		if t.outcome.Evidence() == attempt.Doubtful && !t.suspect && (p == nil || t.pool == p) {
			n++
		}
	}
	return n
}

// mostFailures is how many endpoints of one pool may fail at a call before the call is
// taken to be at fault there: a third would most likely fail at it, too (field case F30).
// Another pool may still be able to answer it.
const mostFailures = 2

// mayResort reports whether the call, when nobody else is left, may go to an endpoint out
// of rotation: after one that is dead, not after one that is busy and says so.
func (c *call) mayResort() bool { return c.nTried == 0 || c.last.Dead() }

// mayBother reports whether the call may go to an endpoint that wants to be left alone:
// not after another one that did.
func (c *call) mayBother() bool {
	return c.nTried == 0 || !c.last.Pushed()
}

// newCall takes a record for a call and copies the request into it.
func (m *Machine) newCall(q *selection.Request) int32 {
	m.inFlight++
	return m.record(q)
}

// record takes a record and copies the request into it.
func (m *Machine) record(q *selection.Request) int32 {
	i := m.freeCall
	if i == none {
		i = int32(len(m.calls))
		m.calls = append(m.calls, call{})
	} else {
		m.freeCall = m.calls[i].next
	}
	c := &m.calls[i]
	blocks := append(c.request.Blocks[:0], q.Blocks...)
	*c = call{phase: running, request: *q, older: none, newer: none, next: none, pairing: pairing{twin: none}}
	c.request.Blocks = blocks
	return i
}

// keptBlocks bounds the block memory that a free record keeps for its next call.
const keptBlocks = 4096

// forget ends a call's record. Its charge has been released.
func (m *Machine) forget(i int32) {
	c := &m.calls[i]
	c.phase = unused
	if cap(c.request.Blocks) > keptBlocks {
		c.request.Blocks = nil
	}
	c.next, m.freeCall = m.freeCall, i
	if !c.hedge {
		m.inFlight--
	}
}

// lookup returns the call that a ticket names, or nil when the machine no longer holds
// it: a report about it comes too late to matter.
func (m *Machine) lookup(t Ticket) *call {
	if int(t.index) >= len(m.calls) {
		return nil
	}
	c := &m.calls[t.index]
	if c.phase == unused || c.hedge || c.request.ID != t.Call {
		return nil
	}
	return c
}

// running returns the record of the given attempt, if it runs: the call's own, or its hedge's.
func (m *Machine) running(t Ticket, attempt int) (int32, *call) {
	c, i := m.lookup(t), t.index
	if c != nil && c.twin != none && c.attempt != attempt {
		i = c.twin
		c = &m.calls[i]
	}
	if c == nil || c.phase != running || c.attempt != attempt {
		return none, nil
	}
	return i, c
}

// mayAsk reports whether the call may go to endpoints of this kind.
func (c *call) mayAsk(a among) bool {
	return a != everybody || c.mayResort()
}
