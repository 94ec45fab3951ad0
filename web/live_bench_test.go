package web

import (
	"fmt"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/telemetry"
)

// busy is a gateway with 50 endpoints whose calls end at 1,000 a second.
type busy struct {
	pools []proxy.ModelView
	calls []telemetry.Ended
}

func (b *busy) Pools() []proxy.ModelView                     { return b.pools }
func (b *busy) Load() (int, int64)                           { return 500, 1 << 20 }
func (b *busy) Tap(*proxy.Tap)                               {}
func (b *busy) Drain(f func(string, []telemetry.Ended, int)) { f("m", b.calls, 0) }

// BenchmarkLive is what a second costs the process, without its look at the pools: while nobody
// watches, and while somebody does, however many.
func BenchmarkLive(b *testing.B) {
	source := &busy{pools: []proxy.ModelView{{Model: "m", SLO: &proxy.SLOView{TTFT: new(1.0)}, Pools: []proxy.PoolView{{Pool: "p"}}}}}
	for i := range 50 {
		source.pools[0].Pools[0].Endpoints = append(source.pools[0].Pools[0].Endpoints, proxy.EndpointView{Endpoint: fmt.Sprint("e", i), Running: new(3.0), Waiting: new(0.0)})
	}
	for i := range 1000 {
		source.calls = append(source.calls, telemetry.Ended{
			Pool: "p", Endpoint: fmt.Sprint("e", i%50), Outcome: telemetry.Success, TTFT: time.Duration(i) * time.Millisecond, TPOT: time.Duration(10+i%30) * time.Millisecond,
			Predicted: time.Duration(1+i) * time.Millisecond, Actual: time.Duration(2+i) * time.Millisecond, Judged: true, Within: i%9 > 0, Reported: true, Output: 100, Prompt: 500, Cached: 300,
		})
	}
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprintf("watched=%v", watched), func(b *testing.B) {
			l := NewLive(LiveConfig{Gateway: source, Calls: source})
			now := time.Unix(1e9, 0)
			l.history = newHistory(now)
			for range LivePoints {
				now = now.Add(time.Second)
				l.look(now)
			}
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Second)
				l.look(now)
				if watched {
					l.render("state")
				}
			}
		})
	}
}
