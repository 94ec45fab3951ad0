package tokenizer

import (
	"errors"
	"strings"
	"testing"

	"kvasir/accelerator"
	"kvasir/engine"
)

func TestRead_RefusesAsVLLMDoes(t *testing.T) {
	long := `"` + strings.Repeat("word", 5000) + `"`
	for _, c := range []struct {
		name    string
		route   Route
		body    string
		status  int
		kind    string
		param   string
		message string
	}{
		{"no messages", Chat, `{"model":"tiny"}`, 400, "Bad Request", "body.messages",
			"1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}"},
		{"two mistakes", Chat, `{"model":1,"messages":[{"content":"x"}]}`, 400, "Bad Request", "body.model",
			"2 validation errors:\n  {'type': 'string_type', 'loc': ('body', 'model'), 'msg': 'Input should be a valid string'}" +
				"\n  {'type': 'missing', 'loc': ('body', 'messages', 0, 'role'), 'msg': 'Field required'}"},
		{"not JSON", Chat, `{"model":"tiny",}`, 400, "Bad Request", "body.16",
			"1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', 16), 'msg': 'JSON decode error'}"},
		{"empty", Chat, ``, 400, "Bad Request", "body.0", ""},
		{"array", Chat, `[]`, 400, "Bad Request", "body",
			"1 validation error:\n  {'type': 'model_attributes_type', 'loc': ('body',), 'msg': 'Input should be a valid dictionary or object to extract fields from'}"},
		{"null", Chat, `null`, 400, "Bad Request", "body", ""},
		{"unknown model", Chat, `{"model":"x","messages":[]}`, 404, "NotFoundError", "model", "The model `x` does not exist."},
		{"too long", Completions, `{"prompt":` + long + `}`, 400, "BadRequestError", "input_tokens",
			"This model's maximum context length is 4096 tokens. However, you requested 16 output tokens and your prompt contains " +
				"at least 4081 input tokens, for a total of at least 4097 tokens. Please reduce the length of the input prompt or " +
				"the number of requested output tokens. (parameter=input_tokens, value=4081)"},
		{"too long in ids", Completions, `{"prompt":[` + strings.Repeat("1,", 4999) + `1]}`, 400, "BadRequestError", "input_tokens",
			"This model's maximum context length is 4096 tokens. However, you requested 16 output tokens and your prompt contains " +
				"5000 input tokens, for a total of 5016 tokens. Please reduce the length of the input prompt or " +
				"the number of requested output tokens. (parameter=input_tokens, value=5000)"},
		{"too long without a bound", Chat, `{"messages":[{"role":"user","content":` + long + `}]}`, 400, "BadRequestError", "input_tokens", ""},
		{"too long to embed", Embeddings, `{"input":` + long + `}`, 400, "BadRequestError", "input_tokens", ""},
		{"max_tokens 0", Completions, `{"prompt":"x","max_tokens":0}`, 400, "BadRequestError", "max_tokens", "max_tokens must be at least 1, got 0."},
		{"max_tokens text", Completions, `{"prompt":"x","max_tokens":"y"}`, 400, "Bad Request", "body.max_tokens", ""},
		{"max_tokens 1.5", Completions, `{"prompt":"x","max_tokens":1.5}`, 400, "Bad Request", "body.max_tokens", ""},
		{"min above max", Completions, `{"prompt":"x","min_tokens":17}`, 400, "BadRequestError", "min_tokens",
			"min_tokens must be less than or equal to max_tokens=16, got 17."},
		{"n 0", Chat, `{"messages":[],"n":0}`, 400, "BadRequestError", "n", ""},
		{"n 129", Chat, `{"messages":[],"n":129}`, 400, "BadRequestError", "n", ""},
		{"options of no stream", Chat, `{"messages":[],"stream_options":{}}`, 400, "BadRequestError", "stream_options",
			"Stream options can only be defined when `stream=True`."},
		{"another field", Completions, `{"Prompt":"x"}`, 400, "Bad Request", "body.prompt", ""},
		{"no prompt", Completions, `{}`, 400, "Bad Request", "body.prompt", ""},
		{"empty list", Completions, `{"prompt":[]}`, 400, "BadRequestError", "prompt", ""},
		{"empty ids", Completions, `{"prompt":[[]]}`, 400, "BadRequestError", "prompt", ""},
		{"negative id", Completions, `{"prompt":[-1]}`, 400, "Bad Request", "body.prompt", ""},
		{"mixed list", Completions, `{"prompt":["a",1]}`, 400, "Bad Request", "body.prompt.1", ""},
		{"too many", Completions, `{"prompt":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"],"n":128}`, 400, "BadRequestError", "", ""},
		{"unknown part", Chat, `{"messages":[{"role":"user","content":[{"type":"smell"}]}]}`, 400, "BadRequestError", "", "Unknown part type: smell"},
		{"stream text", Chat, `{"messages":[],"stream":"yes"}`, 400, "Bad Request", "body.stream", ""},
		{"messages object", Chat, `{"messages":{}}`, 400, "Bad Request", "body.messages", ""},
		{"message text", Chat, `{"messages":["x"]}`, 400, "Bad Request", "body.messages.0", ""},
		{"content number", Chat, `{"messages":[{"role":"user","content":1}]}`, 400, "Bad Request", "body.messages.0.content", ""},
		{"image missing", Chat, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "Bad Request", "body.messages.0.content.0.image_url", ""},
		{"salt number", Chat, `{"messages":[],"cache_salt":1}`, 400, "Bad Request", "body.cache_salt", ""},
		{"logprobs", Chat, `{"messages":[],"logprobs":true}`, 400, "BadRequestError", "logprobs", ""},
		{"a tool of none", Chat, `{"messages":[],"tool_choice":"required"}`, 400, "BadRequestError", "tool_choice", ""},
		{"a tool of others", Chat, `{"messages":[],"tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}}}`, 400, "BadRequestError", "tool_choice",
			"The tool specified in `tool_choice` does not match any of the specified `tools`"},
		{"another choice", Chat, `{"messages":[],"tool_choice":"never"}`, 400, "BadRequestError", "tool_choice", ""},
		{"a tool in a response", Responses, `{"input":"x","tools":[{"name":"f"}],"tool_choice":"required"}`, 400, "BadRequestError", "tool_choice", ""},
		{"no input", Responses, `{"model":"tiny"}`, 400, "Bad Request", "body.input", ""},
		{"input number", Responses, `{"input":1}`, 400, "Bad Request", "body.input", ""},
		{"input item", Responses, `{"input":[{"type":"smell"}]}`, 400, "BadRequestError", "input", ""},
		{"max_output_tokens 0", Responses, `{"input":"x","max_output_tokens":0}`, 400, "BadRequestError", "max_output_tokens", ""},
		{"background", Responses, `{"input":"x","background":true}`, 400, "invalid_request_error", "background", ""},
		{"response before", Responses, `{"input":"x","previous_response_id":"resp_1"}`, 404, "invalid_request_error", "response_id",
			"Response with id 'resp_1' not found."},
		{"too long to respond", Responses, `{"input":` + long + `}`, 400, "BadRequestError", "input_tokens", ""},
		{"no max_tokens", Messages, `{"model":"tiny","messages":[]}`, 400, "Bad Request", "body.max_tokens",
			"1 validation error:\n  {'type': 'missing', 'loc': ('body', 'max_tokens'), 'msg': 'Field required'}"},
		{"max_tokens not positive", Messages, `{"model":"tiny","messages":[],"max_tokens":0}`, 400, "Bad Request", "body.max_tokens", ""},
		{"no model", Messages, `{"messages":[],"max_tokens":1}`, 400, "Bad Request", "body.model", ""},
		{"role", Messages, `{"model":"tiny","messages":[{"role":"tool","content":"x"}],"max_tokens":1}`, 400, "Bad Request", "body.messages.0.role", ""},
		{"block", Messages, `{"model":"tiny","messages":[{"role":"user","content":[{"type":"smell"}]}],"max_tokens":1}`, 400, "Bad Request", "body.messages.0.content.0.type", ""},
		{"nothing to count", CountTokens, `{"model":"tiny"}`, 400, "Bad Request", "body.messages", ""},
		{"model to count for", CountTokens, `{"model":"x","messages":[]}`, 404, "NotFoundError", "model", ""},
		{"no query", Rerank, `{"documents":["x"]}`, 400, "Bad Request", "body.query", ""},
		{"no documents", Rerank, `{"query":"x","documents":[]}`, 400, "BadRequestError", "", "At least one text_pair element must be given"},
		{"top_n", Rerank, `{"query":"x","documents":["x"],"top_n":-1}`, 400, "Bad Request", "body.top_n", ""},
		{"document number", Rerank, `{"query":"x","documents":[1]}`, 400, "Bad Request", "body.documents.0", ""},
		{"two to three", Score, `{"text_1":["a","b"],"text_2":["a","b","c"]}`, 400, "BadRequestError", "", "Input lengths must be either 1:1, 1:N or N:N"},
		{"nothing to score", Score, `{}`, 400, "Bad Request", "body.queries", ""},
		{"too long to score", Score, `{"text_1":"a","text_2":` + long + `}`, 400, "BadRequestError", "input_tokens", ""},
		{"dimensions 0", Embeddings, `{"input":"x","dimensions":0}`, 400, "BadRequestError", "dimensions", ""},
		{"encoding", Embeddings, `{"input":"x","encoding_format":"hex"}`, 400, "BadRequestError", "encoding_format", ""},
		{"both ends", Chat, `{"messages":[],"continue_final_message":true}`, 400, "BadRequestError", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			call, err := Read(c.route, []byte(c.body), limits)
			e, ok := errors.AsType[*Error](err)
			if !ok || call != nil {
				t.Fatalf("got %+v, %v", call, err)
			}
			if e.Status != c.status || e.Type != c.kind || e.Param != c.param || c.message != "" && e.Message != c.message {
				t.Errorf("got %d %s, param %q: %s", e.Status, e.Type, e.Param, e.Message)
			}
		})
	}
}

// Whatever the body, Read gives an error that a client can be told, or requests that the
// engine takes.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[{"role":"user","content":"hello"}],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}],"max_tokens":3,"ignore_eos":true}`,
		`{"prompt":["a","b"],"n":2,"min_tokens":1}`, `{"prompt":[[1,2],[3]]}`, `{"input":"x","dimensions":3}`,
		`{"messages":[{"role":"assistant","tool_calls":[{}]}],"tools":[{}],"seed":1e3}`, `{"messages":[null,[],{"content":[null]}]}`, `{"prompt":`,
		`{"input":[{"role":"user","content":"x"},{"type":"function_call","name":"f"},{"type":"reasoning"}],"instructions":"y","tools":[{"name":"f"}]}`,
		`{"model":"tiny","max_tokens":9,"system":[{"type":"text","text":"x"}],"messages":[{"role":"user","content":[{"type":"tool_result","content":"x"}]}]}`,
		`{"query":"a","documents":["b",{"content":[{"type":"text","text":"c"}]}],"top_n":1}`, `{"text_1":["a","b"],"text_2":["a","b"]}`,
		`{"model":"tiny","messages":[],"max_tokens":1,"tools":[{"name":"f"}],"tool_choice":{"type":"tool","name":"f"}}`,
	} {
		for route := range routes {
			f.Add(uint8(route), []byte(seed))
		}
	}
	p, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, route uint8, data []byte) {
		call, err := Read(Route(route)%routes, data, limits)
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Status < 400 || e.Status > 499 || e.Message == "" || e.Type == "" {
				t.Fatalf("error %#v", err)
			}
			return
		}
		c := engine.Defaults(p)
		c.MaxModelLen = limits.MaxModelLen
		e, err := engine.New(c)
		if err != nil {
			t.Fatal(err)
		}
		for i, item := range call.Items {
			item.Request.ID = engine.ID(i)
			if err := e.Submit(0, item.Request); err != nil {
				t.Fatal(err)
			}
		}
		if len(call.Items) == 0 != (call.Route == CountTokens) || e.Advance(0) != nil {
			t.Fatalf("%d items", len(call.Items))
		}
	})
}
