package proxy_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/upstream"
)

// Field case F40 whole: to three warm engines at 50 calls a second one is added that is ten times
// slower for its first ten seconds, has no metrics page yet and looks idle; two more follow 3 s
// later, and one of them is replaced. No call fails or times out, each newcomer's share rises from
// little to the whole, and neither the later ones nor the replacement move the first one's ramp.
func TestF40_NewcomersGetTheirShareByAndBy(t *testing.T) {
	const warm, late = 3, 3
	// engine answers after 20 ms, and cold ones after 200 ms for each call that they have.
	engine := func(cold *atomic.Int64, got *atomic.Int64) scripted.Script {
		var running atomic.Int64
		return func(c *scripted.Call) {
			if c.Record().Target != chatPath {
				status(404)(c)
				return
			}
			got.Add(1)
			n := running.Add(1)
			defer running.Add(-1)
			d := 20 * time.Millisecond
			if since := cold.Load(); since > 0 && time.Now().UnixNano()-since < int64(10*time.Second) {
				d = time.Duration(n) * 200 * time.Millisecond
			}
			c.Pause(d)
			c.Stream(wholeStream("x")...)
		}
	}
	var cold, got [warm + late]atomic.Int64
	var scripts []scripted.Script
	for i := range warm + late {
		scripts = append(scripts, engine(&cold[i], &got[i]))
	}
	s := pooled(scripts...)
	s.policy = "least-outstanding"
	var whole proxy.Config
	with := func(n int) proxy.Config {
		c := whole
		c.Models = append([]proxy.Model(nil), whole.Models...)
		m := &c.Models[0]
		m.Machine.Pools, m.Pools = append(m.Machine.Pools[:0:0], m.Machine.Pools...), append(m.Pools[:0:0], m.Pools...)
		m.Machine.Pools[0].Endpoints, m.Pools[0].Endpoints = m.Machine.Pools[0].Endpoints[:n], m.Pools[0].Endpoints[:n]
		return c
	}
	s.config = func(c *proxy.Config) {
		c.Timeouts.FirstToken = 2 * time.Second
		c.Models[0].Pools[0].Scrape, c.Models[0].Pools[0].Dialect = time.Second, upstream.VLLM()
		whole = *c
		*c = with(warm)
	}
	inBubble(t, s, func(t *testing.T, r *rig) {
		r.churned = true // the one that is replaced takes its series along
		stop := r.watching()
		defer stop()
		var clients sync.WaitGroup
		var failed atomic.Int64
		load := func(d time.Duration) (shares [warm + late]float64) {
			var before [warm + late]int64
			for i := range got {
				before[i] = got[i].Load()
			}
			n := int(d / (20 * time.Millisecond))
			for range n {
				clients.Go(func() {
					a, err := r.do(context.Background(), "POST", chatPath, strings.NewReader(streamed))
					if err != nil || a.status != 200 {
						failed.Add(1)
					}
				})
				time.Sleep(20 * time.Millisecond)
			}
			for i := range got {
				shares[i] = float64(got[i].Load()-before[i]) / float64(n)
			}
			return shares
		}
		apply := func(n int) {
			for i := warm; i < n; i++ {
				cold[i].CompareAndSwap(0, time.Now().UnixNano())
			}
			if err := r.gateway.Apply(with(n)); err != nil {
				t.Fatal(err)
			}
		}
		load(time.Minute) // what is there at the start is warm
		apply(warm + 1)
		first := load(3 * time.Second)[warm]
		apply(warm + late)
		second := load(3 * time.Second)
		// The last one is taken away and comes again at once, as another endpoint.
		apply(warm + late - 1)
		cold[warm+late-1].Store(0)
		apply(warm + late)
		third := load(4 * time.Second)
		load(8 * time.Second)
		// Since they joined, 18, 15 and 12 s have passed.
		for i, at := range []float64{18, 15, 12} {
			if ramp := r.gateway.Pools()[0].Pools[0].Endpoints[warm+i].Share; ramp < at/30-0.02 || ramp > at/30+0.02 {
				t.Errorf("%v s after it joined newcomer %d may have %.2f of its share, want %.2f", at, i+1, ramp, at/30)
			}
		}
		load(25 * time.Second)
		end := load(10 * time.Second)
		clients.Wait()
		if n := failed.Load(); n > 0 {
			t.Errorf("%d calls failed", n)
		}
		for _, c := range r.records.all() {
			if tried := c.string("tried"); strings.Contains(tried, "timeout") || c.int("attempts") > 2 {
				t.Errorf("a call was tried at %s", tried)
			}
		}
		const share = 1. / (warm + late)
		if first > share/2 || second[warm+1] > share/2 || third[warm+late-1] > share/2 {
			t.Errorf("in their first seconds the newcomers have %.2f, %.2f and, replaced, %.2f of the calls; their share is %.2f", first, second[warm+1], third[warm+late-1], share)
		}
		for i := warm; i < warm+late; i++ {
			if end[i] < 0.7*share {
				t.Errorf("after their time newcomer %d has %.2f of the calls, want about %.2f", i-warm+1, end[i], share)
			}
		}
	})
}
