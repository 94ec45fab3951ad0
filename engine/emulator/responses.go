package emulator

import (
	"fmt"
	"strconv"

	"kvasir/engine"
)

// Response objects and their events, as vllm/entrypoints/openai/responses has them: every
// field, in the order of its declaration.

// part appends the one part of a response's message, with the text so far.
func (r *reply) part(b []byte, p progress, logprobs string) []byte {
	b = append(b, `{"annotations":[],"text":"`...)
	b = r.Items[0].Answer.AppendText(b, 0, p.tokens)
	return append(append(append(b, `","type":"output_text","logprobs":`...), logprobs...), '}')
}

// outputs returns the output of a response that is done.
func (r *reply) outputs(items []progress) []byte {
	b := fmt.Appendf(nil, `[{"id":"msg_%s","content":[`, r.derived("message", 0))
	b = r.part(b, items[0], "null")
	return append(b, `],"role":"assistant","status":"completed","type":"message","phase":null}]`...)
}

// given appends a field that the call may have set.
func (r *reply) given(b []byte, name, absent string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	if raw, ok := r.Given[name]; ok {
		return append(b, raw...)
	}
	return append(b, absent...)
}

// float appends a number that the call may have set, as Python writes a float.
func (r *reply) float(b []byte, name, absent string) []byte {
	if v, err := strconv.ParseFloat(string(r.Given[name]), 64); err == nil {
		return append(append(append(append(b, `,"`...), name...), `":`...), repr(v)...)
	}
	return r.given(b, name, absent)
}

// response appends a response object. Without output it is one in progress.
func (r *reply) response(b []byte, items []progress, output []byte) []byte {
	status, details := "completed", "null"
	switch {
	case output == nil:
		status, output = "in_progress", []byte("[]")
	case items[0].aborted: // vLLM has no status of its own for this
	case r.Items[0].Request.Reason == engine.Length:
		status, details = "incomplete", `{"reason":"max_output_tokens"}`
	}
	b = fmt.Appendf(b, `{"id":%s,"created_at":%d,"incomplete_details":%s`, r.id, r.created, details)
	b = r.given(b, "instructions", "null")
	b = r.given(b, "metadata", "null")
	b = fmt.Appendf(b, `,"model":%s,"object":"response","output":%s`, r.model, output)
	b = r.given(b, "parallel_tool_calls", "true")
	b = r.float(b, "temperature", "1.0")
	b = r.given(b, "tool_choice", `"auto"`)
	b = r.given(b, "tools", "[]")
	b = r.float(b, "top_p", "1.0")
	b = r.given(b, "background", "false")
	b = fmt.Appendf(b, `,"max_output_tokens":%d`, r.MaxTokens)
	b = r.given(b, "max_tool_calls", "null")
	b = r.given(b, "previous_response_id", "null")
	b = r.given(b, "prompt", "null")
	b = r.given(b, "reasoning", "null")
	b = r.given(b, "service_tier", `"auto"`)
	b = fmt.Appendf(b, `,"status":"%s"`, status)
	b = r.given(b, "text", "null")
	b = append(b, `,"top_logprobs":null`...)
	b = r.given(b, "truncation", `"disabled"`)
	b = append(b, `,"usage":`...)
	if status == "in_progress" {
		b = append(b, "null"...)
	} else {
		b = responseUsage(b, r.usage(items))
	}
	b = r.given(b, "user", "null")
	b = r.float(b, "presence_penalty", "0.0")
	b = r.float(b, "frequency_penalty", "0.0")
	return append(b, `,"kv_transfer_params":null,"ec_transfer_params":null,"input_messages":null,"output_messages":null}`...)
}

func responseUsage(b []byte, u usage) []byte {
	return fmt.Appendf(b, `{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"input_tokens_per_turn":[],"cached_tokens_per_turn":[]},`+
		`"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":0,"tool_output_tokens":0,"output_tokens_per_turn":[],"tool_output_tokens_per_turn":[]},`+
		`"total_tokens":%d}`, u.prompt, u.cached, u.completion, u.prompt+u.completion)
}

// responseEvents writes the stream of a response. Each event has its type twice, before and
// in the JSON, and a number; there is no [DONE]. The last one is response.completed even
// where the response is incomplete, as vLLM's is.
type responseEvents struct {
	*reply
	buf    []byte
	item   string // id of the message
	number int
	sent   progress
	open   bool // the message has begun
}

func newResponseEvents(r *reply) *responseEvents {
	return &responseEvents{reply: r, item: r.derived("item", 0)}
}

func (e *responseEvents) buffer() *[]byte { return &e.buf }

// start begins an event.
func (e *responseEvents) start(kind string) {
	e.buf = append(append(append(e.buf, "event: "...), kind...), "\ndata: {"...)
}

// numbered writes an event's number.
func (e *responseEvents) numbered() {
	e.buf = strconv.AppendInt(append(e.buf, `"sequence_number":`...), int64(e.number), 10)
	e.number++
}

// finish writes an event's number and type, which come last in almost all of them.
func (e *responseEvents) finish(kind string) {
	e.buf = append(e.buf, ',')
	e.numbered()
	e.typed(kind)
}

func (e *responseEvents) typed(kind string) {
	e.buf = append(append(append(e.buf, `,"type":"`...), kind...), "\"}\n\n"...)
}

// begin writes two events at once: vLLM sends them before the engine has the request.
func (e *responseEvents) begin() {
	for _, kind := range []string{"response.created", "response.in_progress"} {
		e.start(kind)
		e.buf = e.response(append(e.buf, `"response":`...), nil, nil)
		e.finish(kind)
	}
}

func (e *responseEvents) progress(items []progress) {
	p, was := items[0], e.sent
	e.sent = p
	answer := e.Items[0].Answer
	if min(p.tokens, answer.TextTokens()) <= was.tokens {
		return // nothing but the token that ends the turn
	}
	if !e.open {
		e.openMessage()
	}
	const kind = "response.output_text.delta"
	e.start(kind)
	e.buf = answer.AppendText(append(e.buf, `"content_index":0,"delta":"`...), was.tokens, p.tokens)
	e.buf = append(append(append(e.buf, `","item_id":"`...), e.item...), `","logprobs":[],"output_index":0`...)
	e.finish(kind)
}

// openMessage writes the events that begin the message and its one part.
func (e *responseEvents) openMessage() {
	e.open = true
	e.start("response.output_item.added")
	e.buf = fmt.Appendf(e.buf, `"item":{"id":"%s","content":[],"role":"assistant","status":"in_progress","type":"message","phase":null},"output_index":0`, e.item)
	e.finish("response.output_item.added")
	e.start("response.content_part.added")
	e.buf = fmt.Appendf(e.buf, `"content_index":0,"item_id":"%s","output_index":0,"part":`, e.item)
	e.buf = e.part(e.buf, progress{}, "[]")
	e.finish("response.content_part.added")
}

// closeMessage writes the events that end them.
func (e *responseEvents) closeMessage(p progress) {
	e.start("response.output_text.done")
	e.buf = fmt.Appendf(e.buf, `"content_index":0,"item_id":"%s","logprobs":[],"output_index":0,`, e.item)
	e.numbered() // here the text comes after the number
	e.buf = e.Items[0].Answer.AppendText(append(e.buf, `,"text":"`...), 0, p.tokens)
	e.buf = append(e.buf, '"')
	e.typed("response.output_text.done")
	e.start("response.content_part.done")
	e.buf = fmt.Appendf(e.buf, `"content_index":0,"item_id":"%s","output_index":0,"part":`, e.item)
	e.buf = e.part(e.buf, p, "null")
	e.finish("response.content_part.done")
	e.start("response.output_item.done")
	e.buf = e.part(fmt.Appendf(e.buf, `"item":{"id":"%s","content":[`, e.item), p, "null")
	e.buf = append(e.buf, `],"role":"assistant","status":"completed","type":"message","phase":null,"summary":[]},"output_index":0`...)
	e.finish("response.output_item.done")
}

func (e *responseEvents) end(items []progress) {
	if e.open {
		e.closeMessage(items[0])
	}
	e.start("response.completed")
	e.buf = e.response(append(e.buf, `"response":`...), items, e.outputs(items))
	e.finish("response.completed")
}

// fail writes the error event of the OpenAI API; what vLLM sends is not verified.
func (e *responseEvents) fail(err error) {
	x := engineError(err)
	e.start("error")
	e.buf = fmt.Appendf(e.buf, `"code":"%d","message":%s,"param":null`, x.Status, quote(x.Message))
	e.finish("error")
}
