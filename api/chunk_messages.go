package api

// messagesField takes in a field of an event of Anthropic's Messages. It reports false for
// those that every dialect may have.
func (f *finding) messagesField(key []byte, w *walk) bool {
	switch string(key) {
	case "message":
		if w.enter('{') {
			f.message(w)
		}
	case "content_block", "delta":
		if w.enter('{') {
			f.subject(w)
		}
	default:
		return false
	}
	return true
}

// message reads the message that message_start carries.
func (f *finding) message(w *walk) {
	for {
		key, ok := w.field()
		if !ok {
			return
		}
		switch string(key) {
		case "content":
			f.see(w.value(), true)
		case "usage":
			f.usage(w)
		default:
			w.value()
		}
	}
}

// judgeMessages says what an event is. A block that starts is a preamble only where it is
// a text or a thinking with nothing in it yet; a call of a tool has its name by then.
func (f *finding) judgeMessages() {
	empty := f.about && !f.content
	f.Kind = Content
	switch string(f.kind()) {
	case "message_stop":
		f.Kind, f.Visible = Done, false
		return
	case "message_start":
		empty = !f.content
	case "ping", "content_block_stop", "message_delta":
		empty = true
	case "content_block_start":
		empty = empty && (string(f.inner) == "text" || string(f.inner) == "thinking")
	case "content_block_delta":
	default:
		f.Visible = false
		return
	}
	if empty {
		f.Kind = Preamble
	}
	f.Visible = f.Kind == Content && !f.thinks()
}

// thinks reports whether an event of Messages is about thinking.
func (f *finding) thinks() bool {
	switch string(f.inner) {
	case "thinking", "redacted_thinking", "thinking_delta", "signature_delta":
		return true
	}
	return false
}
