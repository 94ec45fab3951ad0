package prefix

import (
	"math"

	"kvasir/internal/kvblock"
	"kvasir/selection"
)

// An engine's cache is finite and evicts what was least recently used. An exact list of
// that by holder would cost as much as all the rest, so each holder has an odometer
// instead: the length of what its cache had to store so far. A belief carries the
// odometer's reading at its last use, its stamp. At that moment the cache had used
// nothing more recently than the blocks before it in its own chain, so a block that ends
// Span(p) behind the beginning of its chain is that far from being the most recent one,
// plus what the odometer has run since: when that is more than the capacity, the block is
// gone. The end of a chain goes before its beginning, as in the engines.
//
// What is used again moves to the front, too, and pushes back what was used since its own
// last use, which is a part of the cache that isn't known: of a block whose age is a the
// odometer runs a/capacity of its length. The error of all this against an exact list is
// measured by TestCapacity_AgainstExactLRU.
//
// What nobody told the index isn't counted: answers until the next turn brings them back
// as part of a prompt, and calls that other routers send.

const noFloor = math.MinInt64

// SetCapacity says how much the cache of one rank of slot holds, in fine blocks
// (kvblock.Span); 0: not known, so what it holds is believed until it is forgotten. What
// was least recently used beyond it is believed evicted. It takes the same short time
// however much there is.
func (x *Index) SetCapacity(slot selection.Slot, rank, fine int) {
	col, ok := x.column(slot, rank)
	if !ok {
		return
	}
	c := &x.columns[col]
	if capacity := uint32(min(max(fine, 0), math.MaxInt32)); capacity != c.capacity {
		c.capacity = capacity
		c.settle()
	}
}

// settle raises the floor to where the odometer and the capacity have it. What has been
// evicted does not come back when the capacity grows.
func (c *column) settle() {
	if c.capacity > 0 {
		c.floor = max(c.floor, int64(c.odometer)-int64(c.capacity))
		c.strict = max(c.strict, c.floor)
	}
}

// from returns the floor for a stamp.
func (c *column) from(stamp uint32) int64 {
	if stamp <= c.horizon {
		return c.strict
	}
	return c.floor
}

// within returns how many blocks of a chain that was used at a stamp are still there.
func (c *column) within(stamp uint32) int {
	floor := c.from(stamp)
	if floor == noFloor {
		return math.MaxInt32
	}
	return kvblock.Within(int(min(max(int64(stamp)-floor, 0), math.MaxInt32)))
}

// run moves the odometer by a length that is stored, and by one that was there, whose
// age is weighed in already: it is the sum of length times age, each at most the capacity.
func (c *column) run(stored int, reused uint64) {
	moved := uint64(c.odometer)<<32 | uint64(c.fraction)
	if c.capacity > 0 {
		share := reused / uint64(c.capacity)
		rest := reused % uint64(c.capacity) << 32 / uint64(c.capacity)
		moved = add(moved, share<<32|rest)
	}
	moved = add(moved, uint64(stored)<<32)
	c.odometer, c.fraction = uint32(moved>>32), uint32(moved)
	c.settle()
}

// add returns the sum, or the largest number where it is more than that.
func add(a, b uint64) uint64 {
	if b > math.MaxUint64-a {
		return math.MaxUint64
	}
	return a + b
}

// worn is where an odometer ends: the holder begins anew with nothing that is believed of
// it. That is once in 2^32 fine blocks, which are 2.7×10¹¹ tokens.
const worn = math.MaxUint32

// standing is what is believed of a holder's cache and one chain.
type standing struct {
	held   int32  // blocks from the first on
	stamp  uint32 // of the last of them
	reused uint64 // as column.run has it
}

// standingOf walks the chain as far as the column's cache has it.
func (x *Index) standingOf(col int32, blocks []kvblock.Hash) standing {
	var s standing
	c, sought := &x.columns[col], beliefOf(col, device, 0)
	for d := 0; d < len(blocks); {
		i := x.find(blocks[d])
		if i == root {
			break
		}
		b, known := x.believed(i, sought)
		if !known || b.kind() != device {
			break
		}
		end := d + x.cells.at(i).shares(blocks[d:])
		there := min(end, c.within(b.value()))
		if there <= d {
			break
		}
		age := uint64(min(c.odometer-b.value(), max(c.capacity, 1)))
		s.reused += age * uint64(kvblock.Span(there)-kvblock.Span(d))
		s.held, s.stamp = int32(there), b.value()
		if there < end {
			break
		}
		d = end
	}
	return s
}

// Belief is what was believed of one holder and one chain when the chain was promised to
// it. The zero Belief is none.
type Belief struct {
	Held   int32 // blocks that it held, from the first on
	stamp  uint32
	made   uint32 // the odometer then
	col    int32
	serial uint32 // of the column
}

// Correct says that of the blocks it was believed to hold when b was made, the holder had
// the first n only. It evicts what was least recently used, so all that was last used
// before block n is gone as well, in every chain. What Hold recorded since stays, what
// the holder computed anew of this chain included, unless a later promise is corrected:
// then what came before that one is taken to be as old as the worst of all corrections
// says. Where it had as many as was believed or more, there is nothing to correct. It
// takes the same short time however much there is.
func (x *Index) Correct(slot selection.Slot, b Belief, n int) {
	if n < 0 || n >= int(b.Held) || int(b.col) >= len(x.columns) || x.columns[b.col].serial != b.serial || x.columns[b.col].slot != slot {
		return
	}
	c := &x.columns[b.col]
	// Block n was used no earlier than the last one, whose stamp is known.
	c.strict = max(c.strict, int64(b.stamp)-int64(kvblock.Span(n+1))+1)
	c.horizon = max(c.horizon, b.made)
	c.run(kvblock.Span(int(b.Held))-kvblock.Span(n), 0) // it was stored anew
}
