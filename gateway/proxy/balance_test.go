package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/internal/testkit/scripted"
)

// inFlight returns the calls charged to each endpoint.
func (r *rig) inFlight() []int {
	var n []int
	for _, e := range r.gateway.State().Models[0].Endpoints {
		n = append(n, e.Outstanding)
	}
	return n
}

// Field case F19: picking and charging are one step, so that a burst spreads evenly.
func TestF19_BurstSpreadsEvenly(t *testing.T) {
	release := make(chan bool)
	script := func(c *scripted.Call) { <-release; good(c) }
	s := pooled(slices.Repeat([]scripted.Script{script}, 8)...)
	s.policy = "least-outstanding"
	r := newRig(t, s)
	defer r.close()
	total := 0
	var clients sync.WaitGroup
	for _, burst := range []int{8, 80} {
		start := make(chan bool)
		for range burst {
			clients.Go(func() {
				<-start
				if a := r.post(chatPath, unstreamed); a.status != 200 {
					t.Errorf("status %d", a.status)
				}
			})
		}
		close(start)
		total += burst
		eventually(t, 5*time.Second, func() bool { return r.upstreamCalls() == total }, func() string { return "calls did not arrive" })
		if n := r.inFlight(); slices.Max(n)-slices.Min(n) > 1 {
			t.Errorf("after %d calls the endpoints have %v", total, n)
		}
	}
	close(release)
	clients.Wait()
}

// Field case F48: at low concurrency nobody is always first.
func TestTiesAreNotAlwaysTheFirstEndpoint(t *testing.T) {
	for _, name := range []string{"random", "least-outstanding", "power-of-two", "weighted-least-request", "cache-aware", "least-kv", "ewma-latency"} {
		t.Run(name, func(t *testing.T) {
			s := pooled(good, good, good, good)
			s.policy = name
			r := newRig(t, s)
			defer r.close()
			const calls = 200
			for i := range calls {
				r.post(chatPath, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat("unique ", 40)))
			}
			if name == "ewma-latency" { // it goes by what it measured; equal it is not
				return
			}
			for i, up := range r.upstreams {
				if n := len(up.Calls()); n < calls*17/100 || n > calls*33/100 {
					t.Errorf("endpoint %d got %d of %d calls", i, n, calls)
				}
			}
		})
	}
}

// Field case F48: a common prefix draws calls together only as long as load allows.
func TestCommonPrefixSpreadsUnderLoad(t *testing.T) {
	release := make(chan bool)
	script := func(c *scripted.Call) { <-release; good(c) }
	s := pooled(script, script, script, script)
	s.policy = "cache-aware"
	r := newRig(t, s)
	defer r.close()
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("common ", 300) + `"}]}`
	var clients sync.WaitGroup
	const calls = 200
	for range calls {
		clients.Go(func() { r.post(chatPath, body) })
	}
	eventually(t, 5*time.Second, func() bool { return r.upstreamCalls() == calls }, func() string { return "calls did not arrive" })
	if n := r.inFlight(); slices.Min(n) == 0 {
		t.Errorf("the endpoints have %v", n)
	}
	close(release)
	clients.Wait()
}
