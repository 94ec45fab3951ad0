package admission

import (
	"cmp"
	"slices"
	"time"

	"kvasir/internal/mono"
)

// Waiter is a call that waits.
type Waiter struct {
	Call   int32     // its record's index, small and unique among those that wait
	Rank   int64     // who has the least goes first
	ID     uint64    // decides between equal ranks
	Since  mono.Time // when it began to wait; earlier by what it had waited before
	Bytes  int64     // of its body
	Tokens int64     // of prefill that it brings
	Tied   bool      // not every endpoint with room may have it
}

// Queue holds the calls that wait for one pool. A waiter is found by its call, and goes in
// logarithmic time, wherever it stands. Those that are tied, which are few, take time in
// proportion to their number. Nothing is allocated once the queue has been as long as it is.
// It is not safe for concurrent use.
type Queue struct {
	cfg           Config
	places        []place // by call
	open          []int32 // calls that any endpoint may have, a binary heap
	tied          []int32 // the others, in order
	oldest        int32   // by Since; linked through places
	newest        int32
	bytes, tokens int64
}

// place is what the queue knows of a call.
type place struct {
	Waiter
	waits        bool
	at           int32 // in open; of those that are tied: no meaning
	older, newer int32
}

const none = -1

// New returns an empty queue.
func New(c Config) *Queue { return &Queue{cfg: c, oldest: none, newest: none} }

// Config returns the queue's configuration.
func (q *Queue) Config() Config { return q.cfg }

// Bound gives the queue other bounds. Who waits already does so whatever they are; the
// order stays.
func (q *Queue) Bound(c Config) {
	c.Order = q.cfg.Order
	q.cfg = c
}

// Len, Bytes and Tokens return what waits.
func (q *Queue) Len() int      { return len(q.open) + len(q.tied) }
func (q *Queue) Bytes() int64  { return q.bytes }
func (q *Queue) Tokens() int64 { return q.tokens }

// Wait predicts how long a call waits that comes now, where so many tokens of prefill a
// second leave the queue: until all who wait have gone. rate 0: not known, and so is the wait.
func (q *Queue) Wait(rate float64) time.Duration {
	if !(rate > 0) {
		return 0
	}
	return Seconds(float64(q.tokens) / rate)
}

// Refuses returns the bound that a further call would break, and the wait that is predicted
// for it. It is asked before Push, which takes every call.
func (q *Queue) Refuses(bytes int64, rate float64) (Bound, time.Duration) {
	wait := q.Wait(rate)
	switch {
	case q.Len() >= q.cfg.Length:
		return LengthMost, wait
	case bytes > q.cfg.Bytes-q.bytes:
		return BytesMost, wait
	case wait > q.cfg.MaxWait:
		return WaitMost, wait
	}
	return Within, wait
}

// Push adds a call, which must not wait here already.
func (q *Queue) Push(w Waiter) {
	for int(w.Call) >= len(q.places) {
		q.places = append(q.places, place{})
	}
	older, newer := q.newest, int32(none)
	for older != none && q.places[older].Since > w.Since { // it has waited before: those are few
		older, newer = q.places[older].older, older
	}
	q.places[w.Call] = place{Waiter: w, waits: true, older: older, newer: newer}
	if older != none {
		q.places[older].newer = w.Call
	} else {
		q.oldest = w.Call
	}
	if newer != none {
		q.places[newer].older = w.Call
	} else {
		q.newest = w.Call
	}
	q.bytes += w.Bytes
	q.tokens += w.Tokens
	if w.Tied {
		at, _ := slices.BinarySearchFunc(q.tied, w.Call, q.compare)
		q.tied = slices.Insert(q.tied, at, w.Call)
		return
	}
	q.open = append(q.open, w.Call)
	q.up(len(q.open) - 1)
}

// Remove takes a call out and reports whether it waited here.
func (q *Queue) Remove(call int32) (Waiter, bool) {
	if int(call) >= len(q.places) || !q.places[call].waits {
		return Waiter{}, false
	}
	p := &q.places[call]
	p.waits = false
	if p.older != none {
		q.places[p.older].newer = p.newer
	} else {
		q.oldest = p.newer
	}
	if p.newer != none {
		q.places[p.newer].older = p.older
	} else {
		q.newest = p.older
	}
	q.bytes -= p.Bytes
	q.tokens -= p.Tokens
	if p.Tied {
		at, _ := slices.BinarySearchFunc(q.tied, call, q.compare)
		q.tied = slices.Delete(q.tied, at, at+1)
		return p.Waiter, true
	}
	at, last := int(p.at), len(q.open)-1
	q.open[at] = q.open[last]
	q.open = q.open[:last]
	if at < last {
		q.places[q.open[at]].at = int32(at)
		if !q.up(at) {
			q.down(at)
		}
	}
	return p.Waiter, true
}

// Next returns who goes first of the tied, but for so many of them that are to be passed
// over, and, where open is set, of all others.
func (q *Queue) Next(passed int, open bool) (w Waiter, ok bool) {
	best := int32(none)
	if open && len(q.open) > 0 {
		best = q.open[0]
	}
	if passed < len(q.tied) && (best == none || q.compare(q.tied[passed], best) < 0) {
		best = q.tied[passed]
	}
	if best == none {
		return Waiter{}, false
	}
	return q.places[best].Waiter, true
}

// Oldest returns who has waited longest.
func (q *Queue) Oldest() (w Waiter, ok bool) {
	if q.oldest == none {
		return Waiter{}, false
	}
	return q.places[q.oldest].Waiter, true
}

func (q *Queue) compare(a, b int32) int {
	x, y := &q.places[a], &q.places[b]
	return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.ID, y.ID))
}

// up moves a call of the heap towards its top and reports whether it moved.
func (q *Queue) up(at int) bool {
	call, from := q.open[at], at
	for at > 0 {
		parent := (at - 1) / 2
		if q.compare(call, q.open[parent]) >= 0 {
			break
		}
		q.set(at, q.open[parent])
		at = parent
	}
	q.set(at, call)
	return at != from
}

// down moves a call of the heap away from its top.
func (q *Queue) down(at int) {
	call := q.open[at]
	for {
		child := 2*at + 1
		if child >= len(q.open) {
			break
		}
		if right := child + 1; right < len(q.open) && q.compare(q.open[right], q.open[child]) < 0 {
			child = right
		}
		if q.compare(q.open[child], call) >= 0 {
			break
		}
		q.set(at, q.open[child])
		at = child
	}
	q.set(at, call)
}

func (q *Queue) set(at int, call int32) {
	q.open[at] = call
	q.places[call].at = int32(at)
}
