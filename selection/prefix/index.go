// Package prefix is layer 3 (endpoint selection), pure: who holds which blocks. One
// Index keeps, for the chained block hashes of the prompts that were dispatched, the
// set of endpoints that hold each block or were promised it, within a budget of bytes.
//
// A node of the index is a run of up to eleven blocks of a chain and what is believed of
// them: eight bytes for each endpoint that holds them. Where two chains part in the middle
// of a run it is split. A hash table has an entry for each node. So a conversation's own
// blocks, which one endpoint holds, cost 14 to 19 bytes each (BenchmarkPinned), and a system prompt that many
// endpoints hold about one byte a block and endpoint.
//
// Callers always name a chain from its first block. From this follows the law on which
// everything rests: an endpoint that has a block has every block before it. It holds
// under eviction because the recency list keeps each node ahead of those that follow it,
// and under expiry because a promise of a block renews those before it. Match therefore
// finds where an endpoint drops out of a chain by bisection.
package prefix

import (
	"time"
	"unsafe"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// MostRanks is how many data-parallel ranks behind one slot are kept apart.
const MostRanks = 64

// Index is the prefix index. It is not safe for concurrent use; a match uses its memory,
// too. Instants must not go back.
type Index struct {
	budget  int64
	halfTTL time.Duration

	columns []column
	reached []int32 // of the Match under way: columns that have its first block
	path    [pathSteps]step
	first   []int32 // by slot: its first column, or selection.None
	vacant  int32   // the first vacant column, or selection.None
	retired int     // columns that wait to be cleared
	limit   int     // columns there may be
	serial  uint32  // of the column that was given last

	cells  cells
	table  table
	blocks int

	tiered bool   // tiers are told apart, or a block was dropped
	shared int32  // the column of the shared storage, or selection.None
	sweep  uint32 // position of the cell from which sweeping goes on; 0: not sweeping
}

const (
	columnBytes = int64(unsafe.Sizeof(column{})) + 4 // with its place in reached
	slotShare   = 16                                 // 1/16 of the budget may go to what is kept by slot

	// slotBytes is what a slot takes: two columns and its place in first, and half as much
	// again while they grow.
	slotBytes = 3 * (2*columnBytes + 4) / 2
)

// New returns an empty index. It assumes that cfg.Validate found no mistake.
func New(cfg Config) *Index {
	cfg = cfg.withDefaults()
	x := &Index{
		budget:  cfg.BudgetBytes,
		halfTTL: cfg.SpeculativeTTL / 2,
		limit:   2 * cfg.MaxEndpoints(),
		vacant:  selection.None,
		shared:  selection.None,
	}
	free := x.budget - x.budget/slotShare - int64(unsafe.Sizeof(*x))
	x.cells, x.table = plan(free)
	x.Grow(cfg.Endpoints)
	return x
}

// Overlaps is what a match finds, each by slot: how many of the blocks, from the first
// on. What is nil is left out, and slots beyond a slice's length are. Of a slot with
// several data-parallel ranks it is the most that one of them has.
type Overlaps struct {
	Believed []int32 // that are held or were promised
	Held     []int32 // of those, that are held
	Rank     []uint8 // which rank has Believed

	// With what its host and its storage hold, the shared storage included; each counts
	// all that the one before does. An endpoint can load those rather than compute them.
	Host, Disk []int32
}

// Match sets overlap, which is by slot, to the number of blocks from the first on that
// each slot holds or was promised; what is there beforehand is lost. Slots beyond
// len(overlap) are left out. It counts as no use of the blocks.
func (x *Index) Match(now mono.Time, blocks []kvblock.Hash, overlap []int32) {
	x.Find(now, blocks, Overlaps{Believed: overlap})
}

// Bytes returns what the index has allocated, unused capacity included. It never
// exceeds Config.BudgetBytes, and neither does the sum of old and new while a part of
// the index is copied to a larger one.
func (x *Index) Bytes() int64 {
	return int64(unsafe.Sizeof(*x)) + x.cells.bytes() + x.table.bytes +
		int64(cap(x.columns))*columnBytes + int64(cap(x.first))*4
}

// Len returns the number of blocks that are known, each once, however many hold it.
func (x *Index) Len() int { return x.blocks }

// find returns the node that begins with a block, or the root.
func (x *Index) find(h kvblock.Hash) uint32 {
	tag := tagOf(h)
	for p := x.table.home(tag); ; p = x.table.after(p) {
		e := x.table.at(p)
		if e == 0 {
			return root
		}
		if e.tag() == tag {
			if i := e.node(); x.cells.at(i).is(h) {
				return i
			}
		}
	}
}

func tagOf(h kvblock.Hash) uint32 { return uint32(h >> 32) }

// epoch counts half TTLs.
func (x *Index) epoch(now mono.Time) uint32 { return uint32(now.Duration() / x.halfTTL) }
