package emulator

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"kvasir/accelerator"
	"kvasir/engine"
	"kvasir/internal/mono"
	"kvasir/internal/testkit/memnet"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testConfig is a small engine of an 8B-class model on an H100.
func testConfig(t testing.TB) Config {
	p, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	c := engine.Defaults(p)
	c.NumBlocks, c.MaxModelLen = 1024, 8192
	return Config{Models: []string{"tiny", "alias"}, Engine: c}
}

// fixture is an engine in service on an in-memory network; make it in a bubble.
type fixture struct {
	t      *testing.T
	server *Server
	http   *http.Server
	client *http.Client
	stop   func() // ends Run and waits
	epoch  time.Time
}

const address = "engine:8000"

func start(t *testing.T, c Config) *fixture {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	n := memnet.New()
	l, err := n.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{t: t, server: s, http: &http.Server{Handler: s.Handler()}, epoch: time.Now()}
	if !c.Epoch.IsZero() {
		f.epoch = c.Epoch
	}
	f.stop = sync.OnceFunc(func() {
		cancel()
		<-s.done
	})
	wg.Go(func() { _ = f.http.Serve(l) })
	transport := &http.Transport{DialContext: n.DialContext}
	f.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		f.stop()
		transport.CloseIdleConnections()
		f.http.Close()
		wg.Wait()
		time.Sleep(time.Second) // virtual; net/http lingers for half of it after a refused body
	})
	return f
}

// now is the engine's time at speed 1.
func (f *fixture) now() mono.Time { return mono.Time(time.Since(f.epoch)) }

func (f *fixture) post(ctx context.Context, path, body string, header ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return f.client.Do(r)
}

// do posts a body and returns the status and the whole reply.
func (f *fixture) do(path, body string, header ...string) (int, string) {
	f.t.Helper()
	r, err := f.post(f.t.Context(), path, body, header...)
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return r.StatusCode, string(got)
}

func (f *fixture) get(path string) (int, string) {
	f.t.Helper()
	r, err := f.client.Get("http://" + address + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return r.StatusCode, string(got)
}

// chunk is what the tests read of an event.
type chunk struct {
	Choices []struct {
		Index int
		Delta struct {
			Role    string
			Content string
		}
		Text         string
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		Details          struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error *struct{ Code int }
}

// reading is what a client saw of a stream.
type reading struct {
	at    []mono.Time // of each event
	event []string    // JSON, or [DONE]
	text  string
	last  chunk // the last event that was JSON
}

// read reads a stream to its end.
func (f *fixture) read(r *http.Response) (reading, error) {
	var got reading
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			if lines.Text() != "" {
				return got, fmt.Errorf("line %q", lines.Text())
			}
			continue
		}
		got.at = append(got.at, f.now())
		got.event = append(got.event, data)
		if data == "[DONE]" {
			continue
		}
		got.last = chunk{}
		if err := json.Unmarshal([]byte(data), &got.last); err != nil {
			return got, err
		}
		for _, c := range got.last.Choices {
			got.text += c.Delta.Content + c.Text
		}
	}
	return got, lines.Err()
}

func (f *fixture) stream(body string, header ...string) (reading, error) {
	r, err := f.post(context.Background(), "/v1/chat/completions", body, header...)
	if err != nil {
		return reading{}, err
	}
	defer r.Body.Close()
	return f.read(r)
}

func chatBody(content string, fields string) string {
	return fmt.Sprintf(`{"model":"tiny","messages":[{"role":"user","content":%q}]%s}`, content, fields)
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

func TestServer_WritesVLLMsBytes(t *testing.T) {
	question := "Who made the mead of poetry?"
	for _, c := range []struct{ file, path, body string }{
		{"chat.json", "/v1/chat/completions", chatBody(question, `,"max_tokens":5`)},
		{"chat_two_choices.json", "/v1/chat/completions", chatBody(question, `,"max_tokens":3,"n":2`)},
		{"chat.sse", "/v1/chat/completions", chatBody(question, `,"max_tokens":3,"stream":true`)},
		{"chat_stop.sse", "/v1/chat/completions", chatBody(question, `,"stream":true`)},
		{"chat_usage.sse", "/v1/chat/completions", chatBody(question, `,"max_tokens":3,"stream":true,"stream_options":{"include_usage":true}`)},
		{"chat_usage_running.sse", "/v1/chat/completions", chatBody(question, `,"max_tokens":2,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`)},
		{"chat_two_choices.sse", "/v1/chat/completions", chatBody(question, `,"max_tokens":2,"n":2,"stream":true`)},
		{"completion.json", "/v1/completions", `{"prompt":"Who made","max_tokens":3}`},
		{"completion.sse", "/v1/completions", `{"prompt":"Who made","max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`},
		{"chat_tool.json", "/v1/chat/completions", chatBody(question, `,"max_tokens":3,"tools":[{"type":"function","function":{"name":"ask"}}],"tool_choice":"required"`)},
		{"chat_tool.sse", "/v1/chat/completions", chatBody(question, `,"max_tokens":4,"stream":true,"tools":[{"type":"function","function":{"name":"ask"}}],"tool_choice":"required"`)},
		{"response.json", "/v1/responses", `{"request_id":"resp_abc","input":"Who made the mead?","instructions":"Be terse.","max_output_tokens":3,"temperature":0,"metadata":{"a":"b"}}`},
		{"response.sse", "/v1/responses", `{"request_id":"resp_abc","input":"Who made the mead?","max_output_tokens":3,"stream":true}`},
		{"response_stop.sse", "/v1/responses", `{"request_id":"resp_abc","input":"Who made it? 792","max_output_tokens":40,"stream":true}`},
		{"message.json", "/v1/messages", `{"model":"tiny","max_tokens":3,"messages":[{"role":"user","content":"Who made the mead?"}]}`},
		{"message.sse", "/v1/messages", `{"model":"tiny","max_tokens":3,"stream":true,"messages":[{"role":"user","content":"Who made the mead?"}]}`},
		{"message_tool.json", "/v1/messages", `{"model":"tiny","max_tokens":3,"tools":[{"name":"ask","input_schema":{}}],"tool_choice":{"type":"any"},"messages":[{"role":"user","content":"Who made the mead?"}]}`},
		{"message_tool.sse", "/v1/messages", `{"model":"tiny","max_tokens":4,"stream":true,"tools":[{"name":"ask","input_schema":{}}],"tool_choice":{"type":"any"},"messages":[{"role":"user","content":"Who made the mead?"}]}`},
		{"message_count.json", "/v1/messages/count_tokens", `{"model":"tiny","messages":[{"role":"user","content":"Who made the mead?"}]}`},
		{"score.json", "/score", `{"text_1":"the mead of poetry","text_2":["Poetry, of old","beer"]}`},
		{"rerank.json", "/v1/rerank", `{"query":"the mead of poetry","documents":["beer","the mead","<mead>"],"top_n":2}`},
		{"tokenize.json", "/tokenize", `{"prompt":"Who made","return_token_strs":true}`},
		{"detokenize.json", "/detokenize", `{"tokens":[4294967040,544172119,1701077357]}`},
		{"embedding.json", "/v1/embeddings", `{"input":["Who made","the mead"],"dimensions":4}`},
		{"embedding_base64.json", "/v1/embeddings", `{"input":"Who made","dimensions":4,"encoding_format":"base64"}`},
	} {
		t.Run(c.file, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, testConfig(t))
				r, err := f.post(t.Context(), c.path, c.body, "X-Request-Id", "abc")
				if err != nil {
					t.Fatal(err)
				}
				defer r.Body.Close()
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Fatal(err)
				}
				want := "application/json"
				if strings.HasSuffix(c.file, ".sse") {
					want = "text/event-stream; charset=utf-8"
				}
				if r.StatusCode != 200 || r.Header.Get("Content-Type") != want || r.Header.Get("Server") != "uvicorn" {
					t.Errorf("%d, %v", r.StatusCode, r.Header)
				}
				golden(t, c.file, string(body))
			})
		})
	}
}

func TestNew_ReportsEveryMistake(t *testing.T) {
	c := testConfig(t)
	c.Models, c.Speed, c.MaxBodyBytes = []string{"a", "a"}, -1, -1
	c.Engine.MaxModelLen = 1024*16 + 1
	c.Faults = Faults{Error: 2}
	_, err := New(c)
	for _, want := range []string{"Models", "Speed is -1", "MaxBodyBytes", "Engine.MaxModelLen is 16385; allowed: at most 16384", "Faults.Error is 2; allowed: 0 to 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	c = testConfig(t)
	c.Engine.NumBlocks, c.Faults = 0, Faults{Stall: 0.6, Reset: 0.6}
	if _, err = New(c); err == nil || !strings.Contains(err.Error(), "NumBlocks") || !strings.Contains(err.Error(), "Faults is 1.2") {
		t.Errorf("%v", err)
	}
}
