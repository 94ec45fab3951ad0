package api

import "bytes"

// Kind is what a chunk of an answer is to routing.
type Kind uint8

// The kinds of chunks.
const (
	// Content is anything that a client may already act on: text, reasoning, a tool
	// call, a refusal, audio, tokens or log probabilities without text. So is whatever
	// isn't recognised, JSON or not: once it is sent, no other attempt may be made.
	Content Kind = iota
	// Preamble carries nothing of the answer: a role, empty content, no choices, usage
	// or filter results alone. It may be held back, and dropped with its attempt.
	Preamble
	// Failure is an error in place of an answer.
	Failure
	// Done is the end mark [DONE]. It does not say that the answer succeeded.
	Done
)

func (k Kind) String() string {
	switch k {
	case Content:
		return "content"
	case Preamble:
		return "preamble"
	case Failure:
		return "failure"
	default:
		return "done"
	}
}

// Chunk is what was recognised in one event's data, or in a whole answer that was not
// streamed. Its slices are pieces of the data, escapes not resolved.
type Chunk struct {
	Kind     Kind
	Visible  bool   // Content that is more than reasoning: the user sees it
	Finish   []byte // finish_reason; of several choices, the last one given; nil: none
	HasUsage bool   // usage is there and not null
	Usage    Usage
	Fault    Fault // for a Failure
}

// Commits reports whether sending the chunk to the client ends the choice of another
// attempt: it is content, or it ends an answer that has none.
func (c Chunk) Commits() bool {
	return c.Kind == Content || c.Kind == Preamble && c.Finish != nil
}

// Fault is what an error says of itself; its message is not looked at.
type Fault struct {
	Status int    // code, where it is a number or a string of digits; 0: neither
	Code   []byte // code as given, without quotes; nil: none
	Type   []byte
}

// ReadChunk recognises the data of an event of a chat completion or a completion, or
// such an answer's whole body. It takes any bytes, looks at as few as it can, and does
// not allocate.
//
// An error wins over everything else in the same chunk. Known forms are those of vLLM,
// OpenAI and llama.cpp ({"error":{…}}), SGLang ({"object":"error",…}), TGI and Ollama
// ({"error":"…"}), Gemini (an array of one of these), and a finish_reason "error".
func ReadChunk(data []byte) Chunk {
	w := walk{b: data}
	list := false
	if w.at() == '[' {
		if bytes.HasPrefix(data[w.i:], []byte("[DONE]")) {
			return Chunk{Kind: Done}
		}
		list = true
		w.i++
	}
	if w.at() != '{' {
		return Chunk{}
	}
	c := readObject(&w)
	if c.Kind == Preamble && (list || w.at() != 0) {
		c.Kind = Content // not the shape of a chunk after all
	}
	return c
}

// finding is what was seen of a chunk.
type finding struct {
	Chunk
	known   bool  // it has a field that only an answer's chunk has
	content bool  // some of the answer was seen
	failed  bool  // an error was seen
	flat    Fault // code and type beside the error, not in it
}

// readObject reads the object that begins at w.
func readObject(w *walk) Chunk {
	var f finding
	w.i++
	for {
		key, ok := w.field()
		if !ok {
			return f.chunk(w.bad)
		}
		f.field(key, w)
	}
}

// field takes in a field of the chunk, whose value w stands before.
func (f *finding) field(key []byte, w *walk) {
	switch string(key) {
	case "choices":
		f.known = true
		if w.enter('[') {
			f.choices(w)
		}
	case "usage":
		f.known = true
		if u, ok := readUsage(w); ok {
			f.Usage, f.HasUsage = u, true
		}
	case "object":
		f.object(w.value())
	case "error":
		f.errorField(w)
	case "code":
		f.flat.setCode(w.value())
	case "type", "error_type":
		f.flat.setType(w.value())
	default:
		w.value()
	}
}

// chunk sums up. bad says that the data is not JSON.
func (f *finding) chunk(bad bool) Chunk {
	c := f.Chunk
	switch {
	case f.failed:
		c.Kind, c.Visible = Failure, false
		if c.Fault.Code == nil {
			c.Fault.Code, c.Fault.Status = f.flat.Code, f.flat.Status
		}
		if c.Fault.Type == nil {
			c.Fault.Type = f.flat.Type
		}
	case bad || f.content || !f.known:
		c.Kind = Content
	default:
		c.Kind = Preamble
	}
	return c
}

func (f *finding) object(v []byte) {
	switch string(v) {
	case `"error"`:
		f.failed = true
	case `"chat.completion.chunk"`, `"chat.completion"`, `"text_completion"`:
		f.known = true
	}
}

func (f *finding) errorField(w *walk) {
	if w.at() == '{' {
		f.failed = true
		w.i++
		for {
			key, ok := w.field()
			if !ok {
				return
			}
			switch string(key) {
			case "code":
				f.Fault.setCode(w.value())
			case "type":
				f.Fault.setType(w.value())
			default:
				w.value()
			}
		}
	}
	if filled(w.value()) {
		f.failed = true
	}
}

func (t *Fault) setCode(v []byte) {
	if len(v) == 0 || v[0] == 'n' || v[0] == '{' || v[0] == '[' {
		return
	}
	t.Code = unquoted(v)
	if n, ok := parseInt(t.Code); ok {
		t.Status = n
	}
}

func (t *Fault) setType(v []byte) {
	if len(v) > 0 && v[0] == '"' {
		t.Type = unquoted(v)
	}
}

func unquoted(v []byte) []byte {
	if len(v) >= 2 && v[0] == '"' {
		return v[1 : len(v)-1]
	}
	return v
}

// filled reports whether a value holds something: it is not null, "", [] or {}.
func filled(v []byte) bool {
	if len(v) == 0 || v[0] == 'n' {
		return false
	}
	switch v[0] {
	case '"':
		return len(v) > 2
	case '[', '{':
		return skipSpace(v, 1) < len(v)-1
	}
	return true
}

func (f *finding) choices(w *walk) {
	for w.element() {
		if w.enter('{') {
			f.choice(w)
		}
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
				f.delta(w)
			}
		case "text":
			f.see(w.value(), true)
		case "logprobs", "token_ids":
			f.see(w.value(), false)
		case "finish_reason":
			if v := w.value(); filled(v) {
				f.Finish = unquoted(v)
				f.failed = f.failed || string(f.Finish) == "error"
			}
		default: // index, stop_reason, content_filter_results, …
			w.value()
		}
	}
}

func (f *finding) delta(w *walk) {
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

func (f *finding) see(v []byte, visible bool) {
	if filled(v) {
		f.content = true
		f.Visible = f.Visible || visible
	}
}
