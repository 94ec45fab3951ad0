package prefix

import (
	"fmt"
	"testing"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
)

var (
	benchLengths   = []int{16, 160, 264} // of tapered chains, 4, 208 and 416 KiB of text
	benchEndpoints = []int{64, 512}
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

func BenchmarkPromise(b *testing.B) {
	forSizes(b, func(b *testing.B, length, endpoints int) {
		x, at := hot(length, endpoints, 16)
		for c := 0; b.Loop(); c++ {
			x.Promise(0, selection.Slot((c+1)%16%endpoints), at(c))
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

// used is an index of 256 MiB as a gateway has it after days: conversations of 1 to 400
// blocks with one of 50 system prompts have filled it three times, so that neighbours in
// a chain aren't neighbours in memory. Half of it are the conversations of the benchmark,
// and next to nothing of it is in the processor's caches.
type used struct {
	x         *Index
	r         seed.Rand
	endpoints int
	n         int
	turns     map[int][]turn // by length
}

type turn struct {
	slot   selection.Slot
	blocks []kvblock.Hash
}

func newUsed(endpoints int) *used {
	u := &used{x: New(Config{Endpoints: endpoints}), r: seed.New(1, seed.Workload, 0, 0), endpoints: endpoints, turns: map[int][]turn{}}
	room := u.x.roomBlocks() * 10 / 11
	for blocks := 0; blocks < 3*room; {
		t := u.next(nil, 1+u.r.Intn(400))
		u.x.Hold(0, t.slot, t.blocks)
		blocks += len(t.blocks)
	}
	for blocks := 0; blocks < room/2; {
		for _, length := range benchLengths {
			t := u.next(nil, length)
			u.x.Hold(0, t.slot, t.blocks)
			u.turns[length] = append(u.turns[length], t)
			blocks += length
		}
	}
	return u
}

// next makes a new conversation in the memory of an old one.
func (u *used) next(memory []kvblock.Hash, length int) turn {
	h := kvblock.Hash(u.r.Intn(50))
	blocks := memory[:0]
	for d := range length {
		if d == min(length/4, 64) {
			u.n++
			h ^= kvblock.Hash(u.n) << 32
		}
		h = kvblock.Chain(h, nil)
		blocks = append(blocks, h)
	}
	return turn{selection.Slot(u.r.Intn(u.endpoints)), blocks}
}

// BenchmarkCold is a call in a used index: the match; promise and hold of a prompt that
// was there before (again) and of a new one, whose blocks evict others; the hold comes
// some calls after the promise, as first tokens do.
func BenchmarkCold(b *testing.B) {
	const inFlight = 100
	for _, endpoints := range benchEndpoints {
		var u *used
		for _, length := range benchLengths {
			run := func(name string, do func(b *testing.B)) {
				b.Run(fmt.Sprintf("%s/blocks=%d/endpoints=%d", name, length, endpoints), func(b *testing.B) {
					if u == nil {
						u = newUsed(endpoints)
					}
					b.ReportAllocs()
					do(b)
				})
			}
			overlap := make([]int32, endpoints)
			at := func(c int) turn {
				t := u.turns[length]
				return t[c*1009%len(t)]
			}
			run("match", func(b *testing.B) {
				for c := 0; b.Loop(); c++ {
					u.x.Match(0, at(c).blocks, overlap)
				}
			})
			run("again", func(b *testing.B) {
				for c := inFlight; b.Loop(); c++ {
					u.x.Promise(0, at(c).slot, at(c).blocks)
					u.x.Hold(0, at(c-inFlight).slot, at(c-inFlight).blocks)
				}
			})
			run("new", func(b *testing.B) {
				var calls [inFlight]turn
				for c := range calls {
					calls[c] = u.next(nil, length)
				}
				for c := 0; b.Loop(); c++ {
					t := &calls[c%inFlight]
					u.x.Hold(0, t.slot, t.blocks)
					*t = u.next(t.blocks, length)
					u.x.Promise(0, t.slot, t.blocks)
				}
			})
		}
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

// BenchmarkFill fills an index of 256 MiB, and says how long the slowest of its calls
// took and the slowest of those in which the table grew: no call must pay for what the
// others made grow.
func BenchmarkFill(b *testing.B) {
	var slowest, slowestGrowing time.Duration
	for b.Loop() {
		x := New(Config{})
		u := &used{x: x, r: seed.New(1, seed.Workload, 0, 0), endpoints: 1}
		var t turn
		for !x.cells.full() {
			t = u.next(t.blocks, 264)
			size := x.table.next
			began := time.Now()
			x.Hold(0, t.slot, t.blocks)
			took := time.Since(began)
			slowest = max(slowest, took)
			if x.table.next != size {
				slowestGrowing = max(slowestGrowing, took)
			}
		}
	}
	b.ReportMetric(float64(slowest.Microseconds()), "slowest-µs")
	b.ReportMetric(float64(slowestGrowing.Microseconds()), "growing-µs")
}
