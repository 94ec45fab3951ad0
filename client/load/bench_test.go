package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/api"
	"kvasir/client/load/report"
	"kvasir/client/workload"
	"kvasir/internal/testkit/memnet"
)

// every yields instants at a constant distance, the first at 0.
func every(d time.Duration) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for at := time.Duration(0); yield(at); at += d {
		}
	}
}

// sessionsOf is a source of the sessions given.
func sessionsOf(sessions ...workload.Session) workload.Source {
	return workload.Source{Name: "test", BlockTokens: 16, Sessions: func(yield func(workload.Session, error) bool) {
		for _, s := range sessions {
			if !yield(s, nil) {
				return
			}
		}
	}}
}

// calls is a source of n sessions of one call.
func calls(n int) workload.Source {
	sessions := make([]workload.Session, n)
	for i := range sessions {
		sessions[i] = workload.Session{ID: fmt.Sprint(i), Calls: []workload.Call{{PromptTokens: 10, OutputTokens: 8}}}
	}
	return sessionsOf(sessions...)
}

// event is a part of an answer, at a time since the call's arrival.
type event struct {
	at   time.Duration
	data string
}

// sayEvents answers with a stream.
func sayEvents(w http.ResponseWriter, events ...event) {
	w.Header().Set("Content-Type", "text/event-stream")
	begin := time.Now()
	for _, e := range events {
		time.Sleep(e.at - time.Since(begin))
		fmt.Fprintf(w, "data: %s\n\n", e.data)
		_ = http.NewResponseController(w).Flush()
	}
}

const (
	roleChunk = `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`
	wordChunk = `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"ab "}}]}`
	stopChunk = `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
)

func usageChunk(input, output, cached int) string {
	return fmt.Sprintf(`{"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`, input, output, cached)
}

// whole is an answer of two words at a time.
func whole(w http.ResponseWriter, at time.Duration) {
	sayEvents(w, event{at, wordChunk}, event{at, wordChunk}, event{at, usageChunk(10, 2, 0)}, event{at, "[DONE]"})
}

// measureIn runs a bench against a handler in fake time.
func measureIn(t *testing.T, handler http.HandlerFunc, b Bench, during ...func(cancel func())) (result *report.Result, stopped error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		l, err := network.Listen("api:80")
		if err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serving.Add(1)
			defer serving.Done()
			_, _ = io.Copy(io.Discard, r.Body) // only then a server notices that a client leaves
			handler(w, r)
		})}
		serving.Go(func() { _ = server.Serve(l) })
		b.Client = NewClient()
		b.Client.Transport.(*http.Transport).DialContext = network.DialContext
		b.Client.Transport.(*http.Transport).Proxy = nil
		if b.Target == nil {
			b.Target = &Target{Backend: Backends()[2]}
		}
		b.Target.BaseURL, b.Target.Model = "http://api:80", "m"
		if err := b.Target.Prepare(); err != nil {
			t.Fatal(err)
		}
		b.Text = workload.Text{BlockTokens: 16}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, f := range during {
			serving.Go(func() { f(cancel) })
		}
		c, err := b.Run(ctx)
		stopped = err
		run := report.Run{Rate: math.NaN(), MaxConcurrency: b.Concurrency, SLO: b.SLO, LagBound: 10 * time.Millisecond, Metrics: []string{"ttft"}, Percentiles: []float64{99}}
		if err != nil {
			run.Stopped = err.Error()
		}
		result = c.Result(run)
		b.Client.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	})
	return result, stopped
}

// is compares a number of seconds with what it should be, to within a bucket's width.
func is(t *testing.T, what string, got float64, want time.Duration) {
	t.Helper()
	if math.Abs(got-want.Seconds()) > 0.008*want.Seconds()+1e-9 {
		t.Errorf("%s is %v s, want %v", what, got, want)
	}
}

func TestBench_DefinitionsOnASpeculativeStream(t *testing.T) {
	// The first output has a token, each later one two, every 40 ms. The role comes earlier
	// and the end mark 10 ms after the last output.
	events := []event{{30 * time.Millisecond, roleChunk}, {100 * time.Millisecond, wordChunk}}
	at := 100 * time.Millisecond
	for range 5 {
		at += 40 * time.Millisecond
		events = append(events, event{at, wordChunk})
	}
	events = append(events, event{at, stopChunk}, event{at, usageChunk(10, 11, 4)}, event{at, "[DONE]"})
	r, err := measureIn(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Kvasir-Endpoint", "e1")
		w.Header().Set("Server-Timing", "queue;dur=7.5, cache;desc=hit")
		sayEvents(w, events...)
	}, Bench{Source: calls(3), Arrivals: every(time.Second)})
	if err != nil || r.Completed != 3 || r.Failed != 0 || !r.Complete() || len(r.Invalid()) != 0 {
		t.Fatalf("%v: %d completed, %d failed, %v", err, r.Completed, r.Failed, r.Invalid())
	}
	is(t, "TTFT", r.TTFT.Actual.Mean(), 100*time.Millisecond)
	is(t, "intended TTFT", r.TTFT.Intended.Mean(), 100*time.Millisecond)
	is(t, "ITL", r.ITL.Mean(), 40*time.Millisecond)
	is(t, "TPOT", r.TPOT.Mean(), 20*time.Millisecond)
	is(t, "E2E", r.E2E.Actual.Mean(), 300*time.Millisecond)
	is(t, "NTPOT", r.NTPOT.Actual.Mean(), 300*time.Millisecond/11)
	is(t, "visible", r.Visible.Mean(), 100*time.Millisecond)
	if n := r.ITL.Count(); n != 15 || r.StreamedOutputs != 18 {
		t.Errorf("%d gaps, %d outputs; want 15 and 18", n, r.StreamedOutputs)
	}
	if want := (report.Tokens{Input: 30, Output: 33, Cached: 12, CachedOf: 30}); r.Tokens != want {
		t.Errorf("tokens %+v, want %+v", r.Tokens, want)
	}
	if len(r.Endpoints) != 1 || r.Endpoints[0].Name != "e1" || r.Endpoints[0].Completed != 3 {
		t.Errorf("endpoints %+v", r.Endpoints)
	}
	if len(r.Spans) != 1 || r.Spans[0].Name != "queue" || math.Abs(r.Spans[0].Mean-0.0075) > 1e-9 || r.Spans[0].Calls != 3 {
		t.Errorf("spans %+v", r.Spans)
	}
	is(t, "duration", r.Duration.Seconds(), 2300*time.Millisecond)
	if r.Throughput() < 1.3 || r.Throughput() > 1.31 {
		t.Errorf("%v calls a second, want 3 in 2.3 s", r.Throughput())
	}
}

// A slow answer must not delay another call: that is what open loop means.
func TestBench_SendsWhenDueHoweverSlowTheAnswers(t *testing.T) {
	came := &instants{}
	r, _ := measureIn(t, func(w http.ResponseWriter, _ *http.Request) {
		came.note()
		whole(w, 10*time.Second)
	}, Bench{Source: calls(20), Arrivals: every(100 * time.Millisecond)})
	for i, at := range came.at {
		if want := time.Duration(i) * 100 * time.Millisecond; at < want || at > want+time.Millisecond {
			t.Fatalf("call %d came at %v, want %v", i, at, want)
		}
	}
	if len(came.at) != 20 || r.Peak != 20 {
		t.Errorf("%d calls, at most %d at once", len(came.at), r.Peak)
	}
	is(t, "intended TTFT", r.TTFT.Intended.Max(), 10*time.Second)
}

// A server that stops for a second holds calls back where concurrency is bounded. Counted
// from the actual send nothing of that is seen, counted from the intended one all of it.
func TestBench_AWaitForConcurrencyCounts(t *testing.T) {
	first := true
	r, _ := measureIn(t, func(w http.ResponseWriter, _ *http.Request) {
		d := 10 * time.Millisecond
		if first {
			first, d = false, time.Second
		}
		whole(w, d)
	}, Bench{Source: calls(11), Arrivals: every(100 * time.Millisecond), Concurrency: 1, SLO: report.SLO{{Metric: "ttft", Most: 500 * time.Millisecond}}})
	// Call k is due at 100k ms and sent at 1000 + 10(k−1) ms.
	is(t, "actual TTFT", r.TTFT.Actual.Quantile(0.9), 10*time.Millisecond)
	is(t, "intended TTFT of the second call", r.TTFT.Intended.Quantile(0.9), 910*time.Millisecond)
	is(t, "longest wait", r.Held.Max(), 900*time.Millisecond)
	is(t, "lag", r.Lag.Max(), 0)
	if r.Peak != 1 {
		t.Errorf("%d calls at once", r.Peak)
	}
	// Good from the actual send: all but the first; from the intended one: those sent within
	// 490 ms of when they were due, which are calls 6 to 10.
	if r.Good.Actual != 10 || r.Good.Intended != 5 {
		t.Errorf("good calls %+v", r.Good)
	}
	if len(r.Invalid()) != 0 {
		t.Errorf("invalid: %v", r.Invalid())
	}
}

// A generator that falls behind says so, and its lag is in the latencies.
func TestBench_ALateGeneratorMakesTheRunInvalid(t *testing.T) {
	source := calls(5)
	quick := source.Sessions
	source.Sessions = func(yield func(workload.Session, error) bool) {
		n := 0
		for s, err := range quick {
			if n++; n == 3 {
				time.Sleep(time.Second) // its third session is 800 ms late
			}
			if !yield(s, err) {
				return
			}
		}
	}
	r, _ := measureIn(t, func(w http.ResponseWriter, _ *http.Request) { whole(w, 10*time.Millisecond) },
		Bench{Source: source, Arrivals: every(100 * time.Millisecond)})
	is(t, "lag", r.Lag.Max(), 800*time.Millisecond)
	is(t, "intended TTFT", r.TTFT.Intended.Max(), 810*time.Millisecond)
	is(t, "actual TTFT", r.TTFT.Actual.Max(), 10*time.Millisecond)
	if why := strings.Join(r.Invalid(), ""); !strings.Contains(why, "fell behind") {
		t.Errorf("invalid: %q", why)
	}
}

func TestBench_AClosedLoopHasSoManyCallsInFlight(t *testing.T) {
	r, _ := measureIn(t, func(w http.ResponseWriter, _ *http.Request) { whole(w, 100*time.Millisecond) },
		Bench{Source: calls(12), ClosedLoop: true, Concurrency: 3})
	if r.Peak != 3 || r.Completed != 12 {
		t.Errorf("%d at once, %d completed", r.Peak, r.Completed)
	}
	is(t, "duration", r.Duration.Seconds(), 400*time.Millisecond)
	is(t, "intended TTFT", r.TTFT.Intended.Max(), 100*time.Millisecond)
	is(t, "wait", r.Held.Max(), 0)
}

// Each failure is counted by its kind, and nothing of it is in a latency.
func TestBench_FailuresAreCountedByKind(t *testing.T) {
	n := 0
	r, _ := measureIn(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		switch n {
		case 1:
			http.Error(w, "too many", http.StatusTooManyRequests)
		case 2:
			sayEvents(w, event{0, wordChunk}, event{0, `{"error":{"message":"out of memory","code":500}}`}, event{0, "[DONE]"})
		case 3:
			sayEvents(w, event{0, wordChunk})
			panic(http.ErrAbortHandler)
		case 4:
			sayEvents(w, event{0, wordChunk}) // no end mark, no reason
		case 5:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		case 6:
			sayEvents(w, event{0, roleChunk}, event{0, stopChunk}, event{0, "[DONE]"})
		case 7:
			select {
			case <-r.Context().Done():
			case <-time.After(time.Hour):
			}
		default:
			whole(w, 20*time.Millisecond)
		}
	}, Bench{Source: calls(9), Arrivals: every(time.Second), Timeout: 500 * time.Millisecond})
	want := map[report.Failure]int{"http_429": 1, report.StreamError: 1, report.Broken: 2, report.NoStream: 1, report.Empty: 1, report.Overdue: 1}
	got := map[report.Failure]int{}
	for _, f := range r.Failures {
		got[f.Kind] = f.Calls
		if f.Example == "" {
			t.Errorf("%s has no example", f.Kind)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || r.Failed != 7 || r.Completed != 2 || r.TTFT.Actual.Count() != 2 || r.E2E.Intended.Count() != 2 {
		t.Errorf("failures %v, want %v; %d completed, %d TTFTs", got, want, r.Completed, r.TTFT.Actual.Count())
	}
	is(t, "TTFT", r.TTFT.Actual.Max(), 20*time.Millisecond)
}

func TestBench_NobodyListens(t *testing.T) {
	b := Bench{Target: &Target{Backend: Backends()[2]}, Source: calls(2), Arrivals: every(time.Second)}
	r, _ := measureIn(t, nil, Bench{Target: b.Target, Source: sessionsOf(), Arrivals: b.Arrivals})
	if why := strings.Join(r.Invalid(), ""); !strings.Contains(why, "no call was answered") {
		t.Errorf("an empty run is invalid because %q", why)
	}
	synctest.Test(t, func(t *testing.T) {
		b.Client = NewClient()
		b.Client.Transport.(*http.Transport).DialContext = memnet.New().DialContext
		c, err := b.Run(t.Context())
		if r := c.Result(report.Run{}); err != nil || r.Failed != 2 || r.Failures[0].Kind != report.ConnectFailed {
			t.Errorf("%v, %+v", err, r.Failures)
		}
		b.Client.CloseIdleConnections()
	})
}

// agent is a session of two calls at once after a first one, and one that follows both.
func agent() workload.Session {
	call := func(gap time.Duration, after ...int) workload.Call {
		return workload.Call{PromptTokens: 10, OutputTokens: 2, Gap: gap, After: after}
	}
	s := workload.Session{ID: "a", Class: "agent", Calls: []workload.Call{
		call(50 * time.Millisecond), call(100*time.Millisecond, 0), call(0, 0), call(200*time.Millisecond, 1, 2),
	}}
	for i, at := range []time.Duration{0, 300, 300, 900} {
		s.Calls[i].Offset = at * time.Millisecond
	}
	return s
}

// instants collects when calls come.
type instants struct {
	mu sync.Mutex
	at []time.Duration
}

// bubble is when fake time begins.
var bubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (i *instants) note() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at = append(i.at, time.Since(bubble))
	return len(i.at) - 1
}

func TestBench_WithinASessionCallsFollowEachOther(t *testing.T) {
	for _, x := range []struct {
		recorded   bool
		fail       int
		want       []time.Duration // in milliseconds
		completion time.Duration
	}{
		// Calls take 100 ms: 50, 150 (call 2, no gap), 250 (call 1), 350+200.
		{false, -1, []time.Duration{50, 150, 250, 550}, 650},
		{true, -1, []time.Duration{0, 300, 300, 900}, 1000},
		{false, 1, []time.Duration{50, 150, 250}, 0},
		{false, 0, []time.Duration{50}, 0},
		{true, 0, []time.Duration{0, 300, 300, 900}, 0},
	} {
		came := &instants{}
		r, _ := measureIn(t, func(w http.ResponseWriter, _ *http.Request) {
			if came.note() == x.fail {
				time.Sleep(100 * time.Millisecond)
				http.Error(w, "no", 500)
				return
			}
			whole(w, 100*time.Millisecond)
		}, Bench{Source: sessionsOf(agent()), Recorded: x.recorded})
		if len(came.at) != len(x.want) {
			t.Errorf("%+v: %v", x, came.at)
			continue
		}
		for i, at := range came.at {
			if want := x.want[i] * time.Millisecond; at < want || at > want+time.Millisecond {
				t.Errorf("recorded %v, failing %d: call %d came at %v, want %v", x.recorded, x.fail, i, at, want)
			}
		}
		if x.fail < 0 {
			is(t, "completion", r.Completion.Max(), x.completion*time.Millisecond)
			if r.Sessions != 1 || r.FailedSessions != 0 || len(r.Classes) != 1 || r.Classes[0].Completed != 4 {
				t.Errorf("%d sessions, %d failed, classes %v", r.Sessions, r.FailedSessions, r.Classes)
			}
		} else if r.FailedSessions != 1 || r.Completion.Count() != 0 || r.Skipped+r.Completed+r.Failed != 4 {
			t.Errorf("%+v: %d failed sessions, %d skipped, %d completed, %d failed", x, r.FailedSessions, r.Skipped, r.Completed, r.Failed)
		}
	}
}

// The number of calls bounds a run to the call, also within a session.
func TestBench_SendsAsManyCallsAsAskedFor(t *testing.T) {
	for n := 1; n <= 9; n++ {
		r, _ := measureIn(t, func(w http.ResponseWriter, _ *http.Request) { whole(w, 0) },
			Bench{Source: sessionsOf(agent(), agent()), Calls: n})
		if want := min(n, 8); r.Completed != want || !r.Complete() {
			t.Errorf("%d of %d calls, %v", r.Completed, want, r.Stopped)
		}
	}
	r, _ := measureIn(t, func(w http.ResponseWriter, _ *http.Request) { whole(w, 0) },
		Bench{Source: calls(100), Arrivals: every(time.Second), Until: 4500 * time.Millisecond})
	if r.Completed != 5 || !r.Complete() {
		t.Errorf("%d calls in 4.5 s at one a second", r.Completed)
	}
}

func TestBench_AnInterruptedRunShowsWhatThereIs(t *testing.T) {
	r, err := measureIn(t, func(w http.ResponseWriter, r *http.Request) { whole(w, 2*time.Second) },
		Bench{Source: sessionsOf(), Arrivals: every(time.Second)})
	if err != nil || r.Sent != 0 {
		t.Fatal(err, r.Sent)
	}
	r, err = measureIn(t, func(w http.ResponseWriter, r *http.Request) { whole(w, 1500*time.Millisecond) },
		Bench{Source: calls(100), Arrivals: every(time.Second)},
		func(cancel func()) { time.Sleep(5250 * time.Millisecond); cancel() })
	// Sent at 0 … 5 s; those of 0 to 3 s have ended by 5.25 s.
	if !errors.Is(err, context.Canceled) || r.Complete() || r.Sent != 6 || r.Completed != 4 || r.Unfinished != 2 || r.Failed != 0 {
		t.Errorf("%v: %d sent, %d completed, %d unfinished, %d failed", err, r.Sent, r.Completed, r.Unfinished, r.Failed)
	}
}

// A source that fails ends the run with its words.
func TestBench_ASourceThatFailsEndsTheRun(t *testing.T) {
	source := workload.Source{Name: "file", Sessions: func(yield func(workload.Session, error) bool) {
		if yield(agent(), nil) {
			yield(workload.Session{}, errors.New("file:2: no number"))
		}
	}}
	r, err := measureIn(t, func(w http.ResponseWriter, _ *http.Request) { whole(w, 0) }, Bench{Source: source})
	if err == nil || !strings.Contains(err.Error(), "file:2") || r.Completed != 4 || r.Complete() {
		t.Errorf("%v, %d completed", err, r.Completed)
	}
	_, err = measureIn(t, nil, Bench{Source: sessionsOf(workload.Session{ID: "x"})})
	if err == nil || !strings.Contains(err.Error(), "has no calls") {
		t.Errorf("a session without calls: %v", err)
	}
}

func TestServerTiming(t *testing.T) {
	for _, x := range []struct {
		header string
		want   string
	}{
		{"a;dur=1.5", "[{a 1.5ms}]"},
		{`a;desc="x";dur="2", b, c;DUR=0`, "[{a 2ms} {c 0s}]"},
		{"a;dur=-1, b;dur=x, c;dur=1e10, d;dur=NaN", "[]"},
		{strings.Repeat("a;dur=1,", 20), "[" + strings.TrimSpace(strings.Repeat("{a 1ms} ", maxSpans)) + "]"},
	} {
		if got := fmt.Sprint(serverTiming(nil, []string{x.header})); got != x.want {
			t.Errorf("%s: %s, want %s", x.header, got, x.want)
		}
	}
}

func FuzzServerTiming(f *testing.F) {
	f.Add("a;dur=1.5, b;desc=\"x\";dur=2")
	f.Fuzz(func(t *testing.T, header string) {
		spans := serverTiming(nil, []string{header})
		for _, s := range spans {
			if s.Time < 0 || len(spans) > maxSpans || strings.TrimSpace(s.Name) != s.Name {
				t.Errorf("%q gives %v", header, spans)
			}
		}
	})
}

// The four grammars' bodies say the same.
func TestTarget_Bodies(t *testing.T) {
	messages := []workload.Message{{Role: "system", Content: "S \"q\""}, {Role: "user", Content: "U"}}
	want := map[api.Grammar]string{
		api.Completions: `{"model":"m","stream":true,"stream_options":{"include_usage":true},"temperature":0,"ignore_eos":true,"x":[1],"max_tokens":7,"prompt":"S \"q\"\n\nU"}`,
		api.Chat:        `{"model":"m","stream":true,"stream_options":{"include_usage":true},"temperature":0,"ignore_eos":true,"x":[1],"max_completion_tokens":7,"messages":[{"role":"system","content":"S \"q\""},{"role":"user","content":"U"}]}`,
		api.Responses:   `{"model":"m","stream":true,"temperature":0,"ignore_eos":true,"x":[1],"max_output_tokens":7,"input":[{"role":"system","content":"S \"q\""},{"role":"user","content":"U"}]}`,
		api.Messages:    `{"model":"m","stream":true,"temperature":0,"ignore_eos":true,"x":[1],"max_tokens":7,"system":"S \"q\"","messages":[{"role":"user","content":"U"}]}`,
	}
	for _, backend := range Backends() {
		target := &Target{BaseURL: "http://a", Backend: backend, Model: "m", IgnoreEOS: true, Extra: map[string]json.RawMessage{"x": json.RawMessage("[1]")}}
		if err := target.Prepare(); err != nil {
			t.Fatal(err)
		}
		if got := string(target.body("", messages, 7)); got != want[backend.Grammar] {
			t.Errorf("%s:\n%s, want\n%s", backend.Name, got, want[backend.Grammar])
		}
	}
}

func TestTarget_PrepareReportsEveryMistake(t *testing.T) {
	target := &Target{BaseURL: "ftp://a?x=1", Endpoint: "v1", Backend: Backends()[2], Extra: map[string]json.RawMessage{"stream": json.RawMessage("false"), "messages": json.RawMessage("1")}}
	err := target.Prepare()
	for _, want := range []string{"base URL", "endpoint", "no model", `"stream"`, `"messages"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s in %v", want, err)
		}
	}
}

// A base URL may end with /v1 or not; the host v1 is no path.
func TestTarget_JoinsV1Once(t *testing.T) {
	for _, x := range [][3]string{
		{"http://a", "", "http://a/v1/chat/completions"},
		{"http://a/", "", "http://a/v1/chat/completions"},
		{"http://a/v1", "", "http://a/v1/chat/completions"},
		{"http://a/v1/", "/v1/x", "http://a/v1/x"},
		{"http://a/b/v1", "", "http://a/b/v1/chat/completions"},
		{"http://v1", "", "http://v1/v1/chat/completions"},
		{"http://a/v1", "/v2/x", "http://a/v1/v2/x"},
		{"http://a/v1", "/v12", "http://a/v1/v12"},
	} {
		target := &Target{BaseURL: x[0], Endpoint: x[1], Backend: Backends()[2], Model: "m"}
		if err := target.Prepare(); err != nil || target.url != x[2] {
			t.Errorf("%s and %q make %s, want %s (%v)", x[0], x[1], target.url, x[2], err)
		}
	}
}

// A call that asks for an adapter names it as its model.
func TestBody_NamesTheAdapter(t *testing.T) {
	target := Target{BaseURL: "http://a", Model: "m", Backend: Backends()[0]}
	if err := target.Prepare(); err != nil {
		t.Fatal(err)
	}
	for adapter, want := range map[string]string{"": `{"model":"m","stream":true`, "sql": `{"model":"sql","stream":true`} {
		if got := string(target.body(adapter, nil, 1)); !strings.HasPrefix(got, want) {
			t.Errorf("adapter %q: %s", adapter, got)
		}
	}
}
