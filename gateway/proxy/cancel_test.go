package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/seed"
	"kvasir/internal/testkit/scripted"
)

// abortWithin is how soon after a client left its upstream must see it.
const abortWithin = 500 * time.Millisecond

// leave ends a raw client's connection.
type leave func(net.Conn) error

var waysToLeave = map[string]leave{
	"fin": net.Conn.Close,
	"rst": func(c net.Conn) error {
		if err := c.(*net.TCPConn).SetLinger(0); err != nil {
			return err
		}
		return c.Close()
	},
}

// upstreamSawItGo checks that the only call's upstream saw the abort soon after left, and
// that nothing is left of the call.
func upstreamSawItGo(t *testing.T, r *rig, up *scripted.Server, left time.Time) {
	t.Helper()
	eventually(t, 3*time.Second, func() bool { return !up.Calls()[0].Aborted.IsZero() }, func() string { return "the upstream saw no abort" })
	if took := up.Calls()[0].Aborted.Sub(left); took > abortWithin {
		t.Errorf("the upstream saw the client go after %v", took)
	}
	if c := r.record(); c.string("outcome") != "client_gone" {
		t.Errorf("record %v", c)
	}
}

// waitForCall waits until the upstream has a request.
func waitForCall(t *testing.T, up *scripted.Server) {
	t.Helper()
	eventually(t, 2*time.Second, func() bool { return len(up.Calls()) > 0 }, func() string { return "no call upstream" })
}

// Field cases F14 and F15: when a client leaves, its upstream is aborted at once and the
// charge released, streamed or not, whatever the call was doing, and no other attempt is
// made.
func TestClientThatLeavesIsAbortedUpstream(t *testing.T) {
	silent := func(c *scripted.Call) { c.Hold() }
	for name, x := range map[string]struct {
		request string
		script  scripted.Script
		see     string // what the client reads before it leaves
	}{
		"stream, waiting for headers": {streamed, silent, ""},
		"stream, after headers":       {streamed, func(c *scripted.Call) { c.EventStream(); c.Hold() }, ""},
		"stream, in the preamble":     {streamed, func(c *scripted.Call) { events(c, ": ping\n\n", roleEvent); c.Hold() }, ""},
		"stream, after content":       {streamed, func(c *scripted.Call) { events(c, roleEvent, textEvent("one")); c.Hold() }, "one"},
		"stream, while it flows": {streamed, func(c *scripted.Call) {
			events(c, roleEvent)
			for i := 0; c.Pause(20*time.Millisecond) && c.Chunk(textEvent(fmt.Sprintf("chunk %d", i))) == nil; i++ {
			}
			c.Hold()
		}, "chunk 3"},
		"waiting for headers":        {unstreamed, silent, ""},
		"after headers":              {unstreamed, func(c *scripted.Call) { c.Head(200, "Content-Length: 100"); c.Hold() }, ""},
		"in the body":                {unstreamed, func(c *scripted.Call) { c.Head(200, "Content-Length: 100"); _ = c.Write(`{"id":`); c.Hold() }, `{"id":`},
		"in the body of an error":    {unstreamed, func(c *scripted.Call) { c.Head(400, "Content-Length: 100"); _ = c.Write(`{"error":`); c.Hold() }, `{"error":`},
		"after an error in a stream": {streamed, func(c *scripted.Call) { events(c, textEvent("one"), errorEvent); c.Hold() }, "died"},
	} {
		for way, leave := range waysToLeave {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, ordered(x.script, func(c *scripted.Call) { c.Stream(wholeStream("wrong")...) }))
				defer r.close()
				c := r.send(rawPost(chatPath, x.request))
				waitForCall(t, r.upstreams[0])
				if x.see != "" {
					readUntil(t, c, x.see)
				} else {
					time.Sleep(30 * time.Millisecond)
				}
				left := time.Now()
				if err := leave(c); err != nil {
					t.Fatal(err)
				}
				upstreamSawItGo(t, r, r.upstreams[0], left)
				if n := len(r.upstreams[1].Calls()); n != 0 {
					t.Errorf("%d attempts after the client left", n)
				}
			})
		}
	}
}

// Field case F15, while the body is on its way: to the gateway, and to an endpoint that
// does not read.
func TestClientThatLeavesWhileItsBodyIsSent(t *testing.T) {
	t.Parallel()
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 12<<20) + `"}]}`
	for way, leave := range waysToLeave {
		t.Run("to the gateway, "+way, func(t *testing.T) {
			r := newRig(t, ordered(func(c *scripted.Call) { c.Hold() }))
			defer r.close()
			c := r.send(rawPost(chatPath, unstreamed)[:150])
			eventually(t, time.Second, func() bool { return r.gateway.State().CallsInFlight == 1 }, func() string { return "no call" })
			if err := leave(c); err != nil {
				t.Fatal(err)
			}
			if rec := r.record(); rec.string("outcome") != "client_gone" || rec.int("attempts") != 0 {
				t.Errorf("record %v", rec)
			}
			if n := len(r.upstreams[0].Calls()); n != 0 {
				t.Errorf("%d attempts for a client that left", n)
			}
		})
		t.Run("to the endpoint, "+way, func(t *testing.T) {
			gone := make(chan time.Time, 1)
			s := ordered(func(c *scripted.Call) {
				c.ReadSome(100 << 10)
				time.Sleep(100 * time.Millisecond) // the gateway's writes fill the buffers
				for c.ReadSome(32 << 10) {
					time.Sleep(time.Millisecond)
				}
				gone <- time.Now()
			})
			s.options.Early = true
			s.config = func(c *proxy.Config) { c.Limits.Body = 16 << 20 }
			r := newRig(t, s)
			defer r.close()
			c := r.send(rawPost(chatPath, body))
			waitForCall(t, r.upstreams[0])
			left := time.Now()
			if err := leave(c); err != nil {
				t.Fatal(err)
			}
			if rec := r.record(); rec.string("outcome") != "client_gone" {
				t.Errorf("record %v", rec)
			}
			if took := (<-gone).Sub(left); took > abortWithin+time.Second { // what the buffers hold is read first
				t.Errorf("the upstream saw the client go after %v", took)
			}
		})
	}
}

// Field case F15, between two attempts: a client that leaves during the backoff is not
// retried for.
func TestClientThatLeavesBetweenAttempts(t *testing.T) {
	t.Parallel()
	for way, leave := range waysToLeave {
		t.Run(way, func(t *testing.T) {
			s := ordered(func(c *scripted.Call) { c.Reply(503, "text/plain", "busy") }, func(c *scripted.Call) { c.Hold() })
			s.config = func(c *proxy.Config) {
				// Jitter is drawn from the seed and the number of the call, so the backoff can be
				// chosen of which the part that is drawn is 400 ms.
				retry := &c.Models[0].Machine.Retry
				retry.Backoff, retry.MaxBackoff = time.Second, time.Second
				jitter := seed.New(c.Models[0].Machine.Seed, seed.Backoff, 1, 1)
				retry.Backoff = time.Duration(400 * time.Millisecond.Seconds() / retry.Delay(1, &jitter).Seconds() * float64(time.Second))
				retry.MaxBackoff = retry.Backoff
			}
			r := newRig(t, s)
			defer r.close()
			c := r.send(rawPost(chatPath, unstreamed))
			eventually(t, time.Second, func() bool { return r.gateway.Pools()[0].BetweenTwo == 1 }, func() string { return "not between two attempts" })
			if err := leave(c); err != nil {
				t.Fatal(err)
			}
			left := time.Now()
			if rec := r.record(); rec.string("outcome") != "client_gone" || rec.int("attempts") != 1 {
				t.Errorf("record %v", rec)
			}
			if took := time.Since(left); took > 150*time.Millisecond { // less than the backoff
				t.Errorf("the call ended %v after its client", took)
			}
			time.Sleep(500 * time.Millisecond)
			if n := len(r.upstreams[1].Calls()); n != 0 {
				t.Errorf("%d attempts for a client that left", n)
			}
		})
	}
}

// Field case F15: impatient clients that retry leave no orphans upstream.
func TestImpatientClientsLeaveNoOrphans(t *testing.T) {
	t.Parallel()
	r := newRig(t, pooled(func(c *scripted.Call) { c.Hold() }))
	defer r.close()
	var most int
	stop, watched := make(chan bool), make(chan bool)
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				most = max(most, r.upstreams[0].Alive())
			}
		}
	}()
	var clients sync.WaitGroup
	for range 5 {
		clients.Go(func() {
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
				if _, err := r.do(ctx, "POST", chatPath, strings.NewReader(unstreamed)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				cancel()
				time.Sleep(50 * time.Millisecond) // an SDK's backoff
			}
		})
	}
	clients.Wait()
	close(stop)
	<-watched
	if most > 5 || most == 0 {
		t.Errorf("%d calls were alive upstream at once for 5 clients", most)
	}
	if n := len(r.upstreams[0].Calls()); n != 15 {
		t.Errorf("%d upstream calls, want 15", n)
	}
}

// Field case F16: whatever ends a call gives its charge back, so that load stays true.
func TestF16_AbortsAtAnyMomentLeaveNoLoadBehind(t *testing.T) {
	script := func(c *scripted.Call) {
		if !c.Pause(2 * time.Millisecond) {
			return
		}
		c.EventStream()
		for _, e := range wholeStream("one", "two", "three") {
			if c.Chunk(e) != nil || !c.Pause(2*time.Millisecond) {
				return
			}
		}
		c.LastChunk()
	}
	s := pooled(script, script, script)
	s.policy = "least-outstanding"
	r := newRig(t, s)
	defer r.close()
	random := rand.New(rand.NewPCG(16, 16))
	var clients sync.WaitGroup
	slots := make(chan bool, 32)
	for range 300 {
		moment := time.Duration(random.IntN(20_000)) * time.Microsecond
		way := []leave{waysToLeave["fin"], waysToLeave["rst"]}[random.IntN(2)]
		slots <- true
		clients.Go(func() {
			defer func() { <-slots }()
			c := r.open()
			go func() { _, _ = io.WriteString(c, rawPost(chatPath, streamed)) }() // it may leave first
			time.Sleep(moment)
			if err := way(c); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	r.settle()

	before := make([]int, 3)
	for i, up := range r.upstreams {
		before[i] = len(up.Calls())
		up.SetScript(func(c *scripted.Call) { c.Reply(200, "application/json", jsonAnswer) })
	}
	for range 150 {
		if a := r.post(chatPath, unstreamed); a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
	}
	for i, up := range r.upstreams {
		if n := len(up.Calls()) - before[i]; n < 30 || n > 70 {
			t.Errorf("endpoint %d got %d of 150 calls after the aborts", i, n)
		}
	}
}

// Field case F20: streams whose clients left leave no goroutine and no connection behind,
// round after round.
func TestF20_CancelledStreamsLeaveNothingBehind(t *testing.T) {
	r := newRig(t, pooled(
		func(c *scripted.Call) { c.EventStream(); _ = c.Chunk(textEvent("one")); c.Hold() },
		func(c *scripted.Call) { // a flood
			c.EventStream()
			flood := strings.Repeat(textEvent("flood"), 200)
			for c.Chunk(flood) == nil {
			}
			c.Hold()
		}))
	defer r.close()
	const streams = 60
	var after []int
	for range 3 {
		var conns []net.Conn
		for range streams {
			conns = append(conns, r.send(rawPost(chatPath, streamed)))
		}
		for _, c := range conns {
			readUntil(t, c, "200 OK")
		}
		for _, c := range conns {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		r.settle()
		eventually(t, 2*time.Second, func() bool { return r.upstreams[0].Alive()+r.upstreams[1].Alive() == 0 },
			func() string { return "streams are alive upstream" })
		time.Sleep(20 * time.Millisecond)
		after = append(after, runtime.NumGoroutine())
	}
	if after[2] > after[0]+10 {
		t.Errorf("goroutines after each round: %v", after)
	}
}
