package api

import "testing"

// A stream of Messages, as Anthropic sends it.
var messagesStream = [][2]string{
	{"message_start", `{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":1000,"cache_creation":{"ephemeral_5m_input_tokens":100},"output_tokens":1,"service_tier":"standard"}}}`},
	{"content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`},
	{"ping", `{"type": "ping"}`},
	{"content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`},
	{"content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB"}}`},
	{"content_block_stop", `{"type":"content_block_stop","index":0}`},
	{"content_block_start", `{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`},
	{"content_block_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}}`},
	{"content_block_start", `{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"get_weather","input":{}}}`},
	{"content_block_delta", `{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}`},
	{"content_block_delta", `{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}`},
	{"message_delta", `{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}`},
	{"message_stop", `{"type":"message_stop"}`},
}

func TestReadChunk_MessagesStream(t *testing.T) {
	want := []string{
		"preamble", "preamble", "preamble", "content", "content", "preamble", "preamble", "content visible",
		"content visible", "preamble", "content visible", "preamble finish=tool_use", "done",
	}
	var tally Tally
	for i, e := range messagesStream {
		c := ReadChunk(Messages, []byte(e[0]), []byte(e[1]))
		tally.Add(c)
		if got := describe(c); got != want[i] {
			t.Errorf("%s: %s, want %s", e[0], got, want[i])
		}
		if alone := ReadChunk(Messages, nil, []byte(e[1])); describe(alone) != want[i] {
			t.Errorf("%s without its name: %s, want %s", e[0], describe(alone), want[i])
		}
		if commits := c.Kind == Content || e[0] == "message_delta"; c.Commits() != commits {
			t.Errorf("%s: commits %v", e[0], c.Commits())
		}
	}
	if got := tally.Usage(); got != (Usage{1125, 89, 1000}) {
		t.Errorf("usage %+v", got)
	}
	if !tally.Content || !tally.Visible || !tally.Finished || !tally.Done || tally.Failed || tally.NextSequence != 0 {
		t.Errorf("%+v", tally)
	}
}

func TestReadChunk_Messages(t *testing.T) {
	for _, c := range []struct{ name, event, data, want string }{
		{"the name alone says what it is", "ping", `{}`, "preamble"},
		{"a message with content", "", `{"type":"message_start","message":{"content":[{"type":"text"}]}}`, "content visible"},
		{"a block with text", "", `{"type":"content_block_start","content_block":{"type":"text","text":"a"}}`, "content visible"},
		{"a text with citations to come", "", `{"type":"content_block_start","content_block":{"citations":[],"type":"text","text":""}}`, "preamble"},
		{"a thinking with text", "", `{"type":"content_block_start","content_block":{"type":"thinking","thinking":"a"}}`, "content"},
		{"redacted thinking", "", `{"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"EmwK"}}`, "content"},
		{"a tool of the engine's", "", `{"type":"content_block_start","content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}`, "content visible"},
		{"a block of no type", "", `{"type":"content_block_start","content_block":{}}`, "content visible"},
		{"no block", "", `{"type":"content_block_start","content_block":null}`, "content visible"},
		{"empty text", "", `{"type":"content_block_delta","delta":{"type":"text_delta","text":""}}`, "preamble"},
		{"a citation", "", `{"type":"content_block_delta","delta":{"type":"citations_delta","citation":{"type":"page_location"}}}`, "content visible"},
		{"a delta without one", "", `{"type":"content_block_delta"}`, "content visible"},
		{"a stop sequence", "", `{"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"###"},"usage":{"output_tokens":1}}`, "preamble finish=stop_sequence"},
		{"not known", "", `{"type":"new_thing"}`, "content"},
		{"not known at all", "", `{"a":1}`, "content"},
		{"not JSON", "message_start", `hello`, "content"},
		{"overloaded", "error", `{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}`, "failure status=529 type=overloaded_error"},
		{"the prompt is wrong", "error", `{"type":"error","error":{"type":"invalid_request_error","message":"x"},"request_id":"req_1"}`, "failure status=400 type=invalid_request_error"},
		{"vllm error", "error", `{"type":"error","error":{"type":"BadRequestError","message":"x"}}`, "failure type=BadRequestError"},
		{"error by name", "error", `Overloaded`, "failure"},
		{"done, by vLLM after message_stop", "", `[DONE]`, "done"},
		{"a start, too long to be kept", "message_start", ``, "preamble"},
		{"a delta, too long to be kept", "content_block_delta", ``, "content visible"},
		{"a whole answer", "", `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":5}}`, "content"},
	} {
		if got := describe(ReadChunk(Messages, []byte(c.event), []byte(c.data))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestTally_Messages: what message_delta says is cumulative and lies over what
// message_start said, count by count.
func TestTally_Messages(t *testing.T) {
	start := func(usage string) string { return `{"type":"message_start","message":{"usage":` + usage + `}}` }
	delta := func(usage string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + usage + `}`
	}
	text := messagesStream[7][1]
	for _, c := range []struct {
		name   string
		chunks []string
		want   Usage
	}{
		{"output alone at the end", []string{start(`{"input_tokens":25,"cache_read_input_tokens":75,"output_tokens":1}`), text, delta(`{"output_tokens":15}`)}, Usage{100, 15, 75}},
		{"all at the end", []string{start(`{"input_tokens":25,"output_tokens":1}`), text, delta(`{"input_tokens":30,"cache_creation_input_tokens":0,"cache_read_input_tokens":70,"output_tokens":15}`)}, Usage{100, 15, 70}},
		{"the input grows, the cache is not said again", []string{start(`{"input_tokens":10,"cache_read_input_tokens":70,"output_tokens":1}`), text, delta(`{"input_tokens":30,"output_tokens":15}`)}, Usage{100, 15, 70}},
		{"vLLM, without cache", []string{start(`{"input_tokens":40,"output_tokens":0}`), text, delta(`{"input_tokens":40,"output_tokens":2}`)}, Usage{40, 2, Unknown}},
		{"zeros at the start", []string{start(`{"input_tokens":0,"output_tokens":0}`), text, delta(`{"input_tokens":40,"output_tokens":2}`)}, Usage{40, 2, Unknown}},
		{"zeros at the end", []string{start(`{"input_tokens":40,"output_tokens":1}`), text, delta(`{"input_tokens":0,"output_tokens":2}`)}, Usage{40, 2, Unknown}},
		{"zeros alone", []string{start(`{"input_tokens":0,"output_tokens":0}`), text, delta(`{"input_tokens":0,"output_tokens":0}`)}, Usage{Unknown, Unknown, Unknown}},
		{"all read from the cache", []string{start(`{"input_tokens":0,"cache_read_input_tokens":70,"output_tokens":1}`), text, delta(`{"output_tokens":2}`)}, Usage{70, 2, 70}},
		{"cut before the end", []string{start(`{"input_tokens":25,"output_tokens":1}`), text}, Usage{25, 1, Unknown}},
		{"none", []string{text}, Usage{Unknown, Unknown, Unknown}},
		{"not believable", []string{start(`{"input_tokens":9223372036854775807,"cache_read_input_tokens":9223372036854775807,"output_tokens":1}`)}, Usage{Unknown, 1, Unknown}},
	} {
		var tally Tally
		for _, data := range c.chunks {
			tally.Add(ReadChunk(Messages, nil, []byte(data)))
		}
		if got := tally.Usage(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestReadChunk_Plain: in grammars without a dialect of their own all data is content.
func TestReadChunk_Plain(t *testing.T) {
	for _, g := range []Grammar{Embeddings, Rerank, Score, Tokenize, Speech, Images, Upload, Opaque} {
		for data, want := range map[string]string{
			`{"type":"speech.audio.delta","audio":"AAAA"}`: "content visible",
			`{"type":"transcript.text.done","text":"a"}`:   "content visible",
			`{"choices":[],"usage":null}`:                  "content visible",
			`anything`:                                     "content",
			`[DONE]`:                                       "done",
			vllmError:                                      "failure status=500 code=500 type=InternalServerError",
			`{"type":"error","code":"c"}`:                  "failure code=c",
		} {
			if got := describe(ReadChunk(g, nil, []byte(data))); got != want {
				t.Errorf("%v %s: %s, want %s", g, data, got, want)
			}
		}
		c := ReadChunk(g, nil, []byte(`{"type":"image_generation.completed","usage":{"input_tokens":7,"output_tokens":9}}`))
		if c.Usage != (Usage{7, 9, Unknown}) || !c.HasUsage {
			t.Errorf("%v: usage %+v", g, c.Usage)
		}
	}
	if c := ReadChunk(Chat, []byte("error"), []byte(`boom`)); c.Kind != Failure {
		t.Errorf("an event of that name is %v", c.Kind)
	}
}
