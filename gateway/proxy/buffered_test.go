package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// The bound on all bodies together refuses with 503 and names itself; nothing is lost
// from it, however calls end. A body that is only announced takes nothing from others.
func TestBufferedBytesAreBoundedAndComeBack(t *testing.T) {
	release := make(chan bool)
	s := ordered(func(c *scripted.Call) { <-release; good(c) })
	s.config = func(c *proxy.Config) { c.Limits.Buffered, c.Limits.Body = 1<<20, 600<<10 }
	r := newRig(t, s)
	defer r.close()

	var announced []net.Conn
	for range 8 {
		announced = append(announced, r.send("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 600000\r\n\r\n{"))
	}
	eventually(t, 2*time.Second, func() bool { return r.gateway.State().CallsInFlight == 8 }, func() string { return "clients did not arrive" })
	if held := r.gateway.State().BufferedBytes; held > 8*64<<10 {
		t.Errorf("%d bytes are booked for bodies that were announced", held)
	}
	for _, c := range announced {
		closeAll(t, c)
	}
	r.settle()

	var held sync.WaitGroup
	held.Go(func() {
		if a := r.post(chatPath, chatOf(500<<10)); a.status != 200 {
			t.Errorf("status %d: %s", a.status, a.body)
		}
	})
	eventually(t, 2*time.Second, func() bool { return r.upstreamCalls() == 1 }, func() string { return "the first call is not upstream" })
	a := r.post(chatPath, chatOf(590<<10))
	if a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("status %d, %v", a.status, a.header)
	}
	if e := envelope(t, a.body); !strings.Contains(e.Message, "limits.buffered") {
		t.Errorf("envelope %+v", e)
	}
	close(release)
	held.Wait()
	if n := r.metric("kvasir_refusals_total", "reason=buffers_full"); n != 1 {
		t.Errorf("counted %v times", n)
	}
	if a := r.post(chatPath, chatOf(590<<10)); a.status != 200 {
		t.Errorf("afterwards: status %d", a.status)
	}
}

// Field case F66: memory stays within the bound at 100 parallel uploads.
func TestHundredUploadsStayWithinTheBound(t *testing.T) {
	const bound = 8 << 20
	release := make(chan bool)
	s := ordered(func(c *scripted.Call) { <-release; good(c) })
	s.config = func(c *proxy.Config) { c.Limits.Buffered = bound }
	r := newRig(t, s)
	defer r.close()
	request := inChunks(chatPath, chatOf(900<<10))
	before := heap()
	var conns []net.Conn
	for range 100 {
		c := r.open()
		conns = append(conns, c)
		go func() { _, _ = io.WriteString(c, request) }() // refused ones fail
	}
	statuses := make(chan int, len(conns))
	for _, c := range conns {
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				statuses <- 0
				return
			}
			statuses <- resp.StatusCode
		}()
	}
	refused := 0
	for refused+r.upstreamCalls() < 100 {
		select {
		case code := <-statuses:
			if code != 503 {
				t.Fatalf("status %d", code)
			}
			refused++
		case <-time.After(5 * time.Millisecond):
		}
		if held := r.gateway.State().BufferedBytes; held > bound {
			t.Fatalf("%d bytes are booked, over the bound", held)
		}
	}
	if grown := heap() - before; grown > bound+24<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	if accepted := 100 - refused; accepted < 3 {
		t.Errorf("only %d calls fitted", accepted)
	}
	close(release)
	for range 100 - refused {
		if code := <-statuses; code != 200 {
			t.Errorf("status %d", code)
		}
	}
	for _, c := range conns {
		closeAll(t, c)
	}
}

// heap returns the bytes of live objects.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
