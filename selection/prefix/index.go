// Package prefix is layer 3 (endpoint selection), pure: who holds which blocks. One
// Index keeps, for the chained block hashes of the prompts that were dispatched, the
// set of endpoints that hold each block or were promised it, within a budget of bytes.
//
// A node of the index is one block within one group of 64 endpoints, so that its
// holders are one machine word. A conversation's own blocks, which one or two endpoints
// hold, cost one node of 48 bytes and about 13 to 26 bytes of table, however many
// endpoints there are; a system prompt that 512 endpoints hold costs eight nodes a
// block. A dispatch touches one group.
//
// Callers always name a chain from its first block. From this follows the law on which
// everything rests: an endpoint that has a block has every block before it. It holds
// under eviction because the recency list keeps each block ahead of those that follow
// it, and under expiry because a promise of a block renews those before it. Match
// therefore finds where an endpoint drops out of a chain by bisection.
package prefix

import (
	"math/bits"
	"time"
	"unsafe"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// Index is the prefix index. Promise, Hold, Forget and Grow change it and must not run
// beside anything else; Match, Bytes and Len only read. Instants must not go back.
type Index struct {
	budget  int64
	halfTTL time.Duration

	groups  []group
	columns []int32 // by slot: its column, or selection.None
	limit   int     // columns there may be

	nodes   nodes
	table   table
	sweep   uint32 // position of the node from which sweeping goes on; 0: not sweeping
	touched entry  // what touch has read; it is read by nobody
}

// group is 64 columns of the index. A column is the bit that stands for an endpoint.
// It isn't the endpoint's slot, so that Forget need not visit every node: the slot's
// column is retired, and serves again once a sweep has cleared it everywhere.
type group struct {
	live     uint64 // columns that belong to a slot
	retired  uint64 // columns that no slot has, their bits not cleared yet
	sweeping uint64 // of the retired, those that the sweep under way clears
	slot     [64]selection.Slot
}

const (
	groupBytes = int64(unsafe.Sizeof(group{}))
	slotBytes  = 20 // columns and groups, twice as many columns as slots, and half as much again while they grow
	slotShare  = 64 // 1/64 of the budget may go to what is kept by slot
)

// New returns an empty index. It assumes that cfg.Validate found no mistake.
func New(cfg Config) *Index {
	cfg = cfg.withDefaults()
	x := &Index{
		budget:  cfg.BudgetBytes,
		halfTTL: cfg.SpeculativeTTL / 2,
		limit:   2 * cfg.MaxEndpoints(),
	}
	free := x.budget - x.budget/slotShare - int64(unsafe.Sizeof(*x))
	x.nodes, x.table = plan(free)
	x.Grow(cfg.Endpoints)
	return x
}

// Match sets overlap, which is by slot, to the number of blocks from the first on that
// each slot holds or was promised; what is there beforehand is lost. Slots beyond
// len(overlap) are left out. It counts as no use of the blocks.
func (x *Index) Match(now mono.Time, blocks []kvblock.Hash, overlap []int32) {
	clear(overlap)
	if len(blocks) == 0 {
		return
	}
	m := match{x: x, epoch: x.epoch(now), blocks: blocks, overlap: overlap}
	for g := range x.groups {
		m.group = int32(g)
		// Most chains that a group doesn't hold it lacks from the first block on.
		first := m.have(0) & x.groups[g].live
		if first == 0 {
			continue
		}
		last := first
		if len(blocks) > 1 {
			last &= m.have(len(blocks) - 1)
		}
		m.split(0, len(blocks)-1, first, last)
		m.drop(len(blocks), last)
	}
}

// match is one Match under way within one group.
type match struct {
	x       *Index
	epoch   uint32
	group   int32
	blocks  []kvblock.Hash
	overlap []int32
}

// have returns the columns that have block i.
func (m *match) have(i int) uint64 {
	n := m.x.find(keyOf(m.blocks[i], m.group), m.group)
	if n == 0 {
		return 0
	}
	return m.x.nodes.at(n).have(m.epoch)
}

// split records the columns that have block lo and lack block hi, given those that
// have lo and, of these, those that have hi.
func (m *match) split(lo, hi int, atLo, atHi uint64) {
	for atLo != atHi && hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		atMid := atLo & (m.have(mid) | atHi)
		m.split(mid, hi, atMid, atHi)
		hi, atHi = mid, atMid
	}
	m.drop(lo+1, atLo&^atHi)
}

// drop gives the slots of the columns an overlap of n blocks.
func (m *match) drop(n int, columns uint64) {
	g := &m.x.groups[m.group]
	for ; columns != 0; columns &= columns - 1 {
		if s := int(g.slot[bits.TrailingZeros64(columns)]); s < len(m.overlap) {
			m.overlap[s] = int32(n)
		}
	}
}

// Bytes returns what the index has allocated, unused capacity included. It never
// exceeds Config.BudgetBytes, and neither does the sum of old and new while a part of
// the index is copied to a larger one.
func (x *Index) Bytes() int64 {
	return int64(unsafe.Sizeof(*x)) + x.nodes.bytes() + x.table.bytes +
		int64(cap(x.groups))*groupBytes + int64(cap(x.columns))*4
}

// Len returns the number of nodes: the sum over all blocks of the groups of 64
// endpoints that have it, or had it and weren't evicted yet.
func (x *Index) Len() int { return x.table.used }

// find returns the node of a key, or 0.
func (x *Index) find(k uint64, g int32) uint32 {
	tag := uint32(k >> 32)
	for p := x.table.home(tag); ; p = x.table.after(p) {
		e := x.table.at(p)
		if e == 0 {
			return 0
		}
		if e.tag() == tag {
			if i := e.node(); x.nodes.at(i).is(k, g) {
				return i
			}
		}
	}
}

// epoch counts half TTLs.
func (x *Index) epoch(now mono.Time) uint32 { return uint32(now.Duration() / x.halfTTL) }

// keyOf makes a block's hash within a group. Hashes are uniform already, so groups need
// only differ.
func keyOf(h kvblock.Hash, g int32) uint64 {
	return uint64(h) ^ uint64(g)*0x9e3779b97f4a7c15
}
