package prefix

import "kvasir/selection"

// belief is what is believed of one holder and all blocks of one node: from the top,
// the holder's column, the kind, and what the kind needs to tell how long it is true.
type belief uint64

type kind uint8

// The kinds of belief. A node has at most one of the first two of a column, and at most
// one of each of the others.
const (
	promised kind = iota // with the half TTL of the promise
	device               // in the memory that the engine computes from; with the stamp of the last use
	host                 // in its host's memory
	disk                 // in storage
)

func beliefOf(column int32, k kind, value uint32) belief {
	return belief(column)<<34 | belief(k)<<32 | belief(value)
}

func (b belief) column() int32 { return int32(b >> 34) }
func (b belief) kind() kind    { return kind(b >> 32 & 3) }
func (b belief) value() uint32 { return uint32(b) }

// alike says whether one takes the other's place.
func (b belief) alike(o belief) bool {
	if b>>33&1 == 0 {
		return b>>33 == o>>33
	}
	return b>>32 == o>>32
}

// fresh says whether a promise is still believed in an epoch. Epochs of one driver wrap
// after 2^32 halves of at least 50 ms, which is six years.
func (b belief) fresh(epoch uint32) bool { return int32(epoch-b.value()) <= 1 }

// dead says whether nobody needs the belief: its holder is gone, or it is true no more.
func (x *Index) dead(b belief, epoch uint32) bool {
	c := &x.columns[b.column()]
	switch {
	case c.slot == selection.None:
		return true
	case b.kind() == promised:
		return !b.fresh(epoch)
	case b.kind() == device:
		return c.within(b.value()) == 0
	default:
		return false
	}
}

// believe makes b one of the beliefs of node i, in the place of one alike, of a dead one
// or of none. It is false where there is no room; cells that keep says to keep are kept.
func (x *Index) believe(i uint32, b belief, epoch uint32, keep [2]uint32) bool {
	var vacancy *uint64
	c := x.cells.at(i)
	for {
		held := c.beliefs()
		for k := range held {
			if b.alike(belief(held[k])) {
				held[k] = uint64(b)
				return true
			}
			if vacancy == nil && x.dead(belief(held[k]), epoch) {
				vacancy = &held[k]
			}
		}
		if c.more() == 0 {
			break
		}
		c = x.cells.at(c.more())
	}
	if vacancy != nil {
		*vacancy = uint64(b)
		return true
	}
	if c.room() == 0 {
		l := x.take(keep)
		if l == 0 {
			return false
		}
		c.setMore(l)
		c = x.cells.at(l)
	}
	c[c.first()+c.count()] = uint64(b)
	c.setCount(c.count() + 1)
	return true
}

// find returns the belief of node i that is alike b.
func (x *Index) believed(i uint32, b belief) (belief, bool) {
	for {
		c := x.cells.at(i)
		for _, h := range c.beliefs() {
			if b.alike(belief(h)) {
				return belief(h), true
			}
		}
		if i = c.more(); i == 0 {
			return 0, false
		}
	}
}

// disbelieve takes out of node i the beliefs that gone names.
func (x *Index) disbelieve(i uint32, gone func(belief) bool) {
	to := x.cells.at(i)
	n := 0 // beliefs in to, so far
	for from := to; ; from = x.cells.at(from.more()) {
		for _, h := range from.beliefs() {
			if gone(belief(h)) {
				continue
			}
			if to.first()+n == header { // from is further on
				to.setCount(n)
				to, n = x.cells.at(to.more()), 0
			}
			to[to.first()+n] = h
			n++
		}
		if from.more() == 0 {
			break
		}
	}
	to.setCount(n)
	x.cells.giveLinks(to.more())
	to.setMore(0)
}

// soleBelief returns the node's only belief.
func (c *cell) soleBelief() (belief, bool) {
	return belief(c[own]), c.count() == 1 && c.more() == 0
}
