package prefix

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/internal/stats"
	"kvasir/selection"
)

// pinned is the shape of an index: every chain has its first blocks, shared by a thousand
// chains, at all endpoints, and those that follow at as many as hold it.
type pinned struct {
	name      string
	depth     int // blocks of a chain
	head      int // of those, shared
	endpoints int
	holders   int // of a chain, in its whole length
	total     int // holder-blocks behind the heads
}

// The first four are the cells for which the Rust index of smg gives its figures (292 ns
// at the median for a chain with one holder; 7.6 and 8.0 µs at the 99th percentile for one
// of 78 blocks with 64 holders, with 12.8 and 128 million holder-blocks; 26.9 bytes a
// holder-block). Then a decision over a prompt of 100,000 tokens at 100 endpoints, and
// conversations, whose own blocks one endpoint has.
var pinnedCells = []pinned{
	{"short", 8, 0, 64, 1, 1_280_000},
	{"short", 8, 0, 64, 1, 12_800_000},
	{"deep", 78, 0, 64, 64, 1_280_000},
	{"deep", 78, 0, 64, 64, 12_800_000},
	{"long", kvblock.Within(100_000 / 64), 64, 100, 1, 1_280_000},
	{"conversations", 40, 16, 64, 1, 1_280_000},
	{"conversations", 40, 16, 512, 1, 1_280_000},
}

func (p pinned) chain(n int, memory []kvblock.Hash) []kvblock.Hash {
	h := kvblock.Hash(n/1000 + 1)
	blocks := memory[:0]
	for d := range p.depth {
		if d == p.head {
			h ^= kvblock.Hash(n+1) << 32
		}
		h = kvblock.Chain(h, nil)
		blocks = append(blocks, h)
	}
	return blocks
}

func (p pinned) chains() int { return p.total / p.holders / (p.depth - p.head) }

func (p pinned) build() *Index {
	x := New(Config{BudgetBytes: 4 << 30, Endpoints: p.endpoints})
	blocks := make([]kvblock.Hash, 0, p.depth)
	for n := range p.chains() {
		blocks = p.chain(n, blocks)
		if n%1000 == 0 {
			for e := range p.endpoints {
				x.Hold(0, selection.Slot(e), blocks[:p.head])
			}
		}
		for k := range p.holders {
			x.Hold(0, selection.Slot((n+k)%p.endpoints), blocks)
		}
	}
	return x
}

func heap() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkPinned times single matches, of chains picked at random; p50 and p99 have the
// clock's own time in them. heap-B is what the heap holds for a holder-block.
func BenchmarkPinned(b *testing.B) {
	for _, p := range pinnedCells {
		b.Run(fmt.Sprintf("%s/blocks=%d/holders=%d/total=%d/endpoints=%d", p.name, p.depth, p.holders, p.total, p.endpoints), func(b *testing.B) {
			before := heap()
			x := p.build()
			perBlock := float64(heap()-before) / float64(p.total)
			r := seed.New(1, seed.Workload, 1, 0)
			overlap := make([]int32, p.endpoints)
			blocks := make([]kvblock.Hash, 0, p.depth)
			var h stats.Histogram
			b.ReportAllocs()
			for b.Loop() {
				blocks = p.chain(r.Intn(p.chains()), blocks)
				began := time.Now()
				x.Match(0, blocks, overlap)
				h.Add(int64(time.Since(began)))
			}
			b.ReportMetric(float64(h.Quantile(0.5)), "p50-ns")
			b.ReportMetric(float64(h.Quantile(0.99)), "p99-ns")
			b.ReportMetric(perBlock, "heap-B")
			runtime.KeepAlive(x)
		})
	}
}

// BenchmarkUpdate is what a gateway writes: of conversations that grow by a turn, picked at
// random, the promise and the hold. blocks/s counts each block of both.
func BenchmarkUpdate(b *testing.B) {
	for _, turn := range []int{1, 3, 8, 30} {
		b.Run(fmt.Sprintf("turn=%d", turn), func(b *testing.B) {
			const open, endpoints, turns = 2000, 64, 20
			before := heap()
			x := New(Config{Endpoints: endpoints})
			r := seed.New(1, seed.Workload, 2, 0)
			conversations := make([][]kvblock.Hash, open)
			for c := range conversations {
				conversations[c] = make([]kvblock.Hash, 0, 16+turn*turns)
			}
			testing := heap() - before - uint64(x.Bytes())
			n, updates := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				s := r.Intn(open)
				c := conversations[s]
				if len(c) == cap(c) || len(c) == 0 {
					n++
					h := kvblock.Hash(s % 50)
					for c = c[:0]; len(c) < 16; {
						h = kvblock.Chain(h, nil)
						c = append(c, h)
					}
					c[15] ^= kvblock.Hash(n) << 32
				}
				for range turn {
					c = append(c, kvblock.Chain(c[len(c)-1], nil))
				}
				conversations[s] = c
				x.Promise(0, selection.Slot(s%endpoints), c)
				x.Hold(0, selection.Slot(s%endpoints), c)
				updates += 2 * len(c)
			}
			b.ReportMetric(float64(updates)/b.Elapsed().Seconds(), "blocks/s")
			b.ReportMetric(float64(heap()-before-testing)/float64(x.Len()), "heap-B")
			runtime.KeepAlive(conversations)
		})
	}
}
