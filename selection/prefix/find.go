package prefix

import (
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// step is a node on the way along a chain, and the block at which it ends, or at which the
// chain leaves it.
type step struct {
	node uint32
	end  int32
}

const pathSteps = 64 // nodes that are looked at together

// Find is Match with all that Overlaps asks for.
func (x *Index) Find(now mono.Time, blocks []kvblock.Hash, o Overlaps) {
	clear(o.Believed)
	clear(o.Held)
	clear(o.Rank)
	x.reached = x.reached[:0]
	if x.tiered {
		x.findTiers(now, blocks, o)
		return
	}
	f := finding{x: x, epoch: x.epoch(now)}
	for f.walk(blocks) {
		first := f.look(0)
		if first.any == 0 {
			break
		}
		if f.steps > 1 {
			f.split(0, f.steps-1, first, f.look(f.steps-1))
		}
	}
	x.tell(o)
	copy(o.Host, o.Believed)
	copy(o.Disk, o.Believed)
}

// tell takes what was found to o.
func (x *Index) tell(o Overlaps) {
	for _, col := range x.reached {
		c := &x.columns[col]
		s := int(c.slot)
		if s < len(o.Believed) && c.any > o.Believed[s] {
			o.Believed[s] = c.any
			if s < len(o.Rank) {
				o.Rank[s] = c.rank
			}
		}
		if s < len(o.Held) {
			o.Held[s] = max(o.Held[s], c.held)
		}
		c.any, c.held = 0, 0
	}
}

// finding is one Find under way.
type finding struct {
	x     *Index
	epoch uint32
	from  int32 // the block with which the steps begin
	end   int32 // and at which they end
	steps int
}

// walk looks up the next nodes of the chain, and reports whether there are any.
func (f *finding) walk(blocks []kvblock.Hash) bool {
	x := f.x
	f.from, f.steps = f.end, 0
	for int(f.end) < len(blocks) && f.steps < pathSteps {
		i := x.find(blocks[f.end])
		if i == root {
			break
		}
		f.end += int32(x.cells.at(i).shares(blocks[f.end:]))
		x.path[f.steps] = step{i, f.end}
		f.steps++
	}
	return f.steps > 0
}

// count is how many columns have a node: believed at all, and held.
type count struct{ any, held int }

// split finds where columns drop out between two steps, given how many have each of them.
// Those that have the later one have the earlier one, so where the numbers are the same
// nobody drops out.
func (f *finding) split(lo, hi int, atLo, atHi count) {
	for atLo != atHi && hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		atMid := f.look(mid)
		f.split(mid, hi, atMid, atHi)
		hi, atHi = mid, atMid
	}
}

// look notes who has step k, and counts them.
func (f *finding) look(k int) count {
	x, from, end := f.x, f.from, f.x.path[k].end
	if k > 0 {
		from = x.path[k-1].end
	}
	span := int64(kvblock.Span(int(end)))
	var n count
	for h := x.holdings(x.path[k].node); h.c != nil; h.next() {
		for _, w := range h.c.beliefs() {
			b := belief(w)
			c := &x.columns[b.column()]
			if c.held >= end { // it has a later step
				n.any++
				n.held++
				continue
			}
			to, held := end, end
			switch {
			case b.kind() == promised:
				if held = 0; c.slot == selection.None || !b.fresh(f.epoch) {
					continue
				}
			case int64(b.value())-span < c.strict:
				if to = min(end, int32(c.within(b.value()))); to <= from {
					continue
				}
				held = to
			}
			n.any++
			if held > 0 {
				n.held++
				c.held = max(c.held, held)
			}
			if c.any < to {
				if c.any == 0 {
					x.reached = append(x.reached, b.column())
				}
				c.any = to
			}
		}
	}
	return n
}
