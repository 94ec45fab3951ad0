package prefix

import (
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// Promise records that a prompt of these blocks was sent to slot: the endpoint will
// hold them if all goes well. Unless Hold confirms it, a promise is believed up to the
// age of half of Config.SpeculativeTTL for certain, and never at the whole of it or
// later: time is cut into halves of it, and a promise made in one of them lasts to the
// end of the next. A promise of what is held adds nothing; one of what was promised
// renews it.
//
// When the budget is spent the blocks that were named longest ago are evicted, the end
// of a chain before its beginning. A chain longer than the whole budget is recorded as
// far as it fits.
func (x *Index) Promise(now mono.Time, slot selection.Slot, blocks []kvblock.Hash) {
	x.record(now, slot, blocks, false)
}

// Hold records that slot has these blocks: its first token was seen. It is believed
// until the blocks are evicted or the slot is forgotten.
func (x *Index) Hold(now mono.Time, slot selection.Slot, blocks []kvblock.Hash) {
	x.record(now, slot, blocks, true)
}

// record makes the chain the most recent one of the list, its first block foremost,
// and sets slot's bit in each node. Going forward with each node linked behind the one
// before keeps a block ahead of those that follow it, and saves the head of the chain
// from the evictions that its own tail needs.
func (x *Index) record(now mono.Time, slot selection.Slot, blocks []kvblock.Hash, held bool) {
	if len(blocks) == 0 {
		return
	}
	col, ok := x.column(slot)
	if !ok {
		return
	}
	x.sweepSome(sweepPerBlock * len(blocks))
	r := recording{x: x, group: col >> 6, bit: uint64(1) << (col & 63), epoch: x.epoch(now), held: held, before: root}
	for d, touched := 0, 0; d < len(blocks); {
		k := keyOf(blocks[d], r.group)
		if i := x.find(k, r.group); i != 0 {
			d += r.renew(i, blocks[d:])
			continue
		}
		if d >= touched {
			touched = min(d+lookAhead, len(blocks))
			x.touch(blocks[d:touched], r.group)
		}
		if !r.insert(k) {
			return
		}
		d++
	}
}

// recording is one record under way.
type recording struct {
	x      *Index
	group  int32
	epoch  uint32
	bit    uint64
	held   bool
	before uint32 // the node behind which the chain goes on
}

// mark sets the bit. What is set already is not written: the node of a block that is
// held stays clean in the processor's caches.
func (r *recording) mark(n *node) {
	switch {
	case n.held&r.bit != 0:
	case r.held:
		n.held |= r.bit
	default:
		n.age(r.epoch)
		n.young |= r.bit
	}
}

// renew marks the first block's node, and those that follow it in the list as far as they
// are of the blocks that follow it in the chain; they move to the front together. A chain
// lies in the list in as many runs as it has parts that were last named with different
// tails, so that finding a prompt that was here before takes one search a branch of the
// conversations, not one a block. It returns the number of blocks.
func (r *recording) renew(first uint32, blocks []kvblock.Hash) int {
	s := &r.x.nodes
	last, n := first, s.at(first)
	r.mark(n)
	if first == r.before {
		return 1 // named twice; chains don't do that
	}
	d := 1
	for d < len(blocks) && n.next != r.before {
		next := s.at(n.next)
		if !next.is(keyOf(blocks[d], r.group), r.group) {
			break
		}
		last, n = n.next, next
		r.mark(n)
		d++
	}
	s.moveBehind(first, last, r.before)
	r.before = last
	return d
}

// insert adds and marks a node, and evicts one where no more may be allocated. It is
// false when nothing but the chain itself could make room for it.
func (r *recording) insert(k uint64) bool {
	x := r.x
	i := x.nodes.take()
	if i == 0 {
		victim := x.nodes.at(root).prev
		if victim == r.before {
			return false
		}
		x.remove(victim)
		i = x.nodes.take()
	}
	x.table.add(uint32(k>>32), i)
	n := x.nodes.at(i)
	*n = node{key: k, group: r.group, epoch: r.epoch}
	r.mark(n)
	x.nodes.link(i, r.before)
	r.before = i
	return true
}

func (x *Index) remove(i uint32) {
	x.table.remove(uint32(x.nodes.at(i).key>>32), i)
	x.nodes.unlink(i)
	x.nodes.give(i)
}

const (
	lookAhead = 64 // blocks for which touch is called at a time
	lineWords = 8  // of a line of the processor's caches
)

// touch reads what recording these blocks will need of the table, since most likely none
// of them is there: the places of their own entries, and of those that will be evicted.
// In an index that is much larger than the processor's caches recording is little else
// than waiting for memory, and here no read waits for another. A search seldom goes
// beyond two lines.
func (x *Index) touch(blocks []kvblock.Hash, g int32) {
	t := &x.table
	read := func(key uint64) entry {
		p := t.home(uint32(key >> 32))
		return t.at(p) + t.at(min(p+lineWords, t.full-1))
	}
	var sum entry
	for _, h := range blocks {
		sum += read(keyOf(h, g))
	}
	if x.nodes.full() {
		victim := x.nodes.at(root).prev
		for range blocks {
			n := x.nodes.at(victim)
			sum += read(n.key)
			victim = n.prev
		}
	}
	x.touched = sum // or the compiler would leave the reads out
}
