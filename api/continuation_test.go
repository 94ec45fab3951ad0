package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

const goOn = `"continue_final_message":true,"add_generation_prompt":false,`

func spliced(body []byte, edits []Edit) string {
	return string(bytes.Join(Splice(body, edits...), nil))
}

func TestReadContinuation_SaysHowABodyGoesOn(t *testing.T) {
	for name, x := range map[string]struct {
		g                Grammar
		body, said, want string
		tokens           int
	}{
		"completion": {Completions, `{"model":"m", "prompt":"Once \"upon\"" ,"max_tokens": 10,"stream":true,"seed":3}`, ` a\n\ud83d\ude00`,
			`{"model":"m", "prompt":"Once \"upon\" a\n\ud83d\ude00" ,"max_tokens": 7,"stream":true,"seed":3}`, 3},
		"chat": {Chat, `{"messages":[{"role":"user","content":"Hi"} ],"stream":true}`, `So`,
			`{` + goOn + `"messages":[{"role":"user","content":"Hi"} ,{"role":"assistant","content":"So"}],"stream":true}`, 3},
		"chat with bounds": {Chat, `{"min_tokens":2,"max_completion_tokens":9,"max_tokens":8,"messages":[{"role":"tool","content":"1"}],"tools":[],"n":1,"stop":null,"logprobs":false,"response_format":{"type":"text"},"tool_choice":"auto"}`, `So`,
			`{` + goOn + `"min_tokens":0,"max_completion_tokens":6,"max_tokens":5,"messages":[{"role":"tool","content":"1"},{"role":"assistant","content":"So"}],"tools":[],"n":1,"stop":null,"logprobs":false,"response_format":{"type":"text"},"tool_choice":"auto"}`, 3},
		"no bound in a chat": {Chat, `{"max_tokens":-1,"messages":[{"content":"Hi","role":"user"}]}`, ``,
			`{` + goOn + `"max_tokens":-1,"messages":[{"content":"Hi","role":"user"},{"role":"assistant","content":""}]}`, 3},
	} {
		c, err := ReadContinuation(x.g, []byte(x.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		edits, ok := c.Edits([]byte(x.said), x.tokens, goOn)
		if got := spliced([]byte(x.body), edits); !ok || got != x.want || !json.Valid([]byte(got)) {
			t.Errorf("%s:\n%s, want\n%s", name, got, x.want)
		}
	}
}

func TestReadContinuation_SaysWhyNot(t *testing.T) {
	chat := func(more string) string { return `{"messages":[{"role":"user","content":"Hi"}],` + more + `}` }
	for body, g := range map[string]Grammar{
		`{"prompt":["a","b"],"max_tokens":3}`: Completions, `{"prompt":[1,2],"max_tokens":3}`: Completions,
		`{"prompt":"a"}`: Completions, `{"prompt":"a","max_tokens":0}`: Completions, `{"max_tokens":3}`: Completions,
		`{"prompt":"a","max_tokens":3,"suffix":"x"}`: Completions, `{"prompt":"a","max_tokens":3,"echo":true}`: Completions,
		`{"prompt":"a","max_tokens":3,"logprobs":0}`: Completions, `{"prompt":"a","max_tokens":3,"best_of":2}`: Completions,
		chat(`"n":2`): Chat, chat(`"logprobs":true`): Chat, chat(`"response_format":{"type":"json_object"}`): Chat,
		chat(`"response_format":{"json_schema":{"type":"text"},"type":"json_schema"}`): Chat,
		chat(`"structured_outputs":{}`): Chat, chat(`"guided_regex":"a+"`): Chat, chat(`"tool_choice":"required"`): Chat,
		chat(`"tool_choice":{"type":"function"}`): Chat, chat(`"continue_final_message":true`): Chat, chat(`"stop":3`): Chat, chat(`"stop":[3]`): Chat,
		chat(`"max_tokens":1.5`): Chat, chat(`"return_token_ids":true`): Chat, chat(`"audio":{}`): Chat, chat(`"stream_interval":4`): Chat,
		`{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"So"}]}`: Chat,
		`{"messages":[]}`: Chat, `{"messages":[{"content":"Hi"}]}`: Chat, `{"messages":"Hi"}`: Chat, `{}`: Chat, `[]`: Chat, `{"messages":[{"role":"user"}]`: Chat,
		`{"input":"Hi"}`: Responses,
	} {
		if c, err := ReadContinuation(g, []byte(body)); err == nil || err.Error() == "" {
			t.Errorf("%s: %+v", body, c)
		}
	}
}

func TestContinuation_NoTokenLeft(t *testing.T) {
	c, err := ReadContinuation(Completions, []byte(`{"prompt":"a","max_tokens":3}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Edits(nil, 3, ""); ok {
		t.Error("an answer that had all its tokens goes on")
	}
	if _, ok := c.Edits(nil, 2, ""); !ok {
		t.Error("the last token is missing")
	}
}

func TestContinuation_Splits(t *testing.T) {
	body := `{"messages":[{"role":"user","content":"Hi"}],"stop":["\n\nUser:","END"]}`
	c, err := ReadContinuation(Chat, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range map[string]bool{
		`one`: false, ``: false, `one\n`: true, `one\u000a\nUse`: true, `one\n\n.`: false, `one\nE`: true, `EN`: true, `END`: false, `ENd`: false,
	} {
		if got := c.Splits([]byte(said)); got != want {
			t.Errorf("%q: %v", said, got)
		}
	}
	if c, _ = ReadContinuation(Chat, []byte(strings.Replace(body, `["\n\nUser:","END"]`, `"END"`, 1))); !c.Splits([]byte("E")) || c.Splits([]byte("D")) {
		t.Error("a single sequence is not read")
	}
}

const (
	seamRole       = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":17,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}`
	seamText       = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":17,"model":"m","choices":[{"index":0,"delta":{"content":"a \"b\""},"logprobs":null,"finish_reason":null,"token_ids":null}]}`
	seamUsage      = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":17,"model":"m","choices":[],"usage":{"prompt_tokens":30,"total_tokens":35,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":28}}}`
	seamCompletion = `{"id":"cmpl-1","object":"text_completion","created":17,"model":"m","choices":[{"index":0,"text":" x","logprobs":null,"finish_reason":"stop","stop_reason":null}]}`
)

func TestReadSpoken(t *testing.T) {
	for data, want := range map[string]string{seamRole: "", seamText: `a \"b\"`, seamUsage: "", seamCompletion: " x"} {
		if s := ReadSpoken([]byte(data)); s.Odd || string(s.Text.Of([]byte(data))) != want {
			t.Errorf("%+v of %s", s, data)
		}
	}
	for _, data := range []string{
		`{"choices":[{"index":1,"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":"a"}},{"delta":{}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`, `{"choices":[{"delta":{"reasoning":"hm"}}]}`,
		`{"choices":[{"delta":{"refusal":"no"}}]}`, `{"choices":[{"delta":{"content":["a"]}}]}`,
		`{"choices":[{"index":0,"text":"a","logprobs":{"tokens":["a"]}}]}`, `{"choices":[{"text":"a","token_ids":[1]}]}`,
		`{"choices":[{"delta":{"content":"a"},"text":"b"}]}`, `{"choices":{}}`, `[DONE]`, `{"choices":[`, ``, `{} {}`,
	} {
		if s := ReadSpoken([]byte(data)); !s.Odd {
			t.Errorf("nothing odd in %s", data)
		}
	}
}

func TestWhole_MakesOneAnswerOfTwo(t *testing.T) {
	var h Whole
	first := []byte(`{"id":"chatcmpl-0","created":5,"model":"alias","choices":[]}`)
	h.Begin(first, ReadSpoken(first))
	h.Prompt, h.Output = Unknown, 10
	for data, want := range map[string]string{
		seamText:  `{"id":"chatcmpl-0","object":"chat.completion.chunk","created":5,"model":"alias","choices":[{"index":0,"delta":{"content":"a \"b\""},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
		seamUsage: `{"id":"chatcmpl-0","object":"chat.completion.chunk","created":5,"model":"alias","choices":[],"usage":{"prompt_tokens":20,"total_tokens":35,"completion_tokens":15,"prompt_tokens_details":{"cached_tokens":20}}}`,
		`{"choices":[{"delta":{"role":"assistant","content":"a"}}]}`:                `{"choices":[{"delta":{"content":"a"}}]}`,
		`{"choices":[{"delta":{"content":"a" , "role":"assistant"}}],"usage":null}`: `{"choices":[{"delta":{"content":"a"}}],"usage":null}`,
		`{"choices":[{"delta":{ "role":"assistant" }}],"id":"x"}`:                   `{"choices":[{"delta":{ }}],"id":"chatcmpl-0"}`,
	} {
		if got := string(h.Append(nil, []byte(data), ReadSpoken([]byte(data)))); got != want {
			t.Errorf("%s, want\n%s", got, want)
		}
	}
	h.Prompt = 19
	if u := h.Usage(Usage{Input: 30, Output: 5, Cached: 28}); u != (Usage{Input: 19, Output: 15, Cached: 19}) {
		t.Errorf("usage %+v", u)
	}
	if u := h.Usage(unknownUsage()); u.Output != Unknown || u.Cached != Unknown {
		t.Errorf("usage %+v of nothing", u)
	}
}

// Whatever a body or a chunk is, what is made of valid JSON is valid JSON.
func FuzzContinuation(f *testing.F) {
	for _, s := range []string{seamRole, seamText, seamUsage, seamCompletion, `{"choices":[{"delta":{"role":"a"}}]}`, `{"prompt":"a","max_tokens":3}`,
		`{"messages":[{"role":"user","content":"Hi"}],"stop":["x"]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		valid := json.Valid(data)
		s := ReadSpoken(data)
		var h Whole
		h.Begin([]byte(seamText), ReadSpoken([]byte(seamText)))
		h.Output = 3
		if out := h.Append(nil, data, s); valid && !json.Valid(out) {
			t.Errorf("%q became %q", data, out)
		}
		for _, g := range []Grammar{Chat, Completions} {
			if c, err := ReadContinuation(g, data); err == nil && valid {
				c.Splits([]byte(`a\n`))
				if edits, ok := c.Edits([]byte(`a\n`), 1, goOn); ok && !json.Valid([]byte(spliced(data, edits))) {
					t.Errorf("%q became %q", data, spliced(data, edits))
				}
			}
		}
	})
}

func BenchmarkWholeAppend(b *testing.B) {
	h := Whole{ID: []byte(`"chatcmpl-0"`), Created: []byte("5"), Model: []byte(`"m"`), Prompt: Unknown, Output: 10}
	data, dst := []byte(seamText), make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		dst = h.Append(dst[:0], data, ReadSpoken(data))
	}
}
