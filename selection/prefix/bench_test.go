package prefix

import (
	"fmt"
	"testing"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

var (
	benchLengths   = []int{16, 160, 1600}
	benchEndpoints = []int{8, 64, 512}
)

// hot is an index of conversations whose first quarter, up to 64 blocks, is a system
// prompt that every endpoint holds, and the rest of which one endpoint does.
func hot(length, endpoints, conversations int) (*Index, func(c int) []kvblock.Hash) {
	x := New(Config{Endpoints: endpoints})
	system := min(length/4, 64)
	chains := make([][]kvblock.Hash, conversations)
	for c := range chains {
		chains[c] = chain(0, system, c, length-system)
	}
	for e := range endpoints {
		x.Hold(0, selection.Slot(e), chains[0][:system])
	}
	for c, b := range chains {
		x.Hold(0, selection.Slot(c%endpoints), b)
	}
	return x, func(c int) []kvblock.Hash { return chains[c%conversations] }
}

func forSizes(b *testing.B, run func(b *testing.B, length, endpoints int)) {
	for _, length := range benchLengths {
		for _, endpoints := range benchEndpoints {
			b.Run(fmt.Sprintf("blocks=%d/endpoints=%d", length, endpoints), func(b *testing.B) {
				b.ReportAllocs()
				run(b, length, endpoints)
			})
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	forSizes(b, func(b *testing.B, length, endpoints int) {
		x, at := hot(length, endpoints, 16)
		overlap := make([]int32, endpoints)
		for c := 0; b.Loop(); c++ {
			x.Match(0, at(c), overlap)
		}
	})
}

// BenchmarkMatchEverywhere is the most that a match can find: all endpoints hold the
// first blocks, each another number of them.
func BenchmarkMatchEverywhere(b *testing.B) {
	forSizes(b, func(b *testing.B, length, endpoints int) {
		x := New(Config{Endpoints: endpoints})
		blocks := chain(0, length, 0, 0)
		for e := range endpoints {
			x.Hold(0, selection.Slot(e), blocks[:1+(e*7919)%length])
		}
		overlap := make([]int32, endpoints)
		for b.Loop() {
			x.Match(0, blocks, overlap)
		}
	})
}

func BenchmarkHold(b *testing.B) {
	forSizes(b, func(b *testing.B, length, endpoints int) {
		x, at := hot(length, endpoints, 16)
		for c := 0; b.Loop(); c++ {
			x.Hold(0, selection.Slot(c%16%endpoints), at(c))
		}
	})
}

// BenchmarkHoldNew records prompts that are new but for the system prompt, in an index
// that is full, so that every block evicts another.
func BenchmarkHoldNew(b *testing.B) {
	forSizes(b, func(b *testing.B, length, endpoints int) {
		x, at := hot(length, endpoints, 4)
		own := min(length/4, 64)
		blocks := make([]kvblock.Hash, length)
		copy(blocks, at(0)[:own])
		c := 0
		next := func() {
			h := kvblock.Hash(c)
			for i := own; i < length; i++ {
				h = kvblock.Chain(h, nil)
				blocks[i] = h
			}
			x.Hold(0, selection.Slot(c%endpoints), blocks)
			c++
		}
		for x.Len() < cap(x.nodes.chunks)*chunkNodes-1 {
			next()
		}
		for b.Loop() {
			next()
		}
	})
}

// BenchmarkCallCold is a long conversation's next turn, matched, promised and
// confirmed, in an index of 240 MiB, so that next to nothing is in the processor's
// caches: 2,600 conversations take turns.
func BenchmarkCallCold(b *testing.B) {
	for _, endpoints := range benchEndpoints {
		b.Run(fmt.Sprintf("blocks=1600/endpoints=%d", endpoints), func(b *testing.B) {
			b.ReportAllocs()
			const conversations = 2600 // 4 million nodes
			x, at := hot(1600, endpoints, conversations)
			overlap := make([]int32, endpoints)
			for c := 0; b.Loop(); c++ {
				k := c * 1009 % conversations
				blocks, slot, now := at(k), selection.Slot(k%endpoints), mono.Time(c)
				x.Match(now, blocks, overlap)
				x.Promise(now, slot, blocks)
				x.Hold(now, slot, blocks)
			}
		})
	}
}

// BenchmarkForget is a restart and the next call, which sweeps a little.
func BenchmarkForget(b *testing.B) {
	x, at := hot(1600, 64, 1000)
	b.ReportAllocs()
	for c := 0; b.Loop(); c++ {
		x.Forget(selection.Slot(c % 64))
		x.Hold(0, selection.Slot(c%64), at(c)[:16])
	}
}

// BenchmarkGrow is the longest pause there is: the last doubling of the table, once in
// the life of an index of 256 MiB.
func BenchmarkGrow(b *testing.B) {
	x := New(Config{})
	for x.table.halvings > 1 {
		x.table.grow()
	}
	for i := range uint32(len(x.table.entries) / 4 * 3) {
		h := kvblock.Chain(kvblock.Hash(i), nil)
		x.table.add(uint32(h>>32), i+1)
	}
	full := x.table
	for b.Loop() {
		x.table = full
		x.table.grow()
	}
}
