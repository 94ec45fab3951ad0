package api

// chatField takes in a field of a chat's or completion's chunk. It reports false for
// those that every dialect may have.
func (f *finding) chatField(key []byte, w *walk) bool {
	if string(key) != "choices" {
		return false
	}
	f.known = true
	if w.enter('[') {
		for w.element() {
			if w.enter('{') {
				f.choice(w)
			}
		}
	}
	return true
}

// judgeChat says what a chunk is: a preamble where it is known and has nothing in it.
func (f *finding) judgeChat() {
	f.Kind = Content
	if f.known && !f.content {
		f.Kind = Preamble
	}
}

func (f *finding) choice(w *walk) {
	for {
		key, ok := w.field()
		if !ok {
			return
		}
		switch string(key) {
		case "delta", "message":
			if w.enter('{') {
				f.chatDelta(w)
			}
		case "text":
			f.see(w.value(), true)
		case "logprobs", "token_ids":
			f.see(w.value(), false)
		case "finish_reason":
			f.finish(w.value())
			f.failed = f.failed || string(f.Finish) == "error"
		default: // index, stop_reason, content_filter_results, …
			w.value()
		}
	}
}

func (f *finding) chatDelta(w *walk) {
	for {
		key, ok := w.field()
		if !ok {
			return
		}
		switch string(key) {
		case "role":
			w.value()
		case "content", "refusal", "tool_calls", "function_call", "audio":
			f.see(w.value(), true)
		default: // reasoning, reasoning_content, and what is not known
			f.see(w.value(), false)
		}
	}
}

// finish notes why the answer ends, where v says so.
func (f *finding) finish(v []byte) {
	if filled(v) {
		f.Finish = unquoted(v)
	}
}
