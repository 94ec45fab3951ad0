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
	index int // in callRoutes
	path  string
	kind  selection.Kind
}

const routeCount = 3

var callRoutes = [routeCount]route{
	{0, "/v1/chat/completions", selection.Generate},
	{1, "/v1/completions", selection.Generate},
	{2, "/v1/embeddings", selection.Embed},
}

// routeOf returns the route of a path, or nil.
func routeOf(path string) *route {
	for i := range callRoutes {
		if callRoutes[i].path == path {
			return &callRoutes[i]
		}
	}
	return nil
}

const modelsPath = "/v1/models"

// ServeHTTP implements http.Handler for the data listener. Paths are matched as they
// are: to clean one and redirect to it would make a POST's client send its body again.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if g.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	path := r.URL.Path
	rt := routeOf(path)
	if rt != nil && r.Method == http.MethodPost {
		g.serve(w, rc, r, rt)
		return
	}
	_ = rc.SetWriteDeadline(time.Now().Add(g.cfg.WriteTimeout))
	answerUnread(w, rc, r) // whatever is answered below, the body is not read
	name, one := strings.CutPrefix(path, modelsPath+"/")
	switch {
	case rt != nil:
		g.reject(w, r, telemetry.UnknownRoute, wrongMethod(w, r, "POST"))
	case !one && path != modelsPath:
		g.reject(w, r, telemetry.UnknownRoute, unknownRoute(r.Method, path))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		g.reject(w, r, telemetry.UnknownRoute, wrongMethod(w, r, "GET, HEAD"))
	case !one:
		writeJSON(w, http.StatusOK, g.list)
	case g.byName[name] == nil: // it may contain slashes
		g.reject(w, r, telemetry.UnknownModel, unknownModel(name))
	default:
		writeJSON(w, http.StatusOK, api.AppendModelEntry(nil, g.entry(name)))
	}
}

// entry is a model's entry in the list of models.
func (g *Gateway) entry(name string) api.Model {
	return api.Model{ID: name, Created: g.cfg.Epoch.Unix(), OwnedBy: "kvasir"}
}

// wrongMethod says which methods a path has.
func wrongMethod(w http.ResponseWriter, r *http.Request, allowed string) api.Error {
	w.Header().Set("Allow", allowed)
	return methodNotAllowed(r.Method, r.URL.Path, allowed)
}

// reject answers what is not a call.
func (g *Gateway) reject(w http.ResponseWriter, r *http.Request, kind telemetry.Refusal, e api.Error) {
	id := r.Header.Get("X-Request-Id")
	if !usableRequestID(id) {
		id = g.newRequestID(g.lastCall.Add(1))
	}
	e.RequestID = id
	w.Header().Set("X-Request-Id", id)
	g.cfg.Metrics.Call(&telemetry.Call{ID: id, Route: "none", Outcome: telemetry.Refused, Refusal: kind, Status: e.Status})
	writeJSON(w, e.Status, api.AppendError(nil, e))
}
