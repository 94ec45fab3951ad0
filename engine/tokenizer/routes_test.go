package tokenizer

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// One conversation has one prompt, whichever API it comes by.
func TestRead_OneConversationIsOnePrompt(t *testing.T) {
	want := read(t, Chat, `{"messages":[{"role":"system","content":"Be terse."},{"role":"user","content":"Who made the mead?"},
		{"role":"assistant","content":"Fjalar and Galar."},{"role":"user","content":"And then?"}],"max_tokens":9,"ignore_eos":true}`)
	for _, c := range []struct {
		route Route
		body  string
	}{
		{Responses, `{"instructions":"Be terse.","input":[{"role":"user","content":"Who made the mead?"},
			{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Fjalar and Galar."}]},
			{"type":"reasoning","summary":[]},{"role":"user","content":[{"type":"input_text","text":"And then?"}]}],"max_output_tokens":9,"ignore_eos":true}`},
		{Messages, `{"model":"tiny","system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"Be terse."}],
			"messages":[{"role":"user","content":"Who made the mead?"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},
			{"type":"text","text":"Fjalar and Galar."}]},{"role":"user","content":[{"type":"text","text":"And then?"}]}],"max_tokens":9}`},
	} {
		got := read(t, c.route, c.body)
		if got.Items[0].Hash != want.Items[0].Hash || got.PromptTokens != want.PromptTokens || got.MaxTokens != 9 {
			t.Errorf("%v: %d tokens, hash %x; want %d, %x", c.route.Path(), got.PromptTokens, got.Items[0].Hash, want.PromptTokens, want.Items[0].Hash)
		}
	}
	count := read(t, CountTokens, `{"model":"tiny","system":"Be terse.","messages":[{"role":"user","content":"Who made the mead?"},
		{"role":"assistant","content":"Fjalar and Galar."},{"role":"user","content":"And then?"}]}`)
	if count.PromptTokens != want.PromptTokens || len(count.Items) != 0 {
		t.Errorf("counted %d tokens and %d items", count.PromptTokens, len(count.Items))
	}
}

func TestRead_ReadsMessages(t *testing.T) {
	c := read(t, Messages, `{"model":"tiny","max_tokens":5,"stream":true,"messages":[{"role":"user","content":[
		{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"hello world"}]},{"type":"image","source":{"type":"url","url":"x"}}]}]}`)
	// begin + tool: 3 + end of header... as a chat's message of 3 tokens, then the image's.
	if want := 1 + (3 + 3 + 1) + (3 + mediaTokens + 1) + 5; c.PromptTokens != want || !c.Stream || !c.IncludeUsage || !c.ContinuousUsage {
		t.Errorf("%d tokens, want %d; %+v", c.PromptTokens, want, c)
	}
	c = read(t, Messages, `{"model":"tiny","max_tokens":5,"messages":[],"tools":[{"name":"f"},{"name":"g"}],"tool_choice":{"type":"tool","name":"g"}}`)
	if c.Tool != "g" || !c.ToolNamed || c.Stream {
		t.Errorf("%+v", c)
	}
	c = read(t, Chat, `{"messages":[],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"}`)
	if c.Tool != "f" || c.ToolNamed {
		t.Errorf("%+v", c)
	}
	if c = read(t, Chat, `{"messages":[],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"}`); c.Tool != "" {
		t.Errorf("%+v", c)
	}
}

func TestRead_KeepsWhatAResponseRepeats(t *testing.T) {
	c := read(t, Responses, `{"input":"x","instructions":"y","temperature":0.5,"tools":[ {"name": "f"} ],"metadata":null,"prompt_cache_key":"k"}`)
	if len(c.Given) != 3 || string(c.Given["tools"]) != `[{"name":"f"}]` || string(c.Given["temperature"]) != "0.5" {
		t.Errorf("%q", c.Given)
	}
	if c.MaxTokens != limits.MaxModelLen-c.PromptTokens {
		t.Errorf("max_output_tokens is %d", c.MaxTokens)
	}
}

func TestPair_Score(t *testing.T) {
	for _, c := range []struct {
		query, document string
		want            float64
	}{
		{"the mead of poetry", "Poetry! The mead, of old.", 1},
		{"the mead of poetry", "mead", 0.25},
		{"mead mead", "one mead", 0.5},
		{"the mead", "beer", 0},
		{"", "beer", 0},
		{"x", "", 0},
	} {
		if got := (Pair{c.query, c.document}).Score(); got != c.want {
			t.Errorf("%q and %q: %v, want %v", c.query, c.document, got, c.want)
		}
	}
	c := read(t, Rerank, `{"query":"hello","documents":["hello world",{"content":[{"type":"text","text":"a"}]}],"top_n":1}`)
	if !slices.Equal(c.Pairs, []Pair{{"hello", "hello world"}, {"hello", "a"}}) || c.TopN != 1 || c.PromptTokens != (1+2+1+3+1)+(1+2+1+1+1) {
		t.Errorf("%+v", c)
	}
	c = read(t, Score, `{"text_1":["a","b"],"text_2":["c","d"]}`)
	if !slices.Equal(c.Pairs, []Pair{{"a", "c"}, {"b", "d"}}) || c.Items[0].Request.OutputTokens != 0 {
		t.Errorf("%+v", c)
	}
}

// What is tokenized is what a call with the same prompt has, and gives the text back.
func TestTokenize_IsWhatACallReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		body, _ := json.Marshal(map[string]any{"prompt": s, "max_tokens": 1})
		got, err := Tokenize(body, limits)
		if err != nil {
			t.Fatal(err)
		}
		ids, _ := json.Marshal(map[string]any{"prompt": got.IDs, "max_tokens": 1})
		a, b := read(t, Completions, string(body)), read(t, Completions, string(ids))
		if len(got.IDs) != a.PromptTokens || a.Items[0].Hash != b.Items[0].Hash {
			t.Fatalf("%d ids for %d tokens, hashes %x and %x", len(got.IDs), a.PromptTokens, a.Items[0].Hash, b.Items[0].Hash)
		}
		ids, _ = json.Marshal(map[string]any{"tokens": got.IDs[1:]})
		text, err := Detokenize(ids, limits)
		want := strings.ToValidUTF8(s, string(utf8.RuneError))
		if err != nil || text != strings.TrimRight(want, "\x00") && !strings.Contains(s, "\x00") {
			t.Fatalf("%q came back as %q, %v", s, text, err)
		}
	})
}

func TestTokenize_TakesChatsAndSpecialTokens(t *testing.T) {
	const chat = `{"messages":[{"role":"user","content":"hello world"}]}`
	got, err := Tokenize([]byte(chat), limits)
	if err != nil || len(got.IDs) != read(t, Chat, chat).PromptTokens {
		t.Errorf("%v, %v", got, err)
	}
	var text strings.Builder
	for _, id := range got.IDs {
		text.WriteString(Piece(id))
	}
	const want = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>hello world<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
	if text.String() != want {
		t.Errorf("%s", text.String())
	}
	if got, _ = Tokenize([]byte(`{"prompt":"hello","add_special_tokens":false,"return_token_strs":true}`), limits); len(got.IDs) != 2 || !got.Strings {
		t.Errorf("%v", got)
	}
}

func TestTokenize_RefusesAsVLLMDoes(t *testing.T) {
	detokenize := func(data []byte, l Limits) (Tokens, error) { _, err := Detokenize(data, l); return Tokens{}, err }
	for _, c := range []struct {
		call   func([]byte, Limits) (Tokens, error)
		body   string
		status int
		param  string
	}{
		{Tokenize, `{`, 400, "body.0"},
		{Tokenize, `{}`, 400, "body.prompt"},
		{Tokenize, `{"prompt":1}`, 400, "body.prompt"},
		{Tokenize, `{"prompt":"x","model":"y"}`, 404, "model"},
		{Tokenize, `{"messages":[{"content":"x"}]}`, 400, "body.messages.0.role"},
		{Tokenize, `{"messages":[],"continue_final_message":true}`, 400, ""},
		{detokenize, `{`, 400, "body.0"},
		{detokenize, `{}`, 400, "body.tokens"},
		{detokenize, `{"tokens":["x"]}`, 400, "body.tokens"},
		{detokenize, `{"tokens":[1,-1]}`, 400, "body.tokens.1"},
		{detokenize, `{"tokens":[4294967296]}`, 400, "body.tokens.0"},
		{detokenize, `{"tokens":[1],"model":"y"}`, 404, "model"},
	} {
		_, err := c.call([]byte(c.body), limits)
		if e, ok := errors.AsType[*Error](err); !ok || e.Status != c.status || e.Param != c.param {
			t.Errorf("%s: %#v", c.body, err)
		}
	}
}

// The arguments of a function are a JSON object with the answer's text, whatever the pieces
// in which they come.
func TestAnswer_ArgumentsAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Answer{Tokens: rapid.IntRange(1, 40).Draw(t, "tokens"), Stop: rapid.Bool().Draw(t, "stop"), words: rapid.Uint64().Draw(t, "words")}
		var whole, inString []byte
		for from := 0; from < a.Tokens; {
			to := rapid.IntRange(from+1, a.Tokens).Draw(t, "to")
			whole = a.AppendArguments(whole, from, to, to == a.Tokens, `"`)
			inString = a.AppendArguments(inString, from, to, to == a.Tokens, `\"`)
			from = to
		}
		var object map[string]string
		if err := json.Unmarshal(whole, &object); err != nil || len(object) != 1 || object["text"] != a.Text() {
			t.Fatalf("%s, %v", whole, err)
		}
		var text string
		if err := json.Unmarshal([]byte(`"`+string(inString)+`"`), &text); err != nil || text != string(whole) {
			t.Fatalf("%s, %v", inString, err)
		}
	})
}

func TestRoute_HasAPath(t *testing.T) {
	for r := range routes {
		if !strings.HasPrefix(r.Path(), "/v1/") {
			t.Errorf("%d: %s", r, r.Path())
		}
	}
	if routes.Path() != "Route(8)" {
		t.Error(routes.Path())
	}
}
