package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Clients that send their header a byte at a time are let go, and no bound of theirs can
// be passed.
func TestBounds_OnClients(t *testing.T) {
	engine := engineServer(t)
	r := runNode(t, fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlimits: {headers: 8KiB, connections: 3}\nclient: {header_timeout: 300ms}\nmodels: {m: [%q]}\n", engine.URL))
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", r.node.dataAddr)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("slow header", func(t *testing.T) {
		c := dial()
		defer c.Close()
		began := time.Now()
		go func() {
			for _, b := range []byte("POST /v1/chat/completions HTTP/1.1\r\nHost: " + strings.Repeat("x", 500)) {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
		if _, err := io.Copy(io.Discard, c); err == nil && time.Since(began) > 5*time.Second {
			t.Error("the connection was kept")
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("let go after %v", took)
		}
	})
	t.Run("large header", func(t *testing.T) {
		c := dial()
		defer c.Close()
		go func() {
			_, _ = fmt.Fprintf(c, "GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Big: %s\r\n\r\n", strings.Repeat("x", 64<<10))
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
	t.Run("connections", func(t *testing.T) {
		ask := func(c net.Conn, wait time.Duration) error {
			if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
				return err
			}
			if _, err := io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				return err
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		}
		var open []net.Conn
		for range 3 {
			c := dial()
			defer c.Close()
			if err := ask(c, 5*time.Second); err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		late := dial()
		defer late.Close()
		if err := ask(late, 300*time.Millisecond); err == nil {
			t.Error("a fourth connection was served")
		}
		if err := open[0].Close(); err != nil {
			t.Fatal(err)
		}
		next := dial()
		defer next.Close()
		_ = late.Close()
		if err := ask(next, 5*time.Second); err != nil {
			t.Errorf("with room again: %v", err)
		}
	})
}

// The admin listener's profiles are for who has the token.
func TestProfiles_NeedTheToken(t *testing.T) {
	engine := engineServer(t)
	t.Setenv("KVASIR_TEST_TOKEN", "secret-token-canary")
	r := runNode(t, fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nadmin_token: env:KVASIR_TEST_TOKEN\nmodels: {m: [%q]}\n", engine.URL))
	for token, want := range map[string]int{"": 401, "wrong": 401, "secret-token-canary": 200} {
		q, err := http.NewRequest("GET", "http://"+r.node.adminAddr+"/debug/pprof/goroutine?debug=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("token %q: status %d", token, resp.StatusCode)
		}
	}
}
