package real

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"kvasir/test/program"
)

// TestCancellation_ReachesTheServer leaves calls that would never end, in the middle of their
// stream and before any answer, and waits for the servers to have nothing to do.
func TestCancellation_ReachesTheServer(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			servers := addresses(t, 2)
			for _, s := range servers {
				k.start(t, s)
			}
			engine, _ := ofEngine(t, k)
			gateway := program.Serve(t, configuration("", engine+"    policy: round-robin\n"+unread, servers...))
			busy := func(n int) func() bool {
				return func() bool { return running(t, k, servers[0])+running(t, k, servers[1]) == n }
			}
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
					client := newClient(t)
					const calls = 4
					ctx, leave := context.WithCancel(t.Context())
					over := make(chan error, calls)
					for i := range calls {
						go func() {
							over <- begin(ctx, client, gateway.Base, fmt.Sprintf(k.endless, stream, fmt.Sprint("mead ", i)), stream)
						}()
					}
					if stream {
						for range calls {
							if err := <-over; err != nil {
								t.Fatal(err)
							}
						}
					}
					program.Eventually(t, "the servers work at every call", busy(calls))
					leave()
					program.EventuallyEvery(t, k.patience, "the servers have nothing to do", busy(0))
					program.Eventually(t, "the gateway has nothing in flight", func() bool {
						return gateway.Metric(t, "kvasir_in_flight") == 0
					})
				})
			}
			if got := gateway.Metric(t, "kvasir_calls_total", `outcome="client_gone"`); got != 8 {
				t.Errorf("%v calls were counted as left by their clients, want 8", got)
			}
			if k.name == "uvicorn" {
				aborted := 0.0
				for _, s := range servers {
					aborted += program.Metric(t, "http://"+s+"/metrics", "vllm:request_success_total", `finished_reason="abort"`)
				}
				if aborted != 8 {
					t.Errorf("the servers saw %v of 8 clients leave", aborted)
				}
			}
		})
	}
}

// begin makes a call and leaves it open until ctx ends: a stream from its third event on,
// else before it is answered.
func begin(ctx context.Context, client *http.Client, base, body string, stream bool) error {
	resp, err := send(ctx, client, base+"/v1/chat/completions", body)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	for events := 0; events < 3; {
		if !lines.Scan() {
			return fmt.Errorf("the stream ended early: status %d, %v", resp.StatusCode, lines.Err())
		}
		if strings.HasPrefix(lines.Text(), "data: ") {
			events++
		}
	}
	if !stream {
		return fmt.Errorf("status %d for a call that has no end", resp.StatusCode)
	}
	return nil
}
