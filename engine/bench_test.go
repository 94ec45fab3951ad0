package engine

import (
	"fmt"
	"testing"
	"time"

	"kvasir/accelerator"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
)

func h100(t testing.TB) Config {
	t.Helper()
	p, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	return Defaults(p)
}

// decoder returns an engine in which n requests of 1,000 tokens decode.
func decoder(t testing.TB, n int) *Engine {
	t.Helper()
	c := h100(t)
	c.MaxModelLen, c.NumBlocks = 1<<30, 1<<20
	e := mustNew(t, c)
	for i := range n {
		mustSubmit(t, e, 0, plain(ID(i), 1000, 1<<18/n*16-1000))
	}
	for e.counters.PromptTokens < int64(1000*n) {
		step(t, e)
	}
	return e
}

func TestAdvance_WhenOnlyDecoding_DoesNotAllocate(t *testing.T) {
	e := decoder(t, 64)
	for range 2000 { // block tables grow to their size
		step(t, e)
	}
	allocs := testing.AllocsPerRun(100, func() {
		at, _ := e.Next()
		e.Advance(at)
	})
	if allocs > 1 { // a block table that doubles
		t.Errorf("%v allocations a step", allocs)
	}
}

// One step in which every running request decodes a token.
func BenchmarkStep_Decode(b *testing.B) {
	for _, n := range []int{1, 32, 256, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e := decoder(b, n)
			b.ReportAllocs()
			for b.Loop() {
				at, ok := e.Next()
				if !ok {
					b.StopTimer()
					e = decoder(b, n)
					b.StartTimer()
					continue
				}
				e.Advance(at)
			}
		})
	}
}

// A request's whole life: 8 turns of 200 conversations, each turn's prompt 2,000 tokens
// longer than the last, prefixes found and evicted.
func BenchmarkRequest_Conversations(b *testing.B) {
	const conversations, turns, grow, answer = 200, 8, 2000, 100
	requests := make([][]Request, turns)
	for turn := range turns {
		for i := range conversations {
			x := text{family: i, shared: 1 << 20, own: i}
			requests[turn] = append(requests[turn], x.request(ID(turn*conversations+i), (turn+1)*grow, answer, 16))
		}
	}
	c := h100(b)
	b.ReportAllocs()
	served, steps := 0, int64(0)
	for b.Loop() {
		e := mustNew(b, c)
		at := mono.Time(0)
		for _, turn := range requests {
			for _, q := range turn {
				at += second / 20
				e.Advance(at)
				mustSubmit(b, e, at, q)
			}
		}
		drain(e)
		served += conversations * turns
		steps += e.Stats().Steps
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(served), "ns/request")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
}

// A step whose waiting head is blocked: it finds 2,500 cached blocks and no room for
// the other 5,000.
func BenchmarkStep_BlockedHead(b *testing.B) {
	c := h100(b)
	c.NumBlocks = 8000
	x := text{family: 1, shared: 1 << 20}
	setup := func() *Engine {
		e := mustNew(b, c)
		mustSubmit(b, e, 0, x.request(warm, 40_000, 1, 16))
		drain(e)
		mustSubmit(b, e, e.advanced, plain(runs, 60_000, 16_000))
		for len(e.batch.Prefills) > 0 || !e.busy {
			step(b, e)
		}
		mustSubmit(b, e, e.advanced, x.request(blocked, 120_000, 1, 16))
		for e.waiting.n == 0 {
			step(b, e)
		}
		return e
	}
	e := setup()
	b.ReportAllocs()
	for b.Loop() {
		if e.waiting.n == 0 {
			b.StopTimer()
			e = setup()
			b.StartTimer()
		}
		step(b, e)
	}
}

// A stream like Mooncake's conversations: prompts of 12,000 tokens on average, of which a
// third is shared with others, in blocks of 512, and answers of 343, at four fifths of what
// the engine can take. Firsts and lasts alone are told, as to the simulator.
func BenchmarkRequest_Mooncake(b *testing.B) {
	const n, block = 2000, 512
	p, err := accelerator.Lookup("llama-3.1-70b/4xh100")
	if err != nil {
		b.Fatal(err)
	}
	c := Defaults(p)
	c.BlockTokens, c.NumBlocks = block, p.Blocks(block)
	r := seed.New(1, seed.Workload, 0, 0)
	requests := make([]Request, n)
	for i := range requests {
		x := text{family: r.Intn(40) + i/400*40, shared: 4500, own: i}
		requests[i] = x.request(ID(i), 512+r.Intn(23_000), 43+r.Intn(600), block)
	}
	// The whole stream at once tells what the engine can take.
	load := func(gap time.Duration) *Engine {
		e := mustNew(b, c)
		at := mono.Time(0)
		for _, q := range requests {
			e.Advance(at)
			mustSubmit(b, e, at, q)
			at = at.Add(gap)
		}
		drain(e)
		return e
	}
	gap := time.Duration(load(0).last.at) / n * 5 / 4
	b.ReportAllocs()
	steps := int64(0)
	for b.Loop() {
		steps += load(gap).Stats().Steps
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/request")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
	b.ReportMetric(float64(steps)/float64(b.N*n), "steps/request")
}
