package api

import "bytes"

// responsesField takes in a field of an event of Responses. It reports false for those
// that every dialect may have.
func (f *finding) responsesField(key []byte, w *walk) bool {
	switch string(key) {
	case "response":
		if w.enter('{') {
			f.response(w)
		}
	case "item", "part":
		if w.enter('{') {
			f.subject(w)
		}
	case "delta":
		f.about = true
		f.see(w.value(), true)
	case "logprobs":
		f.see(w.value(), true)
	case "sequence_number":
		f.NextSequence = count(w.value()) + 1
	default:
		return false
	}
	return true
}

// response reads the response that frame events carry.
func (f *finding) response(w *walk) {
	for {
		key, ok := w.field()
		if !ok {
			return
		}
		switch string(key) {
		case "id":
			f.id = unquoted(w.value())
		case "output":
			f.see(w.value(), true)
		case "usage":
			f.usage(w)
		case "error":
			f.errorField(w)
		default:
			w.value()
		}
	}
}

// subject reads the item, part, block or delta that an event is about. What it holds
// beside its type and its state is content.
func (f *finding) subject(w *walk) {
	f.about = true
	for {
		key, ok := w.field()
		if !ok {
			return
		}
		switch string(key) {
		case "type":
			f.inner = unquoted(w.value())
		case "id", "role", "status", "phase":
			w.value()
		case "stop_reason":
			f.finish(w.value())
		default:
			f.see(w.value(), true)
		}
	}
}

// judgeResponses says what an event is. An item that is added is a preamble only where it
// is a message or a reasoning with nothing in it yet. A call of a function is content as
// soon as it is added, though its arguments are still to come: the model has written its
// name, a client may show it, and another attempt would make another call with another
// id. Other items are calls of tools that the engine itself may have begun to run.
func (f *finding) judgeResponses() {
	kind, empty := f.kind(), f.about && !f.content
	f.Kind = Content
	switch string(kind) {
	case "response.completed", "response.incomplete", "response.cancelled":
		f.Kind, f.Visible = Done, false
		f.Finish = kind[len("response."):]
		return
	case "response.created":
		if len(f.id) <= MaxResponseID {
			f.ResponseID = f.id
		}
		empty = !f.content
	case "response.queued", "response.in_progress":
		empty = !f.content
	case "keepalive": // sent by OpenAI, though not documented
		empty = true
	case "response.output_item.added":
		empty = empty && (string(f.inner) == "message" || string(f.inner) == "reasoning")
	case "response.content_part.added", "response.reasoning_part.added", "response.reasoning_summary_part.added":
	default:
		empty = empty && bytes.HasSuffix(kind, []byte(".delta"))
	}
	if empty {
		f.Kind = Preamble
	}
	f.Visible = f.Kind == Content && bytes.HasPrefix(kind, []byte("response.")) && !f.reasons(kind)
}

// reasons reports whether an event of Responses is about reasoning.
func (f *finding) reasons(kind []byte) bool {
	switch string(f.inner) {
	case "reasoning", "reasoning_text", "summary_text":
		return true
	}
	return bytes.HasPrefix(kind, []byte("response.reasoning"))
}
