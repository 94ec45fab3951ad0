package prefix

import (
	"math/bits"

	"kvasir/internal/kvblock"
	"kvasir/selection"
)

// Active knows which blocks the prompts of the calls under way consist of, endpoint by
// endpoint: what an engine must keep in its KV memory, whatever its cache does. A block
// that several calls share at one endpoint counts once.
//
// It holds the chains that were added and not removed, so that it is bounded by the calls
// in flight: 16 bytes for each block of each endpoint and 24 for each block of each 64
// endpoints, in tables that are at least an eighth full. The zero Active is empty. Add and Remove change
// it and must not run beside anything else; Match only reads.
type Active struct {
	calls   tally[int32]  // by block and slot: chains that have it
	holders tally[uint64] // by block and group of 64 slots: the slots where calls has it, as bits
}

// Add adds a call's chain, named from its first block, and returns by how much the length
// of slot's blocks has grown, in fine blocks (kvblock.Span).
func (a *Active) Add(slot selection.Slot, blocks []kvblock.Hash) (grown int64) {
	group, bit := int32(slot>>6), uint64(1)<<(slot&63)
	for i, h := range blocks {
		n := a.calls.at(h, int32(slot))
		if *n++; *n == 1 {
			*a.holders.at(h, group) |= bit
			grown += length(i)
		}
	}
	return grown
}

// Remove takes back what Add added, once for each Add of the same slot and blocks, and
// returns by how much the length of slot's blocks has shrunk.
func (a *Active) Remove(slot selection.Slot, blocks []kvblock.Hash) (shrunk int64) {
	group, bit := int32(slot>>6), uint64(1)<<(slot&63)
	for i, h := range blocks {
		n := a.calls.at(h, int32(slot))
		if *n--; *n > 0 {
			continue
		}
		a.calls.remove(h, int32(slot))
		shrunk += length(i)
		set := a.holders.at(h, group)
		if *set &^= bit; *set == 0 {
			a.holders.remove(h, group)
		}
	}
	return shrunk
}

// Match sets active, which is by slot, to the number of blocks from the first on that are
// of calls under way at each slot; what is there beforehand is lost. Slots beyond
// len(active) are left out.
func (a *Active) Match(blocks []kvblock.Hash, active []int32) {
	clear(active)
	if len(blocks) == 0 || a.holders.used == 0 {
		return
	}
	for g := range int32(len(active)+63) >> 6 {
		m := activeMatch{a, g, blocks, active}
		first := m.have(0)
		if first == 0 {
			continue
		}
		last := m.have(len(blocks) - 1)
		m.split(0, len(blocks)-1, first, last)
		m.drop(len(blocks), last)
	}
}

// Len returns the number of blocks, counted at each endpoint.
func (a *Active) Len() int { return a.calls.used }

// length returns the length in fine blocks of a chain's i-th block.
func length(i int) int64 { return int64(kvblock.Span(i+1) - kvblock.Span(i)) }

// activeMatch is one Match under way within one group.
type activeMatch struct {
	a      *Active
	group  int32
	blocks []kvblock.Hash
	active []int32
}

// have returns the slots that have block i.
func (m *activeMatch) have(i int) uint64 { return m.a.holders.get(m.blocks[i], m.group) }

// split records the slots that have block lo and lack block hi, given those that have lo
// and, of these, those that have hi. A chain is added whole, so a slot that has a block
// has every block before it, and where it drops out is found by bisection.
func (m *activeMatch) split(lo, hi int, atLo, atHi uint64) {
	for atLo != atHi && hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		atMid := m.have(mid)
		m.split(mid, hi, atMid, atHi)
		hi, atHi = mid, atMid
	}
	m.drop(lo+1, atLo&^atHi)
}

// drop gives the slots n blocks.
func (m *activeMatch) drop(n int, slots uint64) {
	for ; slots != 0; slots &= slots - 1 {
		if s := int(m.group)<<6 + bits.TrailingZeros64(slots); s < len(m.active) {
			m.active[s] = int32(n)
		}
	}
}

// tally is a hash table from a block and a small number to a value, open and probed
// linearly. What is zero need not be there. It doubles when it is three quarters full and
// halves when it is an eighth full, so that a load that stays about the same allocates
// nothing.
type tally[V int32 | uint64] struct {
	entries []tallied[V] // a power of two, or none
	used    int
}

type tallied[V int32 | uint64] struct {
	block kvblock.Hash
	at    int32 // plus 1; 0: the entry is free
	value V
}

const smallestTally = 64

// home returns where the search for a key begins. A block's hash is uniform; slots must
// only be kept apart.
func (t *tally[V]) home(h kvblock.Hash, at int32) int {
	return int((uint64(h) + uint64(at)*0x9e3779b97f4a7c15) & uint64(len(t.entries)-1))
}

// find returns the entry of a key, or the free one where its search ended.
func (t *tally[V]) find(h kvblock.Hash, at int32) int {
	mask := len(t.entries) - 1
	for i := t.home(h, at); ; i = (i + 1) & mask {
		if e := &t.entries[i]; e.at == 0 || e.at == at+1 && e.block == h {
			return i
		}
	}
}

// get returns a key's value, zero where there is none.
func (t *tally[V]) get(h kvblock.Hash, at int32) V {
	if t.used == 0 {
		return 0
	}
	return t.entries[t.find(h, at)].value
}

// at returns where a key's value is, which is zero if it is new. It is valid until the
// next call of at or remove.
func (t *tally[V]) at(h kvblock.Hash, at int32) *V {
	if t.used >= len(t.entries)/4*3 {
		t.resize(max(smallestTally, 2*len(t.entries)))
	}
	e := &t.entries[t.find(h, at)]
	if e.at == 0 {
		e.block, e.at = h, at+1
		t.used++
	}
	return &e.value
}

// remove takes a key out that is there. What was found behind it because its place was
// taken moves up, so that no search stops early.
func (t *tally[V]) remove(h kvblock.Hash, at int32) {
	mask := len(t.entries) - 1
	free := t.find(h, at)
	for i := (free + 1) & mask; t.entries[i].at != 0; i = (i + 1) & mask {
		e := &t.entries[i]
		if home := t.home(e.block, e.at-1); (i-home)&mask >= (i-free)&mask {
			t.entries[free], free = *e, i
		}
	}
	t.entries[free] = tallied[V]{}
	t.used--
	if len(t.entries) > smallestTally && t.used <= len(t.entries)/8 {
		t.resize(len(t.entries) / 2)
	}
}

// resize moves all entries to a table of n.
func (t *tally[V]) resize(n int) {
	old := t.entries
	t.entries = make([]tallied[V], n)
	for _, e := range old {
		if e.at != 0 {
			t.entries[t.find(e.block, e.at-1)] = e
		}
	}
}
