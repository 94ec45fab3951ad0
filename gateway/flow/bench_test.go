package flow_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/policy"
	"kvasir/selection/prefix"
	"kvasir/selection/signal"
)

// benchMachine returns a machine of n endpoints with fresh signals and some load.
func benchMachine(rule policy.Rule, n int) *flow.Machine {
	pool := flow.Pool{Name: "p", PolicyName: rule.Name, Policy: rule.Params().New()}
	for i := range n {
		pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: fmt.Sprint("engine-", i), Weight: 1 + float64(i%3)})
	}
	m := flow.New(flow.Config{
		Seed: 1, Retry: attempt.Default(), Health: health.Default(),
		Prefix: prefix.Config{BudgetBytes: 16 << 20, SpeculativeTTL: 30 * time.Second},
		Pools:  []flow.Pool{pool},
	})
	for i := range n {
		m.Step(1, flow.Signal(selection.Slot(i), 0, signal.Load{
			Running: signal.Known(float64(i%9), 0), Waiting: signal.Known(0, 0), KVUsage: signal.Known(float64(i%7)/10, 0),
			KVBlocks: signal.Known(27000, 0), BlockTokens: signal.Known(16, 0),
		}, 0))
	}
	m.Step(2, flow.Wake())
	return m
}

// BenchmarkPick is one call's two visits to the machine through its lock: one that picks
// and charges, one that releases. The prompt has 8 blocks that some endpoint holds.
func BenchmarkPick(b *testing.B) {
	for _, rule := range policy.Catalog() {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", rule.Name, n), func(b *testing.B) {
				m := benchMachine(rule, n)
				blocks := []kvblock.Hash{1, 2, 3, 4, 5, 6, 7, 8}
				var mu sync.Mutex
				var ids atomic.Uint64
				epoch := time.Now()
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					q := &selection.Request{Stream: true, InputTokens: 500, Blocks: blocks, BlockTokens: 64, Head: 9}
					for pb.Next() {
						q.ID = selection.CallID(ids.Add(1))
						mu.Lock()
						a := m.Step(mono.Time(time.Since(epoch)), flow.Arrive(q))[0]
						mu.Unlock()
						mu.Lock()
						m.Step(mono.Time(time.Since(epoch)), flow.Done(a.Ticket, a.Attempt, attempt.Success, flow.Usage{}))
						mu.Unlock()
					}
				})
			})
		}
	}
}

// TestPick_DoesNotAllocate holds for every policy once its state is grown.
func TestPick_DoesNotAllocate(t *testing.T) {
	for _, rule := range policy.Catalog() {
		m := benchMachine(rule, 64)
		q := &selection.Request{Stream: true, InputTokens: 500, Blocks: []kvblock.Hash{1, 2, 3}, BlockTokens: 64}
		now := mono.Time(1000)
		call := func() {
			q.ID++
			now += 1000
			a := m.Step(now, flow.Arrive(q))[0]
			m.Step(now+1, flow.FirstToken(a.Ticket, 0))
			m.Step(now+2, flow.Done(a.Ticket, 0, attempt.Success, flow.Usage{}))
		}
		for range 200 {
			call()
		}
		if n := testing.AllocsPerRun(500, call); n > 0 {
			t.Errorf("%s: %v allocations a call", rule.Name, n)
		}
	}
}
