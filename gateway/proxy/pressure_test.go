package proxy_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/memnet"
	"kvasir/internal/testkit/scripted"
)

// Field case F07: a stream that never ends an event costs no more memory than one that
// does, and both pass whole.
func TestEndlessEventIsNotCollected(t *testing.T) {
	const (
		streams = 6
		size    = 12 << 20
		limit   = 512 << 10
	)
	block := strings.Repeat("a", 64<<10)
	for name, line := range map[string]string{"endless line": block, "events": "data: " + block + "\n\n", "endless event": "data: " + block + "\n", "endless comment": ": " + block + "\n"} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int32
			release := make(chan bool)
			s := pooled(func(c *scripted.Call) {
				c.EventStream()
				_ = c.Chunk(textEvent("begin") + "data: ") // a peer that left is noted
				for n := 0; n < size; n += len(line) {
					_ = c.Chunk(line)
				}
				sent.Add(1)
				<-release
				_ = c.Chunk("\n\n" + finishEvent + doneEvent)
				c.LastChunk()
			})
			s.config = func(c *proxy.Config) { c.Limits.Event = limit }
			r := newRig(t, s)
			defer r.close()
			before := heap()
			var conns []net.Conn
			got := make(chan int64, streams)
			for range streams {
				c := r.send(strings.Replace(rawPost(chatPath, streamed), "\r\n", "\r\nConnection: close\r\n", 1))
				conns = append(conns, c)
				go func() {
					n, _ := io.Copy(io.Discard, c) // its length tells
					got <- n
				}()
			}
			eventually(t, 20*time.Second, func() bool { return sent.Load() == streams }, func() string { return fmt.Sprintf("%d streams were sent", sent.Load()) })
			if grown := heap() - before; grown > streams*(2*limit+512<<10)+(4<<20) {
				t.Errorf("%d streams of %d MiB made the heap grow by %d KiB", streams, size>>20, grown>>10)
			}
			close(release)
			for range streams {
				if n := <-got; n < size {
					t.Errorf("a client got %d bytes", n)
				}
			}
			for _, c := range conns {
				closeAll(t, c)
			}
			if n := r.metric("kvasir_calls_total", "outcome=success"); n != streams {
				t.Errorf("%v of %d succeeded", n, streams)
			}
		})
	}
}

// Field case F13: a client that does not read makes its endpoint wait, not the gateway
// buffer; after the write timeout the stream is cut and the endpoint aborted.
func TestStalledReaderIsCutAndHoldsNothing(t *testing.T) {
	const (
		timeout = 3 * time.Second
		clients = 5
	)
	var written [clients]atomic.Int64
	var next atomic.Int32
	s := pooled(func(c *scripted.Call) {
		n := next.Add(1) - 1
		c.EventStream()
		flood := strings.Repeat(textEvent("flood"), 100)
		for c.Chunk(flood) == nil {
			written[n].Add(int64(len(flood)))
		}
		c.Hold()
	})
	s.config = func(c *proxy.Config) { c.WriteTimeout = timeout }
	inBubble(t, s, func(t *testing.T, r *rig) {
		var conns []net.Conn
		for range clients {
			conns = append(conns, r.send(rawPost(chatPath, streamed)))
		}
		time.Sleep(time.Second)
		if s := r.gateway.State(); s.CallsInFlight != clients {
			t.Errorf("%d calls in flight", s.CallsInFlight)
		}
		// What is on the way: two sockets' buffers, the transport's, the gateway's.
		for i := range written {
			if n := written[i].Load(); n > 4*memnet.BufferBytes {
				t.Errorf("endpoint wrote %d bytes for a client that reads none", n)
			}
		}
		began := time.Now()
		eventually(t, 2*timeout, func() bool { return r.upstreams[0].Alive() == 0 }, func() string { return "endpoints still write" })
		if took := time.Since(began) + time.Second; took > timeout*5/4 || took < timeout {
			t.Errorf("cut after %v, with a write timeout of %v", took, timeout)
		}
		for _, c := range conns {
			closeAll(t, c)
		}
		r.settle()
		for _, c := range r.records.all() {
			if c.string("outcome") != "client_gone" {
				t.Errorf("record %v", c)
			}
		}
	})
}

// Field case F13 on sockets, where the kernel buffers.
func TestStalledReaderOnASocketIsCut(t *testing.T) {
	t.Parallel()
	s := pooled(func(c *scripted.Call) {
		c.EventStream()
		flood := strings.Repeat(textEvent("flood"), 1000)
		for c.Chunk(flood) == nil {
		}
		c.Hold()
	})
	s.config = func(c *proxy.Config) { c.WriteTimeout = 300 * time.Millisecond }
	r := newRig(t, s)
	defer r.close()
	c := r.send(rawPost(chatPath, streamed))
	waitForCall(t, r.upstreams[0])
	eventually(t, 5*time.Second, func() bool { return !r.upstreams[0].Calls()[0].Aborted.IsZero() }, func() string { return "the endpoint was not aborted" })
	closeAll(t, c)
}

// A reader that is slow but alive is served to the end, however long it takes.
func TestSlowReaderIsServed(t *testing.T) {
	text := strings.Repeat(textEvent("slow"), 3000) + finishEvent + doneEvent
	s := pooled(func(c *scripted.Call) { c.Stream(text) })
	s.config = func(c *proxy.Config) { c.WriteTimeout = time.Second }
	inBubble(t, s, func(t *testing.T, r *rig) {
		c := r.send(strings.Replace(rawPost(chatPath, streamed), "\r\n", "\r\nConnection: close\r\n", 1))
		if err := c.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		total, buf := 0, make([]byte, 48<<10)
		for {
			n, err := c.Read(buf)
			total += n
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(900 * time.Millisecond)
		}
		if total < len(text) {
			t.Errorf("got %d bytes of %d", total, len(text))
		}
		closeAll(t, c)
	})
}

// The charge is released when the endpoint is done, not when a slow client has read it.
func TestSlowReaderDoesNotHoldTheCharge(t *testing.T) {
	text := textEvent(strings.Repeat("x", 70<<10)) + finishEvent + doneEvent
	inBubble(t, pooled(func(c *scripted.Call) { c.Stream(text) }), func(t *testing.T, r *rig) {
		c := r.send(rawPost(chatPath, streamed))
		time.Sleep(time.Second)
		s := r.gateway.State()
		if s.CallsInFlight != 1 || s.Models[0].Endpoints[0].Outstanding != 0 {
			t.Errorf("calls in flight %d, outstanding %d", s.CallsInFlight, s.Models[0].Endpoints[0].Outstanding)
		}
		go func() { _, _ = io.Copy(io.Discard, c) }() // until it is closed
		r.settle()
		closeAll(t, c)
	})
}

// Embeddings of any size pass unchanged: field case F70, scaled.
func TestBigAnswersPassUnchanged(t *testing.T) {
	for name, vector := range map[string]string{
		"floats": "[" + strings.Repeat("0.0123456789,-1.5e-7,", 200_000) + "0]",
		"base64": `"` + strings.Repeat("AAECAwQFBgcICQ==", 250_000) + `"`,
	} {
		text := `{"object":"list","data":[{"object":"embedding","index":0,"embedding":` + vector + `}],"model":"inner","usage":{"prompt_tokens":8,"total_tokens":8}}`
		r := newRig(t, ordered(func(c *scripted.Call) { c.Reply(200, "application/json", text) }))
		for _, request := range []string{
			embedding, `{"model":"m","input":[[1,2,3],[4]],"encoding_format":"base64","dimensions":8}`,
			`{"model":"m","input":["a","b"],"encoding_format":"float","stream":true}`,
		} {
			a := r.post(embedPath, request)
			if a.status != 200 || a.body != text {
				t.Errorf("%s: status %d, %d bytes of %d", name, a.status, len(a.body), len(text))
			}
		}
		r.settle()
		for i, c := range r.records.all() {
			if c.int("prompt_tokens") != 8 || c.int("output_tokens") != 0 || c.string("outcome") != "success" {
				t.Errorf("%s: record %v", name, c)
			}
			if got := string(r.upstreams[0].Calls()[i].Body); !strings.HasPrefix(got, `{"model":"m","input":`) {
				t.Errorf("%s: the endpoint got %q", name, got)
			}
		}
		r.close()
	}
}
