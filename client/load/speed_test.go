package load

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"kvasir/client/load/report"
	"kvasir/client/workload"
)

// tokensOf is a chat answer of n chunks of one token.
func tokensOf(n int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "data: %s\n\n", roleChunk)
	for range n {
		fmt.Fprintf(&b, "data: %s\n\n", wordChunk)
	}
	fmt.Fprintf(&b, "data: %s\n\ndata: %s\n\ndata: [DONE]\n\n", stopChunk, usageChunk(10, n, 0))
	return b.Bytes()
}

// pieces hands out a stream in pieces of one event, as an engine sends it.
type pieces struct{ rest []byte }

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:bytes.Index(p.rest, []byte("\n\n"))+2])
	p.rest = p.rest[n:]
	return n, nil
}

// BenchmarkReceive is what reading a token costs the generator, without the network.
func BenchmarkReceive(b *testing.B) {
	const tokens = 256
	answer := tokensOf(tokens)
	c := caller{target: &Target{Backend: Backends()[2]}, started: time.Now()}
	collector := report.NewCollector(nil, false)
	s := new(scratch)
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		s.begin(report.Sample{}, false)
		collector.Begin(&s.sample)
		if kind, err := c.receive(&pieces{answer}, s, func() {}); err != nil {
			b.Fatal(kind, err)
		}
		collector.Add(&s.sample)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tokens, "ns/token")
}

// BenchmarkBench is calls over loopback in a closed loop, the server's work included: 32
// tokens an answer, 64 calls at once.
func BenchmarkBench(b *testing.B) {
	const tokens = 32
	answer := tokensOf(tokens)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(answer)
	}))
	defer server.Close()
	target := &Target{BaseURL: server.URL, Model: "m", Backend: Backends()[2]}
	if err := target.Prepare(); err != nil {
		b.Fatal(err)
	}
	client := NewClient()
	defer client.CloseIdleConnections()
	run := &Bench{
		Target: target, Client: client, ClosedLoop: true, Concurrency: 64, Calls: b.N, Text: workload.Text{BlockTokens: 16},
		Source: workload.Source{Sessions: func(yield func(workload.Session, error) bool) {
			for yield(workload.Session{Calls: []workload.Call{{PromptTokens: 256, OutputTokens: tokens}}}, nil) {
			}
		}},
	}
	b.ReportAllocs()
	b.ResetTimer()
	c, err := run.Run(b.Context())
	b.StopTimer()
	if r := c.Result(report.Run{}); err != nil || r.Completed != b.N {
		b.Fatal(err, r.Completed, r.Failures)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	b.ReportMetric(float64(b.N*tokens)/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkPrompts is what a prompt of 8,192 tokens costs to write.
func BenchmarkPrompts(b *testing.B) {
	target := &Target{BaseURL: "http://a", Model: "m", Backend: Backends()[2]}
	if err := target.Prepare(); err != nil {
		b.Fatal(err)
	}
	text := workload.Text{BlockTokens: 16}
	session := workload.Session{Calls: []workload.Call{{PromptTokens: 8192}}}
	b.ReportAllocs()
	b.SetBytes(8192 * 4)
	for b.Loop() {
		if len(target.body("", text.Messages(nil, &session, 0), 10)) < 8192*4 {
			b.Fatal("the body is too short")
		}
	}
}
