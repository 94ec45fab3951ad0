// Package prefix is layer 3 (endpoint selection), pure: who holds which blocks. One
// Index keeps, for the chained block hashes of the prompts that were dispatched, the
// set of endpoints that hold each block or were promised it, within a budget of bytes.
//
// A node of the index is one block within one group of 64 endpoints, so that its
// holders are one machine word. A conversation's own blocks, which one or two endpoints
// hold, cost one node of 48 bytes and about 11 to 21 bytes of table, however many
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

	nodes nodes
	table table
	sweep uint32 // position of the node from which sweeping goes on; 0: not sweeping
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

	lookAhead = 64 // blocks whose nodes record looks for at a time
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
	g, bit := col>>6, uint64(1)<<(col&63)
	epoch := x.epoch(now)
	before := uint32(root)
	var guess [lookAhead]uint32
	for d, h := range blocks {
		if d%lookAhead == 0 {
			x.guess(blocks[d:min(d+lookAhead, len(blocks))], g, &guess)
		}
		k := keyOf(h, g)
		i := guess[d%lookAhead]
		if !x.nodes.at(i).is(k, g) {
			i = x.find(k, g)
		}
		if i == 0 {
			if i = x.insert(k, g, epoch, before); i == 0 {
				return // the whole index is this chain
			}
		} else {
			x.nodes.moveBehind(i, before)
		}
		n := x.nodes.at(i)
		n.age(epoch)
		if held {
			n.held |= bit
		} else {
			n.young |= bit
		}
		before = i
	}
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
	return int64(unsafe.Sizeof(*x)) + x.nodes.bytes() + x.table.bytes() +
		int64(cap(x.groups))*groupBytes + int64(cap(x.columns))*4
}

// Len returns the number of nodes: the sum over all blocks of the groups of 64
// endpoints that have it, or had it and weren't evicted yet.
func (x *Index) Len() int { return x.table.used }

// find returns the node of a key, or 0.
func (x *Index) find(k uint64, g int32) uint32 {
	tag := uint32(k >> 32)
	for p := x.table.home(tag); ; p = x.table.after(p) {
		e := x.table.entries[p]
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

// guess finds, for blocks that are wanted next, the node to which the first place of
// the search leads, or 0. It is a guess because recording other blocks first may move
// entries and evict nodes; a node that still is the block's is right. What it is for is
// memory that is not in the processor's caches: here no load waits for another block's,
// which makes recording a long, long unused prompt three times as fast.
func (x *Index) guess(blocks []kvblock.Hash, g int32, guess *[lookAhead]uint32) {
	var entries [lookAhead]entry
	for j, h := range blocks {
		entries[j] = x.table.entries[x.table.home(uint32(keyOf(h, g)>>32))]
	}
	for j, h := range blocks {
		guess[j] = 0
		if i := entries[j].node(); x.nodes.at(i).is(keyOf(h, g), g) {
			guess[j] = i
		}
	}
}

// insert returns a new node behind the given one, or 0 when nothing but the chain up to
// that one could make room for it.
func (x *Index) insert(k uint64, g int32, epoch, before uint32) uint32 {
	i := x.nodes.take()
	if i == 0 {
		victim := x.nodes.at(root).prev
		if victim == before {
			return 0
		}
		x.remove(victim)
		i = x.nodes.take()
	}
	x.table.add(uint32(k>>32), i)
	*x.nodes.at(i) = node{key: k, group: g, epoch: epoch}
	x.nodes.link(i, before)
	return i
}

func (x *Index) remove(i uint32) {
	x.table.remove(uint32(x.nodes.at(i).key>>32), i)
	x.nodes.unlink(i)
	x.nodes.give(i)
}

// epoch counts half TTLs.
func (x *Index) epoch(now mono.Time) uint32 { return uint32(now.Duration() / x.halfTTL) }

// keyOf makes a block's hash within a group. Hashes are uniform already, so groups need
// only differ.
func keyOf(h kvblock.Hash, g int32) uint64 {
	return uint64(h) ^ uint64(g)*0x9e3779b97f4a7c15
}
