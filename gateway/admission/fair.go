package admission

import (
	"kvasir/internal/kvblock"
)

// The Virtual Token Counter (Sheng et al., OSDI '24). Each principal has a counter of the
// service that its calls have had, in weighted tokens divided by its share, and the one with
// the least goes first. A call is charged for its prompt when it goes and for its answer as
// that comes. One that comes to wait, and did not, is lifted to the least counter of those that
// wait, or, where nobody does, to that of who went last: nobody saves up what he does not use.
//
// So the service of two principals that wait all the time never differs by more than
// 2·max(w_in·L, w_out·M): L is the longest prompt, and M the most tokens, of prompts and answers,
// that a principal has under way at once. FairLocal adds twice its quantum.
//
// Each band of priority is fair by itself: a principal has a counter in each band in which it
// calls. Those of which nothing is known are one principal.
//
// Where ever new principals come, each of them waits with little, and the least counter stands
// still: one that was charged once would stay behind all of them for ever. So newcomers are lifted
// to the virtual time, too, as in weighted fair queueing: what those that have calls have had
// since, on average. One that goes on is passed by newcomers until they have had their shares.

// principal is who shares in the service of a band.
type principal struct {
	key         principalKey
	counter     float64
	first, last int32 // of its calls that wait and any endpoint may have, in order; linked through places
	waiting     int   // calls, the tied ones too
	bytes       int64 // of their bodies
	tokens      int64 // of prefill that they bring
	running     int   // calls that may yet be charged
	at          int32 // in its band's open, or, where it has no call, in the band's idle
	next        int32 // free list
}

type principalKey struct {
	who  kvblock.Hash
	band int8
}

// banker is what a band of a fair order keeps beside its principals.
type banker struct {
	floor   float64 // what newcomers are lifted to; it never falls
	virtual float64 // the virtual time
	active  int     // principals with a call that waits, or may yet be charged
	last    int32   // the principal that went last
	limit   float64 // of FairLocal: who has had as much must wait until nobody has less
	idle    heap    // principals without a call, by counter
	mixed   bool    // the band's tied calls may have lost their order: counters have changed
}

// mostIdle bounds the principals of a band that are remembered without a call: beyond that those
// are forgotten who are least ahead. Those that are not ahead at all are forgotten at once, for
// they would be lifted to the floor in any case.
const mostIdle = 1 << 16

// Payer is a principal while it has a call under way; none where the order is not fair.
type Payer int32

// NoPayer is nobody.
const NoPayer Payer = none

// Enter notes that a call goes which has not waited, and returns who is to be charged for it:
// NoPayer where the order is not fair. End must follow.
func (q *Queue) Enter(priority int32, who kvblock.Hash) Payer {
	if !q.cfg.Order.Fair() {
		return NoPayer
	}
	p := q.find(principalKey{who, int8(bandOf(priority))})
	return q.serve(p)
}

// serve notes that a call of the principal goes.
func (q *Queue) serve(p int32) Payer {
	if p == none {
		return NoPayer
	}
	b := q.bandAt(p)
	q.activate(p)
	q.principals[p].running++
	b.fair.last = p
	q.sweep(b) // who went last before may be forgotten now
	return Payer(p)
}

// Charge adds service to what the payer's principal has had, or takes some back where it is
// less than 0. cost is in weighted tokens, divided by the principal's share.
func (q *Queue) Charge(payer Payer, cost float64) {
	if payer == NoPayer {
		return
	}
	p := &q.principals[payer]
	b := q.bandAt(int32(payer))
	p.counter += cost
	b.fair.advance(cost, p.counter)
	b.fair.mixed = true
	if p.first != none {
		b.open.fix((*byCounter)(q), int(p.at))
	}
}

// advance moves the virtual time on by a charge to a principal that has had so much with it, but
// not beyond that: newcomers never go behind everybody. What is given back takes it back, too.
func (f *banker) advance(cost, counter float64) {
	by := cost / float64(f.active)
	if cost > 0 {
		by = min(by, max(counter-f.virtual, 0))
	}
	f.virtual += by
}

// activate counts a principal that is about to have a call, where it has none.
func (q *Queue) activate(p int32) {
	if x := &q.principals[p]; x.waiting == 0 && x.running == 0 {
		q.bandAt(p).fair.active++
	}
}

// End says that nothing more is charged for a call.
func (q *Queue) End(payer Payer) {
	if payer == NoPayer {
		return
	}
	q.principals[payer].running--
	q.rest(int32(payer))
}

// Had returns the payer's counter.
func (q *Queue) Had(payer Payer) float64 { return q.principals[payer].counter }

// Principals returns how many are remembered.
func (q *Queue) Principals() int { return len(q.byKey) }

func (q *Queue) bandAt(p int32) *band { return &q.bands[q.principals[p].key.band] }

// find returns the principal, lifted to the floor where it does not wait already.
func (q *Queue) find(key principalKey) int32 {
	p, known := q.byKey[key]
	if !known {
		if p = q.free; p == none {
			p = int32(len(q.principals))
			q.principals = append(q.principals, principal{})
		} else {
			q.free = q.principals[p].next
		}
		q.principals[p] = principal{key: key, first: none, last: none, at: none}
		q.byKey[key] = p
	}
	x := &q.principals[p]
	b := &q.bands[key.band]
	floor := q.floor(b)
	if x.waiting == 0 {
		if x.at != none { // among the idle: it is no longer
			b.fair.idle.remove((*byCounter)(q), int(x.at))
			x.at = none
		}
		x.counter = max(x.counter, floor)
	}
	return p
}

// floor returns what a newcomer of the band is lifted to.
func (q *Queue) floor(b *band) float64 {
	f := &b.fair
	switch {
	case b.calls > 0:
		least, known := 0.0, false
		if len(b.open.items) > 0 {
			least, known = q.principals[b.open.items[0]].counter, true
		}
		for _, call := range b.tied {
			if c := q.principals[q.places[call].payer].counter; !known || c < least {
				least, known = c, true
			}
		}
		f.virtual = max(f.virtual, least)
	case f.last != none:
		f.virtual = max(f.virtual, q.principals[f.last].counter)
	}
	f.floor = max(f.floor, f.virtual)
	return f.floor
}

// join puts a call among its principal's.
func (q *Queue) join(call int32) {
	w := &q.places[call]
	at := bandOf(w.Priority)
	b := &q.bands[at]
	// Its band counts the call already, and must not be asked for its floor with it.
	b.calls--
	p := q.find(principalKey{w.Principal, int8(at)})
	b.calls++
	w.payer = p
	q.activate(p)
	x := &q.principals[p]
	x.waiting++
	x.bytes += w.Bytes
	x.tokens += w.Tokens + CallTokens
	if w.Tied {
		b.tied = append(b.tied, call)
		b.fair.mixed = true
		return
	}
	after := x.last
	for after != none && (*byRank)(q).before(call, after) { // it has waited before: those are few
		after = q.places[after].prev
	}
	w.prev, w.next = after, x.first
	if after != none {
		w.next = q.places[after].next
		q.places[after].next = call
	} else {
		x.first = call
	}
	if w.next != none {
		q.places[w.next].prev = call
	} else {
		x.last = call
	}
	switch {
	case x.first == x.last:
		b.open.push((*byCounter)(q), p)
	case x.first == call: // it decides between equal counters
		b.open.fix((*byCounter)(q), int(x.at))
	}
}

// leave takes a call from its principal's.
func (q *Queue) leave(call int32) {
	w := &q.places[call]
	b := &q.bands[bandOf(w.Priority)]
	x := &q.principals[w.payer]
	x.waiting--
	x.bytes -= w.Bytes
	x.tokens -= w.Tokens + CallTokens
	if w.Tied {
		for i, other := range b.tied {
			if other == call {
				b.tied = append(b.tied[:i], b.tied[i+1:]...)
				break
			}
		}
	} else {
		if w.prev != none {
			q.places[w.prev].next = w.next
		} else {
			x.first = w.next
		}
		if w.next != none {
			q.places[w.next].prev = w.prev
		} else {
			x.last = w.prev
		}
		switch {
		case x.first == none:
			b.open.remove((*byCounter)(q), int(x.at))
			x.at = none
		case w.prev == none:
			b.open.fix((*byCounter)(q), int(x.at))
		}
	}
	q.rest(w.payer)
}

// rest puts a principal that has no call any more among the idle ones, and forgets those that
// are not ahead of anybody.
func (q *Queue) rest(p int32) {
	x := &q.principals[p]
	b := q.bandAt(p)
	if x.waiting == 0 && x.running == 0 && x.at == none {
		b.fair.active--
		b.fair.idle.push((*byCounter)(q), p)
	}
	q.sweep(b)
}

// sweep forgets the idle principals of a band that are not ahead of anybody, but for the one
// that went last: its counter is the floor while nobody waits.
func (q *Queue) sweep(b *band) {
	f := &b.fair
	floor := q.floor(b)
	for len(f.idle.items) > 0 {
		p := f.idle.items[0]
		if p == f.last || q.principals[p].counter > floor && len(f.idle.items) <= mostIdle {
			return
		}
		f.idle.remove((*byCounter)(q), 0)
		delete(q.byKey, q.principals[p].key)
		q.principals[p].next, q.free = q.free, p
	}
}

// before returns how many tokens of a band go before a call that brings so many: each principal
// has as much of service as the call's own, until that has had all it wants.
func (q *Queue) before(b *band, key principalKey, tokens int64) int64 {
	own := none
	if p, known := q.byKey[key]; known {
		own = int(p)
		tokens += q.principals[p].tokens
	}
	sum := int64(0)
	if own != none {
		sum = q.principals[own].tokens
	}
	for _, p := range b.open.items {
		if int(p) != own {
			sum += min(q.principals[p].tokens, tokens)
		}
	}
	return sum
}

// longest returns the principal of the call's band that waits with most calls, if these are more
// than the call's own principal would have; none in other orders.
func (q *Queue) longest(a Asking) int32 {
	most := 1
	if p, known := q.byKey[a.key()]; known {
		most += q.principals[p].waiting
	}
	best := int32(none)
	for _, p := range q.rivals(a) {
		if n := q.principals[p].waiting; n > most {
			best, most = p, n
		}
	}
	return best
}

// largest returns likewise who waits with the largest bodies, if so much of them can go that the
// call fits beside bodies of so many bytes and still no more is left of them than of its own.
func (q *Queue) largest(a Asking, bytes int64) int32 {
	over := a.Bytes - (q.cfg.Bytes - bytes)
	most := a.Bytes + over
	if p, known := q.byKey[a.key()]; known {
		most += q.principals[p].bytes
	}
	best := int32(none)
	for _, p := range q.rivals(a) {
		if n := q.principals[p].bytes; n >= most {
			best, most = p, n+1
		}
	}
	return best
}

func (a *Asking) key() principalKey { return principalKey{a.Principal, int8(bandOf(a.Priority))} }

// rivals returns the principals that wait in the call's band; none where the order is not fair.
func (q *Queue) rivals(a Asking) []int32 {
	if !q.cfg.Order.Fair() {
		return nil
	}
	return q.bands[bandOf(a.Priority)].open.items
}

// byCounter keeps principals by what they have had.
type byCounter Queue

func (q *byCounter) before(a, b int32) bool {
	x, y := &q.principals[a], &q.principals[b]
	if x.counter != y.counter {
		return x.counter < y.counter
	}
	if x.first != none && y.first != none {
		return (*byRank)(q).before(x.first, y.first)
	}
	return a < b
}
func (q *byCounter) moved(p int32, at int) { q.principals[p].at = int32(at) }
