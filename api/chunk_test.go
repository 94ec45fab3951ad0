package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Chunks as engines send them.
const (
	vllmRole      = `{"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1796000000,"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}`
	vllmContent   = `{"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1796000000,"model":"tiny","choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`
	vllmFinish    = `{"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1796000000,"model":"tiny","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"system_fingerprint":"vllm-0.28.0-1a2b3c4d"}`
	vllmUsage     = `{"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1796000000,"model":"tiny","choices":[],"usage":{"prompt_tokens":40,"total_tokens":42,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":32}},"system_fingerprint":"vllm-0.28.0-1a2b3c4d"}`
	vllmText      = `{"id":"cmpl-abc","object":"text_completion","created":1796000000,"model":"tiny","choices":[{"index":0,"text":"Hi","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}`
	vllmError     = `{"error": {"message": "boom", "type": "InternalServerError", "param": null, "code": 500}}`
	vllmBody      = `{"id":"chatcmpl-abc","object":"chat.completion","created":1796000000,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null,"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.28.0-1a2b3c4d","usage":{"prompt_tokens":40,"total_tokens":42,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":32,"created_cache_tokens":null,"multimodal_tokens":null},"completion_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`
	openaiContent = `{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" world"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aB3dE"}`
)

func TestReadChunk(t *testing.T) {
	const choice = `{"object":"chat.completion.chunk","choices":[{"index":0,`
	none := Usage{}
	for _, c := range []struct {
		name, data string
		want       string // kind, visible, finish, status, code, type
		usage      Usage
	}{
		{"vllm role", vllmRole, "preamble", none},
		{"vllm content", vllmContent, "content visible", none},
		{"vllm finish", vllmFinish, "preamble finish=stop", none},
		{"vllm last text and finish", choice + `"delta":{"content":"."},"finish_reason":"length"}]}`, "content visible finish=length", none},
		{"vllm finish, delta swallowed", choice + `"delta":{},"finish_reason":"stop"}]}`, "preamble finish=stop", none},
		{"vllm usage", vllmUsage, "preamble", Usage{40, 2, 32}},
		{"vllm continuous usage", choice + `"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":{"prompt_tokens":40,"total_tokens":40,"completion_tokens":0,"completion_tokens_details":null}}`, "preamble", Usage{40, 0, Unknown}},
		{"vllm text", vllmText, "content visible", none},
		{"vllm empty text", `{"object":"text_completion","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null}]}`, "preamble", none},
		{"vllm reasoning", choice + `"delta":{"reasoning":"hm"},"logprobs":null,"finish_reason":null}]}`, "content", none},
		{"vllm tool call", choice + `"delta":{"tool_calls":[{"id":"chatcmpl-tool-1","type":"function","index":0,"function":{"name":"get_x","arguments":""}}]},"finish_reason":null}]}`, "content visible", none},
		{"vllm tool arguments", choice + `"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}}]}`, "content visible", none},
		{"vllm error", vllmError, "failure status=500 code=500 type=InternalServerError", none},
		{"vllm body", vllmBody, "content visible finish=stop", Usage{40, 2, 32}},
		{"vllm two choices", `{"choices":[{"index":0,"delta":{"content":""}},{"index":1,"delta":{"content":"x"},"finish_reason":"stop"}]}`, "content visible finish=stop", none},
		{"vllm tokens without text", choice + `"delta":{"content":""},"token_ids":[7]}]}`, "content", none},
		{"log probabilities alone", choice + `"delta":{"content":""},"logprobs":{"content":[{"token":""}]}}]}`, "content", none},
		{"sglang role", choice + `"delta":{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}`, "preamble", none},
		{"sglang reasoning", choice + `"delta":{"role":null,"content":null,"reasoning_content":"hm"}}]}`, "content", none},
		{"sglang flat error", `{"object":"error","message":"The request queue is full.","type":"503","param":null,"code":503}`, "failure status=503 code=503 type=503", none},
		{"llama.cpp role", choice + `"delta":{"role":"assistant","content":null},"finish_reason":null}]}`, "preamble", none},
		{"llama.cpp error", `{"error":{"code":400,"message":"request (5018 tokens) exceeds","type":"exceed_context_size_error","n_prompt_tokens":5018}}`, "failure status=400 code=400 type=exceed_context_size_error", none},
		{"llama.cpp timings", `{"choices":[],"usage":{"completion_tokens":3,"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}},"timings":{"cache_n":0}}`, "preamble", Usage{9, 3, 0}},
		{"openai content, usage null", openaiContent, "content visible", none},
		{"openai refusal", choice + `"delta":{"refusal":"no"}}]}`, "content visible", none},
		{"openai function call", choice + `"delta":{"function_call":{"name":"f"}}}]}`, "content visible", none},
		{"openai audio", choice + `"delta":{"audio":{"id":"a"}}}]}`, "content visible", none},
		{"openai quota", `{"error":{"message":"You exceeded","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, "failure code=insufficient_quota type=insufficient_quota", none},
		{"azure filter results", `{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}`, "preamble", none},
		{"azure filter on a choice", choice + `"delta":{},"content_filter_results":{"hate":{"filtered":false}}}]}`, "preamble", none},
		{"tgi", `{"error":"Model is overloaded","error_type":"overloaded"}`, "failure type=overloaded", none},
		{"ollama", `{"error":"server busy"}`, "failure", none},
		{"gemini", `[{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}}]`, "failure status=429 code=429", none},
		{"openrouter", `{"id":"x","error":{"code":"502","message":"x"},"choices":[{"delta":{"content":"a"},"finish_reason":"error"}]}`, "failure finish=error status=502 code=502", none},
		{"finish_reason error", choice + `"delta":{},"finish_reason":"error"}]}`, "failure finish=error", none},
		{"anthropic error", `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`, "failure type=overloaded_error", none},
		{"error null", `{"error":null,"choices":[{"delta":{"role":"assistant"}}]}`, "preamble", none},
		{"done", `[DONE]`, "done", none},
		{"done, spaced", " [DONE]\n", "done", none},
		{"choices missing", `{"id":"x","object":"chat.completion.chunk"}`, "preamble", none},
		{"choices null", `{"choices":null}`, "preamble", none},
		{"delta null", `{"choices":[{"index":0,"delta":null}]}`, "preamble", none},
		{"choice null", `{"choices":[null]}`, "preamble", none},
		{"content parts", `{"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}`, "content visible", none},
		{"content no parts", `{"choices":[{"delta":{"content":[ ]}}]}`, "preamble", none},
		{"unknown delta", `{"choices":[{"delta":{"thought_signature":"x"}}]}`, "content", none},
		{"usage alone", `{"usage":{"prompt_tokens":1,"completion_tokens":1.5}}`, "preamble", Usage{1, Unknown, Unknown}},
		{"white space, other order, escapes", " {\n \"\\u0063hoices\" : [ { \"finish_reason\" : null , \"delta\" : { \"con\\u0074ent\" : \"\\\"\" , \"role\" : \"assistant\" } } ] , \"x\" : [ { \"y\" : \"]}\" } ] } ", "content visible", none},
		{"usage inside content", `{"choices":[{"delta":{"content":"{\"usage\":{\"prompt_tokens\":9}}"}}]}`, "content visible", none},
		{"not JSON", `hello`, "content", none},
		{"nothing", ``, "content", none},
		{"a number", `1`, "content", none},
		{"a list", `[1]`, "content", none},
		{"no fields", `{}`, "content", none},
		{"unknown fields", `{"a":1}`, "content", none},
		{"no value", `{"choices":[:]}`, "content", none},
		{"cut", vllmRole[:100], "content", none},
		{"more after it", vllmRole + "x", "content", none},
	} {
		got := ReadChunk(Chat, nil, []byte(c.data))
		if s := describe(got); s != c.want {
			t.Errorf("%s: %s, want %s", c.name, s, c.want)
		}
		if got.HasUsage != (c.usage != none) || got.Usage != c.usage {
			t.Errorf("%s: usage %v %+v, want %+v", c.name, got.HasUsage, got.Usage, c.usage)
		}
	}
}

func describe(c Chunk) string {
	s := c.Kind.String()
	if c.Visible {
		s += " visible"
	}
	if c.Finish != nil {
		s += " finish=" + string(c.Finish)
	}
	if c.Fault.Status != 0 {
		s += fmt.Sprintf(" status=%d", c.Fault.Status)
	}
	if c.Fault.Code != nil {
		s += " code=" + string(c.Fault.Code)
	}
	if c.Fault.Type != nil {
		s += " type=" + string(c.Fault.Type)
	}
	return s
}

// TestChunk_Commits: a preamble may be taken back, content and the end of an empty
// answer may not, an error never reaches the client before them.
func TestChunk_Commits(t *testing.T) {
	for data, want := range map[string]bool{vllmRole: false, vllmUsage: false, vllmError: false, "[DONE]": false, vllmContent: true, vllmFinish: true, "junk": true, `{"choices":[{"delta":{},"finish_reason":"error"}]}`: false} {
		if got := ReadChunk(Chat, nil, []byte(data)).Commits(); got != want {
			t.Errorf("%s: %v", data, got)
		}
	}
}

// FuzzChunk takes chunks apart. Whatever is left of one, in any grammar nothing panics, a
// preamble has no text in it, and a whole chunk keeps its kind in other white space.
func FuzzChunk(f *testing.F) {
	for _, s := range []string{vllmRole, vllmContent, vllmFinish, vllmUsage, vllmText, vllmError, vllmBody, openaiContent, `[{"error":{}}]`, `{"error":"x"}`, `{"choices":[{"delta":{"\u0063ontent":""}}]}`} {
		f.Add([]byte(s))
	}
	for _, e := range slices.Concat(responsesStream, messagesStream) {
		f.Add([]byte(e[1]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, g := range []Grammar{Chat, Responses, Messages, Speech} {
			c := ReadChunk(g, nil, data)
			if json.Valid(data) {
				checkChunk(t, g, data, c)
			}
		}
	})
}

func checkChunk(t *testing.T, g Grammar, data []byte, c Chunk) {
	t.Helper()
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, data, "", " "); err != nil {
		t.Fatal(err)
	}
	if again := ReadChunk(g, nil, spaced.Bytes()); describe(again) != describe(c) || again.Usage != c.Usage || again.NextSequence != c.NextSequence {
		t.Fatalf("%v: %s %v, in other white space %s %v\n%s", g, describe(c), c.Usage, describe(again), again.Usage, data)
	}
	type text struct {
		Text, Thinking, PartialJSON string
		Content                     string
	}
	var tree struct {
		Choices []struct{ Delta text }
		Delta   json.RawMessage
		Block   text `json:"content_block"`
		Part    text
		Type    string
	}
	if json.Unmarshal(data, &tree) != nil || c.Kind != Preamble || hasTwice(data) {
		return
	}
	delta, whole := text{}, ""
	_ = json.Unmarshal(tree.Delta, &delta)
	_ = json.Unmarshal(tree.Delta, &whole)
	switch {
	case g == Chat && slices.ContainsFunc(tree.Choices, func(c struct{ Delta text }) bool { return c.Delta.Content != "" }),
		g == Messages && strings.HasPrefix(tree.Type, "content_block_") && tree.Type != "content_block_stop" && (delta != text{} || tree.Block != text{}),
		g == Responses && strings.HasSuffix(tree.Type, ".delta") && whole != "",
		g == Responses && strings.HasSuffix(tree.Type, ".added") && tree.Part != text{}, g == Speech:
		t.Fatalf("%v: text in a preamble: %s", g, data)
	}
}

// hasTwice says that encoding/json, which folds case and takes the last of two fields,
// may see another chunk.
func hasTwice(data []byte) bool {
	n, err := parseNode(bytes.ToLower(data))
	return err != nil || n.twice || !bytes.Equal(bytes.ToLower(data), data)
}

func TestTally(t *testing.T) {
	for _, c := range []struct {
		name   string
		chunks []string
		want   Usage
	}{
		{"none", []string{vllmRole, vllmContent}, Usage{Unknown, Unknown, Unknown}},
		{"at the end", []string{vllmRole, vllmContent, vllmUsage}, Usage{40, 2, 32}},
		{"null after it", []string{vllmContent, vllmUsage, openaiContent}, Usage{40, 2, 32}},
		{"cumulative", []string{vllmContent, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}`, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}`}, Usage{9, 5, Unknown}},
		{"zeros with content", []string{vllmContent, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":0}}}`}, Usage{Unknown, Unknown, Unknown}},
		{"zeros do not replace", []string{vllmContent, vllmUsage, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`}, Usage{40, 2, 32}},
		{"no content, no output", []string{vllmRole, vllmFinish, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":0}}`}, Usage{9, 0, Unknown}},
	} {
		var tally Tally
		for _, data := range c.chunks {
			tally.Add(ReadChunk(Chat, nil, []byte(data)))
		}
		if got := tally.Usage(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if tally.Chunks != len(c.chunks) {
			t.Errorf("%s: %d chunks", c.name, tally.Chunks)
		}
	}
	var tally Tally
	for _, data := range []string{vllmRole, `{"choices":[{"delta":{"reasoning":"x"}}]}`} {
		tally.Add(ReadChunk(Chat, nil, []byte(data)))
	}
	if !tally.Content || tally.Visible || tally.Finished || tally.Failed || tally.Done {
		t.Errorf("%+v", tally)
	}
	for _, data := range []string{vllmContent, vllmFinish, vllmError, "[DONE]"} {
		tally.Add(ReadChunk(Chat, nil, []byte(data)))
	}
	if !tally.Visible || !tally.Finished || !tally.Failed || !tally.Done {
		t.Errorf("%+v", tally)
	}
}
