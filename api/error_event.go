package api

import "strconv"

// AppendErrorEvent appends the error as an event of the grammar's stream. The bytes before
// it must end between two events. sequence continues the stream's sequence_number, see
// Tally.NextSequence; grammars without one ignore it.
//
// Where a grammar's events have no names the envelope is the event's data: OpenAI's SDKs
// raise an error for any data that has an "error". Anthropic's SDKs raise one for any
// event that is named error, whatever its data.
//
// For Responses the reference documents {"type":"error","code","message","param",
// "sequence_number"}, but OpenAI itself sends the details inside "error", and the SDKs go
// by that: openai-go (ssestream), openai-python (Stream) and openai-node (Stream) raise an
// error where the data has an "error", and hand an event without one to the caller as any
// other, so a caller who reads deltas alone takes a stream that was cut for a short
// answer. So this event has both: each of the three raises, and whoever reads the
// documented fields finds them.
func AppendErrorEvent(dst []byte, g Grammar, e Error, sequence int) []byte {
	switch grammars[g].answer {
	case messagesAnswer:
		dst = append(dst, "event: error\n"...)
	case responsesAnswer:
		return appendResponsesError(dst, g, e, sequence)
	}
	dst = append(dst, "data: "...)
	dst = AppendError(dst, g, e)
	return append(dst, "\n\n"...)
}

func appendResponsesError(dst []byte, g Grammar, e Error, sequence int) []byte {
	dst = append(dst, "event: error\ndata: "...)
	dst = append(dst, `{"type":"error","code":`...)
	dst = appendOrNull(dst, e.Code)
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, e.Message)
	dst = append(dst, `,"param":`...)
	dst = appendOrNull(dst, e.Param)
	dst = append(dst, `,"sequence_number":`...)
	dst = strconv.AppendInt(dst, int64(sequence), 10)
	dst = append(dst, `,"error":`...)
	dst = appendDetails(dst, g, e)
	return append(dst, "}\n\n"...)
}

// ErrorEventFromBody appends the error that an endpoint answered with as the first event
// of the grammar's stream, for a client that already got a status of 200. It keeps
// message, type, code and param of body, where they can be read, and takes the rest from
// e, whose status and request id count in any case. body may be any bytes; the forms that
// are read are those of ReadChunk, {"detail":"…"} of FastAPI and {"message":"…"}.
func ErrorEventFromBody(dst []byte, g Grammar, body []byte, e Error) []byte {
	w := walk{b: body}
	if w.at() == '[' {
		w.i++
	}
	var said saying
	if w.enter('{') {
		said.read(&w, false)
	}
	if said.message != "" {
		e.Message, e.Type, e.Code, e.Param = said.message, said.kind, said.code, said.param
	}
	return AppendErrorEvent(dst, g, e, 0)
}

// saying is what an error's body says.
type saying struct{ message, kind, code, param string }

// read reads the object that w is in. inError says that it is the value of "error", whose
// words count more than those beside it.
func (s *saying) read(w *walk, inError bool) {
	for {
		key, ok := w.field()
		if !ok {
			return
		}
		switch string(key) {
		case "error":
			if w.at() == '{' && !inError {
				w.i++
				*s = saying{}
				s.read(w, true)
				return
			}
			set(&s.message, w.value())
		case "message", "detail":
			set(&s.message, w.value())
		case "type", "error_type":
			set(&s.kind, w.value())
		case "code":
			set(&s.code, w.value())
		case "param":
			set(&s.param, w.value())
		default:
			w.value()
		}
	}
}

// set takes in a string or a number.
func set(to *string, v []byte) {
	if len(v) == 0 {
		return
	}
	switch c := v[0]; {
	case c == '"':
		*to = string(appendDecoded(nil, unquoted(v)))
	case '0' <= c && c <= '9':
		*to = string(v)
	}
}
