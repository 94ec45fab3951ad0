package web

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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

// Whoever comes is told what there is before what happens.
func TestLive_GreetsFirst(t *testing.T) {
	source := &busy{pools: []proxy.ModelView{{Model: "m"}}}
	l := NewLive(LiveConfig{Gateway: source, Calls: source})
	now := time.Now()
	l.history = newHistory(now)
	l.look(now)
	w := l.join()
	l.send(event{"decision", nil})
	l.greet(<-l.came)
	l.send(event{"outcome", nil})
	for _, want := range []string{"history", "state", "outcome"} {
		if got := <-w.events; got.name != want {
			t.Errorf("%s comes where %s should", got.name, want)
		}
	}
	gone := l.join()
	l.leave(gone)
	l.greet(<-l.came)
	if len(gone.events) != 0 || w.dropped.Load() != 0 {
		t.Error("who has left is told something")
	}
}

// A change is shown at once, and many of them together, the last of them too; each second has its
// state all the same.
func TestLive_ShowsAChangeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &busy{pools: []proxy.ModelView{{Model: "m"}}}
		l := NewLive(LiveConfig{Gateway: source, Calls: source})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx) })
		synctest.Wait()
		w := l.join()
		var at []time.Duration
		start := time.Now()
		note := func(events int) {
			synctest.Wait()
			for range events {
				select {
				case e := <-w.events:
					if e.name == "state" {
						at = append(at, time.Since(start))
					}
				default:
				}
			}
		}
		note(2) // the history and the state
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			if now := time.Since(start); now >= 1300*time.Millisecond && now < 1700*time.Millisecond {
				for range 10 {
					l.tap.Changed()
				}
			}
			note(10)
		}
		ms := time.Millisecond
		if want := []time.Duration{0, 1000 * ms, 1300 * ms, 1500 * ms, 1700 * ms, 2000 * ms, 3000 * ms}; !slices.Equal(at, want) {
			t.Errorf("states at %v, want %v", at, want)
		}
		cancel()
		running.Wait()
	})
}
