package proxy

import (
	"net/http"
	"strings"
	"time"

	"kvasir/api"
	"kvasir/selection"
	"kvasir/telemetry"
)

// route is a path that calls come in by; endpoints have it under the same name.
type route struct {
	index   int // in callRoutes
	path    string
	grammar api.Grammar
	kind    selection.Kind
}

// callRoutes are the routes that are passed on by the model that their body names. Which
// of them an endpoint has is the endpoint's to say.
var callRoutes = [...]route{
	{path: "/v1/chat/completions", grammar: api.Chat},
	{path: "/v1/completions", grammar: api.Completions},
	{path: "/v1/embeddings", grammar: api.Embeddings, kind: selection.Embed},
	{path: "/v1/responses", grammar: api.Responses},
	{path: "/v1/messages", grammar: api.Messages},
	{path: "/v1/messages/count_tokens", grammar: api.CountTokens, kind: selection.Embed},
	{path: "/v1/rerank", grammar: api.Rerank, kind: selection.Embed},
	{path: "/v2/rerank", grammar: api.Rerank, kind: selection.Embed},
	{path: "/rerank", grammar: api.Rerank, kind: selection.Embed},
	{path: "/v1/score", grammar: api.Score, kind: selection.Embed},
	{path: "/score", grammar: api.Score, kind: selection.Embed},
	{path: "/tokenize", grammar: api.Tokenize, kind: selection.Embed},
	{path: "/detokenize", grammar: api.Tokenize, kind: selection.Embed},
	{path: "/pooling", grammar: api.Opaque, kind: selection.Embed},
	{path: "/classify", grammar: api.Opaque, kind: selection.Embed},
	{path: "/v1/moderations", grammar: api.Opaque, kind: selection.Embed},
	{path: "/v1/audio/speech", grammar: api.Speech},
	{path: "/v1/audio/transcriptions", grammar: api.Upload},
	{path: "/v1/audio/translations", grammar: api.Upload},
	{path: "/v1/images/generations", grammar: api.Images},
	{path: "/v1/images/edits", grammar: api.Upload},
	{path: "/v1/images/variations", grammar: api.Upload},
}

const routeCount = len(callRoutes)

var byPath = func() map[string]*route {
	m := map[string]*route{}
	for i := range callRoutes {
		callRoutes[i].index = i
		m[callRoutes[i].path] = &callRoutes[i]
	}
	return m
}()

// strict reports whether it is known what an answer must look like: a stream of events
// where one was asked for, and none where not.
func (rt *route) strict() bool {
	switch rt.grammar {
	case api.Chat, api.Completions, api.Responses, api.Messages, api.Embeddings:
		return true
	}
	return false
}

// grammarOf returns the language in which a request that is no call is answered.
func grammarOf(r *http.Request) api.Grammar {
	if r.Header.Get("Anthropic-Version") != "" || strings.HasPrefix(r.URL.Path, "/v1/messages") {
		return api.Messages
	}
	return api.Chat
}

const modelsPath = "/v1/models"

// ServeHTTP implements http.Handler for the data listener. Paths are matched as they
// are: to clean one and redirect to it would make a POST's client send its body again.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := g.service.Load()
	rc := http.NewResponseController(w)
	if g.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	path := r.URL.Path
	if raw := r.URL.RawPath; raw != "" && !strings.HasPrefix(path, modelsPath+"/") {
		path = raw // what is spelt otherwise is no route: who filters paths before us reads them as they are
	}
	rt := byPath[path]
	if size := headerSize(r); size > s.cfg.Limits.Headers && s.cfg.Limits.Headers > 0 {
		answerUnread(w, rc, r)
		w.Header().Set("Connection", "close")
		tellRequestID(w.Header(), grammarOf(r), g.newRequestID(g.lastCall.Add(1)))
		g.reject(w, r, telemetry.BadRequest, headerTooLarge(size, s.cfg.Limits.Headers))
		_ = rc.Flush()
		takeUnread(r)
		return
	}
	if rt != nil && r.Method == http.MethodPost {
		g.serve(s, w, rc, r, rt)
		return
	}
	_ = rc.SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
	answerUnread(w, rc, r) // whatever is answered below, the body is not read
	defer takeUnread(r)
	id := r.Header.Get("X-Request-Id")
	if !usableRequestID(id) {
		id = g.newRequestID(g.lastCall.Add(1))
	}
	tellRequestID(w.Header(), grammarOf(r), id)
	name, one := strings.CutPrefix(path, modelsPath+"/")
	_, known := s.cfg.Access.admit(r)
	switch {
	case !known:
		w.Header().Set("Www-Authenticate", "Bearer")
		g.reject(w, r, telemetry.Unauthorized, unauthorized(r))
	case rt != nil:
		g.reject(w, r, telemetry.UnknownRoute, wrongMethod(w, r, "POST"))
	case !one && path != modelsPath:
		g.reject(w, r, telemetry.UnknownRoute, unknownRoute(r.Method, path))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		g.reject(w, r, telemetry.UnknownRoute, wrongMethod(w, r, "GET, HEAD"))
	case !one:
		writeJSON(w, http.StatusOK, s.list)
	case s.byName[name] == nil: // it may contain slashes
		g.reject(w, r, telemetry.UnknownModel, unknownModel(name))
	default:
		writeJSON(w, http.StatusOK, api.AppendModelEntry(nil, g.entry(s, name)))
	}
	_ = rc.Flush() // before what is left of the body is waited for
}

// headerSize returns about how many bytes a request's header has.
func headerSize(r *http.Request) int {
	n := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// entry is a model's entry in the list of models, or an adapter's.
func (g *Gateway) entry(s *service, name string) api.Model {
	m := api.Model{ID: name, Created: g.epoch.Unix(), OwnedBy: "kvasir"}
	if _, is := s.adapters[name]; is {
		m.Parent = s.byName[name].Name
	}
	return m
}

// wrongMethod says which methods a path has.
func wrongMethod(w http.ResponseWriter, r *http.Request, allowed string) api.Error {
	w.Header().Set("Allow", allowed)
	return methodNotAllowed(r.Method, r.URL.Path, allowed)
}

// reject answers what is not a call.
func (g *Gateway) reject(w http.ResponseWriter, r *http.Request, kind telemetry.Refusal, e api.Error) {
	id := w.Header().Get("X-Request-Id")
	e.RequestID = id
	g.metrics.Call(&telemetry.Call{ID: id, Route: "none", Outcome: telemetry.Refused, Refusal: kind, Status: e.Status})
	writeJSON(w, e.Status, api.AppendError(nil, grammarOf(r), e))
}
