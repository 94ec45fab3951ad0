package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"kvasir/internal/kvblock"
)

// TestPrompt_RandomText holds long texts of every kind of escape against encoding/json:
// more than a buffer, borders everywhere.
func TestPrompt_RandomText(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pieces := []string{`\n`, `\"`, `\\`, `\/`, `\u0000`, `\u00e9`, `\ud83d\ude00`, `\ud800`, `\udc00\ud800`, `\ud800\u0041`, "é", "😀", "a", "bcdefgh", "ijklmnopqrstuvwxyz", strings.Repeat("long run ", 99)}
	for range 300 {
		var text strings.Builder
		for range rng.IntN(3000) {
			text.WriteString(pieces[rng.IntN(len(pieces)-rng.IntN(2)*5)])
		}
		checkRequest(t, Chat, fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"%s"},{"content":"%s","role":"x"}]}`, text.String(), text.String()))
	}
}

// bodies are examples of every grammar that is JSON.
var bodies = []struct {
	g    Grammar
	body string
}{
	{Chat, `{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:,x"}}]},{"role":"assistant","tool_calls":[{"id":"a"}],"content":null}],"stream":true,"max_tokens":5}`},
	{Chat, `{"model":"m","tools":[{"a":{"b":[1.5e3,true,null]}}],"reasoning_effort":"low","messages":[{"content":"x","role":"user","name":"n"}]}`},
	{Chat, `{"model":"m","stream_options":{"include_usage":true},"messages":"text"}`},
	{Chat, `{"model":1,"stream":"true","max_tokens":1e2}`},
	{Chat, `{"a":[{"b":]}`}, {Chat, `{"model":"m","messages":[{"role":"u","content":"\x"}]}`}, {Chat, `[]`}, {Chat, `{"model":"\`},
	{Completions, `{"model":"m","prompt":[1,2,3],"stream":false}`},
	{Completions, `{"model":"m","prompt":[[1,2],[3]],"cache_salt":"\u0041"}`},
	{Embeddings, `{"model":"m","input":["a\n","b\ud800"],"n":2}`},
	{Responses, `{"model":"m","instructions":"be brief","input":"hi","max_output_tokens":9,"previous_response_id":"resp_1","stream":true,"reasoning":{"summary":"auto","effort":"high"},"prompt_cache_key":"k"}`},
	{Responses, `{"model":"m","tools":[{"type":"function","name":"f"}],"input":[{"role":"user","content":[{"type":"input_text","text":"look"},{"type":"input_image","image_url":"data:,x"}]},{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"s"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"ok"},{"type":"input_image","image_url":"data:,y"}]},{"id":"msg","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"done","annotations":[]},{"type":"refusal","refusal":"no"}]},{"type":"computer_call_output","output":{"image_url":"data:,z"}},7]}`},
	{Messages, `{"model":"m","max_tokens":9,"system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"f","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],"thinking":{"type":"enabled","budget_tokens":1024},"output_config":{"effort":"low","format":null},"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"x"},"cache_control":{"type":"ephemeral"}},{"type":"document","source":{"type":"text","data":"plain"}},{"type":"document","source":{"type":"base64","data":"x"}},{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"tool_use","id":"t","name":"f","input":{"cache_control":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"ok"},{"type":"image","source":{"type":"base64","data":"y"}},{"type":"tool_result","content":[1]}],"cache_control":{"type":"ephemeral"}}]}],"metadata":{"user_id":"u"}}`},
	{CountTokens, `{"model":"m","system":"be brief","messages":[{"role":"user","content":"hi"}],"stream":"not read"}`},
	{Rerank, `{"model":"m","query":"which","documents":["a","bc",{"text":"d"},{"content":[{"type":"text","text":"e"},{"type":"image_url","image_url":{"url":"x"}}]}],"top_n":1}`},
	{Score, `{"model":"m","text_1":["a","b"],"text_2":["c","d"]}`},
	{Score, `{"model":"m","data_1":{"content":[{"type":"text","text":"e"}]},"data_2":"x"}`},
	{Score, `{"model":"m","queries":"q","items":[[1,2],[3]],"documents":null}`},
	{Tokenize, `{"model":"m","prompt":"text","add_special_tokens":true}`},
	{Tokenize, `{"model":"m","tokens":[1,2,3]}`},
	{Tokenize, `{"model":"m","content":"text","messages":[{"role":"user","content":"x"}],"tools":[]}`},
	{Speech, `{"model":"m","input":"say this","voice":"alloy","stream_format":"sse","stream":"x"}`},
	{Images, `{"model":"m","prompt":"a cat","n":2,"stream":true,"input":1}`},
	{Upload, `{"model":"m","stream":true,"images":[{"file_id":"f"}]}`},
	{Opaque, `{"model":"m","input":["a",{"type":"image_url"}],"task":"classify"}`},
}

func TestRequest_Examples(t *testing.T) {
	for _, c := range bodies {
		for g := range grammarCount {
			checkRequest(t, g, []byte(c.body))
		}
	}
}

func FuzzRequest(f *testing.F) {
	for _, c := range bodies {
		f.Add(byte(c.g), []byte(c.body))
	}
	f.Fuzz(func(t *testing.T, g byte, body []byte) { checkRequest(t, Grammar(g)%grammarCount, body) })
}

// checkRequest holds a Reader against encoding/json and the reference.
func checkRequest(t *testing.T, g Grammar, body []byte) {
	t.Helper()
	const blockBytes = 32
	var r Reader
	var w kvblock.Writer
	q, err := r.Read(g, body)
	var p Prompt
	if err == nil {
		p, err = r.Prompt(&w, "m", "salt", blockBytes)
	}
	syntax, isSyntax := errors.AsType[*SyntaxError](err)
	if isSyntax && (syntax.Offset < 0 || syntax.Offset > len(body)) {
		t.Fatalf("offset %d of %d", syntax.Offset, len(body))
	}
	tree, treeErr := parseNode(body)
	sound := json.Valid(body) && treeErr == nil && tree.kind == '{' && tree.depth <= MaxDepth
	if sound == isSyntax {
		t.Fatalf("sound %v, but %v\n%s", sound, err, body)
	}
	if !sound || !utf8.Valid(body) {
		return
	}
	want := referencePrompt(g, tree, "m", "salt", blockBytes)
	if wantErr := wantFieldError(g, tree, body, want); wantErr != (err != nil) {
		t.Fatalf("field error wanted %v, but %v\n%s", wantErr, err, body)
	}
	if err != nil {
		return
	}
	checkFields(t, g, q, tree, body)
	if tree.twice {
		return
	}
	if p.Head != want.head || !slices.Equal(p.Blocks, want.blocks) || p.InputTokens != want.input || p.Exact != want.exact || p.Inputs != want.inputs {
		t.Fatalf("got  %+v\nwant %+v\nof %q\n%s", p, want, want.text, body)
	}
	checkPrefix(t, g, body, slices.Clone(p.Blocks), blockBytes)
}

// reads reports whether routing reads the field in the grammar.
func reads(g Grammar, name string) bool {
	return slices.ContainsFunc(grammars[g].routing, func(f field) bool { return names[f] == name })
}

func wantFieldError(g Grammar, tree node, body []byte, want reference) bool {
	var raw map[string]json.RawMessage
	_ = json.Unmarshal(body, &raw)
	counts := map[string]int{}
	known := grammars[g]
	for _, k := range tree.keys {
		f, _ := known.fieldOf([]byte(k))
		if counts[k]++; counts[k] > 1 && f != other {
			return true
		}
	}
	model, ok := wantField[string](tree, raw, "model")
	bad := !ok || model == "" || want.bad
	for _, key := range []string{"cache_salt", "session_id", "prompt_cache_key", "previous_response_id", "stream_format"} {
		_, ok := wantField[string](tree, raw, key)
		bad = bad || !ok && reads(g, key)
	}
	for _, key := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "n"} {
		_, ok := wantField[int](tree, raw, key)
		bad = bad || !ok && reads(g, key)
	}
	_, ok = wantField[bool](tree, raw, "stream")
	bad = bad || !ok && reads(g, "stream")
	if !reads(g, "stream_options") {
		return bad
	}
	options := tree.get("stream_options")
	bad = bad || options.kind != '{' && options.kind != 'n'
	for i, key := range options.keys {
		bad = bad || key == "include_usage" && options.items[i].kind != 't' && options.items[i].kind != 'n'
	}
	return bad
}

func checkFields(t *testing.T, g Grammar, q Request, tree node, body []byte) {
	t.Helper()
	var raw map[string]json.RawMessage
	_ = json.Unmarshal(body, &raw)
	model, _ := wantField[string](tree, raw, "model")
	stream, _ := wantField[bool](tree, raw, "stream")
	stream = stream && reads(g, "stream")
	if reads(g, "stream_format") {
		stream = tree.get("stream_format").text == "sse"
	}
	limit := 0
	for _, key := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		if reads(g, key) && tree.get(key).kind != 'n' {
			limit, _ = wantField[int](tree, raw, key)
		}
	}
	if string(q.Model) != model || q.Stream != stream || q.MaxTokens != max(limit, 0) {
		t.Fatalf("%v: %q %v %d, want %q %v %d", g, q.Model, q.Stream, q.MaxTokens, model, stream, limit)
	}
	previous, _ := wantField[string](tree, raw, "previous_response_id")
	if reads(g, "previous_response_id") && string(q.PreviousResponseID) != previous {
		t.Fatalf("previous response %q, want %q", q.PreviousResponseID, previous)
	}
	var back string
	if err := json.Unmarshal(q.ModelAt.Of(body), &back); err != nil || back != model {
		t.Fatalf("model at %v: %q %v", q.ModelAt, back, err)
	}
}

// checkPrefix takes the last message away, and lets another serialiser write the body.
func checkPrefix(t *testing.T, g Grammar, body []byte, blocks []kvblock.Hash, blockBytes int) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	var r Reader
	var w kvblock.Writer
	hash := func(body []byte) []kvblock.Hash {
		if _, err := r.Read(g, body); err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		p, err := r.Prompt(&w, "m", "salt", blockBytes)
		if err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		return p.Blocks
	}
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, body, " ", "\t"); err != nil {
		t.Fatal(err)
	}
	if got := hash(spaced.Bytes()); !slices.Equal(got, blocks) {
		t.Fatalf("white space counts: %s", body)
	}
	last := "messages"
	if g == Responses {
		last = "input"
	}
	var messages []json.RawMessage
	if json.Unmarshal(fields[last], &messages) != nil || len(messages) == 0 {
		return
	}
	fields[last], _ = json.Marshal(messages[:len(messages)-1])
	shorter, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if got := hash(shorter); len(got) > len(blocks) || !slices.Equal(got, blocks[:len(got)]) {
		t.Fatalf("the last message changes earlier blocks: %s", body)
	}
}
