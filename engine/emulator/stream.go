package emulator

import (
	"fmt"
	"net/http"
	"strconv"

	"kvasir/engine/tokenizer"
)

// stream answers with server-sent events. As vLLM does, it sends the headers at once and
// the first event when there is an output, and puts all tokens that have come meanwhile
// into one event.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, a *attempt) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return
	}
	e := newEvents(a.reply)
	items := make([]progress, len(a.Items))
	for !finished(items) {
		ok, err := a.wait(r, items)
		if !ok {
			return
		}
		e.buf = e.buf[:0]
		due := a.due(items)
		switch {
		case err != nil:
			e.fail(err)
		case due && a.fault.after > 0:
			items[0].tokens, items[0].finished = a.fault.after, false
			e.progress(items)
		case !due:
			e.progress(items)
		}
		if err == nil && !due && finished(items) {
			e.end(items)
		}
		if _, err := w.Write(e.buf); err != nil || flush() != nil {
			return
		}
		if due && err == nil {
			s.breakOff(w, r, a, func(w http.ResponseWriter, err error) {
				e.buf = e.buf[:0]
				e.fail(err)
				_, _ = w.Write(e.buf)
			})
		}
		if due || err != nil {
			return
		}
	}
}

// events writes the events of one stream into buf. Each is "data: ", compact JSON and an
// empty line.
type events struct {
	*reply
	buf  []byte
	head []byte // of every event, up to the choices
	sent []progress
	open bool // the choices have begun
}

func newEvents(r *reply) *events {
	object := "chat.completion.chunk"
	if r.Route == tokenizer.Completions {
		object = "text_completion"
	}
	return &events{
		reply: r,
		head:  append(r.head([]byte("data: "), object), `,"choices":[`...),
		sent:  make([]progress, len(r.Items)),
	}
}

// progress writes what is new since the last time.
func (e *events) progress(items []progress) {
	if !e.open && e.Route == tokenizer.Chat {
		// The first output of any choice begins all of them.
		for i := range items {
			e.role(i)
		}
	}
	e.open = true
	for i, p := range items {
		was := e.sent[i]
		if p == was {
			continue
		}
		if p.tokens > was.tokens || p.finished {
			e.text(i, was, p)
		}
		e.sent[i] = p
	}
}

// role writes the event that begins a choice of a chat.
func (e *events) role(item int) {
	e.choice(item)
	e.buf = append(e.buf, `"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	e.running(0)
	e.buf = append(e.buf, `,"prompt_token_ids":null,"prompt_text":null}`+"\n\n"...)
}

// text writes the event that continues a choice or finishes it.
func (e *events) text(item int, was, p progress) {
	e.choice(item)
	field, end, after := `"delta":{"content":"`, `"},"logprobs":null,"finish_reason":`, `,"token_ids":null}]`
	if e.Route == tokenizer.Completions {
		field, end, after = `"text":"`, `","logprobs":null,"finish_reason":`, `,"prompt_token_ids":null,"token_ids":null}]`
	}
	e.buf = append(e.buf, field...)
	e.buf = e.Items[item].Answer.AppendText(e.buf, was.tokens, p.tokens)
	e.buf = append(e.buf, end...)
	if p.finished {
		e.buf = append(e.buf, e.finishReason(item)...)
	} else {
		e.buf = append(e.buf, "null"...)
	}
	if p.finished || e.Route == tokenizer.Completions {
		e.buf = append(e.buf, `,"stop_reason":null`...)
	}
	e.buf = append(e.buf, after...)
	e.running(p.tokens)
	if p.finished && e.Route == tokenizer.Chat && !e.IncludeUsage {
		e.stamp()
	}
	e.buf = append(e.buf, "}\n\n"...)
}

// end writes what comes after the last choice has finished.
func (e *events) end(items []progress) {
	if e.IncludeUsage {
		u := e.usage(items)
		e.buf = append(append(e.buf, e.head...), ']')
		e.count(u.prompt, u.completion)
		if e.details {
			e.buf = fmt.Appendf(e.buf, `,"prompt_tokens_details":{"cached_tokens":%d}`, u.cached)
		}
		e.buf = append(e.buf, '}')
		if e.Route == tokenizer.Chat {
			e.stamp()
		}
		e.buf = append(e.buf, "}\n\n"...)
	}
	e.done()
}

// fail writes an error after the start, spaced as Python's json.dumps does.
func (e *events) fail(err error) {
	x := engineError(err)
	e.buf = fmt.Appendf(e.buf, `data: {"error": {"message": %s, "type": %s, "param": null, "code": %d}}`+"\n\n",
		quote(x.Message), quote(x.Type), x.Status)
	e.done()
}

func (e *events) done() { e.buf = append(e.buf, "data: [DONE]\n\n"...) }

// choice begins an event about one choice.
func (e *events) choice(item int) {
	e.buf = append(e.buf, e.head...)
	e.buf = append(e.buf, `{"index":`...)
	e.buf = strconv.AppendInt(e.buf, int64(item), 10)
	e.buf = append(e.buf, ',')
}

// running writes the usage so far, where the call wants it in every event.
func (e *events) running(completion int) {
	if e.ContinuousUsage {
		e.count(e.PromptTokens, completion)
		e.buf = append(e.buf, `,"completion_tokens_details":null}`...)
	}
}

func (e *events) count(prompt, completion int) {
	e.buf = fmt.Appendf(e.buf, `,"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d`,
		prompt, prompt+completion, completion)
}

// stamp writes the system fingerprint.
func (e *events) stamp() {
	e.buf = append(append(e.buf, `,"system_fingerprint":`...), e.server.fingerprint...)
}
