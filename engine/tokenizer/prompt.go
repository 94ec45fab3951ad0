package tokenizer

import (
	"bytes"
	"encoding/json"
)

// readPrompts reads the call's prompts. Mistakes of form are collected in the reader; the
// error is of another kind.
func (r *reader) readPrompts() ([]prompt, error) {
	switch r.call.Route {
	case Completions:
		return r.readTexts("prompt")
	case Embeddings:
		if _, ok := r.raw("messages"); !ok {
			return r.readTexts("input")
		}
	case Responses:
		return r.readInput()
	case Messages, CountTokens:
		return r.readAnthropic()
	case Score, Rerank:
		return r.readPairs()
	}
	return r.readChat()
}

// readTexts reads a string, an array of strings, token ids, or an array of those.
func (r *reader) readTexts(name string) ([]prompt, error) {
	raw, ok := r.raw(name)
	if !ok {
		r.fail("missing", "Field required", name)
		return nil, nil
	}
	if s, ok := text(raw); ok {
		r.cut = true
		return []prompt{textPrompt(s)}, nil
	}
	elements, ok := array(raw)
	if !ok {
		r.fail("string_type", "Input should be a valid string", name)
		return nil, nil
	}
	if len(elements) == 0 {
		return nil, badRequest(name, "Please provide at least one prompt")
	}
	if c := elements[0][0]; c != '"' && c != '[' {
		return r.appendIDs(nil, raw, name)
	}
	if len(elements) > MaxItems {
		return nil, badRequest(name, "%s has %d prompts; allowed: at most %d.", name, len(elements), MaxItems)
	}
	var prompts []prompt
	for i, e := range elements {
		if s, ok := text(e); ok {
			r.cut = true
			prompts = append(prompts, textPrompt(s))
			continue
		}
		var err error
		if prompts, err = r.appendIDs(prompts, e, name, i); err != nil {
			return nil, err
		}
	}
	return prompts, nil
}

// appendIDs reads a prompt of token ids.
func (r *reader) appendIDs(prompts []prompt, raw json.RawMessage, at ...any) ([]prompt, error) {
	var ids []uint32
	if err := json.Unmarshal(raw, &ids); err != nil {
		r.fail("int_type", "Input should be a valid integer", at...)
		return prompts, nil
	}
	if len(ids) == 0 {
		return nil, badRequest("prompt", "The decoder prompt cannot be empty")
	}
	return append(prompts, idPrompt(ids)), nil
}

// readChat reads messages, tools and what else a chat template writes.
func (r *reader) readChat() ([]prompt, error) {
	if _, ok := r.raw("messages"); !ok {
		r.fail("missing", "Field required", "messages")
		return nil, nil
	}
	c := &chat{goOn: r.flag("continue_final_message", false)}
	c.generate = r.flag("add_generation_prompt", r.call.Route == Chat)
	if c.goOn && c.generate {
		return nil, badRequest("", "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
	}
	r.readSettings(c)
	for i, raw := range r.list("messages") {
		m, err := r.readMessage(r.child(raw, "messages", i))
		if err != nil {
			return nil, err
		}
		c.messages = append(c.messages, m)
	}
	r.begun = c.openEnd()
	return []prompt{c.render}, nil
}

// readSettings reads what a template writes before the messages.
func (r *reader) readSettings(c *chat) {
	r.cut = true
	for _, name := range []string{"reasoning_effort", "chat_template_kwargs"} {
		if raw, ok := r.raw(name); ok {
			c.settings = append(c.settings, compact(raw))
		}
	}
	for _, t := range r.list("tools") {
		c.tools = append(c.tools, compact(t))
	}
}

// readEffort reads the reasoning effort where it is inside another field.
func (r *reader) readEffort(c *chat, name string) {
	if raw, ok := r.raw(name); ok {
		if effort, ok := r.child(raw, name).raw("effort"); ok {
			c.settings = append(c.settings, compact(effort))
		}
	}
}

func (r *reader) readMessage(o object) (message, error) {
	m := message{role: o.str("role"), name: o.str("name")}
	if m.role == "" && o.fields != nil {
		o.fail("missing", "Field required", "role")
	}
	for _, call := range o.list("tool_calls") {
		m.calls = append(m.calls, compact(call))
	}
	content, ok := o.raw("content")
	if !ok {
		return m, nil
	}
	if s, ok := text(content); ok {
		m.parts = []part{{text: s}}
		return m, nil
	}
	elements, ok := array(content)
	if !ok {
		o.fail("string_type", "Input should be a valid string", "content")
		return m, nil
	}
	for i, e := range elements {
		if s, ok := text(e); ok {
			m.parts = append(m.parts, part{text: s})
			continue
		}
		p, err := readPart(o.child(e, "content", i))
		if err != nil {
			return m, err
		}
		m.parts = append(m.parts, p)
	}
	return m, nil
}

// readPart reads one element of a message's content.
func readPart(o object) (part, error) {
	kind := o.str("type")
	if _, ok := o.raw("text"); ok && kind == "" {
		kind = "text"
	}
	switch kind {
	case "text", "input_text", "output_text":
		return part{text: o.str("text")}, nil
	case "refusal", "thinking":
		return part{text: o.str(kind)}, nil
	case "image_url", "input_image", "image_embeds", "audio_url", "input_audio", "video_url":
		field := kind
		if kind == "input_image" {
			field = "image_url"
		}
		raw, ok := o.raw(field)
		if !ok {
			o.fail("missing", "Field required", field)
		}
		return part{text: compact(raw), media: true}, nil
	case "":
		o.fail("missing", "Field required", "type")
		return part{}, nil
	}
	return part{}, badRequest("", "Unknown part type: %s", kind)
}

// compact returns the JSON text without the space between its tokens.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	// The text is part of a body that was valid JSON, so this cannot fail.
	_ = json.Compact(&b, raw)
	return b.String()
}
