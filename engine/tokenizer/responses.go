package tokenizer

import (
	"encoding/json"
	"fmt"
)

// repeated lists the fields of a responses call that its answer repeats.
var repeated = []string{
	"instructions", "metadata", "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p", "background",
	"max_tool_calls", "previous_response_id", "prompt", "reasoning", "service_tier", "text", "truncation", "user",
	"presence_penalty", "frequency_penalty",
}

func (r *reader) readResponseOptions() {
	c := r.call
	c.Given = map[string]json.RawMessage{}
	for _, name := range repeated {
		if raw, ok := r.raw(name); ok {
			c.Given[name] = json.RawMessage(compact(raw))
		}
	}
}

// checkStore refuses what needs stored responses, which vLLM keeps only when told to.
func (r *reader) checkStore() error {
	if r.flag("background", false) && r.flag("store", true) {
		return &Error{Status: 400, Type: "invalid_request_error", Param: "background",
			Message: "This vLLM engine does not support `store=True` and therefore does not support the background mode. " +
				"To enable these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when launching the vLLM server."}
	}
	if id := r.str("previous_response_id"); id != "" {
		return NoResponse(id)
	}
	return nil
}

// NoResponse is the answer to a call that names a response which is not stored.
func NoResponse(id string) *Error {
	return &Error{Status: 404, Type: "invalid_request_error", Param: "response_id",
		Message: fmt.Sprintf("Response with id '%s' not found.", id)}
}

// readInput reads the prompt of a responses call: it becomes the chat that the same
// messages would be.
func (r *reader) readInput() ([]prompt, error) {
	raw, ok := r.raw("input")
	if !ok {
		r.fail("missing", "Field required", "input")
		return nil, nil
	}
	c := &chat{generate: true}
	r.readEffort(c, "reasoning")
	r.readSettings(c)
	if s := r.str("instructions"); s != "" {
		c.messages = append(c.messages, message{role: "system", parts: []part{{text: s}}})
	}
	if s, ok := text(raw); ok {
		c.messages = append(c.messages, message{role: "user", parts: []part{{text: s}}})
		return []prompt{c.render}, nil
	}
	items, ok := array(raw)
	if !ok {
		r.fail("string_type", "Input should be a valid string", "input")
		return nil, nil
	}
	for i, item := range items {
		o := r.child(item, "input", i)
		switch kind := o.str("type"); kind {
		case "", "message":
			m, err := r.readMessage(o)
			if err != nil {
				return nil, err
			}
			c.messages = append(c.messages, m)
			if s := o.str("status"); i == len(items)-1 && (s == "in_progress" || s == "incomplete") {
				c.goOn, c.generate = true, false
			}
		case "function_call":
			c.messages = append(c.messages, message{role: "assistant", calls: []string{compact(item)}})
		case "function_call_output":
			c.messages = append(c.messages, message{role: "tool", parts: []part{{text: o.str("output")}}})
		case "reasoning": // not part of the next turn's prompt
		default:
			return nil, badRequest("input", "Unknown input item type: %s", kind)
		}
	}
	return []prompt{c.render}, nil
}
