package proxy

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/selection/health"
	"kvasir/selection/policy"
	"kvasir/telemetry"
)

const benchEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}` + "\n\n"

// sink is a client that takes everything at once.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header              { return s.header }
func (s *sink) Write(p []byte) (int, error)      { return len(p), nil }
func (s *sink) WriteHeader(int)                  {}
func (s *sink) FlushError() error                { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }
func (s *sink) SetReadDeadline(time.Time) error  { return nil }

// canned is a transport whose every answer has a new body.
type canned func() *http.Response

func (f canned) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return nil, err
	}
	return f(), r.Body.Close()
}

func benchGateway(b *testing.B, endpoints int, transport http.RoundTripper, changes ...func(*Config)) *Gateway {
	b.Helper()
	rule, ok := policy.Lookup("least-outstanding")
	if !ok {
		b.Fatal("no least-outstanding")
	}
	pool := flow.Pool{Name: "p", PolicyName: rule.Name, Policy: rule.Params().New()}
	live := Pool{}
	for i := range endpoints {
		name := "e" + strconv.Itoa(i)
		pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: name, Weight: 1})
		live.Endpoints = append(live.Endpoints, Endpoint{URL: "http://" + name})
	}
	cfg := Config{
		Models: []Model{{
			Name: "m", Pools: []Pool{live},
			Machine: flow.Config{Retry: attempt.Default(), Health: health.Default(), Pools: []flow.Pool{pool}},
		}},
		Limits:     Limits{Calls: 1000, Body: 1 << 20, Buffered: 1 << 30, Event: 1 << 20, Preamble: 64 << 10},
		Access:     Access{Anonymous: true},
		Timeouts:   Timeouts{Header: time.Minute, FirstToken: time.Minute, Progress: time.Minute, Idle: time.Minute, Total: time.Hour},
		Heartbeat:  15 * time.Second,
		BlockBytes: 256, BodyTimeout: time.Minute, WriteTimeout: time.Minute,
		Transport: transport, Metrics: telemetry.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// endless is a stream of one event a read, while the benchmark loops.
type endless struct {
	b     *testing.B
	event string
	ended bool
}

func (e *endless) Read(p []byte) (int, error) {
	if e.ended {
		return 0, io.EOF
	}
	if e.b.Loop() {
		return copy(p, e.event), nil
	}
	e.ended = true
	return copy(p, "data: [DONE]\n\n"), nil
}

func (e *endless) Close() error { return nil }

// BenchmarkRelay is the cost of one event of a stream on its way through the gateway:
// read, looked into, written, flushed. One operation is one event.
func BenchmarkRelay(b *testing.B) {
	for name, event := range map[string]string{
		"token":   benchEvent,
		"16-in-1": strings.Repeat(benchEvent, 16),
		"ping":    ": ping\n\n",
		"4KiB":    strings.Replace(benchEvent, " token", strings.Repeat("tokens ", 600), 1),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(event)))
			body := &endless{b: b, event: event}
			g := benchGateway(b, 1, canned(func() *http.Response {
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}
			}))
			defer g.Close()
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
			g.ServeHTTP(&sink{http.Header{}}, r)
		})
	}
}

// BenchmarkRelayKept is the same for an answer that would go on elsewhere, whose text is kept.
func BenchmarkRelayKept(b *testing.B) {
	b.ReportAllocs()
	body := &endless{b: b, event: benchEvent}
	g := benchGateway(b, 1, canned(func() *http.Response {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}
	}), func(c *Config) { c.Models[0].Continue = Continue{Times: 1, Bytes: 1 << 30} })
	defer g.Close()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}`))
	g.ServeHTTP(&sink{http.Header{}}, r)
}

// BenchmarkCall is the cost of one whole call without sockets: read, identified, placed,
// sent, answered, accounted for.
func BenchmarkCall(b *testing.B) {
	const answer = `{"object":"chat.completion","choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`
	for name, size := range map[string]int{"200B": 200, "40KB": 40_000} {
		b.Run(name, func(b *testing.B) {
			g := benchGateway(b, 8, canned(func() *http.Response {
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answer))}
			}))
			defer g.Close()
			text := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/chat/completions", strings.NewReader(text))
				if err != nil {
					b.Fatal(err)
				}
				g.ServeHTTP(&sink{http.Header{}}, r)
			}
		})
	}
}
