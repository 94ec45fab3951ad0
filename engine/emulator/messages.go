package emulator

import (
	"fmt"
	"net/http"

	"kvasir/engine"
	"kvasir/engine/tokenizer"
)

// Anthropic's messages, as vllm/entrypoints/anthropic makes them of a chat.

// stopReason returns an item's, as JSON.
func (r *reply) stopReason(p progress) string {
	switch why := r.Items[0].Request.Reason; {
	case p.aborted:
		return "null"
	case why == engine.Length:
		return `"max_tokens"`
	case r.Tool != "" && !r.ToolNamed:
		return `"tool_use"`
	}
	return `"end_turn"`
}

// messageUsage appends the usage at the end: the tokens found in the cache are counted
// apart.
func (r *reply) messageUsage(b []byte, u usage) []byte {
	if !r.details {
		return fmt.Appendf(b, `{"input_tokens":%d,"output_tokens":%d}`, u.prompt, u.completion)
	}
	return fmt.Appendf(b, `{"input_tokens":%d,"output_tokens":%d,"cache_read_input_tokens":%d}`, u.prompt-u.cached, u.completion, u.cached)
}

// toolUse begins a block that calls a function.
func (r *reply) toolUse(b []byte) []byte {
	return fmt.Appendf(b, `{"type":"tool_use","id":"chatcmpl-tool-%s","name":%s,"input":`, r.derived("tool", 0), quote(r.Tool))
}

// message appends the body of a call that is no stream.
func (r *reply) message(b []byte, items []progress) []byte {
	p, answer := items[0], r.Items[0].Answer
	b = fmt.Appendf(b, `{"id":%s,"type":"message","role":"assistant","content":[`, r.id)
	if r.Tool != "" {
		b = answer.AppendArguments(r.toolUse(b), 0, p.tokens, true, `"`)
		b = append(b, '}')
	} else {
		b = answer.AppendText(append(b, `{"type":"text","text":"`...), 0, p.tokens)
		b = append(b, `"}`...)
	}
	b = fmt.Appendf(b, `],"model":%s`, r.model)
	if why := r.stopReason(p); why != "null" {
		b = append(append(b, `,"stop_reason":`...), why...)
	}
	return append(r.messageUsage(append(b, `,"usage":`...), r.usage(items)), '}')
}

// messageEvents writes the stream of a message. vLLM sends no ping.
type messageEvents struct {
	*reply
	buf   []byte
	sent  progress
	begun bool // the message has
	open  bool // its one block has
}

func (e *messageEvents) buffer() *[]byte { return &e.buf }

// begin writes nothing: the message begins with the first output.
func (e *messageEvents) begin() {}

// event begins an event.
func (e *messageEvents) event(kind string) {
	e.buf = fmt.Appendf(e.buf, "event: %s\n"+`data: {"type":"%s"`, kind, kind)
}

func (e *messageEvents) close() { e.buf = append(e.buf, "}\n\n"...) }

func (e *messageEvents) progress(items []progress) {
	p, was := items[0], e.sent
	e.sent = p
	if !e.begun {
		e.begun = true
		e.event("message_start")
		e.buf = fmt.Appendf(e.buf, `,"message":{"id":%s,"type":"message","role":"assistant","content":[],"model":%s,`+
			`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":0}}`, e.id, e.model, e.PromptTokens)
		e.close()
	}
	answer := e.Items[0].Answer
	tool := e.Tool != ""
	if min(p.tokens, answer.TextTokens()) <= was.tokens && !(tool && p.finished) {
		return // nothing but the token that ends the turn
	}
	if !e.open {
		e.open = true
		e.event("content_block_start")
		e.buf = append(e.buf, `,"content_block":`...)
		if tool {
			e.buf = append(e.toolUse(e.buf), "{}}"...)
		} else {
			e.buf = append(e.buf, `{"type":"text","text":""}`...)
		}
		e.buf = append(e.buf, `,"index":0`...)
		e.close()
	}
	e.event("content_block_delta")
	if tool {
		e.buf = append(e.buf, `,"delta":{"type":"input_json_delta","partial_json":"`...)
		e.buf = answer.AppendArguments(e.buf, was.tokens, p.tokens, p.finished, `\"`)
	} else {
		e.buf = append(e.buf, `,"delta":{"type":"text_delta","text":"`...)
		e.buf = answer.AppendText(e.buf, was.tokens, p.tokens)
	}
	e.buf = append(e.buf, `"},"index":0`...)
	e.close()
}

func (e *messageEvents) end(items []progress) {
	if e.open {
		e.event("content_block_stop")
		e.buf = append(e.buf, `,"index":0`...)
		e.close()
	}
	e.event("message_delta")
	e.buf = fmt.Appendf(e.buf, `,"delta":{"stop_reason":%s},"usage":`, e.stopReason(items[0]))
	e.buf = e.messageUsage(e.buf, e.usage(items))
	e.close()
	e.event("message_stop")
	e.close()
}

// fail writes the error event. vLLM's message there is that of its parser, which did not
// expect an error.
func (e *messageEvents) fail(err error) {
	e.event("error")
	e.buf = fmt.Appendf(e.buf, `,"error":{"type":"internal_error","message":%s}`, quote(engineError(err).Message))
	e.close()
}

// countTokens serves /v1/messages/count_tokens. The engine is not asked.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	c, err := s.read(w, r, tokenizer.CountTokens)
	if err != nil {
		refuse(w, tokenizer.CountTokens, err)
		return
	}
	writeJSON(w, http.StatusOK, fmt.Appendf(nil, `{"input_tokens":%d,"context_management":{"original_input_tokens":%d}}`,
		c.PromptTokens, c.PromptTokens))
}
