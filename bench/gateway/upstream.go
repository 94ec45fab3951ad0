package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// serveUpstream is the upstream: one process that answers at each of the addresses, as
// cheaply as net/http can.
func serveUpstream(ctx context.Context, addrs []string) error {
	s := &http.Server{Handler: newUpstream()}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	failed := make(chan error, len(addrs))
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		go func() { failed <- s.Serve(l) }()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// upstream answers calls with what their cell says, never with what they ask.
type upstream struct {
	streams sync.Map // by number of events: [][]byte
	buffers sync.Pool
	metrics []byte
}

func newUpstream() *upstream {
	u := &upstream{metrics: metricsPage()}
	u.buffers.New = func() any { return new([512 * kib]byte) }
	return u
}

// ServeHTTP implements http.Handler.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/chat/completions":
		u.chat(w, r)
	case "/metrics":
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(u.metrics)
	case "/v1/models":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"bench","object":"model","created":1796002998,"owned_by":"vllm"}]}`)
	case "/health":
	default:
		http.NotFound(w, r)
	}
}

func (u *upstream) chat(w http.ResponseWriter, r *http.Request) {
	b := u.buffers.Get().(*[512 * kib]byte)
	defer u.buffers.Put(b)
	n, err := io.ReadFull(r.Body, b[:])
	if err != io.ErrUnexpectedEOF || int64(n) != r.ContentLength && r.ContentLength >= 0 {
		http.Error(w, fmt.Sprintf("read %d bytes of %d: %v", n, r.ContentLength, err), http.StatusBadRequest)
		return
	}
	c, err := askedFor(b[:n])
	sum := crc32.Checksum(b[:n], castagnoli)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h := w.Header()
	h.Set(sumHeader, strconv.FormatUint(uint64(sum), 16))
	if c.Events == 0 {
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(plainAnswer)))
		_, _ = w.Write(plainAnswer)
		return
	}
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	stream(w, u.stream(c.Events), c.Pace)
}

// stream writes each event by itself. Due times are fixed from the start, so that every
// gateway is offered the same events a second, whatever one write takes.
func stream(w http.ResponseWriter, events [][]byte, pace time.Duration) {
	rc := http.NewResponseController(w)
	due := time.Now()
	for i, e := range events {
		if pace > 0 && 2 <= i && i < len(events)-2 { // the role and the first word come at once, so does the end
			due = due.Add(pace)
			time.Sleep(time.Until(due))
		}
		if _, err := w.Write(e); err != nil {
			return
		}
		if rc.Flush() != nil {
			return
		}
	}
}

// stream returns the events of an answer with n content events.
func (u *upstream) stream(n int) [][]byte {
	if s, ok := u.streams.Load(n); ok {
		return s.([][]byte)
	}
	var s [][]byte
	for _, e := range events(n) {
		s = append(s, []byte(e))
	}
	u.streams.Store(n, s)
	return s
}

// askedFor reads the cell from the beginning of a body; see head.
func askedFor(body []byte) (cell, error) {
	start := body[:min(len(body), 128)]
	stream, ok := field(start, `"stream":`, ',')
	n, okN := field(start, `"max_tokens":`, ',')
	pace, okPace := field(start, `"user":"pace=`, '"')
	if !ok || !okN || !okPace {
		return cell{}, fmt.Errorf("body begins with %q, which no body of this benchmark does", start)
	}
	if stream != "true" {
		return cell{Body: len(body)}, nil
	}
	events, err := strconv.Atoi(n)
	d, errPace := time.ParseDuration(pace)
	return cell{Body: len(body), Events: events, Pace: d}, errors.Join(err, errPace)
}

func field(b []byte, name string, end byte) (string, bool) {
	_, rest, ok := bytes.Cut(b, []byte(name))
	value, _, ended := bytes.Cut(rest, []byte{end})
	return string(value), ok && ended
}

// metricsPage is a page of vLLM's size and shape: the gauges that a router reads, among
// histograms that it skips.
func metricsPage() []byte {
	var b bytes.Buffer
	const labels = `{engine="0",model_name="bench"}`
	fmt.Fprintf(&b, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running%s 3.0\n", labels)
	fmt.Fprintf(&b, "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting%s 0.0\n", labels)
	fmt.Fprintf(&b, "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc%s 0.4\n", labels)
	fmt.Fprintf(&b, "# TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries_total%s 1.234567e+06\n", labels)
	fmt.Fprintf(&b, "# TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total%s 700000.0\n", labels)
	for _, name := range []string{
		"time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
		"e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
		"request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
		"request_generation_tokens", "iteration_tokens_total", "request_max_num_generation_tokens",
	} {
		fmt.Fprintf(&b, "# HELP vllm:%s Histogram of %s.\n# TYPE vllm:%s histogram\n", name, name, name)
		for i := range 20 {
			fmt.Fprintf(&b, "vllm:%s_bucket{engine=\"0\",le=\"%g\",model_name=\"bench\"} %d.0\n", name, float64(int(1)<<i)/1000, i)
		}
		fmt.Fprintf(&b, "vllm:%s_count%s 20.0\nvllm:%s_sum%s 81.5\n", name, labels, name, labels)
	}
	return b.Bytes()
}
