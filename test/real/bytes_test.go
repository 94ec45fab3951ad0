package real

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"kvasir/test/program"
)

const sampling = `"model":"tiny","temperature":0,"seed":1,"cache_prompt":false,"ignore_eos":true`

// routes are calls whose answer follows from the request alone.
var routes = []struct{ name, path, body string }{
	{"chat", "/v1/chat/completions", `{` + sampling + `,"max_tokens":300,"messages":[{"role":"user","content":"Who brewed the mead?"}]}`},
	{"chat streamed", "/v1/chat/completions", `{` + sampling + `,"max_tokens":300,"stream":true,"messages":[{"role":"user","content":"Who brewed the mead?"}]}`},
	{"chat streamed with usage", "/v1/chat/completions", `{` + sampling + `,"max_tokens":40,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Μέλι?"}]}`},
	{"chat streamed with probabilities", "/v1/chat/completions", `{` + sampling + `,"max_tokens":40,"stream":true,"logprobs":true,"top_logprobs":20,"messages":[{"role":"user","content":"mead"}]}`},
	{"two choices streamed", "/v1/chat/completions", `{` + sampling + `,"n":2,"max_tokens":60,"stream":true,"messages":[{"role":"user","content":"mead"}]}`},
	{"completion", "/v1/completions", `{` + sampling + `,"max_tokens":200,"prompt":"Once upon a time"}`},
	{"completion streamed", "/v1/completions", `{` + sampling + `,"max_tokens":200,"stream":true,"prompt":"Once upon a time"}`},
	{"completion of token ids", "/v1/completions", `{` + sampling + `,"max_tokens":50,"stream":true,"prompt":[120,121,272]}`},
	{"embeddings", "/v1/embeddings", `{"model":"tiny","input":["mead","honey"]}`},
	{"embeddings in base64", "/v1/embeddings", `{"model":"tiny","input":"mead","encoding_format":"base64"}`},
	{"tokenize", "/tokenize", `{"model":"tiny","content":"Who brewed the mead?","prompt":"Who brewed the mead?"}`},
	{"responses", "/v1/responses", `{` + sampling + `,"max_output_tokens":60,"input":"Who brewed the mead?"}`},
	{"responses streamed", "/v1/responses", `{` + sampling + `,"max_output_tokens":60,"stream":true,"input":"Who brewed the mead?"}`},
	{"messages", "/v1/messages", `{` + sampling + `,"max_tokens":60,"messages":[{"role":"user","content":"Who brewed the mead?"}]}`},
	{"messages streamed", "/v1/messages", `{` + sampling + `,"max_tokens":60,"stream":true,"messages":[{"role":"user","content":"Who brewed the mead?"}]}`},
}

// TestBytes_OutAreBytesIn compares what the gateway gives with what it got, to the byte, and
// with what the server says when it is asked directly, but for what differs from call to call.
func TestBytes_OutAreBytesIn(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			server := program.FreeAddress(t)
			k.start(t, server)
			tap := newTap(t, server)
			engine, _ := ofEngine(t, k)
			gateway := program.Serve(t, configuration("", engine, tap.address))
			client := newClient(t)
			seen := map[string]int{}
			for _, r := range routes {
				t.Run(r.name, func(t *testing.T) {
					resp := post(t, t.Context(), client, gateway.Base+r.path, r.body)
					got := body(t, resp)
					unknownRoute(t, resp.StatusCode, got)
					seen[r.path]++
					all := tap.answers(t, r.path)
					if len(all) != seen[r.path] {
						t.Fatalf("the server was called %d times, want %d", len(all), seen[r.path])
					}
					in := all[len(all)-1]
					if !bytes.Equal(got, in.body) {
						t.Errorf("out:\n%s\nin:\n%s", got, in.body)
					}
					if out, in := resp.Header.Get("Content-Type"), in.header.Get("Content-Type"); out != in {
						t.Errorf("content type %q became %q", in, out)
					}
					direct := post(t, t.Context(), client, "http://"+server+r.path, r.body)
					if resp.StatusCode != direct.StatusCode {
						t.Errorf("status %d, directly %d", resp.StatusCode, direct.StatusCode)
					}
					switch resp.StatusCode {
					case http.StatusOK:
					case http.StatusNotFound:
						t.Skip("the server has no such route")
					default:
						t.Fatalf("status %d: %s", resp.StatusCode, got)
					}
					if a, b := lasting(t, got), lasting(t, body(t, direct)); a != b {
						t.Errorf("through the gateway:\n%s\ndirectly:\n%s", a, b)
					}
					if !utf8.Valid(got) {
						t.Error("the answer is no valid UTF-8")
					}
				})
			}
		})
	}
}

// lasting returns an answer without what differs from call to call.
func lasting(t testing.TB, answer []byte) string {
	t.Helper()
	if json.Valid(answer) {
		return canonical(t, answer)
	}
	var out strings.Builder
	for line := range strings.Lines(string(answer)) {
		text, isData := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
		if isData && text != "[DONE]" {
			text = canonical(t, []byte(text))
		}
		fmt.Fprintln(&out, text)
	}
	return out.String()
}

func canonical(t testing.TB, text []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	strip(v)
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// strip removes ids, instants and durations wherever they stand.
func strip(v any) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			strip(x)
		}
	case map[string]any:
		for _, name := range []string{"id", "item_id", "created", "created_at", "completed_at", "timings"} {
			delete(v, name)
		}
		for _, x := range v {
			strip(x)
		}
	}
}
