package api

import "strconv"

// Spoken is what a chunk of a chat or a text completion says, and where in it: what is needed
// to make one answer of two.
type Spoken struct {
	Text Span // between the quotes of the only choice's text; empty: it says nothing
	// Odd says that there is more than text, and a role: another choice, a tool call, reasoning,
	// log probabilities, something that is not known. Such an answer can't be continued.
	Odd bool

	id, created, model Span // values
	role               Span // to be cut out, with a comma
	usage              Span // value
}

// ReadSpoken reads the data of an event that ReadChunk takes for content or a preamble.
func ReadSpoken(data []byte) Spoken {
	var s Spoken
	w := walk{b: data}
	if !w.enter('{') {
		s.Odd = true
		return s
	}
	for {
		key, ok := w.field()
		if !ok {
			break
		}
		switch string(key) {
		case "id":
			s.id = spanOf(&w)
		case "created":
			s.created = spanOf(&w)
		case "model":
			s.model = spanOf(&w)
		case "usage":
			s.usage = spanOf(&w)
		case "choices":
			s.choices(&w)
		default:
			w.value()
		}
	}
	s.Odd = s.Odd || w.bad || w.at() != 0
	return s
}

// spanOf steps over a value and returns where it is.
func spanOf(w *walk) Span {
	w.at()
	start := w.i
	w.value()
	return Span{start, w.i}
}

func (s *Spoken) choices(w *walk) {
	if !w.enter('[') {
		s.Odd = true
		return
	}
	for n := 0; w.element(); n++ {
		if n > 0 || !w.enter('{') {
			s.Odd = true
			w.value()
			continue
		}
		s.choice(w)
	}
}

func (s *Spoken) choice(w *walk) {
	for {
		key, ok := w.field()
		if !ok {
			return
		}
		switch string(key) {
		case "delta":
			if w.enter('{') {
				s.delta(w)
			}
		case "text":
			s.text(w)
		case "index":
			s.Odd = string(w.value()) != "0" || s.Odd
		case "logprobs", "token_ids", "message":
			s.Odd = filled(w.value()) || s.Odd
		default: // finish_reason, stop_reason, matched_stop, content_filter_results, …
			w.value()
		}
	}
}

func (s *Spoken) delta(w *walk) {
	first, before := true, w.i // whether no member came before, and where the one before ends
	for {
		w.at()
		comma := w.i // of this member, or its name where it is the first
		key, ok := w.field()
		if !ok {
			return
		}
		switch string(key) {
		case "role":
			w.value()
			s.role = Span{before, w.i}
			if first { // the comma behind it goes instead
				if w.at() == ',' {
					s.role = Span{comma, w.i + 1}
				} else {
					s.role = Span{comma, w.i}
				}
			}
		case "content":
			s.text(w)
		default: // reasoning, tool_calls, refusal, audio, and what is not known
			s.Odd = filled(w.value()) || s.Odd
		}
		first, before = false, w.i
	}
}

func (s *Spoken) text(w *walk) {
	v := spanOf(w)
	switch t := v.Of(w.b); {
	case len(t) >= 2 && t[0] == '"':
		s.Odd = s.Odd || !s.Text.none()
		s.Text = Span{v.Start + 1, v.End - 1}
	case filled(t):
		s.Odd = true
	}
}

// Whole is what the parts of an answer that was continued have in common, and what those
// before the last one have cost.
type Whole struct {
	ID, Created, Model []byte // as values of JSON; nil: the first part gave none
	Prompt             int    // tokens of the first prompt; Unknown: it was not said
	Output             int    // tokens of the parts before the last
}

// Begin takes the first part's identity from its first chunk. The slices are copies.
func (h *Whole) Begin(data []byte, s Spoken) {
	h.ID = append(h.ID[:0], s.id.Of(data)...)
	h.Created = append(h.Created[:0], s.created.Of(data)...)
	h.Model = append(h.Model[:0], s.model.Of(data)...)
}

// Usage returns the usage of the whole, of which the last part has reported u: its prompt is the
// first one's with what was said before it, and that is output, not input. Where the first
// prompt's length was not said it is what is left of the last one's.
func (h *Whole) Usage(u Usage) Usage {
	if u.Output != Unknown {
		u.Output += h.Output
	}
	if h.Prompt != Unknown {
		u.Input = h.Prompt
	} else if u.Input != Unknown {
		u.Input = max(u.Input-h.Output, min(u.Input, 1))
	}
	if u.Cached != Unknown && u.Input != Unknown {
		u.Cached = min(u.Cached, u.Input)
	}
	return u
}

// Append appends data, of which ReadSpoken has said s, as a chunk of the whole: with the first
// part's id, created and model, without a role, with the usage of the whole.
func (h *Whole) Append(dst, data []byte, s Spoken) []byte {
	var room [9]Edit
	edits := room[:0]
	add := func(at Span, v []byte) {
		if !at.none() {
			edits = append(edits, Edit{At: at, Value: v})
		}
	}
	for _, e := range [...]Edit{{s.id, h.ID}, {s.created, h.Created}, {s.model, h.Model}} {
		if len(e.Value) > 0 {
			add(e.At, e.Value)
		}
	}
	add(s.role, nil)
	edits = h.usage(edits, data, s.usage)
	for i := 1; i < len(edits); i++ { // a handful
		for j := i; j > 0 && edits[j].At.Start < edits[j-1].At.Start; j-- {
			edits[j], edits[j-1] = edits[j-1], edits[j]
		}
	}
	from := 0
	for _, e := range edits {
		dst = append(append(dst, data[from:e.At.Start]...), e.Value...)
		from = e.At.End
	}
	return append(dst, data[from:]...)
}

// usage adds the edits that make the usage at at that of the whole.
func (h *Whole) usage(edits []Edit, data []byte, at Span) []Edit {
	w := walk{b: data[:at.End], i: at.Start}
	if at.none() || w.at() != '{' {
		return edits
	}
	first := walk{b: w.b, i: w.i}
	c, _ := readUsage(&first)
	u := h.Usage(c.usage())
	put := func(n int) {
		if v := spanOf(&w); count(v.Of(w.b)) != Unknown && n != Unknown {
			edits = append(edits, Edit{At: v, Value: strconv.AppendInt(nil, int64(n), 10)})
		}
	}
	w.enter('{')
	for {
		key, ok := w.field()
		if !ok {
			return edits
		}
		switch string(key) {
		case "prompt_tokens":
			put(u.Input)
		case "completion_tokens":
			put(u.Output)
		case "total_tokens":
			put(max(u.Input, 0) + max(u.Output, 0))
		case "prompt_tokens_details":
			if !w.enter('{') {
				continue
			}
			for {
				key, ok := w.field()
				if !ok {
					break
				}
				if string(key) == "cached_tokens" {
					put(u.Cached)
				} else {
					w.value()
				}
			}
		default:
			w.value()
		}
	}
}
