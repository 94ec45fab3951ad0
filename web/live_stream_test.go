package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kvasir/gateway/proxy"
	"kvasir/selection"
	"kvasir/telemetry"
	"kvasir/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// feed is a gateway of which a test says what it does.
type feed struct {
	mu     sync.Mutex
	pools  []proxy.ModelView
	ended  []telemetry.Ended
	tap    *proxy.Tap
	tapped int // times that a tap was set, or taken away
}

func (f *feed) Pools() []proxy.ModelView {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pools
}

func (f *feed) Load() (int, int64) { return 3, 4096 }

func (f *feed) Tap(t *proxy.Tap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tap = t
	f.tapped++
}

func (f *feed) Drain(do func(string, []telemetry.Ended, int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do("m", f.ended, 0)
	do("", []telemetry.Ended{{Outcome: telemetry.Refused}}, 0)
	f.ended = nil
}

func (f *feed) current() *proxy.Tap {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tap
}

func (f *feed) end(calls ...telemetry.Ended) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, calls...)
}

// streaming is a Live that runs behind a socket.
type streaming struct {
	*feed
	url  string
	stop func() // ends Run
}

func stream(t *testing.T) *streaming {
	t.Helper()
	f := &feed{pools: []proxy.ModelView{{Model: "m", SLO: &proxy.SLOView{TTFT: new(1.0)}, Pools: []proxy.PoolView{{
		Pool: "p", Policy: "round-robin", Endpoints: []proxy.EndpointView{{Endpoint: "a", State: "in_rotation", InFlight: 2}, {Endpoint: "b", State: "in_rotation", Waiting: new(1.0)}},
	}}}}}
	l := web.NewLive(web.LiveConfig{Gateway: f, Calls: f, MayChange: true, Policies: []string{"round-robin"}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	server := httptest.NewUnstartedServer(l)
	server.Config.ReadTimeout, server.Config.WriteTimeout = time.Second, time.Second // a stream outlasts both
	server.Start()
	t.Cleanup(func() {
		cancel()
		running.Wait()
		server.Close()
	})
	return &streaming{feed: f, url: server.URL, stop: func() { cancel(); running.Wait() }}
}

// watch opens the stream. leave ends it, and waits until it is.
func (s *streaming) watch(t *testing.T) (events *reader, leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	leave = sync.OnceFunc(func() {
		cancel()
		_ = resp.Body.Close()
		transport.CloseIdleConnections()
	})
	t.Cleanup(leave)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	return &reader{bufio.NewReader(resp.Body)}, leave
}

// reader reads server-sent events.
type reader struct{ *bufio.Reader }

// next returns the next event; an error where the stream ends.
func (r *reader) next() (name, data string, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", "", err
		}
		line = strings.TrimSuffix(line, "\n")
		switch key, value, _ := strings.Cut(line, ": "); {
		case line == "" && data != "":
			return name, data, nil
		case key == "event":
			name = value
		case key == "data":
			data = value
		}
	}
}

// until returns the data of the next event of the name.
func (r *reader) until(t *testing.T, name string) string {
	t.Helper()
	for {
		got, data, err := r.next()
		if err != nil {
			t.Fatalf("waiting for %s: %v", name, err)
		}
		if got == name {
			return data
		}
	}
}

func decode[T any](t *testing.T, data string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

func (r *reader) state(t *testing.T) web.LiveState {
	t.Helper()
	return decode[web.LiveState](t, r.until(t, "state"))
}

func TestLive_BeginsWithTheHistoryAndTheState(t *testing.T) {
	s := stream(t)
	s.end(telemetry.Ended{Pool: "p", Endpoint: "a", Outcome: telemetry.Success, Output: 10, Reported: true, TTFT: time.Second / 2, Judged: true, Within: true, Prompt: 100, Cached: 60},
		telemetry.Ended{Pool: "p", Endpoint: "a", Outcome: telemetry.EndpointFailure, Retries: 2, Judged: true})
	events, _ := s.watch(t)
	began := time.Now()
	for _, want := range []string{"history", "state", "state", "state"} {
		name, data, err := events.next()
		if err != nil || name != want {
			t.Fatalf("%q, %v, want %s", name, err, want)
		}
		if want == "history" {
			h := decode[web.LiveHistory](t, data)
			if h.Points != 1 || h.Models[0].Pools[0].Endpoints[0].InFlight[0] != 2 || !strings.Contains(data, `"waiting":[null]`) || !strings.Contains(data, `"waiting":[1]`) {
				t.Errorf("history %s", data)
			}
		}
	}
	if took := time.Since(began); took < time.Second || took > 4*time.Second {
		t.Errorf("two more states came within %v", took)
	}
	var state web.LiveState
	for state.Models == nil || state.Models[0].Window.Calls == 0 { // the look that finds the calls
		state = events.state(t)
	}
	w := state.Models[0].Window
	if w.Calls != 2 || w.Failures != 1 || w.Retries != 2 || w.Goodput.Judged != 2 || *w.Goodput.Share != 0.5 || *w.CachedShare != 0.6 || *w.TTFT.P99 != 0.5 || w.TPOT.P50 != nil || *w.OutputPerSecond <= 0 {
		t.Errorf("window %+v", w)
	}
	a, b := state.Models[0].Pools[0].Endpoints[0], state.Models[0].Pools[0].Endpoints[1]
	if a.Window.Calls != 2 || b.Window.Calls != 0 || a.InFlight != 2 || b.InFlight != 0 || b.Window.OutputPerSecond != nil {
		t.Errorf("endpoints %+v %+v", a, b)
	}
	if !state.MayChange || state.Watchers != 1 || state.InFlight != 3 || state.Buffered != 4096 || state.Unrouted < 1 {
		t.Errorf("state %+v", state)
	}
}

func TestLive_ServesSoManyWatchers(t *testing.T) {
	s := stream(t)
	var leave func()
	for range web.LiveWatchers {
		var events *reader
		events, leave = s.watch(t)
		events.until(t, "state")
	}
	resp, err := http.Get(s.url)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 503 || !strings.Contains(string(body), "16 watch already") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d %s", resp.StatusCode, body)
	}
	leave()
	for {
		resp, err := http.Head(s.url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == 200 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	http.DefaultClient.CloseIdleConnections()
}

func decided(call selection.CallID, attempt int) proxy.Decided {
	return proxy.Decided{ID: fmt.Sprint("id-", call), Model: "m", At: time.Now(), InputTokens: 7, Decision: &selection.Decision{
		Call: call, Attempt: attempt, Pool: "p", Policy: "round-robin", Candidates: []selection.Candidate{{Endpoint: "a", Outstanding: 2, SignalAge: -1}, {Endpoint: "b", SignalAge: -1}},
	}}
}

func TestLive_ShowsDecisionsWhileSomebodyWatches(t *testing.T) {
	s := stream(t)
	if s.current() != nil {
		t.Fatal("decisions are taken while nobody watches")
	}
	events, leave := s.watch(t)
	events.until(t, "state")
	tap := s.current()
	if tap == nil {
		t.Fatal("no decision is taken while somebody watches")
	}
	wanted := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if tap.Wants() {
			wanted++
		}
	}
	if wanted < 3 || wanted > web.LiveDecisions+1 {
		t.Errorf("%d decisions are wanted in a second, want at most %d", wanted, web.LiveDecisions)
	}
	tap.Decided(decided(5, 0))
	tap.Ended(5, telemetry.Call{ID: "id-5", Model: "m", Pool: "p", Endpoint: "a", Outcome: telemetry.Success, Attempts: 1})
	d := decode[map[string]any](t, events.until(t, "decision"))
	if d["call"] != 5.0 || d["id"] != "id-5" || d["chosen"] != "a" || d["input_tokens"] != 7.0 || d["shadow"] != nil {
		t.Errorf("decision %v", d)
	}
	if trade := d["traded"].(map[string]any); trade["outstanding"] != 2.0 || trade["least_outstanding"] != 0.0 || trade["least_outstanding_endpoint"] != "b" || trade["overlap_tokens"] != nil {
		t.Errorf("traded %v", trade)
	}
	if o := decode[map[string]any](t, events.until(t, "outcome")); o["call"] != 5.0 || o["outcome"] != "success" || o["ttft_seconds"] != nil {
		t.Errorf("outcome %v", o)
	}
	leave()
	for end := time.Now().Add(5 * time.Second); s.current() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("decisions are taken though nobody watches any more")
		}
	}
}

// A watcher that does not read loses events, is told how many once it reads, and holds up
// nobody.
func TestLive_DropsWhatAWatcherIsTooSlowFor(t *testing.T) {
	s := stream(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	quick, _ := s.watch(t)
	quick.until(t, "state")
	const sent = 20000
	last := make(chan web.LiveState) // of the quick one, after all were sent
	over := make(chan struct{})
	go func() {
		defer close(last)
		for {
			name, data, err := quick.next()
			if err != nil {
				return
			}
			if name != "state" {
				continue
			}
			select {
			case <-over:
				var state web.LiveState
				_ = json.Unmarshal([]byte(data), &state)
				last <- state
				return
			default:
			}
		}
	}()
	tap := s.current()
	for i := range sent {
		tap.Ended(uint64(i), telemetry.Call{ID: strings.Repeat("x", 2000), Model: "m"})
		if i%10 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	close(over)
	state, ok := <-last
	if !ok {
		t.Fatal("the quick watcher's stream has ended")
	}
	slow := &reader{bufio.NewReader(conn)}
	_ = conn.SetReadDeadline(time.Now().Add(8 * time.Second))
	if first := slow.state(t); first.Dropped != 0 {
		t.Errorf("the first state says that %d were dropped", first.Dropped)
	}
	for dropped := int64(0); dropped <= state.Dropped+sent/10; dropped = slow.state(t).Dropped {
	}
}

func TestLive_EndsItsStreams(t *testing.T) {
	s := stream(t)
	events, _ := s.watch(t)
	events.until(t, "state")
	s.stop()
	for {
		if _, _, err := events.next(); err != nil {
			break
		}
	}
	resp, err := http.Get(s.url)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != 503 {
		t.Errorf("after the end: %d", resp.StatusCode)
	}
}
