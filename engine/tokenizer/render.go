package tokenizer

// prompt writes a prompt's tokens.
type prompt func(e *encoder)

// textPrompt is a prompt of one segment.
func textPrompt(s string) prompt {
	return func(e *encoder) {
		e.id(beginOfText)
		e.text(s)
	}
}

// idPrompt is a prompt that the caller has tokenized.
func idPrompt(ids []uint32) prompt {
	return func(e *encoder) {
		for _, id := range ids {
			e.id(id)
		}
	}
}

// chat is a chat prompt. Everything that a chat template would write is in it, in the
// order in which it would.
type chat struct {
	settings []string // what changes the system prompt: reasoning effort, template arguments
	tools    []string // compact JSON
	messages []message

	generate bool // end with the header of the assistant's turn
	goOn     bool // leave the last message's turn open
}

// message is one turn.
type message struct {
	role, name string
	parts      []part
	calls      []string // tool calls, compact JSON
}

// part is a segment of a message's content.
type part struct {
	text  string
	media bool // text is the media's address or data
}

func (c *chat) render(e *encoder) {
	e.id(beginOfText)
	if len(c.settings) > 0 {
		header(e, "settings", "")
		for _, s := range c.settings {
			e.text(s)
		}
		e.id(endOfTurn)
	}
	if len(c.tools) > 0 {
		header(e, "tools", "")
		for _, t := range c.tools {
			e.text(t)
		}
		e.id(endOfTurn)
	}
	for i, m := range c.messages {
		header(e, m.role, m.name)
		for _, p := range m.parts {
			if p.media {
				e.media(p.text)
			} else {
				e.text(p.text)
			}
		}
		for _, call := range m.calls {
			e.text(call)
		}
		if !c.goOn || i < len(c.messages)-1 {
			e.id(endOfTurn)
		}
	}
	if c.generate {
		header(e, "assistant", "")
	}
}

func header(e *encoder, role, name string) {
	e.id(startHeader)
	e.text(role)
	e.text(name)
	e.id(endHeader)
}
