package scripted_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kvasir/internal/testkit/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o scripted.Options, script scripted.Script) (*scripted.Server, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := scripted.Start(l, o, script)
	t.Cleanup(s.Close)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	return s, c
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	buf := make([]byte, n)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	return string(buf)
}

// Requests on one connection are noted one by one, with any framing of their bodies.
func TestRequestsAreNoted(t *testing.T) {
	s, c := start(t, scripted.Options{}, func(c *scripted.Call) { c.Reply(200, "text/plain", "ok") })
	answer := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
	for _, request := range []string{
		"POST /a HTTP/1.1\r\nX-Request-ID:  one \r\nContent-Length: 5\r\n\r\nhello",
		"POST /b HTTP/1.1\r\nx-request-id: one\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
		"GET /c HTTP/1.1\r\n\r\n",
	} {
		write(t, c, request)
		if got := read(t, c, len(answer)); got != answer {
			t.Fatalf("got %q", got)
		}
	}
	calls := s.Calls()
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, "hello") // never fails
	for i, r := range calls[:2] {
		if r.ID != "one" || string(r.Body) != "hello" || r.BodyBytes != 5 || r.BodyHash != hash.Sum64() || r.Turn != i+1 || r.Conn != 1 || r.Method != "POST" {
			t.Errorf("record %+v", r)
		}
	}
	if len(calls) != 3 || calls[2].Target != "/c" || s.Attempts("one") != 2 || s.Conns() != 1 {
		t.Errorf("records %+v", calls)
	}
}

// A peer that leaves is noted while the script runs, and ends its waiting.
func TestAbortIsNoted(t *testing.T) {
	for _, linger := range []int{-1, 0} {
		s, c := start(t, scripted.Options{}, func(c *scripted.Call) { c.EventStream(); c.Hold() })
		write(t, c, "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
		read(t, c, 10)
		if s.Alive() != 1 {
			t.Errorf("%d alive", s.Alive())
		}
		if err := errors.Join(c.(*net.TCPConn).SetLinger(linger), c.Close()); err != nil {
			t.Fatal(err)
		}
		left := time.Now()
		for s.Alive() != 0 {
			if time.Since(left) > 5*time.Second {
				t.Fatal("no abort was noted")
			}
			time.Sleep(time.Millisecond)
		}
		if r := s.Calls()[0]; r.Aborted.IsZero() {
			t.Errorf("record %+v", r)
		}
	}
}

// The script's own ways to end a connection are told apart by its peer, and are no aborts.
func TestConnectionEndsAsTheScriptSays(t *testing.T) {
	for name, x := range map[string]struct {
		end  func(*scripted.Call)
		want error
	}{"fin": {(*scripted.Call).FIN, io.EOF}, "rst": {(*scripted.Call).RST, syscall.ECONNRESET}} {
		s, c := start(t, scripted.Options{}, x.end)
		write(t, c, "GET / HTTP/1.1\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
		if r := s.Calls()[0]; !r.Aborted.IsZero() || r.Ended.IsZero() {
			t.Errorf("%s: record %+v", name, r)
		}
	}
}

// With Early the script decides when the body is read.
func TestEarlyScriptReadsTheBodyItself(t *testing.T) {
	whole := make(chan bool, 1)
	s, c := start(t, scripted.Options{Early: true}, func(c *scripted.Call) {
		c.Head(200, "Content-Length: 0")
		whole <- c.ReadBody()
	})
	body := strings.Repeat("x", 2<<20)
	write(t, c, fmt.Sprintf("POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n", len(body)))
	read(t, c, len("HTTP/1.1 200 OK"))
	write(t, c, body)
	if !<-whole {
		t.Error("the body did not come whole")
	}
	if r := s.Calls()[0]; r.BodyBytes != 2<<20 || len(r.Body) != 1<<20 || r.Read.IsZero() {
		t.Errorf("%d bytes, %d kept, read at %v", r.BodyBytes, len(r.Body), r.Read)
	}
	write(t, c, "POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if <-whole {
		t.Error("half a body counts as whole")
	}
}
