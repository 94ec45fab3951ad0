package engine

import (
	"math/bits"

	"kvasir/internal/kvblock"
)

// blockIndex finds blocks by hash. It is a table with open addressing and linear probing,
// twice as large as the pool, so it never grows and is never more than half full; the
// hashes themselves are in the blocks. A Go map takes three times as long.
type blockIndex struct {
	slots []blockID // a block's number and 1, so that zeroed memory is empty
	shift uint
}

// none is no block.
const none blockID = -1

func (x *blockIndex) init(blocks int) {
	b := bits.Len(uint(2*blocks - 1))
	x.slots = make([]blockID, 1<<b)
	x.shift = uint(64 - b)
}

func (x *blockIndex) at(slot int) blockID      { return x.slots[slot] - 1 }
func (x *blockIndex) set(slot int, id blockID) { x.slots[slot] = id + 1 }

// home returns where the search for a hash begins. The multiplication spreads hashes that
// differ in few bits (Knuth, TAOCP volume 3, section 6.4: Fibonacci hashing).
func (x *blockIndex) home(h kvblock.Hash) int {
	return int(uint64(h) * 0x9e3779b97f4a7c15 >> x.shift)
}

// next returns the slot after a slot.
func (x *blockIndex) next(slot int) int { return (slot + 1) & (len(x.slots) - 1) }

// find returns the slot of the blocks with the hash, or the empty one where it would be.
func (p *kvPool) find(h kvblock.Hash) int {
	slot := p.index.home(h)
	for id := p.index.at(slot); id != none && p.blocks[id].hash != h; id = p.index.at(slot) {
		slot = p.index.next(slot)
	}
	return slot
}

// remove empties a slot. What follows it up to the next empty one moves up where its
// search would else end too early (Knuth, algorithm 6.4R).
func (p *kvPool) remove(slot int) {
	x, mask := &p.index, len(p.index.slots)-1
	for i := x.next(slot); x.slots[i] != 0; i = x.next(i) {
		home := x.home(p.blocks[x.at(i)].hash)
		if (i-home)&mask >= (i-slot)&mask {
			x.slots[slot] = x.slots[i]
			slot = i
		}
	}
	x.slots[slot] = 0
}
