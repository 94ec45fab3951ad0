package proxy_test

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// Field case F41: an idle connection that dies as the call comes costs the client
// nothing and the endpoint's health nothing.
func TestStaleConnectionIsNobodysFault(t *testing.T) {
	t.Parallel()
	small, big := unstreamed, `{"model":"m","messages":[{"role":"user","content":"`+strings.Repeat("x", 900<<10)+`"}]}`
	for name, x := range map[string]struct {
		body  string
		early bool
	}{
		"small": {body: small},
		"big":   {body: big, early: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := pooled(func(c *scripted.Call) {
				if rec := c.Record(); rec.Turn > 1 { // on a connection that was kept
					if rec.Conn%2 == 0 {
						c.FIN()
					} else {
						c.RST()
					}
					return
				}
				if !x.early || c.ReadBody() {
					good(c)
				}
			})
			s.options.Early = x.early
			r := newRig(t, s)
			defer r.close()
			for i := range 60 {
				if a := r.post(chatPath, x.body); a.status != 200 {
					t.Fatalf("call %d: status %d: %s", i, a.status, a.body)
				}
			}
			p := r.gateway.Pools()[0].Pools[0].Endpoints[0]
			if p.State != "in_rotation" || p.Failures != 0 {
				t.Errorf("endpoint is %s with %d failures", p.State, p.Failures)
			}
			if n := r.metric("kvasir_retries_total"); n < 20 {
				t.Errorf("only %v connections were stale: the test shows nothing", n)
			}
		})
	}
}

// Field case F41: some endpoints close a kept connection that was idle for no time at all.
// One that has worked on the call before it broke is another matter.
func TestStaleConnection_ThatWasHardlyIdle(t *testing.T) {
	for name, x := range map[string]struct {
		works time.Duration
		stale bool
	}{
		"closed at once":       {0, true},
		"closed after working": {300 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := ordered(func(c *scripted.Call) {
				if c.Record().Turn > 1 {
					c.Pause(x.works)
					c.FIN()
					return
				}
				good(c)
			})
			s.config = func(c *proxy.Config) { c.ServerIdle = time.Hour }
			r := newRig(t, s)
			defer r.close()
			for _, want := range []bool{true, x.stale} {
				if a := r.post(chatPath, unstreamed); (a.status == 200) != want {
					t.Errorf("status %d: %s", a.status, a.body)
				}
			}
		})
	}
}

// Field case F41: after one stale connection the next attempt does not take another one
// from the same pool.
func TestAttemptAfterAStaleConnectionDialsAnew(t *testing.T) {
	var stale atomic.Bool
	s := pooled(func(c *scripted.Call) {
		if stale.Load() && c.Record().Turn > 1 {
			c.RST()
			return
		}
		c.Pause(20 * time.Millisecond)
		good(c)
	})
	r := newRig(t, s)
	defer r.close()
	var clients sync.WaitGroup
	for range 20 { // fill the pool
		clients.Go(func() { r.post(chatPath, unstreamed) })
	}
	clients.Wait()
	stale.Store(true)
	for i := range 5 {
		if a := r.post(chatPath, unstreamed); a.status != 200 {
			t.Fatalf("call %d: status %d: %s", i, a.status, a.body)
		}
	}
	if n := r.metric("kvasir_retries_total"); n == 0 || n > 5 {
		t.Errorf("%v retries for 5 calls", n)
	}
}

// Field case F41 in its own times: endpoints that close what was idle for T, calls with
// gaps round T.
func TestIdleCloseRace(t *testing.T) {
	t.Parallel()
	const idle = 20 * time.Millisecond
	server := &http.Server{IdleTimeout: idle, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(jsonAnswer)) // the gateway is there
	})}
	r := newRig(t, pooled(good))
	defer r.close()
	// The real server stands where the scripted one stood.
	r.upstreams[0].Close()
	l, err := listenAgain(r.upstreams[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) }) // until it is closed
	defer running.Wait()
	defer closeAll(t, server)
	for i := range 150 {
		time.Sleep(idle - 2*time.Millisecond + time.Duration(i%40)*100*time.Microsecond)
		if a := r.post(chatPath, unstreamed); a.status != 200 {
			t.Fatalf("call %d: status %d: %s", i, a.status, a.body)
		}
	}
	if p := r.gateway.Pools()[0].Pools[0].Endpoints[0]; p.State != "in_rotation" || p.Failures != 0 {
		t.Errorf("endpoint is %s with %d failures", p.State, p.Failures)
	}
}

// listenAgain listens on an address that was in use a moment ago.
func listenAgain(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
