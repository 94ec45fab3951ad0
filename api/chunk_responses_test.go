package api

import (
	"strings"
	"testing"
)

// A stream of Responses, as OpenAI and vLLM send it.
var responsesStream = [][2]string{
	{"response.created", `{"type":"response.created","response":{"id":"resp_0a1","object":"response","created_at":1796000000,"status":"in_progress","error":null,"incomplete_details":null,"instructions":null,"model":"tiny","output":[],"tools":[],"usage":null},"sequence_number":0}`},
	{"response.in_progress", `{"type":"response.in_progress","response":{"id":"resp_0a1","object":"response","status":"in_progress","error":null,"output":[],"usage":null},"sequence_number":1}`},
	{"response.output_item.added", `{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"content":null,"encrypted_content":null,"status":"in_progress"},"sequence_number":2}`},
	{"response.reasoning_summary_part.added", `{"type":"response.reasoning_summary_part.added","item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""},"sequence_number":3}`},
	{"response.reasoning_summary_text.delta", `{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"hm","sequence_number":4}`},
	{"response.output_item.added", `{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","content":[],"role":"assistant"},"sequence_number":5}`},
	{"response.content_part.added", `{"type":"response.content_part.added","item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]},"sequence_number":6}`},
	{"response.output_text.delta", `{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"Hi","logprobs":[],"sequence_number":7,"obfuscation":"aB3"}`},
	{"response.output_text.done", `{"type":"response.output_text.done","item_id":"msg_1","output_index":1,"content_index":0,"text":"Hi","sequence_number":8}`},
	{"response.completed", `{"type":"response.completed","response":{"id":"resp_0a1","object":"response","status":"completed","error":null,"output":[{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hi"}]}],"usage":{"input_tokens":40,"input_tokens_details":{"cached_tokens":32},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":7},"total_tokens":49}},"sequence_number":9}`},
}

func TestReadChunk_ResponsesStream(t *testing.T) {
	want := []string{"preamble", "preamble", "preamble", "preamble", "content", "preamble", "preamble", "content visible", "content visible", "done finish=completed"}
	var tally Tally
	for i, e := range responsesStream {
		c := ReadChunk(Responses, []byte(e[0]), []byte(e[1]))
		tally.Add(c)
		if got := describe(c); got != want[i] {
			t.Errorf("%s: %s, want %s", e[0], got, want[i])
		}
		if alone := ReadChunk(Responses, nil, []byte(e[1])); describe(alone) != want[i] {
			t.Errorf("%s without its name: %s, want %s", e[0], describe(alone), want[i])
		}
		if c.NextSequence != i+1 {
			t.Errorf("%s: sequence goes on with %d", e[0], c.NextSequence)
		}
		if id := string(c.ResponseID); id != map[bool]string{true: "resp_0a1"}[i == 0] {
			t.Errorf("%s: response %q", e[0], id)
		}
		if begun := i >= 4; c.Commits() && !begun || c.Kind == Content && !c.Commits() {
			t.Errorf("%s: commits %v", e[0], c.Commits())
		}
	}
	if got := tally.Usage(); got != (Usage{40, 9, 32}) {
		t.Errorf("usage %+v", got)
	}
	if !tally.Content || !tally.Visible || !tally.Finished || !tally.Done || tally.Failed || tally.NextSequence != 10 {
		t.Errorf("%+v", tally)
	}
}

func TestReadChunk_Responses(t *testing.T) {
	for _, c := range []struct{ name, event, data, want string }{
		{"queued", "", `{"type":"response.queued","response":{"status":"queued","output":[]}}`, "preamble"},
		{"keepalive", "", `{"type":"keepalive","sequence_number":3}`, "preamble"},
		{"the name alone says what it is", "response.in_progress", `{"response":{}}`, "preamble"},
		{"created with output", "", `{"type":"response.created","response":{"output":[{"type":"message"}]}}`, "content visible"},
		{"a function is called", "", `{"type":"response.output_item.added","item":{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":""}}`, "content visible"},
		{"a tool of the engine's is called", "", `{"type":"response.output_item.added","item":{"type":"web_search_call","id":"ws_1","status":"in_progress"}}`, "content visible"},
		{"reasoning that is kept", "", `{"type":"response.output_item.added","item":{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}}`, "content"},
		{"a function is called, nothing said yet", "", `{"type":"response.output_item.added","item":{"type":"function_call"}}`, "content visible"},
		{"an item of no type", "", `{"type":"response.output_item.added","item":{}}`, "content visible"},
		{"no item", "", `{"type":"response.output_item.added","item":null}`, "content visible"},
		{"arguments", "", `{"type":"response.function_call_arguments.delta","delta":"{"}`, "content visible"},
		{"no arguments yet", "", `{"type":"response.function_call_arguments.delta","delta":""}`, "preamble"},
		{"refusal", "", `{"type":"response.refusal.delta","delta":"no"}`, "content visible"},
		{"reasoning text", "", `{"type":"response.reasoning_text.delta","delta":"hm"}`, "content"},
		{"vllm reasoning part", "", `{"type":"response.reasoning_part.added","part":{"type":"reasoning_text","text":""}}`, "preamble"},
		{"a part with text", "", `{"type":"response.content_part.added","part":{"type":"output_text","text":"a"}}`, "content visible"},
		{"a reasoning part with text", "", `{"type":"response.content_part.added","part":{"type":"reasoning_text","text":"a"}}`, "content"},
		{"log probabilities alone", "", `{"type":"response.output_text.delta","delta":"","logprobs":[{"token":""}]}`, "content visible"},
		{"a delta without one", "", `{"type":"response.output_text.delta"}`, "content visible"},
		{"a tool at work", "", `{"type":"response.web_search_call.searching"}`, "content visible"},
		{"not known", "", `{"type":"response.new.thing","delta":1}`, "content visible"},
		{"not known, nothing in it", "", `{"type":"response.new.thing","delta":""}`, "content visible"},
		{"not known at all", "", `{"a":1}`, "content"},
		{"not JSON", "response.created", `hello`, "content"},
		{"cut", "response.created", responsesStream[0][1][:60], "content"},
		{"incomplete", "", `{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":9,"output_tokens":5}}}`, "done finish=incomplete"},
		{"failed", "", `{"type":"response.failed","response":{"id":"r","status":"failed","error":{"code":"server_error","message":"x"}},"sequence_number":1}`, "failure code=server_error"},
		{"failed, no reason given", "", `{"type":"response.failed","response":{"error":null}}`, "failure"},
		{"failed by name", "response.failed", `{"response":{}}`, "failure"},
		{"error as documented", "error", `{"type":"error","code":"rate_limit_exceeded","message":"x","param":null,"sequence_number":2}`, "failure code=rate_limit_exceeded"},
		{"error as sent", "error", `{"type":"error","sequence_number":2,"error":{"type":"too_many_requests","code":"too_many_requests","message":"x","param":null}}`, "failure code=too_many_requests type=too_many_requests"},
		{"error by name", "error", `boom`, "failure"},
		{"vllm error", "", vllmError, "failure status=500 code=500 type=InternalServerError"},
		{"done", "", `[DONE]`, "done"},
		{"completed, too long to be kept", "response.completed", ``, "done finish=completed"},
		{"created, too long to be kept", "response.created", ``, "preamble"},
		{"an item, too long to be kept", "response.output_item.added", ``, "content visible"},
		{"a delta, too long to be kept", "response.output_text.delta", ``, "content visible"},
		{"a whole answer", "", `{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message"}],"usage":{"input_tokens":9,"output_tokens":5}}`, "content"},
	} {
		if got := describe(ReadChunk(Responses, []byte(c.event), []byte(c.data))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	tally := Tally{NextSequence: 9}
	if tally.Add(ReadChunk(Responses, nil, []byte(`[DONE]`))); tally.NextSequence != 9 {
		t.Errorf("sequence goes on with %d", tally.NextSequence)
	}
	long := `{"type":"response.created","response":{"id":"` + strings.Repeat("x", MaxResponseID+1) + `"}}`
	if c := ReadChunk(Responses, nil, []byte(long)); c.ResponseID != nil {
		t.Errorf("an id of %d bytes", len(c.ResponseID))
	}
	// An answer that is nothing but its end commits, for no other attempt would say more.
	if c := ReadChunk(Responses, nil, []byte(responsesStream[9][1])); !c.Commits() {
		t.Error("an answer's end does not commit")
	}
	if c := ReadChunk(Responses, nil, []byte(`{"type":"response.failed"}`)); c.Commits() {
		t.Error("a failure commits")
	}
}
