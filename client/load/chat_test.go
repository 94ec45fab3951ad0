package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"kvasir/client/workload"
	"kvasir/internal/testkit/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is a chat API that says its turn's number, and fails where told to.
type chatAPI struct {
	mu    sync.Mutex
	calls [][]workload.Message
	fail  func(n int) bool // by call, from 0
}

func (a *chatAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Messages []workload.Message }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	n := len(a.calls)
	a.calls = append(a.calls, body.Messages)
	a.mu.Unlock()
	if a.fail != nil && a.fail(n) {
		http.Error(w, "no", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, word := range []string{"turn ", fmt.Sprint(len(body.Messages) / 2)} {
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", word)
		w.(http.Flusher).Flush()
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// talkFor lets users talk for a while of fake time and returns what the API saw and what
// was reported.
func talkFor(t *testing.T, a *chatAPI, c Chat, d time.Duration) (reported []error) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		l, err := network.Listen("api:80")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: a}
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) })
		client := &http.Client{Transport: &http.Transport{DialContext: network.DialContext}}
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		var mu sync.Mutex
		c.BaseURL = "http://api:80"
		c.Run(ctx, client, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, err)
		})
		client.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	})
	return reported
}

func chat(users int) Chat {
	return Chat{
		Model: "m", Users: users, Turns: 3, Think: time.Second, MaxTokens: 10,
		Conversations: workload.Conversations{Seed: 3, SystemPrompts: 2, SystemWords: 10, UserWords: 5},
	}
}

func TestChat_EachTurnSendsAllThatWasSaid(t *testing.T) {
	a := &chatAPI{}
	if reported := talkFor(t, a, chat(1), 30*time.Second); len(reported) > 0 {
		t.Fatal(reported)
	}
	if len(a.calls) < 6 {
		t.Fatalf("%d calls in 30 s", len(a.calls))
	}
	for n, m := range a.calls {
		turn := n%3 + 1
		if len(m) != 2*turn {
			t.Fatalf("call %d has %d messages, want %d", n, len(m), 2*turn)
		}
		if turn == 1 {
			continue
		}
		before := a.calls[n-1]
		for i := range before {
			if m[i] != before[i] {
				t.Fatalf("call %d does not repeat message %d of the call before", n, i)
			}
		}
		if want := (workload.Message{Role: "assistant", Content: fmt.Sprint("turn ", turn-1)}); m[len(before)] != want {
			t.Errorf("call %d gives back %+v, want %+v", n, m[len(before)], want)
		}
	}
}

func TestChat_UsersTalkAtOnceAndFailuresAreReported(t *testing.T) {
	a := &chatAPI{fail: func(n int) bool { return n%4 == 3 }}
	reported := talkFor(t, a, chat(8), 20*time.Second)
	if len(a.calls) < 60 {
		t.Errorf("8 users made %d calls in 20 s", len(a.calls))
	}
	if len(reported) < len(a.calls)/4-8 || len(reported) > len(a.calls)/4 {
		t.Errorf("%d of %d calls were reported as failed, every fourth one did", len(reported), len(a.calls))
	}
	for _, err := range reported {
		if !strings.Contains(err.Error(), "503") {
			t.Errorf("reported %v", err)
		}
	}
}
