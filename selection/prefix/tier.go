package prefix

import (
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// Tier is where an endpoint keeps blocks.
type Tier uint8

// The tiers.
const (
	Device Tier = iota // memory that the engine computes from
	Host               // memory of its host
	Disk               // storage
)

func (t Tier) kind() kind { return device + kind(t) }

// Store records that one rank of slot said that it keeps these blocks, a chain from its
// first block on, in a tier. Device is Hold. What moves from one tier to another is
// stored in the one and dropped from the other. As soon as a tier but Device is told, or
// a block dropped, a match looks at each node on its way.
func (x *Index) Store(now mono.Time, slot selection.Slot, rank int, t Tier, blocks []kvblock.Hash) {
	x.tiered = x.tiered || t != Device
	x.record(now, slot, rank, blocks, t.kind())
}

// StoreShared records that storage that all endpoints can load from keeps these blocks.
func (x *Index) StoreShared(now mono.Time, blocks []kvblock.Hash) {
	x.tiered = true
	if x.shared == selection.None {
		if x.shared = x.vacantColumn(); x.shared == selection.None {
			return
		}
		x.columns[x.shared] = column{slot: nobody, sibling: selection.None, floor: noFloor, strict: noFloor}
	}
	if len(blocks) > 0 {
		x.recordColumn(now, x.shared, blocks, disk)
	}
}

// nobody is the slot of the shared storage's column.
const nobody = -2

// Drop records that one rank of slot said that it no longer keeps the blocks of a chain
// from the given one on in a tier. Those of other chains that follow it are believed, but
// out of reach, until it is stored again. It counts as no use of the blocks.
func (x *Index) Drop(slot selection.Slot, rank int, t Tier, blocks []kvblock.Hash, from int) {
	if slot < 0 || int(slot) >= len(x.first) {
		return
	}
	if col := x.columnOf(slot, rank); col != selection.None {
		x.drop(beliefOf(col, t.kind(), 0), blocks, from)
	}
}

// DropShared is Drop for the storage of StoreShared.
func (x *Index) DropShared(blocks []kvblock.Hash, from int) {
	if x.shared != selection.None {
		x.drop(beliefOf(x.shared, disk, 0), blocks, from)
	}
}

func (x *Index) drop(gone belief, blocks []kvblock.Hash, from int) {
	x.tiered = true
	x.takeOut(gone, blocks, from)
}

// takeOut has the blocks of a chain from an index on not believe what is of the column and the
// kind of gone.
func (x *Index) takeOut(gone belief, blocks []kvblock.Hash, from int) {
	for d := 0; d < len(blocks); {
		i := x.find(blocks[d])
		if i == root {
			return
		}
		c := x.cells.at(i)
		n := c.shares(blocks[d:])
		switch {
		case d >= from:
			if n < c.length() {
				i = x.split(i, n, c.prev())
			}
			x.disbelieve(i, func(b belief) bool { return b>>32 == gone>>32 })
		case d+n > from:
			n = from - d
			x.split(i, n, c.prev())
		}
		d += n
	}
}

// findTiers walks the chain node by node until nobody has more of it: tiers are loaded
// from and evicted without each other, so that the one can have what the other lacks.
func (x *Index) findTiers(now mono.Time, blocks []kvblock.Hash, o Overlaps) {
	epoch := x.epoch(now)
	shared := int32(0)
	for d := int32(0); int(d) < len(blocks); {
		i := x.find(blocks[d])
		if i == root {
			break
		}
		end := d + int32(x.cells.at(i).shares(blocks[d:]))
		if !x.reach(i, d, end, epoch, &shared) {
			break
		}
		d = end
	}
	for s := range o.Host {
		o.Host[s] = 0
	}
	for s := range o.Disk {
		o.Disk[s] = shared
	}
	for _, col := range x.reached {
		c := &x.columns[col]
		s := int(c.slot)
		if s < len(o.Host) {
			o.Host[s] = max(o.Host[s], c.host)
		}
		if s < len(o.Disk) {
			o.Disk[s] = max(o.Disk[s], c.disk)
		}
		c.host, c.disk, c.met = 0, 0, false
	}
	x.tell(o)
}

// reach has those who have all before a node go on to its end, and reports whether
// anybody did. Whoever has a block of the shared storage behind him, or before him, has
// it on his way.
func (x *Index) reach(i uint32, from, end int32, epoch uint32, shared *int32) bool {
	sharedBefore, isShared, somebody := *shared, false, false
	span := int64(kvblock.Span(int(end)))
	for h := x.holdings(i); h.c != nil; h.next() {
		for _, w := range h.c.beliefs() {
			b := belief(w)
			c := &x.columns[b.column()]
			if b.column() == x.shared {
				isShared = true
				continue
			}
			to := end
			switch b.kind() {
			case promised:
				if !b.fresh(epoch) {
					continue
				}
			case device:
				if int64(b.value())-span < c.strict {
					if to = min(end, int32(c.within(b.value()))); to <= from {
						continue
					}
				}
			}
			if c.slot == selection.None {
				continue
			}
			if !c.met {
				c.met, c.disk = true, sharedBefore
				x.reached = append(x.reached, b.column())
			}
			on := func(n *int32) {
				if *n >= from {
					*n = max(*n, to)
					somebody = true
				}
			}
			on(&c.disk)
			if b.kind() != disk {
				on(&c.host)
			}
			if b.kind() <= device {
				on(&c.any)
			}
			if b.kind() == device {
				on(&c.held)
			}
		}
	}
	if isShared {
		for _, col := range x.reached {
			if c := &x.columns[col]; c.disk >= from {
				c.disk, somebody = end, true
			}
		}
		if sharedBefore >= from {
			*shared, somebody = end, true
		}
	}
	return somebody
}
