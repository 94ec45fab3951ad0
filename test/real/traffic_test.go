package real

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// ending is how a call ended for its client.
type ending int

const (
	whole  ending = iota // all that was asked for
	cut                  // content, then an error event and no [DONE]
	failed               // anything else
)

// traffic is clients that call one after the other until they are told to stop.
type traffic struct {
	client *http.Client
	base   string
	body   func(worker, call int) string

	stopping chan struct{}
	workers  sync.WaitGroup

	mu     sync.Mutex
	counts map[ending]int
	at     map[string]int // whole ones, by endpoint
	wrong  []string
}

func newTraffic(t testing.TB, base string, workers int, body func(worker, call int) string) *traffic {
	f := &traffic{client: newClient(t), base: base, body: body, stopping: make(chan struct{}), counts: map[ending]int{}, at: map[string]int{}}
	for w := range workers {
		f.workers.Go(func() { f.work(w) })
	}
	t.Cleanup(f.stop)
	return f
}

func (f *traffic) work(worker int) {
	for call := 0; ; call++ {
		select {
		case <-f.stopping:
			return
		default:
		}
		end, endpoint, why := stream(f.client, f.base, f.body(worker, call))
		f.mu.Lock()
		f.counts[end]++
		switch end {
		case whole:
			f.at[endpoint]++
		case failed:
			f.wrong = append(f.wrong, why)
		}
		f.mu.Unlock()
		if end == failed {
			time.Sleep(50 * time.Millisecond) // so that a refusal does not become a flood
		}
	}
}

// stop waits for the last calls. It may be called twice.
func (f *traffic) stop() {
	f.mu.Lock()
	select {
	case <-f.stopping:
	default:
		close(f.stopping)
	}
	f.mu.Unlock()
	f.workers.Wait()
}

// count returns how many calls have ended so.
func (f *traffic) count(e ending) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[e]
}

func (f *traffic) answered(endpoint string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at[endpoint]
}

// stream makes a streamed call and reads it to its end.
func stream(client *http.Client, base, body string) (end ending, endpoint, why string) {
	resp, err := send(context.Background(), client, base+"/v1/chat/completions", body)
	if err != nil {
		return failed, "", "no answer: " + err.Error()
	}
	defer resp.Body.Close()
	endpoint = resp.Header.Get("x-kvasir-endpoint")
	content, failure, done := 0, "", false
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	first := ""
	for lines.Scan() {
		line := lines.Text()
		if first == "" {
			first = line
		}
		switch {
		case line == "data: [DONE]":
			done = true
		case strings.HasPrefix(line, `data: {"error"`):
			failure = line
		case strings.Contains(line, `"content":"`) && !strings.Contains(line, `"content":""`):
			content++
		}
	}
	switch err := lines.Err(); {
	case resp.StatusCode != http.StatusOK:
		return failed, endpoint, fmt.Sprintf("status %d: %s", resp.StatusCode, first)
	case err != nil:
		return failed, endpoint, fmt.Sprintf("after %d contents: %v", content, err)
	case done && failure == "" && content > 0:
		return whole, endpoint, ""
	case !done && failure != "" && content > 0:
		return cut, endpoint, failure
	default:
		return failed, endpoint, fmt.Sprintf("ended with %d contents, done %t, error %q; began with %s", content, done, failure, first)
	}
}
