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

// Correct compares what was believed of a chain when b was made with what the holder turned
// out to have of it then: the first n of b.Held blocks. Where it had fewer, the odometer runs by
// what it stored anew; what it computed of this chain is recorded by Hold.
//
// An engine evicts what was least recently used. So where block n was gone, all that was last
// used before it should be, in every chain. But a single chain may be missing for reasons of its
// own: its call had the engine read no cache, for example. So that is a claim, and what others
// hold is evicted only as far as it and the two claims before it agree, of different blocks, and
// nothing of it that Hold recorded since the oldest of them. A chain that was found although a
// claim had it gone disproves the claim. It takes the same short time however much there is.
func (x *Index) Correct(slot selection.Slot, b Belief, blocks []kvblock.Hash, n int) {
	if n < 0 || b.Held <= 0 || int(b.Held) > len(blocks) || int(b.col) >= len(x.columns) || x.columns[b.col].serial != b.serial || x.columns[b.col].slot != slot {
		return
	}
	c := &x.columns[b.col]
	if n >= int(b.Held) {
		c.disprove(int64(b.stamp)-int64(kvblock.Span(int(b.Held))), b.made)
		return
	}
	// Block n was used no earlier than the last one, whose stamp is known.
	c.claim(claim{floor: int64(b.stamp) - int64(kvblock.Span(n+1)) + 1, made: b.made, missing: tagOf(blocks[n])})
	c.run(kvblock.Span(int(b.Held))-kvblock.Span(n), 0)
}

// claim is what a chain says of a cache whose block was gone at a reading of the odometer:
// all that was used up to then has lost what its stamp has below the floor.
type claim struct {
	floor   int64
	made    uint32 // 0: there is no claim
	missing uint32 // the block's tag
}

// claim takes a claim in, in the place of an older one of the same block. Where it is the third,
// it evicts what all three agree on.
func (c *column) claim(k claim) {
	newest, older := &c.claims[0], &c.claims[1]
	switch {
	case newest.missing == k.missing:
		*newest = k
		return
	case older.missing != k.missing && older.made > 0 && newest.made > 0:
		c.strict = max(c.strict, min(k.floor, newest.floor, older.floor))
		c.horizon = max(c.horizon, min(k.made, newest.made, older.made))
	}
	*newest, *older = k, *newest
}

// disprove drops the claims that had a block gone which a later promise found: that of a
// chain last used at a position.
func (c *column) disprove(position int64, made uint32) {
	newest, older := &c.claims[0], &c.claims[1]
	if position < older.floor && made > older.made {
		*older = claim{}
	}
	if position < newest.floor && made > newest.made {
		*newest, *older = *older, claim{}
	}
}
