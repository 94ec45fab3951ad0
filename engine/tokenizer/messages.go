package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
)

// readMessageOptions reads what Anthropic's messages say about the answer. Streams of
// messages always have their usage.
func (r *reader) readMessageOptions() {
	c := r.call
	r.answer.ignoreEOS = false // no field of that API
	c.IncludeUsage, c.ContinuousUsage = c.Stream, c.Stream
	switch {
	case !r.given:
		r.fail("missing", "Field required", "max_tokens")
	case r.answer.max < 1:
		r.fail("value_error", "Value error, max_tokens must be positive", "max_tokens")
	}
}

// readAnthropic reads the prompt of a messages call. It becomes the chat that the same
// conversation would be over /v1/chat/completions, so both share their blocks.
func (r *reader) readAnthropic() ([]prompt, error) {
	if _, ok := r.raw("model"); !ok {
		r.fail("missing", "Field required", "model")
	}
	if _, ok := r.raw("messages"); !ok {
		r.fail("missing", "Field required", "messages")
		return nil, nil
	}
	c := &chat{generate: true}
	r.readEffort(c, "output_config")
	r.readSettings(c)
	if s := systemText(r.object, "system"); s != "" {
		c.messages = append(c.messages, message{role: "system", parts: []part{{text: s}}})
	}
	for i, raw := range r.list("messages") {
		o := r.child(raw, "messages", i)
		if err := r.readTurn(c, o); err != nil {
			return nil, err
		}
	}
	return []prompt{c.render}, nil
}

// billingHeader begins a block that some clients send with every call and a different
// value each time; vLLM leaves it out, because it would spoil the prefix cache.
const billingHeader = "x-anthropic-billing-header"

// systemText joins the text of a system prompt: a string or blocks.
func systemText(o object, name string) string {
	raw, ok := o.raw(name)
	if !ok {
		return ""
	}
	if s, ok := text(raw); ok {
		return s
	}
	var joined strings.Builder
	for i, b := range o.list(name) {
		block := o.child(b, name, i)
		if s := block.str("text"); block.str("type") == "text" && !strings.HasPrefix(s, billingHeader) {
			joined.WriteString(s)
		}
	}
	return joined.String()
}

// readTurn adds one message, which tool results in it precede.
func (r *reader) readTurn(c *chat, o object) error {
	m := message{role: o.str("role")}
	if !slices.Contains([]string{"user", "assistant", "system"}, m.role) {
		o.fail("literal_error", "Input should be 'user', 'assistant' or 'system'", "role")
		return nil
	}
	content, ok := o.raw("content")
	if !ok {
		o.fail("missing", "Field required", "content")
		return nil
	}
	if m.role == "system" {
		if s := systemText(o, "content"); s != "" {
			c.messages = append(c.messages, message{role: "system", parts: []part{{text: s}}})
		}
		return nil
	}
	if s, ok := text(content); ok {
		m.parts = []part{{text: s}}
	}
	blocks, ok := array(content)
	for i, raw := range blocks {
		r.readBlock(c, &m, o.child(raw, "content", i))
	}
	if !ok || len(m.parts) > 0 || len(m.calls) > 0 || m.role == "assistant" {
		c.messages = append(c.messages, m)
	}
	return nil
}

// readBlock adds one content block to its message, or what it stands for to the chat.
func (r *reader) readBlock(c *chat, m *message, o object) {
	switch kind := o.str("type"); kind {
	case "text":
		m.parts = append(m.parts, part{text: o.str("text")})
	case "image":
		if raw, ok := o.raw("source"); ok {
			m.parts = append(m.parts, part{text: compact(raw), media: true})
		}
	case "tool_use":
		input, ok := o.raw("input")
		if !ok {
			input = json.RawMessage("{}")
		}
		m.calls = append(m.calls, o.str("id")+o.str("name")+compact(input))
	case "tool_result":
		result := message{role: "tool"}
		if raw, ok := o.raw("content"); ok {
			if s, ok := text(raw); ok {
				result.parts = []part{{text: s}}
			} else {
				result.parts = []part{{text: systemText(o, "content")}}
			}
		}
		c.messages = append(c.messages, result)
	case "thinking", "redacted_thinking", "tool_reference": // not part of the prompt
	default:
		o.fail("literal_error", "Input should be 'text', 'image', 'tool_use', 'tool_result', 'tool_reference', "+
			"'thinking' or 'redacted_thinking'", "type")
	}
}
