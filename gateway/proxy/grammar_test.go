package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"kvasir/internal/testkit/scripted"
)

// dialect is how one route's streams look.
type dialect struct {
	path, request, plain  string
	preamble, text, think string
	end, fails            string
	failure               func(t *testing.T, data string) // checks the gateway's own error event
}

func dialects() map[string]dialect {
	named := func(kind, rest string) string {
		return fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, rest)
	}
	return map[string]dialect{
		"chat": {
			path: chatPath, request: streamed, plain: jsonAnswer,
			preamble: roleEvent, text: textEvent("word"),
			think: `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"reasoning":"hm"}}]}` + "\n\n",
			end:   finishEvent + usageEvent + doneEvent, fails: errorEvent,
			failure: func(t *testing.T, data string) { envelope(t, data) },
		},
		"completions": {
			path: completionPath, request: `{"model":"m","stream":true,"prompt":"Hello"}`,
			plain:    `{"object":"text_completion","choices":[{"text":"x"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`,
			preamble: `data: {"object":"text_completion","choices":[{"index":0,"text":""}]}` + "\n\n",
			text:     `data: {"object":"text_completion","choices":[{"index":0,"text":"word"}]}` + "\n\n",
			think:    `data: {"object":"text_completion","choices":[{"index":0,"text":"","token_ids":[7]}]}` + "\n\n",
			end:      usageEvent + doneEvent, fails: errorEvent,
			failure: func(t *testing.T, data string) { envelope(t, data) },
		},
		"responses": {
			path: "/v1/responses", request: `{"model":"m","stream":true,"input":"Hello"}`,
			plain: `{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message"}],"usage":{"input_tokens":9,"output_tokens":2}}`,
			preamble: named("response.created", `,"sequence_number":0,"response":{"id":"resp_1","status":"in_progress"}`) +
				named("response.in_progress", `,"sequence_number":1,"response":{"id":"resp_1"}`),
			text:  named("response.output_text.delta", `,"sequence_number":2,"delta":"word"`),
			think: named("response.reasoning_text.delta", `,"sequence_number":2,"delta":"hm"`),
			end: named("response.completed", `,"sequence_number":3,"response":{"id":"resp_1","status":"completed",`+
				`"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":3}}`),
			fails: named("error", `,"code":"server_error","message":"the engine died","param":null,"sequence_number":2`),
			failure: func(t *testing.T, data string) {
				var e struct {
					Type, Code, Message string
					Sequence            int `json:"sequence_number"`
				}
				if json.Unmarshal([]byte(data), &e) != nil || e.Type != "error" || e.Code == "" || e.Message == "" || e.Sequence != 3 {
					t.Errorf("error event %q", data)
				}
			},
		},
		"messages": {
			path: "/v1/messages", request: `{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"Hello"}]}`,
			plain: `{"id":"msg_1","type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":2}}`,
			preamble: named("message_start", `,"message":{"id":"msg_1","usage":{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":1}}`) +
				named("ping", ``) + named("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`),
			text:  named("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"word"}`),
			think: named("content_block_delta", `,"index":0,"delta":{"type":"thinking_delta","thinking":"hm"}`),
			end: named("content_block_stop", `,"index":0`) + named("message_delta", `,"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}`) +
				named("message_stop", ``),
			fails: named("error", `,"error":{"type":"overloaded_error","message":"the engine died"}`),
			failure: func(t *testing.T, data string) {
				var e struct {
					Type  string
					Error struct{ Type, Message string }
				}
				if json.Unmarshal([]byte(data), &e) != nil || e.Type != "error" || e.Error.Type == "" || e.Error.Message == "" {
					t.Errorf("error event %q", data)
				}
			},
		},
	}
}

// The preamble of each grammar is held until content, and dropped with its attempt.
func TestF23_PreambleThenErrorGoesElsewhere_InEachGrammar(t *testing.T) {
	for name, d := range dialects() {
		for kind, first := range map[string]string{"text": d.text, "thinking": d.think} {
			t.Run(name+" "+kind, func(t *testing.T) {
				r := newRig(t, ordered(streams(d.preamble, d.fails), streams(d.preamble, first, d.end)))
				defer r.close()
				a := r.post(d.path, d.request)
				if a.status != 200 || a.body != d.preamble+first+d.end {
					t.Errorf("status %d, %q", a.status, a.body)
				}
				c := r.record()
				if c.string("outcome") != "success" || c.int("attempts") != 2 || c.int("prompt_tokens") != 9 || c.int("cached_tokens") != 4 || c.int("output_tokens") != 3 {
					t.Errorf("record %v", c)
				}
				if c.string("route") != d.path {
					t.Errorf("route %s", c.string("route"))
				}
			})
		}
	}
}

// A stream that is broken off ends with one error event in its own family, and nothing
// behind it.
func TestF08_ABrokenStreamEndsInItsOwnFamily(t *testing.T) {
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(func(c *scripted.Call) { events(c, d.preamble, d.text); c.RST() }))
			defer r.close()
			a := r.post(d.path, d.request)
			rest, ok := strings.CutPrefix(a.body, d.preamble+d.text)
			if a.err != nil || !ok {
				t.Fatalf("%v, %q", a.err, a.body)
			}
			_, data, _ := strings.Cut(rest, "data: ")
			if strings.Count(rest, "data: ") != 1 || !strings.HasSuffix(rest, "\n\n") {
				t.Errorf("%q", rest)
			}
			d.failure(t, strings.TrimSuffix(data, "\n\n"))
		})
		t.Run(name+", its own error", func(t *testing.T) {
			r := newRig(t, ordered(streams(d.preamble, d.text, d.fails)))
			defer r.close()
			if a := r.post(d.path, d.request); a.body != d.preamble+d.text+d.fails {
				t.Errorf("%q", a.body)
			}
			if c := r.record(); c.string("outcome") != "endpoint_failure" && c.string("outcome") != "back_pressure" {
				t.Errorf("record %v", c)
			}
		})
	}
}

func TestUnstreamedAnswersOfEachGrammar(t *testing.T) {
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(func(c *scripted.Call) { c.Reply(200, "application/json", d.plain) }))
			defer r.close()
			a := r.post(d.path, strings.Replace(d.request, `"stream":true,`, "", 1))
			if a.status != 200 || a.body != d.plain {
				t.Errorf("status %d, %q", a.status, a.body)
			}
			if c := r.record(); c.string("outcome") != "success" || c.int("prompt_tokens") != 9 || c.int("output_tokens") != 2 {
				t.Errorf("record %v", c)
			}
		})
	}
}

// Errors of the gateway itself have the shape of the caller's API.
func TestErrorsHaveTheCallersShape(t *testing.T) {
	r := newRig(t, ordered(refuse))
	defer r.close()
	anthropic := func(a answer) string {
		var e struct {
			Type      string
			Error     struct{ Type string }
			RequestID string `json:"request_id"`
		}
		if json.Unmarshal([]byte(a.body), &e) != nil || e.Type != "error" || e.RequestID == "" {
			t.Errorf("not Anthropic's shape: %q", a.body)
		}
		return e.Error.Type
	}
	messages := dialects()["messages"]
	for _, x := range []struct {
		body, path string
		status     int
		kind       string
	}{
		{messages.request, messages.path, 502, "api_error"},
		{`{"model":"nobody","messages":[]}`, messages.path, 404, "not_found_error"},
		{`{"model":`, messages.path, 400, "invalid_request_error"},
		{`{"model":"m"}`, "/v1/messages/batches", 404, "not_found_error"},
	} {
		a := r.post(x.path, x.body)
		if kind := anthropic(a); a.status != x.status || kind != x.kind {
			t.Errorf("%s %s: status %d, %q", x.path, x.body, a.status, a.body)
		}
	}
	if a := r.post("/v1/unknown", "{}", "Anthropic-Version: 2023-06-01"); anthropic(a) != "not_found_error" {
		t.Errorf("%q", a.body)
	}
	if a := r.post("/v1/responses", dialects()["responses"].request); a.status != 502 {
		t.Errorf("status %d", a.status)
	} else {
		envelope(t, a.body)
	}
}

// What is not understood is passed on as it is, by the model that the body names.
func TestOtherRoutesPassByModel(t *testing.T) {
	speech := "\x00\x01binary\xff"
	r := newRig(t, ordered(func(c *scripted.Call) {
		if c.Record().Target == "/v1/audio/speech" {
			c.Reply(200, "audio/mpeg", speech)
			return
		}
		c.Reply(200, "application/json", `{"ok":true}`)
	}))
	defer r.close()
	for path, body := range map[string]string{
		"/v1/rerank": `{"model":"m","query":"q","documents":["a","b"]}`, "/rerank": `{"model":"m","query":"q","documents":["a"]}`,
		"/v1/score": `{"model":"m","text_1":"a","text_2":["b"]}`, "/tokenize": `{"model":"m","prompt":"x"}`,
		"/detokenize": `{"model":"m","tokens":[1,2]}`, "/v1/images/generations": `{"model":"m","prompt":"a cat"}`,
		"/v1/audio/speech": `{"model":"m","input":"hello","voice":"x"}`, "/pooling": `{"model":"m","input":"x"}`,
		"/v1/moderations": `{"model":"m","input":"x"}`, "/v1/messages/count_tokens": `{"model":"m","messages":[]}`,
	} {
		want := `{"ok":true}`
		if path == "/v1/audio/speech" {
			want = speech
		}
		if a := r.post(path, body); a.status != 200 || a.body != want {
			t.Errorf("%s: status %d, %q", path, a.status, a.body)
		}
		if a := r.post(path, strings.Replace(body, `"m"`, `"nobody"`, 1)); a.status != 404 {
			t.Errorf("%s, a model that is none: status %d, %q", path, a.status, a.body)
		}
	}
}

// Field case F71: who goes on from a response reaches the endpoint that gave it, where that
// is still there; another client's word does not count, and what is kept elsewhere, files
// and batches, is refused.
func TestF71_FollowUpsReachTheOwner(t *testing.T) {
	answers := func(name string) scripted.Script {
		return func(c *scripted.Call) {
			id := fmt.Sprintf("resp_%s_%d", name, c.Record().Turn)
			if strings.Contains(string(c.Record().Body), `"stream":true`) {
				c.Stream("event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\""+id+"\"}}\n\n",
					"event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":1,\"response\":{\"id\":\""+id+"\"}}\n\n")
				return
			}
			c.Reply(200, "application/json", `{"id":"`+id+`","object":"response","status":"completed"}`)
		}
	}
	s := pooled(answers("a"), answers("b"), answers("c"))
	s.policy = "random"
	r := newRig(t, s)
	defer r.close()
	for i := range 30 {
		request := `{"model":"m","input":"x"}`
		if i%2 == 1 {
			request = `{"model":"m","input":"x","stream":true}`
		}
		first := r.post("/v1/responses", request)
		_, id, _ := strings.Cut(first.body, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		for range 3 {
			next := r.post("/v1/responses", fmt.Sprintf(`{"model":"m","input":"y","previous_response_id":%q}`, id))
			if next.header.Get("X-Kvasir-Endpoint") != first.header.Get("X-Kvasir-Endpoint") {
				t.Fatalf("%s was given by %s, and followed up at %s", id, first.header.Get("X-Kvasir-Endpoint"), next.header.Get("X-Kvasir-Endpoint"))
			}
		}
	}
	elsewhere := map[string]bool{}
	for range 30 { // an id that nobody knows goes by the policy
		elsewhere[r.post("/v1/responses", `{"model":"m","input":"y","previous_response_id":"resp_unknown"}`).header.Get("X-Kvasir-Endpoint")] = true
	}
	if len(elsewhere) < 2 {
		t.Errorf("an unknown id goes to %v alone", elsewhere)
	}
	for _, path := range []string{"/v1/files", "/v1/batches", "/v1/uploads"} {
		if a := r.post(path, `{"model":"m"}`); a.status != 404 || envelope(t, a.body).Code != "unknown_route" {
			t.Errorf("%s: status %d, %s", path, a.status, a.body)
		}
	}
}

// Field case F69: tool calls pass as they come, however their deltas are told.
func TestF69_ToolCallsPassAsTheyCome(t *testing.T) {
	call := func(tool string) string {
		return `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[` + tool + `]}}]}` + "\n\n"
	}
	for name, deltas := range map[string][]string{
		"interleaved":        {`{"index":0,"id":"a","function":{"name":"f","arguments":""}}`, `{"index":1,"id":"b","function":{"name":"g","arguments":""}}`, `{"index":0,"function":{"arguments":"{\"x\":"}}`, `{"index":1,"function":{"arguments":"{}"}}`, `{"index":0,"function":{"arguments":"1}"}}`},
		"no index":           {`{"id":"a","function":{"name":"f","arguments":"{}"}}`, `{"id":"b","function":{"name":"g","arguments":"{}"}}`},
		"all at index 0":     {`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`, `{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}`},
		"repeated id":        {`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`, `{"index":0,"id":"a","function":{"arguments":"}"}}`},
		"empty arguments":    {`{"index":0,"id":"a","function":{"name":"f","arguments":""}}`},
		"several in a delta": {`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			stream := []string{roleEvent}
			for _, d := range deltas {
				stream = append(stream, call(d))
			}
			stream = append(stream, `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`+"\n\n", doneEvent)
			r := newRig(t, ordered(streams(roleEvent, errorEvent), streams(stream...)))
			defer r.close()
			if a := r.post(chatPath, streamed); a.body != joined(stream) {
				t.Errorf("%q", a.body)
			}
			if c := r.record(); c.string("outcome") != "success" || !c.has("ttft_seconds") {
				t.Errorf("record %v", c)
			}
		})
	}
}

// Field case F68: an answer's model is passed on as the endpoint gave it, wherever it
// stands, and what else names it is left alone.
func TestF68_AnswersNameTheModelAsTheEndpointDoes(t *testing.T) {
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(d.text, "word", "I am INNER-2026-11, not m", 1)
			named := strings.Replace(d.preamble, `{`, `{"model":"INNER-2026-11",`, 1)
			s := ordered(streams(named, text, d.end))
			s.servedAs = "inner"
			r := newRig(t, s)
			defer r.close()
			if a := r.post(d.path, strings.Replace(d.request, `"m"`, `"alias"`, 1)); a.body != named+text+d.end {
				t.Errorf("%q", a.body)
			}
			if got := string(r.upstreams[0].Calls()[0].Body); !strings.Contains(got, `"model":"inner"`) || strings.Contains(got, "alias") {
				t.Errorf("the endpoint was asked %s", got)
			}
			if c := r.record(); c.string("model") != "m" {
				t.Errorf("record %v", c)
			}
		})
	}
}

// streams answers with events and a clean end.
func streams(events ...string) scripted.Script {
	return func(c *scripted.Call) { c.Stream(events...) }
}
