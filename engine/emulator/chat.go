package emulator

import (
	"fmt"
	"strconv"

	"kvasir/engine/tokenizer"
)

// choices appends the body of a chat or completions call that is no stream.
func (r *reply) choices(b []byte, items []progress) []byte {
	object := "chat.completion"
	if r.Route == tokenizer.Completions {
		object = "text_completion"
	}
	b = append(r.head(b, object), `,"choices":[`...)
	for i, p := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"index":%d,`, i)
		if r.Route == tokenizer.Chat {
			b = r.chatMessage(b, i, p)
			b = fmt.Appendf(b, `,"logprobs":null,"finish_reason":"%s","stop_reason":null,"token_ids":null,"routed_experts":null}`, r.finishReason(i, p))
		} else {
			b = append(b, `"text":"`...)
			b = r.Items[i].Answer.AppendText(b, 0, p.tokens)
			b = fmt.Appendf(b, `","logprobs":null,"finish_reason":"%s","stop_reason":null,"token_ids":null,`+
				`"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}`, r.finishReason(i, p))
		}
	}
	b = fmt.Appendf(b, `],"service_tier":null,"system_fingerprint":%s,`, r.server.fingerprint)
	b = r.fullUsage(b, r.usage(items))
	if r.Route == tokenizer.Chat {
		b = append(b, `,"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null`...)
	}
	b = append(b, `,"kv_transfer_params":null`...)
	if r.Route == tokenizer.Chat {
		b = append(b, `,"ec_transfer_params":null,"metrics":null`...)
	}
	return append(b, '}')
}

// chatMessage appends the message of a choice. tool_calls is there only when there are some.
func (r *reply) chatMessage(b []byte, item int, p progress) []byte {
	b = append(b, `"message":{"role":"assistant","content":"`...)
	answer := r.Items[item].Answer
	if r.Tool == "" {
		b = answer.AppendText(b, 0, p.tokens)
	}
	b = append(b, `","refusal":null,"annotations":null,"audio":null,"function_call":null`...)
	if r.Tool != "" {
		b = fmt.Appendf(b, `,"tool_calls":[{"id":"chatcmpl-tool-%s","type":"function","function":{"name":%s,"arguments":"`,
			r.derived("tool", item), quote(r.Tool))
		b = answer.AppendArguments(b, 0, p.tokens, p.finished, `\"`)
		b = append(b, `"}}]`...)
	}
	return append(b, `,"reasoning":null}`...)
}

// fullUsage appends the usage of a body that is no stream, where nulls are shown.
func (r *reply) fullUsage(b []byte, u usage) []byte {
	b = fmt.Appendf(b, `"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":`,
		u.prompt, u.prompt+u.completion, u.completion)
	if r.details {
		b = fmt.Appendf(b, `{"cached_tokens":%d,"created_cache_tokens":null,"multimodal_tokens":null}`, u.cached)
	} else {
		b = append(b, "null"...)
	}
	return append(b, `,"completion_tokens_details":null}`...)
}

// chatEvents writes the stream of a chat or completions call. Each event is "data: ",
// compact JSON and an empty line.
type chatEvents struct {
	*reply
	buf  []byte
	head []byte // of every event, up to the choices
	sent []progress
	open bool // the choices have begun
}

func newChatEvents(r *reply) *chatEvents {
	object := "chat.completion.chunk"
	if r.Route == tokenizer.Completions {
		object = "text_completion"
	}
	return &chatEvents{
		reply: r,
		head:  append(r.head([]byte("data: "), object), `,"choices":[`...),
		sent:  make([]progress, len(r.Items)),
	}
}

func (e *chatEvents) buffer() *[]byte { return &e.buf }

// begin writes nothing: vLLM's first event comes with the first output.
func (e *chatEvents) begin() {}

func (e *chatEvents) progress(items []progress) {
	if !e.open && e.Route == tokenizer.Chat {
		// The first output of any choice begins all of them.
		for i := range items {
			e.role(i)
		}
	}
	e.open = true
	for i, p := range items {
		was := e.sent[i]
		if p == was {
			continue
		}
		if p.tokens > was.tokens || p.finished {
			e.choice(i, was, p)
		}
		e.sent[i] = p
	}
}

// role writes the event that begins a choice of a chat.
func (e *chatEvents) role(item int) {
	e.index(item)
	e.buf = append(e.buf, `"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	e.running(0)
	e.buf = append(e.buf, `,"prompt_token_ids":null,"prompt_text":null}`+"\n\n"...)
}

// choice writes the event that continues a choice or finishes it.
func (e *chatEvents) choice(item int, was, p progress) {
	e.index(item)
	e.delta(item, was, p)
	e.buf = append(e.buf, `,"logprobs":null,"finish_reason":`...)
	if p.finished {
		e.buf = append(append(append(e.buf, '"'), e.finishReason(item, p)...), '"')
	} else {
		e.buf = append(e.buf, "null"...)
	}
	if p.finished || e.Route == tokenizer.Completions {
		e.buf = append(e.buf, `,"stop_reason":null`...)
	}
	if e.Route == tokenizer.Completions {
		e.buf = append(e.buf, `,"prompt_token_ids":null`...)
	}
	e.buf = append(e.buf, `,"token_ids":null}]`...)
	e.running(p.tokens)
	if p.finished && e.Route == tokenizer.Chat && !e.IncludeUsage {
		e.stamp()
	}
	e.buf = append(e.buf, "}\n\n"...)
}

// delta writes what is new of a choice.
func (e *chatEvents) delta(item int, was, p progress) {
	answer := e.Items[item].Answer
	switch {
	case e.Route == tokenizer.Completions:
		e.buf = append(e.buf, `"text":"`...)
		e.buf = answer.AppendText(e.buf, was.tokens, p.tokens)
		e.buf = append(e.buf, '"')
	case e.Tool == "":
		e.buf = append(e.buf, `"delta":{"content":"`...)
		e.buf = answer.AppendText(e.buf, was.tokens, p.tokens)
		e.buf = append(e.buf, `"}`...)
	default:
		e.buf = append(e.buf, `"delta":{"tool_calls":[{`...)
		if was.tokens == 0 {
			e.buf = fmt.Appendf(e.buf, `"id":"chatcmpl-tool-%s","type":"function","index":0,"function":{"name":%s,"arguments":"`,
				e.derived("tool", item), quote(e.Tool))
		} else {
			e.buf = append(e.buf, `"index":0,"function":{"arguments":"`...)
		}
		e.buf = answer.AppendArguments(e.buf, was.tokens, p.tokens, p.finished, `\"`)
		e.buf = append(e.buf, `"}}]}`...)
	}
}

func (e *chatEvents) end(items []progress) {
	if e.IncludeUsage {
		u := e.usage(items)
		e.buf = append(append(e.buf, e.head...), ']')
		e.count(u.prompt, u.completion)
		if e.details {
			e.buf = fmt.Appendf(e.buf, `,"prompt_tokens_details":{"cached_tokens":%d}`, u.cached)
		}
		e.buf = append(e.buf, '}')
		if e.Route == tokenizer.Chat {
			e.stamp()
		}
		e.buf = append(e.buf, "}\n\n"...)
	}
	e.done()
}

// fail writes an error after the start, spaced as Python's json.dumps does.
func (e *chatEvents) fail(err error) {
	x := engineError(err)
	e.buf = fmt.Appendf(e.buf, `data: {"error": {"message": %s, "type": %s, "param": null, "code": %d}}`+"\n\n",
		quote(x.Message), quote(x.Type), x.Status)
	e.done()
}

func (e *chatEvents) done() { e.buf = append(e.buf, "data: [DONE]\n\n"...) }

// index begins an event about one choice.
func (e *chatEvents) index(item int) {
	e.buf = append(e.buf, e.head...)
	e.buf = append(e.buf, `{"index":`...)
	e.buf = strconv.AppendInt(e.buf, int64(item), 10)
	e.buf = append(e.buf, ',')
}

// running writes the usage so far, where the call wants it in every event.
func (e *chatEvents) running(completion int) {
	if e.ContinuousUsage {
		e.count(e.PromptTokens, completion)
		e.buf = append(e.buf, `,"completion_tokens_details":null}`...)
	}
}

func (e *chatEvents) count(prompt, completion int) {
	e.buf = fmt.Appendf(e.buf, `,"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d`,
		prompt, prompt+completion, completion)
}

// stamp writes the system fingerprint.
func (e *chatEvents) stamp() {
	e.buf = append(append(e.buf, `,"system_fingerprint":`...), e.server.fingerprint...)
}
