package memnet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t *testing.T) (n *Network, client, server net.Conn) {
	t.Helper()
	n = New()
	l, err := n.Listen("engine:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	client, err = n.Dial("tcp", "engine:80")
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return n, client, server
}

func mustWrite(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if n, err := io.WriteString(c, s); n != len(s) || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func TestConn_WhenPeerCloses_ReadsTheRestAndThenEOF(t *testing.T) {
	_, client, server := pair(t)
	mustWrite(t, server, "hello")
	server.Close()
	got, err := io.ReadAll(client)
	if string(got) != "hello" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	if _, err := client.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("write to a closed peer: %v", err)
	}
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("read on a closed end: %v", err)
	}
	if err := server.Close(); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("second close: %v", err)
	}
}

func TestConn_WhenHalfClosed_TheOtherDirectionLives(t *testing.T) {
	_, client, server := pair(t)
	mustWrite(t, client, "ask")
	if err := client.(*Conn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(server); string(got) != "ask" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	mustWrite(t, server, "answer")
	server.Close()
	if got, err := io.ReadAll(client); string(got) != "answer" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestConn_WhenLingerIsZero_CloseResets(t *testing.T) {
	_, client, server := pair(t)
	mustWrite(t, server, "part")
	if err := server.(*Conn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	server.Close()
	got, err := io.ReadAll(client)
	if string(got) != "part" || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %q, %v", got, err)
	}
	if _, err := client.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("write after a reset: %v", err)
	}
}

func TestConn_WhenBufferIsFull_WriteWaitsForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, server := pair(t)
		var written atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 3 {
				n, err := server.Write(make([]byte, BufferBytes))
				if err != nil {
					t.Error(err)
				}
				written.Add(int64(n))
			}
			server.Close()
		})
		synctest.Wait()
		if got := written.Load(); got != BufferBytes {
			t.Errorf("%d bytes written to a peer that does not read, want %d", got, BufferBytes)
		}
		got, err := io.Copy(io.Discard, client)
		if got != 3*BufferBytes || err != nil {
			t.Errorf("read %d, %v", got, err)
		}
		wg.Wait()
	})
}

func TestConn_KeepsBytesInOrderWhateverTheSizes(t *testing.T) {
	_, client, server := pair(t)
	want := make([]byte, 5*BufferBytes+17)
	for i := range want {
		want[i] = byte(i * 31 >> 3)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for rest, size := want, 1; len(rest) > 0; size = size*7%9973 + 1 {
			n := min(size, len(rest))
			if _, err := client.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
		client.Close()
	})
	got, err := io.ReadAll(bufio.NewReaderSize(server, 311))
	wg.Wait()
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes read, want %d; %v", len(got), len(want), err)
	}
}

func TestConn_WhenDeadlinePasses_ReadAndWriteFailUntilItIsLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, server := pair(t)
		start := time.Now()
		client.SetReadDeadline(start.Add(3 * time.Second))
		_, err := client.Read(make([]byte, 1))
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("read: %v", err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Fatalf("read failed after %v", d)
		}
		client.SetDeadline(time.Time{})
		mustWrite(t, server, "x")
		if _, err := client.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		client.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := client.Write(make([]byte, 2*BufferBytes)); n != BufferBytes || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("write: %d, %v", n, err)
		}
		// A deadline in the past ends a read that waits already, as net/http relies on.
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read: %v", err)
			}
		})
		synctest.Wait()
		client.SetReadDeadline(time.Unix(1, 0))
		wg.Wait()
		// A deadline that was replaced does not fire.
		client.SetReadDeadline(time.Now().Add(time.Second))
		client.SetReadDeadline(time.Now().Add(time.Hour))
		time.Sleep(2 * time.Second)
		mustWrite(t, server, "y")
		if _, err := client.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDial_WhenNobodyListens_IsRefused(t *testing.T) {
	n := New()
	_, err := n.Dial("tcp", "engine:80")
	if _, ok := errors.AsType[*net.OpError](err); !ok || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v", err)
	}
	if _, err := n.Dial("udp", "engine:80"); err == nil {
		t.Fatal("dialed over udp")
	}
	l, err := n.Listen("engine:80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.DialContext(ctx, "tcp", "engine:80"); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	for range Backlog {
		c, err := n.Dial("tcp", "engine:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if _, err := n.Dial("tcp", "engine:80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("beyond the backlog: %v", err)
	}
}

func TestListen_GivesEachAddressOnce(t *testing.T) {
	n := New()
	l, err := n.Listen("engine:80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen("engine:80"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("got %v", err)
	}
	if _, err := n.Listen("engine"); err == nil {
		t.Fatal("listened without a port")
	}
	a, err := n.Listen("h:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := n.Listen("h:0")
	if err != nil || a.Addr().String() == b.Addr().String() {
		t.Fatalf("%v and %v, %v", a.Addr(), b.Addr(), err)
	}
	waiting, err := n.Dial("tcp", "engine:80")
	if err != nil {
		t.Fatal(err)
	}
	if n.Conns("engine:80") != 1 {
		t.Fatal("the waiting connection is not counted")
	}
	l.Close()
	if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("a connection that nobody accepted: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("accept on a closed listener: %v", err)
	}
	if l, err = n.Listen("engine:80"); err != nil {
		t.Fatal(err)
	}
	l.Close()
	a.Close()
	b.Close()
}

func TestKill_ResetsPeersRefusesDialsAndAllowsAnotherListen(t *testing.T) {
	n, client, server := pair(t)
	mustWrite(t, server, "part")
	mustWrite(t, client, "unread")
	n.Kill("engine:80")
	if got, err := io.ReadAll(client); string(got) != "part" || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("peer read %q, %v", got, err)
	}
	if got, err := io.ReadAll(server); len(got) != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the killed end read %q, %v", got, err)
	}
	if _, err := n.Dial("tcp", "engine:80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial: %v", err)
	}
	if n.Conns("engine:80") != 0 {
		t.Fatal("killed connections are counted")
	}
	l, err := n.Listen("engine:80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	next, err := n.Dial("tcp", "engine:80")
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	server.Close()
	if n.Conns("engine:80") != 1 {
		t.Fatal("closing an old connection forgot a new one")
	}
	next.Close()
	if n.Conns("engine:80") != 0 {
		t.Fatal("a closed connection is counted")
	}
}

// An HTTP server and client run inside a bubble: an answer that takes 3 s of virtual time
// arrives frame by frame at the right instants, an abort reaches the handler at once, and
// a kill breaks the body.
func TestNetwork_CarriesHTTPInsideABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l, err := n.Listen("engine:80")
		if err != nil {
			t.Fatal(err)
		}
		var gone atomic.Int64
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i := range 3 {
				select {
				case <-r.Context().Done():
					gone.Add(1)
					return
				case <-time.After(time.Second):
				}
				fmt.Fprintf(w, "%d;", i)
				http.NewResponseController(w).Flush()
			}
		})}
		var wg sync.WaitGroup
		wg.Go(func() { _ = server.Serve(l) })
		transport := &http.Transport{DialContext: n.DialContext}
		client := &http.Client{Transport: transport}

		start := time.Now()
		// The body is larger than the buffer and the handler does not read it.
		response, err := client.Post("http://engine:80/", "text/plain", strings.NewReader(strings.Repeat("x", 3*BufferBytes)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		if string(got) != "0;1;2;" || err != nil || time.Since(start) != 3*time.Second {
			t.Fatalf("got %q, %v after %v", got, err, time.Since(start))
		}

		ctx, cancel := context.WithCancel(t.Context())
		request, _ := http.NewRequestWithContext(ctx, "GET", "http://engine:80/", nil)
		response, err = client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		if gone.Load() != 1 {
			t.Fatal("the handler did not see that its client left")
		}
		response.Body.Close()

		response, err = client.Get("http://engine:80/")
		if err != nil {
			t.Fatal(err)
		}
		n.Kill("engine:80")
		if got, err := io.ReadAll(response.Body); string(got) != "0;" || !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("got %q, %v", got, err)
		}
		synctest.Wait()
		if gone.Load() != 2 {
			t.Fatal("the handler did not see the kill")
		}
		transport.CloseIdleConnections()
		server.Close()
		wg.Wait()
	})
}

func BenchmarkConn_PingPong(b *testing.B) {
	n := New()
	l, _ := n.Listen("engine:80")
	client, _ := n.Dial("tcp", "engine:80")
	server, _ := l.Accept()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(server, server) })
	p := make([]byte, 200)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.Write(p); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, p); err != nil {
			b.Fatal(err)
		}
	}
	client.Close()
	wg.Wait()
	server.Close()
	l.Close()
}
