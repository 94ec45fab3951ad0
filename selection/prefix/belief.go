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
		return int64(b.value()) <= c.from(b.value())
	default:
		return false
	}
}

// holding goes through the cells of a node that have beliefs.
type holding struct {
	x         *Index
	c         *cell // nil at the end
	directory *cell // of a wide node, else nil
	group     int   // of the directory, the next one
}

func (x *Index) holdings(i uint32) holding {
	h := holding{x: x, c: x.cells.at(i)}
	if h.c.wide() {
		h.directory = x.cells.at(h.c.more())
	}
	return h
}

func (h *holding) next() {
	more := h.c.more()
	if h.directory != nil {
		if h.c.wide() {
			more = 0
		}
		for more == 0 && h.group < buckets {
			more = h.directory.bucket(h.group)
			h.group++
		}
	}
	if more == 0 {
		h.c = nil
		return
	}
	h.c = h.x.cells.at(more)
}

// links returns the first link that may have a belief of a column; 0: none.
func (x *Index) links(c *cell, column int32) uint32 {
	if c.wide() {
		return x.cells.at(c.more()).bucket(bucketOf(column))
	}
	return c.more()
}

// believe makes b one of the beliefs of node i, in the place of one alike, of a dead one
// or of none. It is false where there is no room; cells that keep says to keep are kept.
func (x *Index) believe(i uint32, b belief, epoch uint32, keep [2]uint32) bool {
	var vacancy *uint64
	c := x.cells.at(i)
	for more := x.links(c, b.column()); ; more = c.more() {
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
		if more == 0 {
			break
		}
		c = x.cells.at(more)
	}
	if vacancy != nil {
		*vacancy = uint64(b)
		return true
	}
	return x.push(i, b, keep)
}

// push adds a belief of which node i has none alike.
func (x *Index) push(i uint32, b belief, keep [2]uint32) bool {
	node := x.cells.at(i)
	if node.wide() {
		return x.pushTo(x.cells.at(node.more()), b, keep)
	}
	c, links := node, 0
	for c.more() != 0 {
		c = x.cells.at(c.more())
		links++
	}
	switch {
	case c.room() > 0:
		c.put(b)
		return true
	case links == narrow:
		return x.widen(node, keep) && x.pushTo(x.cells.at(node.more()), b, keep)
	}
	l := x.take(keep)
	if l == 0 {
		return false
	}
	c.setMore(l)
	x.cells.at(l).put(b)
	return true
}

// pushTo adds a belief to a directory.
func (x *Index) pushTo(directory *cell, b belief, keep [2]uint32) bool {
	k := bucketOf(b.column())
	first := directory.bucket(k)
	c := x.cells.at(first)
	for first != 0 && c.more() != 0 {
		c = x.cells.at(c.more())
	}
	if first == 0 || c.room() == 0 {
		l := x.take(keep)
		switch {
		case l == 0:
			return false
		case first == 0:
			directory.setBucket(k, l)
		default:
			c.setMore(l)
		}
		c = x.cells.at(l)
	}
	c.put(b)
	return true
}

// widen makes a node wide. Where room runs out meanwhile, what has none is lost.
func (x *Index) widen(node *cell, keep [2]uint32) bool {
	d := x.take(keep)
	if d == 0 {
		return false
	}
	links := node.more()
	node.setMore(d)
	node.setWide()
	for l := links; l != 0; l = x.cells.at(l).more() {
		for _, b := range x.cells.at(l).beliefs() {
			x.pushTo(x.cells.at(d), belief(b), keep)
		}
	}
	x.cells.giveLinks(links)
	return true
}

// put adds a belief to a cell that has room.
func (c *cell) put(b belief) {
	c[c.first()+c.count()] = uint64(b)
	c.setCount(c.count() + 1)
}

// believed returns the belief of node i that is alike b.
func (x *Index) believed(i uint32, b belief) (belief, bool) {
	c := x.cells.at(i)
	for more := x.links(c, b.column()); ; more = c.more() {
		for _, h := range c.beliefs() {
			if b.alike(belief(h)) {
				return belief(h), true
			}
		}
		if more == 0 {
			return 0, false
		}
		c = x.cells.at(more)
	}
}

// disbelieve takes out of node i the beliefs that gone names.
func (x *Index) disbelieve(i uint32, gone func(belief) bool) {
	c := x.cells.at(i)
	if !c.wide() {
		x.compact(c, true, gone)
		return
	}
	x.compact(c, false, gone)
	d := x.cells.at(c.more())
	for k := range buckets {
		if l := d.bucket(k); l != 0 {
			x.compact(x.cells.at(l), true, gone)
			if x.cells.at(l).count() == 0 {
				x.cells.give(l)
				d.setBucket(k, 0)
			}
		}
	}
}

// compact takes beliefs out of a cell, and of those linked to it, and closes the gaps.
func (x *Index) compact(to *cell, linked bool, gone func(belief) bool) {
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
		if !linked || from.more() == 0 {
			break
		}
	}
	to.setCount(n)
	if linked {
		x.cells.giveLinks(to.more())
		to.setMore(0)
	}
}

// soleBelief returns the node's only belief.
func (c *cell) soleBelief() (belief, bool) {
	return belief(c[own]), c.count() == 1 && c.more() == 0
}
