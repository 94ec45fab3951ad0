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
	s.Reset()
	var chunk []byte
	for _, piece := range pieces {
		chunk = append(chunk[:0], piece...)
		s.Feed(chunk)
		for i := range chunk {
			chunk[i] = '"' // what is needed later must be the scanner's own
		}
	}
	fault, failed := s.Fault()
	return fmt.Sprintf("%v complete=%v failed=%v status=%d code=%s type=%s", s.Usage(), s.Complete(), failed, fault.Status, fault.Code, fault.Type)
}

func TestBodyScanner(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{vllmBody, "{40 2 32} complete=true failed=false status=0 code= type="},
		{`{"object":"list","data":[{"embedding":[0.1,-2e-05,[]],"usage":{"prompt_tokens":1}}],"model":"usage","usage":{"prompt_tokens":8,"total_tokens":8}}`, "{8 -1 -1} complete=true failed=false status=0 code= type="},
		{`{"usage":{"prompt_tokens":3,"completion_tokens":0}, "data":"\"usage\":{\"prompt_tokens\":9}\\","x":[1,2]}`, "{3 0 -1} complete=true failed=false status=0 code= type="},
		{`{"\u0075sage" : {"prompt_tokens":5} , "usage":null}`, "{5 -1 -1} complete=true failed=false status=0 code= type="},
		{`{"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0},"choices":[]}`, "{-1 -1 -1} complete=true failed=false status=0 code= type="},
		{`{"usage":"none"}`, "{-1 -1 -1} complete=true failed=false status=0 code= type="},
		{`{"choices":[],"usage":{"prompt_tokens":3`, "{-1 -1 -1} complete=false failed=false status=0 code= type="},
		{`{"usage":{"x":"` + strings.Repeat("x", keptValue) + `","prompt_tokens":3},"a":1}`, "{-1 -1 -1} complete=true failed=false status=0 code= type="},
		{`{"` + strings.Repeat("k", 2*keptValue) + `":1,"usage":{"prompt_tokens":3}}`, "{3 -1 -1} complete=true failed=false status=0 code= type="},
		{vllmError, "{-1 -1 -1} complete=true failed=true status=500 code=500 type=InternalServerError"},
		{`{"object":"error","message":"x","type":"BadRequestError","param":null,"code":400}`, "{-1 -1 -1} complete=true failed=true status=400 code=400 type=BadRequestError"},
		{`{"error":{"code":1,"message":"` + strings.Repeat("x", keptValue) + `"}}`, "{-1 -1 -1} complete=true failed=true status=0 code= type="},
		{`[{"usage":{"prompt_tokens":3}}]`, "{-1 -1 -1} complete=true failed=false status=0 code= type="},
		{`{"a":1}{"usage":{"prompt_tokens":3}}`, "{-1 -1 -1} complete=true failed=false status=0 code= type="},
		{`{"d":[[0,"01234567 ]]}","89"]],"usage":{"prompt_tokens":4}}`, "{4 -1 -1} complete=true failed=false status=0 code= type="},
		{`<html>"usage":{}</html>`, "{-1 -1 -1} complete=true failed=false status=0 code= type="},
		{``, "{-1 -1 -1} complete=false failed=false status=0 code= type="},
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

// TestBodyScanner_Big: F70. 60 MB of embeddings cost no memory.
func TestBodyScanner_Big(t *testing.T) {
	var s BodyScanner
	floats := bytes.Repeat([]byte("-0.0123,"), 8<<10)
	if n := testing.AllocsPerRun(1, func() {
		s.Reset()
		s.Feed([]byte(`{"data":[{"embedding":[`))
		for range 960 {
			s.Feed(floats)
		}
		s.Feed([]byte(`0]}],"usage":{"prompt_tokens":12,"total_tokens":12}}`))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if s.Usage().Input != 12 || !s.Complete() {
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
		if c := ReadChunk(body); c.HasUsage != s.found.HasUsage || c.Usage != s.found.Usage {
			t.Fatalf("%v %+v, want %v %+v\n%s", s.found.HasUsage, s.found.Usage, c.HasUsage, c.Usage, body)
		}
	})
}
