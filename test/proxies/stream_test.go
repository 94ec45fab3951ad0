package proxies

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"kvasir/test/program"
)

// patience bounds waits for what must come; it measures nothing.
const patience = 20 * time.Second

// everywhere runs a test in every arrangement.
func everywhere(t *testing.T, test func(t *testing.T, c *chain)) {
	for _, a := range arrangements {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			test(t, newChain(t, a))
		})
	}
}

func newClient(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func call(t testing.TB, ctx context.Context, client *http.Client, base string, body io.Reader) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}

func ask(mode string, stream bool) io.Reader {
	return strings.NewReader(fmt.Sprintf(`{"model":"tiny","mode":%q,"stream":%t,"messages":[{"role":"user","content":"mead"}]}`, mode, stream))
}

// TestStream_EachEventArrivesBeforeTheNextIsMade confirms every event to the engine, which
// makes no other before.
func TestStream_EachEventArrivesBeforeTheNextIsMade(t *testing.T) {
	everywhere(t, func(t *testing.T, c *chain) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		resp, err := call(t, ctx, newClient(t), c.base, ask("steps", true))
		if err != nil {
			t.Fatalf("no header before the second event: %v", err)
		}
		defer resp.Body.Close()
		if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
			t.Fatalf("status %d, content type %q", resp.StatusCode, kind)
		}
		if mark := resp.Header.Get("X-Accel-Buffering"); mark != "no" && c.base == c.gateway.Base {
			t.Errorf("X-Accel-Buffering is %q", mark) // nginx takes it and does not pass it on
		}
		seen, done := 0, false
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			switch line := lines.Text(); {
			case strings.Contains(line, fmt.Sprintf(`"step %d"`, seen)):
				seen++
				select {
				case c.engine.confirmed <- struct{}{}:
				case <-ctx.Done():
					t.Fatalf("the engine did not wait for event %d to be confirmed", seen)
				}
			case line == "data: [DONE]":
				done = true
			}
		}
		if err := lines.Err(); err != nil || seen != steps || !done {
			t.Errorf("%d of %d events came before the next was made, end mark %t: %v", seen, steps, done, err)
		}
	})
}

// TestAbort_ReachesTheEngine leaves calls in the middle of a stream and before any answer.
func TestAbort_ReachesTheEngine(t *testing.T) {
	everywhere(t, func(t *testing.T, c *chain) {
		for _, test := range []struct {
			name, mode string
			stream     bool
		}{{"mid-stream", "endless", true}, {"stream not begun", "silent", true}, {"not streamed", "silent", false}} {
			t.Run(test.name, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				client := newClient(t)
				over := make(chan error, 1)
				reading := make(chan struct{})
				go func() {
					resp, err := call(t, ctx, client, c.base, ask(test.mode, test.stream))
					if err != nil {
						over <- err
						return
					}
					defer resp.Body.Close()
					close(reading)
					_, err = io.Copy(io.Discard, resp.Body)
					over <- err
				}()
				wait(t, c.engine.began, "the call")
				if test.mode == "endless" {
					wait(t, reading, "the answer's header")
				}
				leave()
				if err := <-over; err == nil {
					t.Error("the call ended by itself")
				}
				wait(t, c.engine.left, "the client's leaving")
				program.Eventually(t, "nothing is in flight", func() bool { return c.gateway.Metric(t, "kvasir_in_flight") == 0 })
			})
		}
		if n := c.engine.calls.Load(); n != 3 {
			t.Errorf("the engine got %d calls for 3", n)
		}
	})
}

func wait(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s did not reach the engine", what)
	}
}

// TestBody_LargeOnesPassWhole sends 8 MB with a length and without.
func TestBody_LargeOnesPassWhole(t *testing.T) {
	everywhere(t, func(t *testing.T, c *chain) {
		body := fmt.Sprintf(`{"model":"tiny","mode":"whole","messages":[{"role":"user","content":%q}]}`, strings.Repeat("mead\n", 8<<20/6))
		want := fmt.Sprintf("%x", sha256.Sum256([]byte(body)))
		client := newClient(t)
		for name, r := range map[string]io.Reader{
			"with a length": strings.NewReader(body),
			"chunked":       struct{ io.Reader }{strings.NewReader(body)},
		} {
			resp, err := call(t, t.Context(), client, c.base, r)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(got), want) {
				t.Errorf("%s: status %d, %v: %.200s", name, resp.StatusCode, err, got)
			}
		}
	})
}

// TestKeepAlive_ConnectionsAreReused makes calls one after the other, streamed and not.
func TestKeepAlive_ConnectionsAreReused(t *testing.T) {
	everywhere(t, func(t *testing.T, c *chain) {
		client := newClient(t)
		before := make([]int64, len(c.hops))
		for i, h := range c.hops {
			before[i] = h.conns.Load()
		}
		engineBefore := c.engine.conns.Load()
		const calls = 60
		for n := range calls {
			mode := []string{"whole", "steps"}[n%2]
			resp, err := call(t, t.Context(), client, c.base, ask(mode, mode == "steps"))
			if err != nil {
				t.Fatal(err)
			}
			if mode == "steps" {
				confirm(c.engine, steps)
			}
			if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("status %d, %v: %s", resp.StatusCode, err, b)
			}
			_ = resp.Body.Close()
		}
		const few = 4 // a connection may be returned a moment after the next call needs one
		for i, h := range c.hops {
			if n := h.conns.Load() - before[i]; n > few {
				t.Errorf("%d connections for %d calls at hop %d", n, calls, i)
			}
		}
		if n := c.engine.conns.Load() - engineBefore; n > few {
			t.Errorf("%d connections to the engine for %d calls", n, calls)
		}
	})
}

// confirm lets a stream of mode steps go on, n times.
func confirm(e *engine, n int) {
	go func() {
		for range n {
			e.confirmed <- struct{}{}
		}
	}()
}
