// Package real puts kvasir serve before real servers: llama.cpp's with a small model of random
// weights, and uvicorn with an app that speaks as vLLM's frontend does. install.sh installs
// them; where it has not run, the tests are skipped, and where it has, they fail for want of
// them.
package real

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvasir/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

// kind is a sort of server.
type kind struct {
	name  string
	start func(t testing.TB, address string) *program.Process
	// endless is a body of a chat that its server would answer for ever.
	endless string
	// patience is the least pause between two questions about its load. While llama.cpp's
	// server answers anything else more often than once a second, it does not look whether
	// the client of a call that is not streamed is still there.
	patience time.Duration
}

var kinds = []kind{
	{"llama.cpp", llama, `{"model":"tiny","stream":%t,"n_predict":-1,"ignore_eos":true,"temperature":0,"messages":[{"role":"user","content":"%s"}]}`, 1500 * time.Millisecond},
	{"uvicorn", func(t testing.TB, address string) *program.Process { return app(t, address, "httptools", 5) },
		`{"model":"tiny","stream":%t,"tokens":1000000,"pause":0.002,"messages":[{"role":"user","content":"%s"}]}`, 20 * time.Millisecond},
}

// llama runs llama.cpp's server with two slots, each of which can go on for ever.
func llama(t testing.TB, address string) *program.Process {
	t.Helper()
	dir := program.Installed(t, "real")
	host, port, _ := strings.Cut(address, ":")
	p := program.Start(t, nil, filepath.Join(dir, "llama-server"), "--model", filepath.Join(dir, "tiny.gguf"), "--alias", "tiny",
		"--host", host, "--port", port, "--ctx-size", "8192", "--parallel", "2", "--threads", "1", "--threads-batch", "1",
		"--poll", "0", "--pooling", "mean", "--metrics", "--embeddings", "--context-shift")
	program.Answers(t, "http://"+address+"/health")
	return p
}

// app runs uvicorn with one of its two HTTP parsers.
func app(t testing.TB, address, parser string, keepAlive int) *program.Process {
	t.Helper()
	python := filepath.Join(program.Installed(t, "real"), "venv", "bin", "python")
	_, port, _ := strings.Cut(address, ":")
	p := program.Start(t, nil, python, "app.py", "--port", port, "--http", parser, "--keep-alive", fmt.Sprint(keepAlive))
	program.Answers(t, "http://"+address+"/health")
	return p
}

// unread is the keys of a model whose endpoints are not asked for their load.
const unread = "    signals: {scrape: 0s, max_age: 0s}\n"

// addresses returns n free ones.
func addresses(t testing.TB, n int) []string {
	t.Helper()
	out := make([]string, n)
	for i := range out {
		out[i] = program.FreeAddress(t)
	}
	return out
}

// configuration is a file with the model tiny at the addresses, whose endpoints are named a,
// b and so on. keys are further ones of the model.
func configuration(top, keys string, addresses ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%smodels:\n  tiny:\n%s    endpoints:\n", top, keys)
	for i, a := range addresses {
		fmt.Fprintf(&text, "      - {name: %c, url: \"http://%s\"}\n", 'a'+i, a)
	}
	return text.String()
}

// ofEngine returns the key that says what the endpoints are, where this kvasir knows it.
func ofEngine(t testing.TB, k kind) (key string, known bool) {
	t.Helper()
	if k.name != "llama.cpp" {
		return "", true
	}
	key = "    engine: llamacpp\n"
	if !program.Accepts(t, configuration("", key, "127.0.0.1:1")) {
		return "", false
	}
	return key, true
}

func post(t testing.TB, ctx context.Context, client *http.Client, url, body string) *http.Response {
	t.Helper()
	resp, err := send(ctx, client, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func send(ctx context.Context, client *http.Client, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}

func body(t testing.TB, resp *http.Response) []byte {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(b), err)
	}
	return b
}

// newClient returns a client that keeps its connections until the test ends.
func newClient(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// unknownRoute skips the test where this kvasir has not got the route.
func unknownRoute(t testing.TB, status int, b []byte) {
	t.Helper()
	if status == http.StatusNotFound && bytes.Contains(b, []byte("unknown_route")) {
		t.Skip("this kvasir has no such route")
	}
}

// busySlots counts the calls that llama.cpp's server works at.
func busySlots(t testing.TB, address string) (n int) {
	t.Helper()
	var slots []struct {
		Busy bool `json:"is_processing"`
	}
	if err := json.Unmarshal(program.Get(t, "http://"+address+"/slots"), &slots); err != nil {
		t.Fatal(err)
	}
	for _, s := range slots {
		if s.Busy {
			n++
		}
	}
	return n
}

// running counts the calls that a server works at, as it says itself.
func running(t testing.TB, k kind, address string) int {
	t.Helper()
	if k.name == "llama.cpp" {
		return busySlots(t, address) + int(program.Metric(t, "http://"+address+"/metrics", "llamacpp:requests_deferred"))
	}
	return int(program.Metric(t, "http://"+address+"/metrics", "vllm:num_requests_running"))
}

// listener is a listener on loopback that closes with the test.
func listener(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
