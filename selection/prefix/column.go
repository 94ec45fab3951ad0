package prefix

import (
	"math"

	"kvasir/selection"
)

// column stands for a holder in what is believed: an endpoint, or one data-parallel rank
// of it. It isn't the endpoint's slot, so that Forget need not visit every node: the
// slot's columns are retired, and serve again once a sweep has cleared them everywhere.
type column struct {
	// Of a Find under way: how many blocks, from the first on.
	any, held  int32
	host, disk int32 // with those

	slot    selection.Slot // None: retired or vacant
	horizon uint32         // the odometer at the newest promise that was corrected
	floor   int64          // stamps are believed from here on; it never falls; see lru.go
	strict  int64          // likewise, stamps up to horizon; never below floor
	claims  [2]claim       // with which others have yet to agree, the newest first; see Correct

	// Of the holder's cache, in fine blocks.
	odometer uint32
	fraction uint32 // of the odometer, in units of 1/2^32
	capacity uint32 // 0: unknown

	sibling int32 // the slot's next column, or that of the next vacant one; None: there is no other
	rank    uint8
	state   columnState
	met     bool   // by the Find under way
	serial  uint32 // no two holders have had the same
}

type columnState uint8

const (
	live columnState = iota
	retired
	sweeping // retired, and being cleared by the sweep under way
	vacant
)

// sweepPerBlock is how many cells are swept for each block that is recorded while a
// forgotten endpoint's beliefs are still about.
const sweepPerBlock = 4

// Grow makes room for so many slots, up to Config.MaxEndpoints. Recording a slot makes
// room for it too, so Grow only moves the allocation to a better moment.
func (x *Index) Grow(slots int) {
	slots = min(slots, x.limit/2)
	if slots <= len(x.first) {
		return
	}
	if slots > cap(x.first) {
		size := min(max(slots, 2*cap(x.first)), x.limit/2)
		x.first = append(make([]int32, 0, size), x.first...)
	}
	for len(x.first) < slots {
		x.first = append(x.first, selection.None)
	}
	x.growColumns(slots)
}

// growColumns makes room for n columns, without using them.
func (x *Index) growColumns(n int) {
	if n <= cap(x.columns) {
		return
	}
	size := min(max(n, 2*cap(x.columns)), x.limit)
	x.columns = append(make([]column, 0, size), x.columns...)
	x.reached = make([]int32, 0, size)
}

// Forget drops all that is believed of slot: its endpoint restarted or left. It takes
// the same short time however much there is: its beliefs are taken out bit by bit while
// other prompts are recorded, and blocks that nobody holds any more are evicted in their
// turn.
func (x *Index) Forget(slot selection.Slot) {
	if slot < 0 || int(slot) >= len(x.first) {
		return
	}
	for col := x.first[slot]; col != selection.None; {
		c := &x.columns[col]
		next := c.sibling
		*c = column{slot: selection.None, sibling: selection.None, state: retired, floor: math.MaxInt64, strict: math.MaxInt64}
		x.retired++
		col = next
	}
	x.first[slot] = selection.None
}

// column returns the holder's column, and gives it one if it has none. It is false for a
// slot beyond the index's limit and a rank beyond MostRanks.
func (x *Index) column(slot selection.Slot, rank int) (int32, bool) {
	if slot < 0 || int(slot) >= x.limit/2 || rank < 0 || rank >= MostRanks {
		return 0, false
	}
	x.Grow(int(slot) + 1)
	if col := x.columnOf(slot, rank); col != selection.None {
		return col, true
	}
	col := x.vacantColumn()
	if col == selection.None {
		return 0, false
	}
	x.serial++
	x.columns[col] = column{serial: x.serial, slot: slot, rank: uint8(rank), sibling: x.first[slot], floor: noFloor, strict: noFloor}
	x.first[slot] = col
	return col, true
}

// columnOf returns the holder's column or None.
func (x *Index) columnOf(slot selection.Slot, rank int) int32 {
	col := x.first[slot]
	for col != selection.None && int(x.columns[col].rank) != rank {
		col = x.columns[col].sibling
	}
	return col
}

// vacantColumn returns a column that is neither in use nor waiting to be cleared, or None
// where all there may be are in use.
func (x *Index) vacantColumn() int32 {
	for {
		if col := x.vacant; col != selection.None {
			x.vacant = x.columns[col].sibling
			return col
		}
		if len(x.columns) < x.limit {
			x.growColumns(len(x.columns) + 1)
			x.columns = append(x.columns, column{})
			return int32(len(x.columns) - 1)
		}
		if x.retired == 0 {
			return selection.None
		}
		// Where ranks are few, half of all columns are retired. Two sweeps clear those that
		// were retired during the first one too.
		x.sweepSome(2 * int(x.cells.fresh))
	}
}

// sweepSome takes the beliefs of retired columns out of the next n cells. A node that has
// none left stays: without it those that follow it in its chains could not be found, and
// a chain recorded anew would be there twice.
func (x *Index) sweepSome(n int) {
	for n > 0 {
		if x.sweep == 0 && !x.startSweep() {
			return
		}
		end := x.sweep + uint32(min(n, int(x.cells.fresh-x.sweep)))
		n -= int(end - x.sweep)
		for ; x.sweep < end; x.sweep++ {
			x.clean(x.sweep)
		}
		if x.sweep == x.cells.fresh {
			x.endSweep()
		}
	}
}

// startSweep is false when there is nothing to sweep.
func (x *Index) startSweep() bool {
	if x.retired == 0 {
		return false
	}
	for i := range x.columns {
		if c := &x.columns[i]; c.state == retired {
			c.state = sweeping
		}
	}
	x.sweep = root + 1
	return true
}

func (x *Index) endSweep() {
	for i := range x.columns {
		if c := &x.columns[i]; c.state == sweeping {
			c.state, c.sibling, x.vacant = vacant, x.vacant, int32(i)
			x.retired--
		}
	}
	x.sweep = 0
}

func (x *Index) clean(i uint32) {
	if x.cells.at(i).length() == 0 {
		return
	}
	x.disbelieve(i, func(b belief) bool { return x.columns[b.column()].state == sweeping })
}
