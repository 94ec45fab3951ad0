package emulator

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"kvasir/engine"
	"kvasir/engine/tokenizer"
)

// compute serves a route that the engine computes.
func (s *Server) compute(route tokenizer.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		read, err := s.read(w, r, route)
		if err != nil {
			refuse(w, route, err)
			return
		}
		l := s.life.Load()
		if s.cfg.TrackLoad {
			l.load.Add(1)
			defer l.load.Add(-1)
		}
		a, err := s.accept(r, read, l)
		switch {
		case err == errGone:
			reset(w)
		case err != nil && r.Context().Err() == nil:
			if a.fault.retryAfter != "" {
				w.Header().Set("Retry-After", a.fault.retryAfter)
			}
			refuse(w, route, err)
		case err != nil:
		case a.fault.kind == hangFault:
			s.hang(w, r, a)
		case a.Stream:
			defer s.abort(a.call)
			s.stream(w, r, a)
		default:
			defer s.abort(a.call)
			s.collect(w, r, a)
		}
	}
}

// attempt is a call that is being answered, and what will go wrong with it.
type attempt struct {
	*reply
	fault fault
}

// prefixes are what the ids of answers begin with. A response's id is as the call says.
var prefixes = map[tokenizer.Route]string{
	tokenizer.Chat: "chatcmpl-", tokenizer.Completions: "cmpl-", tokenizer.Embeddings: "embd-",
	tokenizer.Messages: "chatcmpl-", tokenizer.Score: "score-", tokenizer.Rerank: "score-",
}

// accept decides a call's fate and submits it, unless it will hang. The error tells why it
// was refused.
func (s *Server) accept(r *http.Request, read *tokenizer.Call, l *life) (attempt, error) {
	number := s.calls.Add(1)
	id := r.Header.Get("X-Request-Id")
	if id == "" || read.Route == tokenizer.Responses {
		id = read.RequestID
	}
	key := id
	if id == "" || s.cfg.Faults.Afresh {
		key = "call " + strconv.FormatUint(number, 10)
	}
	if id == "" {
		id = randomID()
		if read.Route == tokenizer.Responses {
			id = "resp_" + id
		}
	}
	f, imposed := s.imposed.take()
	if !imposed {
		f = s.cfg.Faults.draw(s.cfg.Seed, key, read.Items[0].Answer.Tokens)
	}
	if f.kind == refuseFault {
		return attempt{fault: f}, f.refusal
	}
	last := s.requests.Add(uint64(len(read.Items)))
	c := newCall(read, l, engine.ID(last-uint64(len(read.Items))))
	if pin, err := strconv.Atoi(r.Header.Get("X-Data-Parallel-Rank")); err == nil {
		c.pin = pin
		if pin == anyRank {
			return attempt{}, rankOutOfRange(pin, s.cfg.Ranks)
		}
	}
	a := attempt{s.newReply(c, prefixes[read.Route], id), f}
	if f.kind == hangFault {
		return a, nil
	}
	return a, s.submit(r.Context(), c)
}

// read reads a call's body.
func (s *Server) read(w http.ResponseWriter, r *http.Request, route tokenizer.Route) (*tokenizer.Call, error) {
	body, err := s.body(w, r)
	if err != nil {
		return nil, err
	}
	return tokenizer.Read(route, body, s.limits)
}

// body returns the bytes of a call that is JSON.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || !strings.EqualFold(t, "application/json") {
		return nil, errMediaType
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBodyBytes))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, &tokenizer.Error{Status: http.StatusRequestEntityTooLarge, Type: "Request Entity Too Large",
				Message: fmt.Sprintf("The body is longer than %d bytes.", s.cfg.MaxBodyBytes)}
		}
		return nil, &tokenizer.Error{Status: http.StatusBadRequest, Type: tokenizer.Malformed,
			Message: "There was an error parsing the body"}
	}
	return body, nil
}

// hang gives no further answer.
func (s *Server) hang(w http.ResponseWriter, r *http.Request, a attempt) {
	select {
	case <-r.Context().Done():
	case <-s.done:
		reset(w)
	case <-a.life.ended:
		reset(w)
	}
}

// wait waits until the engine has computed more and copies the progress into items. It
// reports false when the client has left; the error is the engine's.
func (a attempt) wait(r *http.Request, items []progress) (ok bool, err error) {
	select {
	case <-r.Context().Done():
		return false, nil
	case <-a.wake:
		return true, a.call.read(items)
	}
}

// due reports whether the call's fault is.
func (a attempt) due(items []progress) bool {
	return items[0].tokens > a.fault.after || a.fault.after == 0 && items[0].started
}

// collect answers a call that is no stream.
func (s *Server) collect(w http.ResponseWriter, r *http.Request, a attempt) {
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
			refuse(w, a.Route, err)
			return
		case a.due(items):
			s.breakOff(w, r, a, func(err error) { refuse(w, a.Route, err) })
			return
		}
	}
	s.report(w, r, a.Route)
	writeJSON(w, http.StatusOK, a.body(nil, items))
}

// breakOff lets the call's fault happen. fail tells the client of an error.
func (s *Server) breakOff(w http.ResponseWriter, r *http.Request, a attempt, fail func(error)) {
	switch a.fault.kind {
	case stallFault:
		s.hang(w, r, a)
	case resetFault:
		reset(w)
	case streamErrorFault:
		fail(errInternal)
	}
}
