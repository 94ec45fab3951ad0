package policy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// busyView returns a view of n endpoints as they are in a busy pool: every endpoint
// has calls, a report and a latency of its own, and an overlap with the request.
func busyView(n int) *selection.View {
	v := newView(n)
	r := seed.New(7, seed.Workload, 0, 0)
	for i := range n {
		for range r.Intn(20) {
			charge(v, selection.Slot(i), 100+r.Intn(4000))
		}
		l := &v.Endpoints[i].Load
		l.KVUsage = signal.Known(r.Float64(), v.Now)
		l.Waiting = signal.Known(float64(r.Intn(8)), v.Now)
		v.Overlap[i] = int32(r.Intn(64))
		v.Active[i] = int32(r.Intn(64))
		v.Book[i].ActiveBlocks = int64(v.Active[i]) + int64(r.Intn(500))
	}
	return v
}

// teach gives a policy that learns some observations of every endpoint.
func teach(p selection.Policy, v *selection.View) {
	for i := range 16 * len(v.Members) {
		slot := v.Members[i%len(v.Members)]
		observe(p, &selection.End{Sample: selection.Sample{
			At: v.Now.Add(time.Duration(i-16*len(v.Members)) * time.Millisecond), Slot: slot, Input: 4096,
			Own: selection.Prefill(4096, int64(i*13%4096)), TTFT: time.Duration(200+i*13%800) * time.Millisecond,
		}})
	}
}

func BenchmarkPick(b *testing.B) {
	for _, rule := range Catalog() {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("%s/endpoints=%d", rule.Name, n), func(b *testing.B) {
				benchmarkPick(b, rule.Params().New(), busyView(n))
			})
		}
	}
}

// BenchmarkPickHalfUnknown is least-kv where every second report is missing and the
// median of the others has to be found.
func BenchmarkPickHalfUnknown(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("least-kv/endpoints=%d", n), func(b *testing.B) {
			v := busyView(n)
			for i := 0; i < n; i += 2 {
				v.Endpoints[i].Load.KVUsage = signal.Known(math.NaN(), v.Now)
			}
			benchmarkPick(b, build("least-kv"), v)
		})
	}
}

// BenchmarkRingRebuild is the first pick after a pool's members have changed.
func BenchmarkRingRebuild(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			p, v, q := build("consistent-hash"), busyView(n), newRequest(1, 64)
			b.ReportAllocs()
			for b.Loop() {
				v.Version++
				pick(p, v, q, 1)
			}
		})
	}
}

func benchmarkPick(b *testing.B, p selection.Policy, v *selection.View) {
	teach(p, v)
	requests := make([]*selection.Request, 64)
	for i := range requests {
		requests[i] = newRequest(i, 64)
	}
	pick(p, v, requests[0], 0)
	var r seed.Rand
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r = seed.New(1, seed.Pick, uint64(i), 0)
		p.Pick(v, requests[i%len(requests)], &r)
	}
}
