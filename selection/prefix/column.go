package prefix

import (
	"math/bits"

	"kvasir/selection"
)

// sweepPerBlock is how many nodes are swept for each block that is recorded while a
// forgotten endpoint's bits are still about.
const sweepPerBlock = 4

// Grow makes room for so many slots, up to Config.MaxEndpoints. Recording a slot makes
// room for it too, so Grow only moves the allocation to a better moment.
func (x *Index) Grow(slots int) {
	slots = min(slots, x.limit/2)
	if slots <= len(x.columns) {
		return
	}
	if slots > cap(x.columns) {
		size := min(max(slots, 2*cap(x.columns)), x.limit/2)
		x.columns = append(make([]int32, 0, size), x.columns...)
	}
	for len(x.columns) < slots {
		x.columns = append(x.columns, selection.None)
	}
	x.growGroups((slots + 63) / 64)
}

// growGroups makes room for n groups, without using them.
func (x *Index) growGroups(n int) {
	if n <= cap(x.groups) {
		return
	}
	size := min(max(n, 2*cap(x.groups)), (x.limit+63)/64)
	x.groups = append(make([]group, 0, size), x.groups...)
}

// Forget drops all that is believed of slot: its endpoint restarted or left. It takes
// the same short time however much there is: the memory is made free bit by bit while
// other prompts are recorded.
func (x *Index) Forget(slot selection.Slot) {
	if slot < 0 || int(slot) >= len(x.columns) || x.columns[slot] == selection.None {
		return
	}
	col := x.columns[slot]
	x.columns[slot] = selection.None
	g, bit := &x.groups[col>>6], uint64(1)<<(col&63)
	g.live &^= bit
	g.retired |= bit
}

// column returns the slot's column, and gives it one if it has none. It is false for a
// slot beyond the index's limit.
func (x *Index) column(slot selection.Slot) (int32, bool) {
	if slot < 0 || int(slot) >= x.limit/2 {
		return 0, false
	}
	x.Grow(int(slot) + 1)
	if col := x.columns[slot]; col != selection.None {
		return col, true
	}
	col := x.vacantColumn()
	g := &x.groups[col>>6]
	g.live |= 1 << (col & 63)
	g.slot[col&63] = slot
	x.columns[slot] = col
	return col, true
}

// vacantColumn returns the lowest column that is neither in use nor waiting for its
// bits to be cleared.
func (x *Index) vacantColumn() int32 {
	for {
		for i := range x.groups {
			g := &x.groups[i]
			if free := ^(g.live | g.retired); free != 0 {
				return int32(i<<6 + bits.TrailingZeros64(free))
			}
		}
		if len(x.groups) < (x.limit+63)/64 {
			x.growGroups(len(x.groups) + 1)
			x.groups = append(x.groups, group{})
			continue
		}
		// There are twice as many columns as slots, so half of them are retired. Two
		// sweeps clear those that were retired during the first one too.
		x.sweepSome(2 * int(x.nodes.fresh))
	}
}

// sweepSome clears the bits of retired columns in the next n nodes. A node that has no
// bit left is removed; it may be that its end of the chain remains a while, unseen.
func (x *Index) sweepSome(n int) {
	for n > 0 {
		if x.sweep == 0 && !x.startSweep() {
			return
		}
		end := x.sweep + uint32(min(n, int(x.nodes.fresh-x.sweep)))
		n -= int(end - x.sweep)
		for ; x.sweep < end; x.sweep++ {
			x.clean(x.sweep)
		}
		if x.sweep == x.nodes.fresh {
			x.endSweep()
		}
	}
}

// startSweep is false when there is nothing to sweep.
func (x *Index) startSweep() bool {
	var any uint64
	for i := range x.groups {
		g := &x.groups[i]
		g.sweeping = g.retired
		any |= g.sweeping
	}
	if any == 0 {
		return false
	}
	x.sweep = root + 1
	return true
}

func (x *Index) endSweep() {
	for i := range x.groups {
		g := &x.groups[i]
		g.retired &^= g.sweeping
		g.sweeping = 0
	}
	x.sweep = 0
}

func (x *Index) clean(i uint32) {
	n := x.nodes.at(i)
	if n.group == vacant {
		return
	}
	gone := x.groups[n.group].sweeping
	n.held &^= gone
	n.young &^= gone
	n.old &^= gone
	if n.held|n.young|n.old == 0 {
		x.remove(i)
	}
}
