package admission

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// Waiter is a call that waits.
type Waiter struct {
	Call      int32     // its record's index, small and unique among those that wait
	Rank      int64     // who has the least goes first of its band, or of its principal in a fair order
	ID        uint64    // decides between equal ranks
	Since     mono.Time // when it began to wait; earlier by what it had waited before
	Until     mono.Time // it is of no use from then on; 0: it always is
	Bytes     int64     // of its body
	Tokens    int64     // of prefill that it brings
	Tied      bool      // not every endpoint with room may have it
	Priority  int32     // its band; see MinPriority
	Principal kvblock.Hash
}

// Queue holds the calls that wait for one pool, and keeps account of what principals have had
// where its order is fair. A waiter is found by its call, and goes in logarithmic time,
// wherever it stands. Those that are tied, which are few, take time in proportion to their
// number. Nothing is allocated once the queue has been as long as it is. It is not safe for
// concurrent use.
type Queue struct {
	cfg       Config
	places    []place // by call
	bands     [bands]band
	waiting   uint32 // of the bands, as bits, those in which somebody waits
	lowest    int    // of the bands that may go
	sinceTurn int    // departures of the highest band since a lower one had its turn; Turn: as many or more
	calls     int
	bytes     int64
	tokens    int64
	ending    heap // of calls that are of use for a time alone, by its end

	principals []principal
	byKey      map[principalKey]int32
	free       int32
	held       func(call int32) int64
}

// place is what the queue knows of a call.
type place struct {
	Waiter
	waits        bool
	at           int32 // in its band's heap, where that has calls; of those that are tied: no meaning
	end          int32 // in ending
	older, newer int32 // neighbours in the band
	payer        int32 // its principal, in a fair order
	prev, next   int32 // neighbours of its principal's, in a fair order
}

const none = -1

// New returns an empty queue.
func New(c Config) *Queue {
	q := &Queue{cfg: c, free: none}
	for i := range q.bands {
		b := &q.bands[i]
		b.oldest, b.newest, b.fair.last = none, none, none
	}
	if c.Order.Fair() {
		q.byKey = map[principalKey]int32{}
	}
	return q
}

// Config returns the queue's configuration, which the caller must not change.
func (q *Queue) Config() *Config { return &q.cfg }

// Bound gives the queue other bounds, of a configuration that is alike. Who waits already
// does so whatever they are.
func (q *Queue) Bound(c Config) { q.cfg = c }

// Len, Bytes and Tokens return what waits.
func (q *Queue) Len() int      { return q.calls }
func (q *Queue) Bytes() int64  { return q.bytes }
func (q *Queue) Tokens() int64 { return q.tokens }

// Asking is a call that asks whether it may wait.
type Asking struct {
	Priority  int32
	Principal kvblock.Hash // as Waiter's
	Bytes     int64
	Tokens    int64         // of prefill that it brings, at most
	Rate      float64       // tokens of prefill a second that leave the queue, CallTokens for each call among them; 0: not known
	Service   time.Duration // mean service time; 0: not known
}

// Wait predicts how long the call waits that comes now, until all have gone that go before it:
// those in higher bands and in its own, of which in a fair order only what other principals
// get until its own has had as much. Where no rate is known, neither is the wait: 0.
func (q *Queue) Wait(a Asking) time.Duration {
	if !(a.Rate > 0) {
		return 0
	}
	tokens, own := int64(0), bandOf(a.Priority)
	for left := q.waiting &^ (1<<own - 1); left != 0; left &= left - 1 {
		b := bits.TrailingZeros32(left)
		if b == own && q.cfg.Order.Fair() {
			tokens += q.before(&q.bands[b], principalKey{a.Principal, int8(b)}, a.Tokens+CallTokens)
		} else {
			tokens += q.bands[b].tokens
		}
	}
	return Seconds(float64(tokens) / a.Rate)
}

// Drain predicts how long it takes until all who wait have gone; 0 where no rate is known.
func (q *Queue) Drain(rate float64) time.Duration {
	if !(rate > 0) {
		return 0
	}
	return Seconds(float64(q.tokens+int64(q.calls)*CallTokens) / rate)
}

// Refuses returns the bound that the call would break, even after others had given way as
// GivesWay says, and the wait that is predicted for it. It is asked before Push, which takes
// every call.
func (q *Queue) Refuses(a Asking) (Bound, time.Duration) {
	wait := q.Wait(a)
	calls, bytes := q.calls, q.bytes
	for left := q.waiting & (1<<bandOf(a.Priority) - 1); left != 0; left &= left - 1 {
		b := &q.bands[bits.TrailingZeros32(left)]
		calls -= b.calls
		bytes -= b.bytes
	}
	switch {
	case calls >= q.cfg.Length && !q.has(q.longest(a)):
		return LengthMost, wait
	case a.Bytes > q.cfg.Bytes-bytes && !q.has(q.largest(a, bytes)):
		return BytesMost, wait
	case wait > q.cfg.MaxWait:
		return WaitMost, wait
	case q.cfg.MaxWaitRatio > 0 && a.Service > 0 && wait.Seconds() > float64(q.cfg.MaxWaitRatio*a.Service.Seconds()):
		return WaitMost, wait
	}
	return Within, wait
}

func (q *Queue) has(principal int32) bool { return principal != none }

// GivesWay returns who has to leave next so that a call fits that Refuses lets wait, after so many
// calls and bytes have left for it; false when it fits, or as much has left as it brings: where
// the bounds were lowered, one call makes room for itself alone. That is who has waited for the shortest time of the lowest band below the
// call's, or, in a fair order, of the principal of its own band that waits with most: no
// principal keeps others out by filling the queue.
func (q *Queue) GivesWay(a Asking, calls int, bytes int64) (call int32, ok bool) {
	long := q.calls >= q.cfg.Length && calls == 0
	large := a.Bytes > q.cfg.Bytes-q.bytes && bytes < a.Bytes
	if !long && !large {
		return 0, false
	}
	if call, ok = q.Least(a.Priority); ok {
		return call, true
	}
	p := int32(none)
	if long {
		p = q.longest(a)
	}
	if p == none && large {
		p = q.largest(a, q.bytes)
	}
	if p == none {
		return 0, false
	}
	return q.principals[p].last, true
}

// Least returns who has waited for the shortest time of the lowest band, if that is below the
// priority.
func (q *Queue) Least(priority int32) (call int32, ok bool) {
	if q.waiting&(1<<bandOf(priority)-1) == 0 {
		return 0, false
	}
	return q.bands[bits.TrailingZeros32(q.waiting)].newest, true
}

// Push adds a call, which must not wait here already.
func (q *Queue) Push(w Waiter) {
	for int(w.Call) >= len(q.places) {
		q.places = append(q.places, place{})
	}
	at := bandOf(w.Priority)
	b := &q.bands[at]
	older, newer := b.newest, int32(none)
	for older != none && q.places[older].Since > w.Since { // it has waited before: those are few
		older, newer = q.places[older].older, older
	}
	q.places[w.Call] = place{Waiter: w, waits: true, older: older, newer: newer, payer: none, prev: none, next: none}
	if older != none {
		q.places[older].newer = w.Call
	} else {
		b.oldest = w.Call
	}
	if newer != none {
		q.places[newer].older = w.Call
	} else {
		b.newest = w.Call
	}
	if b.calls == 0 {
		b.passed = 0
	}
	q.count(at, &w, 1)
	if w.Until > 0 {
		q.ending.push((*byUntil)(q), w.Call)
	}
	switch {
	case q.cfg.Order.Fair():
		q.join(w.Call)
	case w.Tied:
		at, _ := slices.BinarySearchFunc(b.tied, w.Call, q.compare)
		b.tied = slices.Insert(b.tied, at, w.Call)
	default:
		b.open.push((*byRank)(q), w.Call)
	}
}

func (q *Queue) count(at int, w *Waiter, sign int) {
	b := &q.bands[at]
	b.calls += sign
	b.bytes += int64(sign) * w.Bytes
	b.tokens += int64(sign) * (w.Tokens + CallTokens)
	q.calls += sign
	q.bytes += int64(sign) * w.Bytes
	q.tokens += int64(sign) * w.Tokens
	if b.calls > 0 {
		q.waiting |= 1 << at
	} else {
		q.waiting &^= 1 << at
	}
}

// Depart takes a call out that goes, and counts that it does. In a fair order it says who is
// to be charged for it, as Enter does.
func (q *Queue) Depart(call int32) (Waiter, Payer) {
	q.departs(bandOf(q.places[call].Priority))
	payer := q.serve(q.places[call].payer)
	w, _ := q.Remove(call)
	return w, payer
}

// Remove takes a call out that does not go, and reports whether it waited here.
func (q *Queue) Remove(call int32) (Waiter, bool) {
	if int(call) >= len(q.places) || !q.places[call].waits {
		return Waiter{}, false
	}
	p := &q.places[call]
	at := bandOf(p.Priority)
	b := &q.bands[at]
	p.waits = false
	if p.older != none {
		q.places[p.older].newer = p.newer
	} else {
		b.oldest = p.newer
	}
	if p.newer != none {
		q.places[p.newer].older = p.older
	} else {
		b.newest = p.older
	}
	q.count(at, &p.Waiter, -1)
	if p.Until > 0 {
		q.ending.remove((*byUntil)(q), int(p.end))
	}
	switch {
	case q.cfg.Order.Fair():
		q.leave(call)
	case p.Tied:
		at, _ := slices.BinarySearchFunc(b.tied, call, q.compare)
		b.tied = slices.Delete(b.tied, at, at+1)
	default:
		b.open.remove((*byRank)(q), int(p.at))
	}
	return p.Waiter, true
}

// Next returns who goes first of the tied, but for so many of them that are to be passed
// over, and, where open is set, of all others.
func (q *Queue) Next(passed int, open bool) (w Waiter, ok bool) {
	if q.waiting == 0 {
		return Waiter{}, false
	}
	turn := q.turns()
	if turn != none {
		if call := q.first(turn, &passed, open); call != none {
			return q.places[call].Waiter, true
		}
	}
	for left := q.waiting &^ (1<<q.lowest - 1); left != 0; {
		at := bits.Len32(left) - 1
		left &^= 1 << at
		if at == turn {
			continue
		}
		if call := q.first(at, &passed, open); call != none {
			return q.places[call].Waiter, true
		}
	}
	return Waiter{}, false
}

// first returns who goes first of a band, likewise. Where nobody does, those of its tied that
// were to be passed over are taken off passed.
func (q *Queue) first(at int, passed *int, open bool) int32 {
	b := &q.bands[at]
	best := int32(none)
	if open && len(b.open.items) > 0 {
		best = q.foremost(b)
	}
	if *passed < len(b.tied) {
		if b.fair.mixed {
			slices.SortFunc(b.tied, q.compare)
			b.fair.mixed = false
		}
		if tied := b.tied[*passed]; best == none || q.compare(tied, best) < 0 {
			best = tied
		}
	} else if best == none {
		*passed -= len(b.tied)
	}
	return best
}

// foremost returns who goes first of a band's calls that any endpoint may have. There must be
// one.
func (q *Queue) foremost(b *band) int32 {
	switch q.cfg.Order {
	case Fair:
		return q.principals[b.open.items[0]].first
	case FairLocal:
		return q.nearest(b)
	}
	return b.open.items[0]
}

// Oldest returns who has waited longest.
func (q *Queue) Oldest() (w Waiter, ok bool) {
	for left := q.waiting; left != 0; left &= left - 1 {
		o := &q.places[q.bands[bits.TrailingZeros32(left)].oldest].Waiter
		if !ok || o.Since < w.Since {
			w, ok = *o, true
		}
	}
	return w, ok
}

// Ending returns whose time ends first of those that are of use for a time alone.
func (q *Queue) Ending() (w Waiter, ok bool) {
	if len(q.ending.items) == 0 {
		return Waiter{}, false
	}
	return q.places[q.ending.items[0]].Waiter, true
}

// compare orders the calls of one band; in a fair order those that have the same counter go
// by their ranks.
func (q *Queue) compare(a, b int32) int {
	x, y := &q.places[a], &q.places[b]
	if x.payer != y.payer {
		if by := cmp.Compare(q.principals[x.payer].counter, q.principals[y.payer].counter); by != 0 {
			return by
		}
	}
	return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.ID, y.ID))
}

// byRank keeps the calls of a band by their order.
type byRank Queue

func (q *byRank) before(a, b int32) bool {
	x, y := &q.places[a], &q.places[b]
	return x.Rank < y.Rank || x.Rank == y.Rank && x.ID < y.ID
}
func (q *byRank) moved(call int32, at int) { q.places[call].at = int32(at) }

// byUntil keeps calls by the end of their use.
type byUntil Queue

func (q *byUntil) before(a, b int32) bool {
	x, y := &q.places[a], &q.places[b]
	return x.Until < y.Until || x.Until == y.Until && x.ID < y.ID
}
func (q *byUntil) moved(call int32, at int) { q.places[call].end = int32(at) }
