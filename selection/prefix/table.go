package prefix

// table finds nodes by key: open addressing, linear probing, backward-shift deletion
// (Knuth, The Art of Computer Programming 3, 6.4, algorithms L and R). An entry carries
// 32 bits of the key, which place it and tell nearly all other keys from it, so that a
// search reads one run of the table and one node, and growing reads no nodes at all.
//
// It grows a slot at a time, so that no call pays for all (linear hashing: Litwin, VLDB
// 1980). Keys have their homes in the first size slots; those whose home would be at split
// or behind it have it among twice as many already. Going down from the end, what moves
// goes to slots that are free by then, and the memory that this takes is allocated piece
// by piece.
type table struct {
	chunks []*[tableUnit]entry // all the slots there may be; nil: not allocated yet, its slots are empty
	size   uint32              // slots in use, before the table grows
	next   uint32              // slots in use, after it has grown
	split  uint32              // the first slot whose entries have moved; size: none
	full   uint32              // all the slots there may be
	used   int
	bytes  int64 // allocated
}

// entry is a tag in the upper half and a node's position in the lower; 0 is none.
type entry uint64

func (e entry) tag() uint32  { return uint32(e >> 32) }
func (e entry) node() uint32 { return uint32(e) }

const (
	entryBytes = 8
	tableUnit  = 1 << 14 // slots a chunk, 128 KiB: so few chunks that their list stays in the caches
	leastSlots = 64      // of which a table is made at first
	moveSlots  = 8       // slots whose entries move for one that is added; so it grows before it is 3/4 full

	// At most 5 of 8 slots are used: a search for what isn't there reads 4 slots on
	// average (Knuth, 6.4, theorem K), where with 3 of 4 it would be 8 and more lines.
	mostUsed, ofSlots = 5, 8
)

// plan returns the largest cells and table that fit into free bytes together. Both are
// allocated as they are needed, and nothing of them is copied.
func plan(free int64) (cells, table) {
	chunks := free / (chunkBytes + 8 + chunkCells*ofSlots/mostUsed*entryBytes)
	for chunks > 1 && chunks*(chunkBytes+8)+tableBytes(tableSize(chunks)) > free {
		chunks--
	}
	return newCells(int(chunks)), newTable(uint32(tableSize(chunks)))
}

// tableSize returns the slots that a table for so many chunks of cells needs.
func tableSize(chunks int64) int64 {
	return (chunks*chunkCells*ofSlots/mostUsed + tableUnit) / tableUnit * tableUnit
}

// tableBytes returns what a table of so many slots takes when it is full.
func tableBytes(slots int64) int64 {
	return slots*entryBytes + slots/tableUnit*8
}

// newTable returns a table that grows up to full slots, a multiple of tableUnit. Sizes
// double, and the sequence ends at the largest rather than beginning at a round one.
func newTable(full uint32) table {
	t := table{chunks: make([]*[tableUnit]entry, full/tableUnit), size: full, full: full}
	for t.size > 2*leastSlots {
		t.size /= 2
	}
	t.next, t.split = t.size, t.size
	t.bytes = tableBytes(int64(full)) - int64(full)*entryBytes
	return t
}

func (t *table) at(p uint32) entry {
	if c := t.chunks[p/tableUnit]; c != nil {
		return c[p%tableUnit]
	}
	return 0
}

func (t *table) set(p uint32, e entry) {
	c := &t.chunks[p/tableUnit]
	if *c == nil {
		*c = new([tableUnit]entry)
		t.bytes += tableUnit * entryBytes
	}
	(*c)[p%tableUnit] = e
}

// home returns where the search for a tag begins.
func (t *table) home(tag uint32) uint32 {
	if h := scale(tag, t.size); h < t.split {
		return h
	}
	return scale(tag, t.next)
}

// scale maps tags to size slots. It keeps their order, so what moves from neighbouring
// slots goes to neighbouring ones.
func scale(tag, size uint32) uint32 { return uint32(uint64(tag) * uint64(size) >> 32) }

func (t *table) after(p uint32) uint32 {
	if p++; p == t.full {
		return 0
	}
	return p
}

// add enters a node that isn't there.
func (t *table) add(tag, node uint32) {
	if t.next == t.size && t.size < t.full && t.used >= int(t.size)/ofSlots*mostUsed {
		for t.next = t.full; t.next/2 > t.size; {
			t.next /= 2
		}
	}
	if t.next > t.size {
		t.grow()
	}
	t.used++
	t.put(entry(tag)<<32 | entry(node))
}

// grow moves the entries of a few slots.
func (t *table) grow() {
	for range min(moveSlots, t.split) {
		t.split--
		t.moveFrom(t.split)
	}
	if t.split == 0 {
		t.size, t.split = t.next, t.next
	}
}

// moveFrom puts in order the entries whose home was slot old and has just become another.
// They are in the run that begins there. One that its new home lies ahead of is put
// there; for the others the run leads from their new home to where they are.
func (t *table) moveFrom(old uint32) {
	for p := old; p < t.full; {
		e := t.at(p)
		switch {
		case e == 0:
			return
		case scale(e.tag(), t.size) == old && t.home(e.tag()) > p:
			t.cut(p)
			t.put(e)
		default:
			p++
		}
	}
}

func (t *table) put(e entry) {
	p := t.home(e.tag())
	for t.at(p) != 0 {
		p = t.after(p)
	}
	t.set(p, e)
}

// remove takes out a node that is there.
func (t *table) remove(tag, node uint32) {
	p := t.home(tag)
	for t.at(p).node() != node {
		p = t.after(p)
	}
	t.cut(p)
	t.used--
}

// cut empties a slot and closes the gap: each entry that follows moves up unless its home
// lies behind the gap. (One that moveFrom has not come to yet lies before its home. That
// is a long way round the ring, so it moves up, and moveFrom finds it.)
func (t *table) cut(gap uint32) {
	distance := func(from, to uint32) uint32 { // going forward round the ring
		if to >= from {
			return to - from
		}
		return to + t.full - from
	}
	for p := t.after(gap); ; p = t.after(p) {
		e := t.at(p)
		if e == 0 {
			break
		}
		if distance(t.home(e.tag()), p) >= distance(gap, p) {
			t.set(gap, e)
			gap = p
		}
	}
	t.set(gap, 0)
}
