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
	// or filter results alone, the frame that an answer comes in, a sign of life. It may
	// be held back, and dropped with its attempt.
	Preamble
	// Failure is an error in place of an answer.
	Failure
	// Done is the end mark: [DONE], response.completed or response.incomplete,
	// message_stop. It does not say that the answer succeeded.
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

// Chunk is what was recognised in one event, or in a whole answer that was not streamed.
// Its slices are pieces of the event, escapes not resolved.
type Chunk struct {
	Kind         Kind
	Visible      bool   // Content that is more than reasoning: the user sees it
	Finish       []byte // why the answer ends: finish_reason (of several choices the last one given), stop_reason, or "completed" and the like; nil: not said
	HasUsage     bool   // usage is there and not null
	Usage        Usage
	Fault        Fault  // for a Failure
	ResponseID   []byte // the id that Responses gives the answer in its first event, where it is at most MaxResponseID bytes long; nil otherwise
	NextSequence int    // one more than the event's sequence_number, which Responses counts from 0; 0 where it has none

	counts counts
}

// MaxResponseID is how many bytes of a response's id are kept: twice what OpenAI's have.
const MaxResponseID = 128

// Commits reports whether sending the chunk to the client ends the choice of another
// attempt: it is content, or it ends an answer that has none.
func (c Chunk) Commits() bool {
	return c.Kind == Content || c.Finish != nil && c.Kind != Failure
}

// Fault is what an error says of itself; its message is not looked at.
type Fault struct {
	Status int    // code, where it is a number or a string of digits, or the status that Anthropic's documentation gives the type; 0: none of them
	Code   []byte // code as given, without quotes; nil: none
	Type   []byte
}

// ReadChunk recognises an event of a stream, of which event is the name and data the
// data, or the whole body of an answer, which has no name. It takes any bytes, looks at
// as few as it can, and does not allocate. No data stands for data that was too long to
// be kept: the event is then judged by its name alone.
//
// An error wins over everything else in the same chunk. Known forms are those of vLLM,
// OpenAI and llama.cpp ({"error":{…}}), SGLang ({"object":"error",…}), TGI and Ollama
// ({"error":"…"}), Gemini (an array of one of these), a finish_reason "error", Anthropic's
// and Responses' errors, and any event of that name. [DONE] ends every grammar's stream:
// vLLM sends it after Anthropic's end mark, too. In grammars without a dialect of their
// own all other data is content.
func ReadChunk(g Grammar, event, data []byte) Chunk {
	f := finding{dialect: grammars[g].answer, event: event}
	if len(data) == 0 {
		return f.chunk(false)
	}
	w := walk{b: data}
	list := w.at() == '['
	if list {
		if bytes.HasPrefix(data[w.i:], []byte("[DONE]")) {
			return Chunk{Kind: Done}
		}
		w.i++
	}
	if w.at() != '{' {
		return f.chunk(true)
	}
	f.object(&w)
	return f.chunk(list || w.bad || w.at() != 0)
}

// finding is what was seen of a chunk.
type finding struct {
	Chunk
	dialect dialect
	event   []byte
	named   []byte // the type that the data gives itself; nil: none
	about   bool   // it has what it is about: a delta, an item, a part, a block
	inner   []byte // the type of that; nil: none
	id      []byte // of the response
	known   bool   // it has a field that only an answer's chunk has
	content bool   // some of the answer was seen
	failed  bool   // an error was seen
	flat    Fault  // code and type beside the error, not in it
}

// object reads the object that begins at w.
func (f *finding) object(w *walk) {
	w.i++
	for {
		key, ok := w.field()
		if !ok {
			return
		}
		taken := false
		switch f.dialect {
		case chatAnswer:
			taken = f.chatField(key, w)
		case responsesAnswer:
			taken = f.responsesField(key, w)
		case messagesAnswer:
			taken = f.messagesField(key, w)
		}
		if !taken {
			f.field(key, w)
		}
	}
}

// field takes in a field that every dialect may have, whose value w stands before.
func (f *finding) field(key []byte, w *walk) {
	switch string(key) {
	case "usage":
		f.usage(w)
	case "object":
		f.kindOfObject(w.value())
	case "error":
		f.errorField(w)
	case "code":
		f.flat.setCode(w.value())
	case "type":
		if v := w.value(); len(v) > 0 && v[0] == '"' {
			f.named = unquoted(v)
			f.flat.Type = f.named
		}
	case "error_type":
		f.flat.setType(w.value())
	default:
		w.value()
	}
}

func (f *finding) usage(w *walk) {
	f.known = true
	if c, ok := readUsage(w); ok {
		f.counts, f.Usage, f.HasUsage = c, c.usage(), true
	}
}

// chunk sums up. bad says that the data is not the shape of a chunk.
func (f *finding) chunk(bad bool) Chunk {
	if f.fails() {
		f.Kind, f.Visible = Failure, false
		f.Fault = f.fault()
		return f.Chunk
	}
	if bad {
		f.Kind = Content
		return f.Chunk
	}
	switch f.dialect {
	case chatAnswer:
		f.judgeChat()
	case responsesAnswer:
		f.judgeResponses()
	case messagesAnswer:
		f.judgeMessages()
	default:
		f.Kind, f.Visible = Content, true
	}
	return f.Chunk
}

// fails reports whether the chunk is an error.
func (f *finding) fails() bool {
	kind := f.kind()
	return f.failed || string(kind) == "error" || string(kind) == "response.failed" && f.dialect == responsesAnswer
}

// kind returns the type that the data gives itself, else the event's name.
func (f *finding) kind() []byte {
	if f.named != nil {
		return f.named
	}
	return f.event
}

// fault completes the error's own words with those beside it.
func (f *finding) fault() Fault {
	t := f.Fault
	if t.Code == nil {
		t.Code, t.Status = f.flat.Code, f.flat.Status
	}
	if kind := string(f.flat.Type); t.Type == nil && kind != "error" && kind != "response.failed" { // those name the event
		t.Type = f.flat.Type
	}
	if t.Status == 0 && f.dialect == messagesAnswer {
		t.Status = anthropicStatus(t.Type)
	}
	return t
}

func (f *finding) kindOfObject(v []byte) {
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

func (f *finding) see(v []byte, visible bool) {
	if filled(v) {
		f.content = true
		f.Visible = f.Visible || visible
	}
}
