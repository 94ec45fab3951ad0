package prefix

// table finds nodes by key: open addressing, linear probing, backward-shift deletion
// (Knuth, The Art of Computer Programming 3, 6.4, algorithms L and R). An entry carries
// 32 bits of the key, which place it and tell nearly all other keys from it, so that a
// search reads one run of the table and one node, and growing reads no nodes at all.
type table struct {
	entries  []entry
	used     int
	full     uint32 // the size that entries may grow to
	halvings uint32 // how often full was halved to give the present size
}

// entry is a tag in the upper half and a node's position in the lower; 0 is none.
type entry uint64

func (e entry) tag() uint32  { return uint32(e >> 32) }
func (e entry) node() uint32 { return uint32(e) }

const (
	entryBytes = 8
	tableUnit  = 1024 // table sizes are multiples of it: 8 KiB, whole pages
)

// plan returns the largest nodes and table that fit into free bytes together, and
// that fit at every step on the way there. Sizes double, and the sequence ends at the
// largest size rather than beginning at a round one: so the last doubling, when a table
// of half the size is there beside the new one, happens with half of the nodes.
func plan(free int64) (nodes, table) {
	chunks := free / (chunkBytes + 8 + chunkNodes*4/3*entryBytes)
	for chunks > 1 && chunks*(chunkBytes+8)+tableSize(chunks)*entryBytes > free {
		chunks--
	}
	t := table{full: uint32(tableSize(chunks))}
	for t.size() > tableUnit {
		t.halvings++
	}
	t.entries = make([]entry, t.size())
	return newNodes(int(chunks)), t
}

// tableSize returns the entries that a table for so many chunks of nodes needs, at most
// three quarters of them used.
func tableSize(chunks int64) int64 {
	return (chunks*chunkNodes*4/3 + tableUnit) / tableUnit * tableUnit
}

func (t *table) bytes() int64 {
	return int64(len(t.entries)) * entryBytes
}

// size returns full after its halvings, rounded up to whole units.
func (t *table) size() uint32 {
	return (t.full>>t.halvings + tableUnit - 1) / tableUnit * tableUnit
}

// home returns where the search for a tag begins. It grows with the tag, so a table's
// order survives growing.
func (t *table) home(tag uint32) uint32 {
	return uint32(uint64(tag) * uint64(len(t.entries)) >> 32)
}

func (t *table) after(p uint32) uint32 {
	if p++; p == uint32(len(t.entries)) {
		return 0
	}
	return p
}

// add enters a node that isn't there.
func (t *table) add(tag, node uint32) {
	if t.halvings > 0 && t.used >= len(t.entries)/4*3 {
		t.grow()
	}
	t.used++
	t.put(entry(tag)<<32 | entry(node))
}

func (t *table) put(e entry) {
	p := t.home(e.tag())
	for t.entries[p] != 0 {
		p = t.after(p)
	}
	t.entries[p] = e
}

func (t *table) grow() {
	t.halvings--
	old := t.entries
	t.entries = make([]entry, t.size())
	for _, e := range old {
		if e != 0 {
			t.put(e)
		}
	}
}

// remove takes out a node that is there, and closes the gap: each entry that follows
// moves up unless its home lies behind the gap.
func (t *table) remove(tag, node uint32) {
	gap := t.home(tag)
	for t.entries[gap].node() != node {
		gap = t.after(gap)
	}
	size := uint32(len(t.entries))
	distance := func(from, to uint32) uint32 { // going forward round the table
		if to >= from {
			return to - from
		}
		return to + size - from
	}
	for p := t.after(gap); t.entries[p] != 0; p = t.after(p) {
		if distance(t.home(t.entries[p].tag()), p) >= distance(gap, p) {
			t.entries[gap] = t.entries[p]
			gap = p
		}
	}
	t.entries[gap] = 0
	t.used--
}
