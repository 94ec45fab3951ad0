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
// end of the next. A promise of what is held counts as a use of it and adds nothing else;
// one of what was promised renews it. What the endpoint was believed to hold before is
// returned, for Correct.
//
// When the budget is spent the blocks that were named longest ago are evicted, the end
// of a chain before its beginning. A chain longer than the whole budget is recorded as
// far as it fits.
func (x *Index) Promise(now mono.Time, slot selection.Slot, blocks []kvblock.Hash) Belief {
	return x.record(now, slot, 0, blocks, promised)
}

// Hold records that slot has these blocks: its first token was seen. It is believed
// until the blocks are evicted, the endpoint's capacity is spent on others, or the slot is
// forgotten.
func (x *Index) Hold(now mono.Time, slot selection.Slot, blocks []kvblock.Hash) {
	x.record(now, slot, 0, blocks, device)
}

// Withdraw takes back what was promised to slot of these blocks, from that index on: the call
// whose prompt they were ended before it was computed. What is held stays. Blocks that are on
// their way with another call must be before from.
func (x *Index) Withdraw(slot selection.Slot, blocks []kvblock.Hash, from int) {
	if slot < 0 || int(slot) >= len(x.first) {
		return
	}
	if col := x.columnOf(slot, 0); col != selection.None {
		x.takeOut(beliefOf(col, promised, 0), blocks, max(from, 0))
	}
}

// PromiseRank is Promise for one data-parallel rank behind slot, from 0 to MostRanks-1.
func (x *Index) PromiseRank(now mono.Time, slot selection.Slot, rank int, blocks []kvblock.Hash) Belief {
	return x.record(now, slot, rank, blocks, promised)
}

// HoldRank is Hold for one data-parallel rank behind slot.
func (x *Index) HoldRank(now mono.Time, slot selection.Slot, rank int, blocks []kvblock.Hash) {
	x.record(now, slot, rank, blocks, device)
}

// record makes the chain the most recent one of the list, its first node foremost, and
// has each node believe that the holder has it. Going forward with each node linked behind
// the one before keeps a node ahead of those that follow it, and saves the head of the
// chain from the evictions that its own tail needs.
func (x *Index) record(now mono.Time, slot selection.Slot, rank int, blocks []kvblock.Hash, k kind) Belief {
	if len(blocks) == 0 {
		return Belief{}
	}
	col, ok := x.column(slot, rank)
	if ok && x.columns[col].odometer == worn {
		x.Forget(slot)
		col, ok = x.column(slot, rank)
	}
	if !ok {
		return Belief{}
	}
	return x.recordColumn(now, col, blocks, k)
}

// recordColumn is record for a column. It first finds what is believed already, so that all
// nodes get the stamp that the odometer has at the end.
func (x *Index) recordColumn(now mono.Time, col int32, blocks []kvblock.Hash, k kind) Belief {
	x.sweepSome(sweepPerBlock * len(blocks))
	r := recording{x: x, epoch: x.epoch(now), before: root, said: beliefOf(col, k, 0)}
	var was standing
	c := &x.columns[col]
	if k <= device {
		was = x.standingOf(col, blocks)
		stored := 0
		if k == device {
			// Of a prompt that is all there an engine computes the last block again. So the
			// odometer runs, and what is held has a later stamp than any promise before.
			stored = max(kvblock.Span(len(blocks))-kvblock.Span(int(was.held)), 1)
		}
		c.run(stored, was.reused)
		r.used = beliefOf(col, device, c.odometer)
		if r.said = r.used; k == promised {
			r.said = beliefOf(col, promised, r.epoch)
		}
	}
	for d := 0; d < len(blocks); {
		n := r.visit(d, blocks[d:])
		if n == 0 {
			break
		}
		d += n
	}
	return Belief{Held: was.held, stamp: was.stamp, made: c.odometer, col: col, serial: c.serial}
}

// recording is one record under way.
type recording struct {
	x          *Index
	epoch      uint32
	said, used belief // of what is new to the holder, and of what its cache has
	before     uint32 // the node behind which the chain goes on
}

// visit records the node that begins with the first of the blocks, which is block d of
// the chain, and returns how many blocks that were: 0 when nothing but the chain itself
// could make room for it.
func (r *recording) visit(d int, blocks []kvblock.Hash) int {
	x := r.x
	i := x.find(blocks[0])
	if i == root {
		return r.insert(blocks)
	}
	n := x.cells.at(i).shares(blocks)
	if i == r.before {
		return n // named twice; chains don't do that
	}
	b := r.said
	if b.kind() == promised {
		if old, known := x.believed(i, b); known && old.kind() == device {
			if there := x.columns[b.column()].within(old.value()); there > d {
				b, n = r.used, min(n, there-d) // what its cache has lost is promised to it
			}
		}
	}
	if n < x.cells.at(i).length() {
		i = x.split(i, n, r.before)
	} else {
		x.cells.moveBehind(i, r.before)
	}
	if !x.believe(i, b, r.epoch, [2]uint32{i, r.before}) {
		return 0
	}
	if !r.merge(i) {
		r.before = i
	}
	return n
}

// insert adds the first blocks: to the node before, where that is believed of the same
// holder alone and for the same reason, else as a node of their own.
func (r *recording) insert(blocks []kvblock.Hash) int {
	x := r.x
	if b, sole := x.cells.at(r.before).soleBelief(); sole && b == r.said && r.before != root {
		if n := x.cells.at(r.before).append(blocks); n > 0 {
			x.blocks += n
			return n
		}
	}
	i := x.take([2]uint32{r.before})
	if i == 0 {
		return 0
	}
	c := x.cells.at(i)
	n := c.append(blocks)
	c[own] = uint64(r.said)
	c.setCount(1)
	x.enter(i)
	x.blocks += n
	x.cells.link(i, r.before)
	r.before = i
	return n
}

// split cuts a node's first n blocks off, which become a node of their own with the same
// beliefs. The new one is put behind before and returned; the rest stays where it is,
// which must not be ahead of that. Where there is no room the rest is the least recent of
// all, and evicted.
func (x *Index) split(i uint32, n int, before uint32) uint32 {
	keep := [2]uint32{i, before}
	j := x.take(keep)
	if j == 0 {
		return x.truncate(i, n, before)
	}
	c, rest := x.cells.at(j), x.cells.at(i)
	copy(c[:n], rest[:n])
	c.setLength(n)
	for h := x.holdings(i); h.c != nil; h.next() {
		for _, w := range h.c.beliefs() {
			b := belief(w)
			if x.columns[b.column()].slot == selection.None {
				continue // the sweep under way may have passed the new cell already
			}
			if !x.push(j, b, keep) {
				x.cells.giveBeliefs(c)
				x.cells.give(j)
				return x.truncate(i, n, before)
			}
		}
	}
	x.leave(i)
	rest.behead(n)
	x.enter(i)
	x.enter(j)
	x.cells.link(j, before)
	return j
}

// truncate evicts what follows a node's first n blocks and puts the node behind before.
func (x *Index) truncate(i uint32, n int, before uint32) uint32 {
	c := x.cells.at(i)
	x.blocks -= c.length() - n
	c.setLength(n)
	x.cells.moveBehind(i, before)
	return i
}

// merge moves a node's blocks into the one before, where there is room and both are
// believed of the same holder alone.
func (r *recording) merge(i uint32) bool {
	x := r.x
	c, to := x.cells.at(i), x.cells.at(r.before)
	if r.before == root || to.length()+c.length() > runBlocks {
		return false
	}
	b, sole := c.soleBelief()
	if o, other := to.soleBelief(); !sole || !other || b != o {
		return false
	}
	n := to.length()
	copy(to[n:runBlocks], c[:c.length()])
	to.setLength(n + c.length())
	x.blocks += c.length()
	x.remove(i)
	return true
}

// take returns an empty cell, and evicts the least recent nodes for it where no more may
// be allocated. It returns 0 when only those to keep are left.
func (x *Index) take(keep [2]uint32) uint32 {
	i := x.cells.take()
	if i == 0 {
		victim := x.cells.at(root).prev()
		if victim == root || victim == keep[0] || victim == keep[1] {
			return 0
		}
		x.remove(victim)
		i = x.cells.take()
	}
	return i
}

// enter makes a node found by its first block, and leave ends that.
func (x *Index) enter(i uint32) { x.table.add(tagOf(x.cells.at(i).head()), i) }
func (x *Index) leave(i uint32) { x.table.remove(tagOf(x.cells.at(i).head()), i) }

func (x *Index) remove(i uint32) {
	c := x.cells.at(i)
	x.leave(i)
	x.cells.unlink(i)
	x.blocks -= c.length()
	x.cells.giveBeliefs(c)
	x.cells.give(i)
}
