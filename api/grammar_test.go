package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kvasir/internal/kvblock"
)

// TestGrammar_Table: every grammar has a row that can be used.
func TestGrammar_Table(t *testing.T) {
	seen := map[string]bool{}
	for g := range grammarCount {
		known := grammars[g]
		if g.String() == "" || seen[g.String()] || known.routing[0] != fieldModel {
			t.Errorf("row %d: %+v", g, known)
		}
		seen[g.String()] = true
		for _, in := range known.prompt {
			if names[in.field] == "" {
				t.Errorf("%v: field %d has no name", g, in.field)
			}
		}
		var r Reader
		if _, err := r.Read(g, []byte(`{"input":"x","prompt":"x"}`)); err == nil || err.Error() != `"model" is required` {
			t.Errorf("%v without a model: %v", g, err)
		}
	}
	var done []Grammar
	for g := range grammarCount {
		if g.HasDone() {
			done = append(done, g)
		}
	}
	if want := []Grammar{Chat, Completions, Responses, Messages, CountTokens}; !slices.Equal(done, want) {
		t.Errorf("end marks: %v", done)
	}
}

// readAs reads a body whole in a grammar.
func readAs(t *testing.T, g Grammar, body string) (Request, Prompt) {
	t.Helper()
	var r Reader
	var w kvblock.Writer
	q, err := r.Read(g, []byte(body))
	if err != nil {
		t.Fatalf("%v: Read(%s): %v", g, body, err)
	}
	p, err := r.Prompt(&w, "m", "", 64)
	if err != nil {
		t.Fatalf("%v: Prompt(%s): %v", g, body, err)
	}
	return q, p
}

// TestPrompt_Stays pins hashes: an index that outlives a release must not forget.
func TestPrompt_Stays(t *testing.T) {
	for _, c := range []struct {
		g      Grammar
		body   string
		head   kvblock.Hash
		blocks int
	}{
		{Chat, `{"model":"m","cache_salt":"s","reasoning_effort":"low","chat_template_kwargs":{"a":true},"chat_template":"t","documents":[{"x":1}],"tools":[{"type":"function"}],"functions":[],"messages":[{"role":"system","content":"be brief"},{"role":"user","name":"n","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:,x"}}]},{"role":"assistant","content":null,"reasoning":"r","tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a","content":"ok"}]}`, 0x1a0313abc553fb6f, 38},
		{Completions, `{"model":"m","prompt":"` + strings.Repeat("once upon a time ", 9) + `"}`, 0x7594ebce440072eb, 2},
		{Completions, `{"model":"m","prompt":[1,2,3]}`, 0x2d2b497aeff58468, 0},
		{Embeddings, `{"model":"m","input":["a\n","b\ud800"]}`, 0xca31c63ca772b5d2, 0},
	} {
		if _, p := readAs(t, c.g, c.body); p.Head != c.head || len(p.Blocks) != c.blocks {
			t.Errorf("%v: %#x and %d blocks, want %#x and %d\n%s", c.g, uint64(p.Head), len(p.Blocks), uint64(c.head), c.blocks, c.body)
		}
	}
}

func TestRead_FieldsOfGrammars(t *testing.T) {
	const all = `{"model":"m","stream":true,"stream_format":"audio","max_tokens":1,"max_output_tokens":2,"n":3,"previous_response_id":"r\u0031","prompt_cache_key":"k","cache_salt":"s"}`
	for g, want := range map[Grammar]string{
		Chat:        `true 1 3 "" "k" "s"`,
		Embeddings:  `false 0 1 "" "k" "s"`,
		Responses:   `true 2 1 "r1" "k" "s"`,
		Messages:    `true 1 1 "" "" "s"`,
		CountTokens: `false 0 1 "" "" "s"`,
		Rerank:      `false 0 1 "" "k" "s"`,
		Tokenize:    `false 0 1 "" "" ""`,
		Speech:      `false 0 1 "" "" ""`,
		Images:      `true 0 3 "" "" ""`,
		Upload:      `true 0 1 "" "" ""`,
		Opaque:      `false 0 1 "" "k" "s"`,
	} {
		q, _ := readAs(t, g, all)
		if got := fmt.Sprintf("%v %d %d %q %q %q", q.Stream, q.MaxTokens, q.N, q.PreviousResponseID, q.PromptCacheKey, q.CacheSalt); got != want {
			t.Errorf("%v: %s, want %s", g, got, want)
		}
	}
	if q, _ := readAs(t, Speech, `{"model":"m","stream_format":"sse"}`); !q.Stream {
		t.Error("speech as events is no stream")
	}
	for _, c := range []struct {
		g          Grammar
		body, want string
	}{
		{Responses, `{"model":"m","max_output_tokens":"9"}`, `"max_output_tokens" must be a whole number, got "9" (a string)`},
		{Responses, `{"model":"m","previous_response_id":7}`, `"previous_response_id" must be a string, got 7`},
		{Responses, `{"model":"m","input":"a","input":"b"}`, `"input" is given twice; it must be given once`},
		{Messages, `{"model":"m","system":"a","system":"b"}`, `"system" is given twice; it must be given once`},
		{Messages, `{"model":"m","stream":0}`, `"stream" must be true or false, got 0`},
		{Speech, `{"model":"m","stream_format":1}`, `"stream_format" must be a string, got 1`},
		{Tokenize, `{"model":"m","tokens":[1,"x"]}`, `"tokens" must be an array of token ids, whole numbers from 0 to 4294967295, got something else`},
		{Responses, `{"model":"m","input":[{"type":"function_call","arguments":"\q"}]}`, `invalid JSON at byte 59: expected a valid escape`},
		{Messages, `{"model":"m","messages":[{"content":[{"type":"tool_use","input":{"a":01}}]}]}`, `invalid JSON at byte 70: expected ',' or '}'`},
	} {
		var r Reader
		var w kvblock.Writer
		_, err := r.Read(c.g, []byte(c.body))
		if err == nil {
			_, err = r.Prompt(&w, "m", "", 0)
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%v %s\n got %v\nwant %s", c.g, c.body, err, c.want)
		}
	}
}

// TestPrompt_SameInGrammar lists bodies that are one prompt in other clothes.
func TestPrompt_SameInGrammar(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		g      Grammar
		bodies []string
	}{
		{Responses, []string{ // a text is a message of the user; of reasoning the effort counts
			`{"model":"m","instructions":"be brief","reasoning":{"effort":"low","summary":"auto"},"input":"hi` + long + `"}`,
			`{"input":[{"role":"user","content":"hi` + long + `"}],"model":"m","reasoning":{"effort":"low"},"instructions":"be brief"}`,
			`{"input":[{"id":"msg_1","content":[{"type":"input_text","text":"h\u0069` + long + `"}],"status":"completed","type":"message","role":"user"}],"instructions":"be brief","model":"m","store":false,"reasoning":{"summary":null,"effort":"low"}}`,
		}},
		{Responses, []string{`{"model":"m","input":"hi"}`, `{"model":"m","input":"hi","reasoning":{"effort":null}}`, `{"model":"m","input":"hi","reasoning":"x","instructions":null}`}},
		{Messages, []string{ // cache marks move along a conversation
			`{"model":"m","max_tokens":1,"system":"be brief","tools":[{"name":"f"}],"messages":[{"role":"user","content":"hi` + long + `"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"data":"x"}}]}]}]}`,
			`{"messages":[{"content":[{"type":"text","text":"hi` + long + `","cache_control":{"type":"ephemeral"}}],"role":"user"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{},"cache_control":{"type":"ephemeral"}}]},{"role":"user","content":[{"type":"tool_result","cache_control":{"type":"ephemeral"},"tool_use_id":"t","content":[{"type":"image","source":{"data":"x"},"cache_control":null}]}]}],"tools":[{"name":"f","cache_control":{"type":"ephemeral","ttl":"1h"}}],"system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}}],"model":"m","metadata":{"user_id":"u"},"temperature":1}`,
		}},
	} {
		_, want := readAs(t, c.g, c.bodies[0])
		for _, body := range c.bodies[1:] {
			if _, got := readAs(t, c.g, body); got.Head != want.Head || !slices.Equal(got.Blocks, want.Blocks) {
				t.Errorf("%v: another prompt\n%s\n%s", c.g, c.bodies[0], body)
			}
		}
	}
	chat := `{"model":"m","max_tokens":1,"system":"s","messages":[{"role":"user","content":"hi"}]}`
	_, a := readAs(t, Messages, chat)
	if _, b := readAs(t, CountTokens, chat); a.Head != b.Head || a.InputTokens != b.InputTokens {
		t.Error("count_tokens counts another prompt")
	}
	chat = `{"model":"m","tools":[{"type":"function"}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"x","y":"z"}]}]}`
	_, a = readAs(t, Chat, chat)
	if _, b := readAs(t, Tokenize, chat); a.Head != b.Head || a.InputTokens != b.InputTokens {
		t.Error("tokenize reads another prompt")
	}
}

// TestPrompt_OtherInGrammar lists changes that must each make another prompt.
func TestPrompt_OtherInGrammar(t *testing.T) {
	for g, bodies := range map[Grammar][]string{
		Responses: {
			`{"model":"m","input":"a"}`,
			`{"model":"m","input":"b"}`,
			`{"model":"m","input":"a","instructions":"i"}`,
			`{"model":"m","input":"a","tools":[]}`,
			`{"model":"m","input":"a","reasoning":{"effort":"low"}}`,
			`{"model":"m","input":"a","reasoning":{"effort":"high"}}`,
			`{"model":"m","input":"a","previous_response_id":"r1"}`,
			`{"model":"m","input":"a","previous_response_id":"r2"}`,
			`{"model":"m","input":"a","conversation":"r1"}`,
			`{"model":"m","input":"a","prompt":{"id":"p"}}`,
			`{"model":"m","input":[{"role":"developer","content":"a"}]}`,
			`{"model":"m","input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]}`,
			`{"model":"m","input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{1}"}]}`,
			`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"x"}]}`,
			`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"}]}]}`,
			`{"model":"m","input":[{"type":"reasoning","encrypted_content":"x","summary":[]}]}`,
			`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]}`,
			`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"y"}]}]}`,
			`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"{}"}]}]}`,
			`{"model":"m","input":[{"role":"user","content":[{}]}]}`,
		},
		Messages: {
			`{"model":"m","messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","messages":[{"role":"assistant","content":"a"}]}`,
			`{"model":"m","system":"s","messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","tools":[{"name":"f"}],"messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","tools":[{"name":"g"}],"messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","thinking":{"type":"enabled","budget_tokens":1024},"messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","thinking":{"type":"disabled"},"messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","output_config":{"effort":"low"},"messages":[{"role":"user","content":"a"}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"a"}]}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"a","is_error":true}]}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"thinking","thinking":"a","signature":"s"}]}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_use","id":"t","name":"f","input":{"cache_control":1}}]}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_use","id":"t","name":"f","input":{"cache_control":2}}]}]}`,
		},
	} {
		seen := map[kvblock.Hash]string{}
		for _, body := range bodies {
			_, p := readAs(t, g, body)
			if before, ok := seen[p.Head]; ok {
				t.Errorf("%v: one prompt:\n%s\n%s", g, before, body)
			}
			seen[p.Head] = body
		}
	}
}

// TestPrompt_KeepsPrefix: what stands beside a conversation in Anthropic's order, and what
// is appended to it, leaves the blocks before it as they were.
func TestPrompt_KeepsPrefix(t *testing.T) {
	long := strings.Repeat("word ", 200)
	_, a := readAs(t, Messages, `{"model":"m","tools":[{"name":"`+long+`"}],"system":"`+long+`","messages":[{"role":"user","content":"a"}]}`)
	_, b := readAs(t, Messages, `{"model":"m","tools":[{"name":"`+long+`"}],"system":"`+long+`","thinking":{"type":"enabled"},"messages":[{"role":"user","content":"b"}]}`)
	if n := 2000 / 64; !slices.Equal(a.Blocks[:n], b.Blocks[:n]) {
		t.Error("another thinking makes other blocks of tools and system")
	}
	items := `{"role":"user","content":"` + long + `"},{"type":"function_call","name":"f","arguments":"` + long + `"}`
	_, a = readAs(t, Responses, `{"model":"m","input":[`+items+`]}`)
	_, b = readAs(t, Responses, `{"model":"m","input":[`+items+`,{"type":"function_call_output","output":"x"}]}`)
	if !slices.Equal(a.Blocks, b.Blocks[:len(a.Blocks)]) || len(a.Blocks) < 30 {
		t.Error("an item that is appended changes earlier blocks")
	}
}

func TestPrompt_Estimates(t *testing.T) {
	text := func(n int) string { return strings.Repeat("abcd", n) }
	for _, c := range []struct {
		name           string
		g              Grammar
		body           string
		tokens, inputs int
		blocks         int // of 64 bytes
	}{
		{"a query with each document", Rerank, `{"model":"m","query":"` + text(100) + `","documents":["` + text(10) + `","` + text(20) + `","` + text(30) + `"]}`, 300 + 60 + 1, 3, 6},
		{"no documents", Rerank, `{"model":"m","query":"` + text(100) + `","documents":[]}`, 100, 1, 6},
		{"one with many", Score, `{"model":"m","text_1":"` + text(10) + `","text_2":["` + text(1) + `","` + text(1) + `"]}`, 23, 2, 0},
		{"many with one", Score, `{"model":"m","data_1":["` + text(16) + `","` + text(16) + `"],"data_2":"` + text(5) + `"}`, 43, 2, 2},
		{"one by one", Score, `{"model":"m","queries":["` + text(16) + `","` + text(16) + `"],"documents":["` + text(5) + `","` + text(5) + `"]}`, 43, 2, 2},
		{"an image in a document", Rerank, `{"model":"m","query":"` + text(10) + `","documents":[{"content":[{"type":"image_url","image_url":{"url":"` + text(5000) + `"}}]}]}`, 10 + MediaTokens + 5, 1, 0},
		{"text to tokens", Tokenize, `{"model":"m","prompt":"` + text(10) + `"}`, 10, 1, 0},
		{"tokens to text", Tokenize, `{"model":"m","tokens":[1,2,3]}`, 3, 1, 0},
		{"llama.cpp's tokenize", Tokenize, `{"model":"m","content":"` + text(10) + `"}`, 10, 1, 0},
		{"speech", Speech, `{"model":"m","input":"` + text(32) + `"}`, 32, 1, 2},
		{"images", Images, `{"model":"m","prompt":"` + text(32) + `"}`, 32, 1, 2},
		{"classify", Opaque, `{"model":"m","input":["` + text(16) + `","` + text(16) + `"]}`, 32, 2, 1},
		{"an upload in JSON", Upload, `{"model":"m","images":["x"]}`, 0, 1, 0},
		{"an image that a tool returned", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"data":"` + text(5000) + `"}}]}]}]}`, MediaTokens + 12, 1, 36},
		{"an image that a function returned", Responses, `{"model":"m","input":[{"type":"function_call_output","output":[{"type":"input_image","image_url":"` + text(5000) + `"}]}]}`, MediaTokens + 13, 1, 36},
		{"a picture that was made", Responses, `{"model":"m","input":[{"type":"image_generation_call","result":"` + text(5000) + `"}]}`, MediaTokens + 1, 1, 36},
		{"a document that is text", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","data":"` + text(5000) + `"}}]}]}`, 5000 + 18, 1, 95},
		{"a document that is not", Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","data":"` + text(5000) + `"}}]}]}`, MediaTokens + 3, 1, 36},
	} {
		_, p := readAs(t, c.g, c.body)
		if p.InputTokens != c.tokens || p.Inputs != c.inputs || len(p.Blocks) != c.blocks {
			t.Errorf("%s: %d tokens, %d inputs, %d blocks, want %d, %d, %d", c.name, p.InputTokens, p.Inputs, len(p.Blocks), c.tokens, c.inputs, c.blocks)
		}
	}
}

func TestRead_DoesNotAllocateInAnyGrammar(t *testing.T) {
	var r Reader
	var w kvblock.Writer
	for _, c := range bodies {
		body := []byte(c.body)
		if _, err := r.Read(c.g, body); err != nil {
			continue
		}
		if _, err := r.Prompt(&w, "m", "", 0); err != nil {
			continue
		}
		if n := testing.AllocsPerRun(20, func() {
			_, _ = r.Read(c.g, body)
			_, _ = r.Prompt(&w, "m", "", 0)
		}); n != 0 {
			t.Errorf("%v: %v allocations\n%s", c.g, n, body)
		}
	}
}

// TestReader_Reset: a Reader that was reset holds no body and has no prompt.
func TestReader_Reset(t *testing.T) {
	var r, fresh Reader
	var w kvblock.Writer
	if _, err := r.Read(Chat, []byte(bodies[0].body)); err != nil {
		t.Fatal(err)
	}
	r.Reset()
	got, err := r.Prompt(&w, "m", "", 0)
	want, _ := fresh.Prompt(&w, "m", "", 0)
	if err != nil || got.Head != want.Head || got.InputTokens != 0 || len(got.Blocks) != 0 || r.body != nil || r.p.b != nil {
		t.Errorf("%+v %v", got, err)
	}
}

// TestPrompt_NestedBlocks: contents within contents cost no more than their size. With
// the type at the end of each, looking for it level by level would read the innermost
// text a hundred times.
func TestPrompt_NestedBlocks(t *testing.T) {
	const depth = 120
	body := `{"model":"m","messages":[{"role":"user","content":` + strings.Repeat(`[{"content":`, depth) + `"x"` + strings.Repeat(`,"type":"tool_result"}]`, depth) + `}]}`
	checkRequest(t, Messages, []byte(body))
	checkRequest(t, Messages, []byte(strings.Replace(body, `"x"`, strings.Repeat("[", MaxDepth)+strings.Repeat("]", MaxDepth), 1)))
}
