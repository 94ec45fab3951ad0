package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// scan feeds a body in the given pieces.
func scan(s *BodyScanner, pieces ...string) string {
	s.Reset(Chat)
	var chunk []byte
	for _, piece := range pieces {
		chunk = append(chunk[:0], piece...)
		s.Feed(chunk)
		for i := range chunk {
			chunk[i] = '"' // what is needed later must be the scanner's own
		}
	}
	fault, failed := s.Fault()
	return fmt.Sprintf("%v failed=%v status=%d code=%s type=%s", s.Usage(), failed, fault.Status, fault.Code, fault.Type)
}

func TestBodyScanner(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{vllmBody, "{40 2 32} failed=false status=0 code= type="},
		{`{"object":"list","data":[{"embedding":[0.1,-2e-05,[]],"usage":{"prompt_tokens":1}}],"model":"usage","usage":{"prompt_tokens":8,"total_tokens":8}}`, "{8 -1 -1} failed=false status=0 code= type="},
		{`{"usage":{"prompt_tokens":3,"completion_tokens":0}, "data":"\"usage\":{\"prompt_tokens\":9}\\","x":[1,2]}`, "{3 0 -1} failed=false status=0 code= type="},
		{`{"\u0075sage" : {"prompt_tokens":5} , "usage":null}`, "{5 -1 -1} failed=false status=0 code= type="},
		{`{"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0},"choices":[]}`, "{-1 -1 -1} failed=false status=0 code= type="},
		{`{"usage":"none"}`, "{-1 -1 -1} failed=false status=0 code= type="},
		{`{"choices":[],"usage":{"prompt_tokens":3`, "{-1 -1 -1} failed=false status=0 code= type="},
		{`{"usage":{"x":"` + strings.Repeat("x", keptValue) + `","prompt_tokens":3},"a":1}`, "{-1 -1 -1} failed=false status=0 code= type="},
		{`{"` + strings.Repeat("k", 2*keptValue) + `":1,"usage":{"prompt_tokens":3}}`, "{3 -1 -1} failed=false status=0 code= type="},
		{vllmError, "{-1 -1 -1} failed=true status=500 code=500 type=InternalServerError"},
		{`{"object":"error","message":"x","type":"BadRequestError","param":null,"code":400}`, "{-1 -1 -1} failed=true status=400 code=400 type=BadRequestError"},
		{`{"error":{"code":1,"message":"` + strings.Repeat("x", keptValue) + `"}}`, "{-1 -1 -1} failed=true status=0 code= type="},
		{`[{"usage":{"prompt_tokens":3}}]`, "{-1 -1 -1} failed=false status=0 code= type="},
		{`{"a":1}{"usage":{"prompt_tokens":3}}`, "{-1 -1 -1} failed=false status=0 code= type="},
		{`{"d":[[0,"01234567 ]]}","89"]],"usage":{"prompt_tokens":4}}`, "{4 -1 -1} failed=false status=0 code= type="},
		{`<html>"usage":{}</html>`, "{-1 -1 -1} failed=false status=0 code= type="},
		{``, "{-1 -1 -1} failed=false status=0 code= type="},
	} {
		var s BodyScanner
		if got := scan(&s, c.body); got != c.want {
			t.Errorf("%.100s\n got %s\nwant %s", c.body, got, c.want)
		}
		for i := range len(c.body) {
			if got := scan(&s, c.body[:i], c.body[i:]); got != c.want {
				t.Fatalf("%.100s, cut at %d\n got %s\nwant %s", c.body, i, got, c.want)
			}
		}
		if got := scan(&s, strings.Split(c.body, "")...); got != c.want {
			t.Errorf("%.100s, byte by byte\n got %s\nwant %s", c.body, got, c.want)
		}
	}
}

// TestBodyScanner_Grammars: usage, errors and ids of the newer grammars, cut anywhere.
func TestBodyScanner_Grammars(t *testing.T) {
	for _, c := range []struct {
		g          Grammar
		body, want string
	}{
		{Responses, `{"id":"resp_0a1","object":"response","error":null,"status":"completed","output":[{"id":"msg_1","type":"message"}],"usage":{"input_tokens":40,"input_tokens_details":{"cached_tokens":32},"output_tokens":9,"total_tokens":49}}`, `{40 9 32} failed=false 0   "resp_0a1"`},
		{Responses, `{"id":"resp_0a1","status":"failed","error":{"code":"server_error","message":"x"},"usage":null}`, `{-1 -1 -1} failed=true 0 server_error  "resp_0a1"`},
		{Responses, `{"id":"` + strings.Repeat("x", MaxResponseID) + `"}`, `{-1 -1 -1} failed=false 0   "` + strings.Repeat("x", MaxResponseID) + `"`},
		{Responses, `{"id":"` + strings.Repeat("x", MaxResponseID+1) + `"}`, `{-1 -1 -1} failed=false 0   ""`},
		{Responses, `{"id":"a","id":null}`, `{-1 -1 -1} failed=false 0   "null"`},
		{Chat, `{"id":"chatcmpl-1","usage":{"prompt_tokens":3}}`, `{3 -1 -1} failed=false 0   ""`},
		{Messages, `{"id":"msg_1","type":"message","content":[{"type":"text","text":"Hi"}],"usage":{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":1000,"output_tokens":9}}`, `{1125 9 1000} failed=false 0   ""`},
		{Messages, `{"type":"error","error":{"type":"rate_limit_error","message":"x"},"request_id":"req_1"}`, `{-1 -1 -1} failed=true 429  rate_limit_error ""`},
		{CountTokens, `{"input_tokens":2095}`, `{-1 -1 -1} failed=false 0   ""`},
		{Rerank, `{"id":"r","results":[{"index":0}],"usage":{"prompt_tokens":12,"total_tokens":12}}`, `{12 -1 -1} failed=false 0   ""`},
		{Upload, `{"text":"hello","usage":{"type":"tokens","input_tokens":14,"output_tokens":45}}`, `{14 45 -1} failed=false 0   ""`},
	} {
		for i := range len(c.body) + 1 {
			var s BodyScanner
			s.Reset(c.g)
			s.Feed([]byte(c.body[:i]))
			s.Feed([]byte(c.body[i:]))
			f, failed := s.Fault()
			if got := fmt.Sprintf("%v failed=%v %d %s %s %q", s.Usage(), failed, f.Status, f.Code, f.Type, s.ResponseID()); got != c.want {
				t.Fatalf("%v %.100s, cut at %d\n got %s\nwant %s", c.g, c.body, i, got, c.want)
			}
		}
	}
}

// TestBodyScanner_Big: F70. 60 MB of embeddings cost no memory.
func TestBodyScanner_Big(t *testing.T) {
	var s BodyScanner
	floats := bytes.Repeat([]byte("-0.0123,"), 8<<10)
	if n := testing.AllocsPerRun(3, func() { // a stray one of the runtime is not ours
		s.Reset(Chat)
		s.Feed([]byte(`{"data":[{"embedding":[`))
		for range 960 {
			s.Feed(floats)
		}
		s.Feed([]byte(`0]}],"usage":{"prompt_tokens":12,"total_tokens":12}}`))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if s.Usage().Input != 12 {
		t.Errorf("%+v", s.Usage())
	}
}

// FuzzBodyScanner: where the borders lie does not matter, and on a whole chunk it finds
// the usage that ReadChunk finds.
func FuzzBodyScanner(f *testing.F) {
	for _, s := range []string{vllmBody, vllmUsage, vllmError, `{"a":"\\\"","usage":{"prompt_tokens":3}}`, `}{"usage":{}}`, `{"usage":1,"usage":{"prompt_tokens":2}}`, `[`} {
		f.Add([]byte(s), uint16(7), uint16(9))
	}
	f.Fuzz(func(t *testing.T, body []byte, a, b uint16) {
		text := string(body)
		i := int(a) % (len(text) + 1)
		j := i + int(b)%(len(text)-i+1)
		var s BodyScanner
		whole := scan(&s, text)
		if cut := scan(&s, text[:i], text[i:j], text[j:]); cut != whole {
			t.Fatalf("%q %q %q: %s, whole %s", text[:i], text[i:j], text[j:], cut, whole)
		}
		tree, err := parseNode(body)
		if err != nil || !json.Valid(body) || tree.kind != '{' || tree.twice || len(body) > keptValue {
			return
		}
		scan(&s, text)
		if c := ReadChunk(Chat, nil, body); c.HasUsage != s.found.HasUsage || c.Usage != s.found.Usage {
			t.Fatalf("%v %+v, want %v %+v\n%s", s.found.HasUsage, s.found.Usage, c.HasUsage, c.Usage, body)
		}
	})
}
