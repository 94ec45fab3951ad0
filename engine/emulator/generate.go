package emulator

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"kvasir/engine/tokenizer"
)

// generate serves a route that answers with text.
func (s *Server) generate(route tokenizer.Route) http.HandlerFunc {
	prefix := "chatcmpl-"
	if route == tokenizer.Completions {
		prefix = "cmpl-"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		a := s.accept(w, r, route, prefix)
		if a == nil {
			return
		}
		defer s.abort(a.call)
		if a.Stream {
			s.stream(w, r, a)
		} else {
			s.collect(w, r, a)
		}
	}
}

// attempt is a call that the engine has taken, and what will go wrong with it.
type attempt struct {
	*reply
	fault fault
}

// accept reads a call and submits it. It returns nil when the call was answered instead:
// refused, or failed before its start.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, route tokenizer.Route, prefix string) *attempt {
	read, err := s.read(w, r, route)
	if err != nil {
		writeError(w, err)
		return nil
	}
	number := s.calls.Add(1)
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		id = read.RequestID
	}
	key := id
	if id == "" {
		id, key = randomID(), "call "+strconv.FormatUint(number, 10)
	}
	f := s.cfg.Faults.draw(s.cfg.Seed, key, read.Items[0].Answer.Tokens)
	switch f.kind {
	case errorFault:
		writeError(w, errInternal)
		return nil
	case overloadFault:
		writeError(w, errOverload)
		return nil
	}
	c := newCall(read, id, number)
	if err := s.submit(r.Context(), c); err != nil {
		if r.Context().Err() == nil {
			writeError(w, err)
		}
		return nil
	}
	return &attempt{s.newReply(c, prefix, id), f}
}

// read reads a call's body.
func (s *Server) read(w http.ResponseWriter, r *http.Request, route tokenizer.Route) (*tokenizer.Call, error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, errMediaType
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBodyBytes))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, &tokenizer.Error{Status: http.StatusRequestEntityTooLarge, Type: "Request Entity Too Large",
				Message: fmt.Sprintf("The body is longer than %d bytes.", s.cfg.MaxBodyBytes)}
		}
		return nil, &tokenizer.Error{Status: http.StatusBadRequest, Type: "Bad Request",
			Message: "There was an error parsing the body"}
	}
	return tokenizer.Read(route, body, s.limits)
}

// wait waits until the engine has computed more and copies the progress into items. It
// reports false when the client has left; the error is the engine's.
func (a *attempt) wait(r *http.Request, items []progress) (ok bool, err error) {
	select {
	case <-r.Context().Done():
		return false, nil
	case <-a.wake:
		return true, a.call.read(items)
	}
}

// due reports whether the call's fault is.
func (a *attempt) due(items []progress) bool {
	return items[0].tokens > a.fault.after || a.fault.after == 0 && items[0].started
}

// collect answers a call that is no stream.
func (s *Server) collect(w http.ResponseWriter, r *http.Request, a *attempt) {
	items := make([]progress, len(a.Items))
	for !finished(items) {
		ok, err := a.wait(r, items)
		switch {
		case !ok:
			return
		case err != nil:
			writeError(w, err)
			return
		case a.due(items):
			s.breakOff(w, r, a, writeError)
			return
		}
	}
	if a.Route == tokenizer.Embeddings {
		writeJSON(w, http.StatusOK, a.embeddings(nil))
		return
	}
	writeJSON(w, http.StatusOK, a.full(nil, a.usage(items)))
}

// breakOff lets the call's fault happen. fail tells the client of an error.
func (s *Server) breakOff(w http.ResponseWriter, r *http.Request, a *attempt, fail func(http.ResponseWriter, error)) {
	switch a.fault.kind {
	case stallFault:
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
	case resetFault:
		reset(w)
	case streamErrorFault:
		fail(w, errInternal)
	}
}
