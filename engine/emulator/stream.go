package emulator

import (
	"net/http"

	"kvasir/engine/tokenizer"
)

// grammar writes the events of one API's stream into a buffer.
type grammar interface {
	buffer() *[]byte
	begin()              // what comes before the engine has given anything
	progress([]progress) // what is new since the last time
	end([]progress)      // what comes after everything has finished
	fail(error)          // an error after the start, which ends the stream
}

// newGrammar returns the grammar of the call's route.
func newGrammar(r *reply) grammar {
	switch r.Route {
	case tokenizer.Responses:
		return newResponseEvents(r)
	case tokenizer.Messages:
		return &messageEvents{reply: r}
	}
	return newChatEvents(r)
}

// stream answers with server-sent events. As vLLM does, it sends the headers at once and
// the first event of an answer when there is an output, and puts all tokens that have come
// meanwhile into one event.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, a attempt) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	g := newGrammar(a.reply)
	buf := g.buffer()
	// send writes what the grammar has and reports whether the client still takes it.
	send := func() bool {
		_, err := w.Write(*buf)
		*buf = (*buf)[:0]
		return err == nil && flush() == nil
	}
	g.begin()
	if !send() {
		return
	}
	items := make([]progress, len(a.Items))
	for !finished(items) {
		ok, err := a.wait(r, items)
		switch {
		case !ok:
			return
		case err == errGone:
			reset(w)
			return
		case err != nil:
			g.fail(err)
			send()
			return
		case a.due(items):
			if a.fault.after > 0 {
				items[0].tokens, items[0].finished = a.fault.after, false
				g.progress(items)
			}
			if send() {
				s.breakOff(w, r, a, func(err error) { g.fail(err); send() })
			}
			return
		}
		g.progress(items)
		if finished(items) {
			g.end(items)
		}
		if !send() {
			return
		}
	}
}
