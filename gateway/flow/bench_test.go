package flow_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/admission"
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

// BenchmarkHold is one call that comes and is held, and the first token that lets another one
// go, while a thousand of a hundred tenants wait.
func BenchmarkHold(b *testing.B) {
	for _, x := range []struct {
		order admission.Order
		n     int // endpoints
	}{{admission.FIFO, 8}, {admission.FIFO, 64}, {admission.Fair, 8}, {admission.Fair, 64}, {admission.FairLocal, 8}, {admission.FairLocal, 64}} {
		n := x.n
		b.Run(fmt.Sprintf("%v/%d", x.order, n), func(b *testing.B) {
			rule, _ := policy.Lookup("cache-aware")
			pool := flow.Pool{Name: "p", PolicyName: rule.Name, Policy: rule.Params().New(), Queue: admission.Default()}
			pool.Queue.Tokens, pool.Queue.Length, pool.Queue.Order = 1, 2000, x.order
			for i := range n {
				pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: fmt.Sprint("engine-", i), Weight: 1})
			}
			m := flow.New(flow.Config{
				Seed: 1, Retry: attempt.Default(), Health: health.Default(),
				Prefix: prefix.Config{BudgetBytes: 16 << 20, SpeculativeTTL: 30 * time.Second}, Pools: []flow.Pool{pool},
			})
			q := &selection.Request{Stream: true, InputTokens: 500, Blocks: []kvblock.Hash{1, 2, 3, 4, 5, 6, 7, 8}, BlockTokens: 64}
			now := mono.Time(1)
			var running []flow.Action
			step := func(e flow.Event) {
				now++
				for _, a := range m.Step(now, e) {
					if a.Kind == flow.Dispatch {
						running = append(running, a)
					}
				}
			}
			for range n + 1000 {
				q.ID++
				q.Tenant = kvblock.Hash(q.ID % 100)
				step(flow.Arrive(q))
			}
			b.ReportAllocs()
			for b.Loop() {
				a := running[0]
				running = append(running[:0], running[1:]...)
				step(flow.FirstToken(a.Ticket, a.Attempt))
				step(flow.Wake())
				step(flow.Done(a.Ticket, a.Attempt, attempt.Success, flow.Usage{}))
				q.ID++
				q.Tenant = kvblock.Hash(q.ID % 100)
				step(flow.Arrive(q))
			}
		})
	}
}

// TestHold_DoesNotAllocate: calls that wait for room, and for siblings.
func TestHold_DoesNotAllocate(t *testing.T) {
	for _, order := range []admission.Order{admission.LeastSlack, admission.Deadline, admission.Fair, admission.FairLocal} {
		t.Run(order.String(), func(t *testing.T) { holdDoesNotAllocate(t, order) })
	}
}

func holdDoesNotAllocate(t *testing.T, order admission.Order) {
	rule, _ := policy.Lookup("cache-aware")
	pool := flow.Pool{Name: "p", PolicyName: rule.Name, Policy: rule.Params().New(), Queue: admission.Default()}
	pool.Queue.Tokens, pool.Queue.Order, pool.Overload = 1, order, admission.DefaultOverload()
	pool.Flights = admission.FlightConfig{MinTokens: 64, MaxWait: time.Second, MaxSiblings: 8}
	for i := range 4 {
		pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: fmt.Sprint("engine-", i), Weight: 1})
	}
	m := flow.New(flow.Config{
		Seed: 1, Retry: attempt.Default(), Health: health.Default(),
		Prefix: prefix.Config{BudgetBytes: 1 << 20, SpeculativeTTL: time.Second}, Pools: []flow.Pool{pool},
	})
	q := &selection.Request{Stream: true, InputTokens: 500, Blocks: make([]kvblock.Hash, 3), BlockTokens: 64}
	now, wakeAt := mono.Time(1000), mono.Never
	var running []flow.Action
	held := 0
	step := func(e flow.Event) {
		for _, a := range m.Step(now, e) {
			switch a.Kind {
			case flow.Dispatch:
				running = append(running, a)
			case flow.Hold:
				held++
			case flow.WakeAt:
				wakeAt = a.At
			}
		}
	}
	wake := func() {
		for n := 0; n < 100 && wakeAt <= now+100; n++ {
			now, wakeAt = max(now, wakeAt), mono.Never
			step(flow.Wake())
		}
	}
	round := func() {
		for range 12 {
			q.ID++
			now += 1000
			q.Tenant, q.Priority = kvblock.Hash(q.ID%5), int32(q.ID%3)-1
			q.Firm, q.Deadline = q.ID%2 == 0, time.Minute
			for d := range q.Blocks {
				q.Blocks[d] = kvblock.Hash(uint64(q.ID)/6*10 + uint64(d))
			}
			step(flow.Arrive(q))
		}
		for len(running) > 0 {
			a := running[0]
			running = append(running[:0], running[1:]...)
			now += 1000
			step(flow.FirstToken(a.Ticket, a.Attempt))
			wake()
			step(flow.Done(a.Ticket, a.Attempt, attempt.Success, flow.Usage{}))
			now += 1000
			wake()
		}
	}
	for range 300 {
		round()
	}
	if s := m.Snapshot(now); held == 0 || s.InFlight != 0 {
		t.Fatalf("%d calls were held, %d are in flight", held, s.InFlight)
	}
	if n := testing.AllocsPerRun(200, round); n > 0 {
		t.Errorf("%v allocations a round", n)
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

// BenchmarkPickAmongPeers is one call's two visits to a machine that has heard of eight
// peers at each endpoint, and tells them what it does itself.
func BenchmarkPickAmongPeers(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			rule, _ := policy.Lookup("predicted-ttft")
			pool := flow.Pool{Name: "p", PolicyName: rule.Name, Policy: rule.Params().New()}
			for i := range n {
				pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: fmt.Sprint("engine-", i), Weight: 1})
			}
			sharing := flow.DefaultSharing(1)
			sharing.Expiry = time.Hour
			m := flow.New(flow.Config{
				Seed: 1, Retry: attempt.Default(), Health: health.Default(), Sharing: sharing,
				Prefix: prefix.Config{BudgetBytes: 16 << 20, SpeculativeTTL: 30 * time.Second},
				Pools:  []flow.Pool{pool},
			})
			for p := range 8 {
				for i := range n {
					m.Step(mono.Time(1+p), flow.Heard(selection.Slot(i), 0, &flow.Word{
						Peer: flow.PeerID(2 + p), Number: uint64(i + 1),
						Share: flow.Share{Outstanding: int32(i % 9), OutstandingTokens: int64(500 * (i % 9)), LastFirst: -1},
					}, 0))
				}
			}
			q := &selection.Request{Stream: true, InputTokens: 500, Blocks: []kvblock.Hash{1, 2, 3, 4, 5, 6, 7, 8}, BlockTokens: 64, Head: 9}
			now := mono.Time(time.Second)
			b.ReportAllocs()
			for b.Loop() {
				q.ID++
				now = now.Add(100 * time.Microsecond)
				a := m.Step(now, flow.Arrive(q))[0]
				m.Step(now+1, flow.Done(a.Ticket, a.Attempt, attempt.Success, flow.Usage{}))
				m.Words()
			}
		})
	}
}

// BenchmarkPick_Shadow is least-outstanding alone, in its own shadow, and in that of
// predicted-ttft, which uses overlap.
func BenchmarkPick_Shadow(b *testing.B) {
	for _, shadow := range []string{"none", "least-outstanding", "predicted-ttft"} {
		for _, n := range []int{8, 64} {
			b.Run(fmt.Sprintf("%s/%d", shadow, n), func(b *testing.B) {
				rule, _ := policy.Lookup("least-outstanding")
				m := benchMachine(rule, n)
				if r, ok := policy.Lookup(shadow); ok {
					m.Shadow("p", shadow, r.Params().New())
				}
				q := &selection.Request{Stream: true, InputTokens: 500, Blocks: []kvblock.Hash{1, 2, 3, 4, 5, 6, 7, 8}, BlockTokens: 64, Head: 9}
				now := mono.Time(2)
				b.ReportAllocs()
				for b.Loop() {
					q.ID++
					now++
					a := m.Step(now, flow.Arrive(q))[0]
					now++
					m.Step(now, flow.Done(a.Ticket, a.Attempt, attempt.Success, flow.Usage{}))
				}
			})
		}
	}
}
