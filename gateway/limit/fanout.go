package limit

import (
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// line is a conversation with calls: those that run, and those that wait in their order.
type line struct {
	conversation     kvblock.Hash
	running, waiting int
	first, last      int32 // of those that wait, indexes of grants; none: there are none
}

// lineOf returns a conversation's line, none where it has no calls, and whether another
// call of it has to wait. Nobody overtakes those that wait already.
func (b *Book) lineOf(c kvblock.Hash) (at int32, waits bool) {
	if c == 0 || b.fanOut.Concurrency == 0 {
		return none, false
	}
	at, known := b.conversations[c]
	if !known {
		return none, false
	}
	l := &b.lines[at]
	return at, l.running >= b.fanOut.Concurrency || l.waiting > 0
}

// join returns the conversation's line, at, and makes one where there is none.
func (b *Book) join(c kvblock.Hash, at int32) int32 {
	if at != none {
		return at
	}
	if len(b.spare) == 0 {
		b.spare = append(b.spare, int32(len(b.lines)))
		b.lines = append(b.lines, line{})
	}
	last := len(b.spare) - 1
	at = b.spare[last]
	b.spare = b.spare[:last]
	b.lines[at] = line{conversation: c, first: none, last: none}
	b.conversations[c] = at
	return at
}

// forget drops a line without calls.
func (b *Book) forget(at int32) {
	if l := &b.lines[at]; l.conversation != 0 && l.running == 0 && l.waiting == 0 {
		delete(b.conversations, l.conversation)
		*l = line{first: none, last: none}
		b.spare = append(b.spare, at)
	}
}

// enqueue puts a grant at the end of the line.
func (b *Book) enqueue(at, index int32) {
	l := &b.lines[at]
	if l.waiting++; l.last == none {
		l.first = index
	} else {
		b.grants[l.last].next = index
	}
	l.last = index
}

// leave takes a grant out of the line, wherever it stands. A client that gives up looks
// through those before it; they are no more than FanOut.Waiting.
func (b *Book) leave(at, index int32) {
	l := &b.lines[at]
	before := int32(none)
	for i := l.first; i != none; before, i = i, b.grants[i].next {
		if i != index {
			continue
		}
		next := b.grants[i].next
		if before == none {
			l.first = next
		} else {
			b.grants[before].next = next
		}
		if l.last == i {
			l.last = before
		}
		l.waiting--
		return
	}
}

// proceed lets those go who may now. For whom its tenant, key or model has no room goes on
// waiting, and those behind with it, while a sibling runs whose end is the next occasion. With
// none there would be no other one, and it is refused.
func (b *Book) proceed(now mono.Time, at int32) {
	for l := &b.lines[at]; l.waiting > 0 && (b.fanOut.Concurrency == 0 || l.running < b.fanOut.Concurrency); {
		index := l.first
		g := &b.grants[index]
		held := Grant{index, g.generation}
		var v Verdict
		for i := range g.scopes {
			if a := g.accounts[i]; a.full() {
				v.hold(Verdict{Scope: a.scope, Limit: Concurrency, Allowed: a.caps.Concurrency, Used: a.running, Asked: 1, Retry: unknownRetry})
			}
		}
		if v.Outcome == Refused && l.running > 0 {
			return
		}
		l.first = g.next
		if l.waiting--; l.first == none {
			l.last = none
		}
		g.next = none
		if v.Outcome == Refused {
			for i := range g.scopes {
				g.accounts[i].total.Refused++
			}
			b.close(now, index, Usage{Unsent: true})
			b.words = append(b.words, Word{held, v})
			continue
		}
		for i := range g.scopes {
			g.accounts[i].count(false, -1)
			g.accounts[i].count(true, 1)
		}
		g.running = true
		l.running++
		v.Grant = held
		b.words = append(b.words, Word{held, v})
	}
}
