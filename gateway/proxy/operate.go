package proxy

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"kvasir/selection/observe/discovery"
)

// What an operator may do at run time. What changes something is a POST with a JSON object,
// and answers with one; it outlasts a reload of the file, and not the process. Profiles of
// the process are at /debug/pprof/.

// token is the admin token, of which the hash is kept.
type token struct {
	set  bool
	hash [sha256.Size]byte
}

func newToken(s string) token {
	return token{set: s != "", hash: sha256.Sum256([]byte(s))}
}

// guard lets a request through that shows the token. A header is needed for that, so that
// no page which an operator's browser happens to show can do it.
func (t token) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := sha256.Sum256([]byte(presented(r.Header)))
		switch {
		case !t.set:
			refuseOperation(w, http.StatusForbidden, errors.New("no admin_token is configured, so nothing can be changed here"))
		case subtle.ConstantTimeCompare(shown[:], t.hash[:]) != 1:
			w.Header().Set("Www-Authenticate", "Bearer")
			refuseOperation(w, http.StatusUnauthorized, errors.New("send the admin token as Authorization: Bearer TOKEN"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func refuseOperation(w http.ResponseWriter, status int, err error) {
	body, _ := json.Marshal(map[string]string{"error": err.Error()}) // a map of strings has a form
	writeJSON(w, status, append(body, '\n'))
}

// operation is what is asked for.
type operation struct {
	Model    string  `json:"model"`
	Pool     string  `json:"pool"`     // may be left out where the model has one
	Endpoint string  `json:"endpoint"` // its name
	URL      string  `json:"url"`
	Weight   float64 `json:"weight"`
	Policy   string  `json:"policy"` // to be shadowed; "": none
}

// maxOperation bounds a request's body.
const maxOperation = 64 << 10

// readOperation reads one JSON object: no other keys, none twice in whatever letters, nothing
// after it. An empty body asks for nothing: what is missing is named where it is needed.
func readOperation(body io.Reader) (op operation, err error) {
	text, err := io.ReadAll(body)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return op, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&op); err != nil {
		return operation{}, err
	}
	if _, err := d.Token(); err != io.EOF {
		return operation{}, errors.New("something follows its JSON object")
	}
	return op, noKeyTwice(text)
}

// noKeyTwice returns an error where a JSON object of plain values has a key twice. Keys are
// those that Unmarshal takes for the same: letters count alike.
func noKeyTwice(object []byte) error {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return err // null has no keys
	}
	var seen []string
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string) // an object's keys are strings
		if slices.ContainsFunc(seen, func(s string) bool { return strings.EqualFold(s, key) }) {
			return fmt.Errorf("%s: the key is there twice", shorten(key))
		}
		seen = append(seen, key)
		if _, err := d.Token(); err != nil { // its value, which is a plain one
			return err
		}
	}
	return nil
}

// statusError is an error with the status that it is answered with.
type statusError struct {
	status int
	error
}

func (g *Gateway) operations(mux *http.ServeMux, t token, c AdminConfig) {
	on := func(path string, do func(operation) error) {
		mux.Handle("POST "+path, sameOrigin(t.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op, err := readOperation(http.MaxBytesReader(w, r.Body, maxOperation))
			if err != nil {
				refuseOperation(w, http.StatusBadRequest, fmt.Errorf("the request's body: %w", err))
				return
			}
			if err := do(op); err != nil {
				status := http.StatusBadRequest
				if s, ok := errors.AsType[statusError](err); ok {
					status = s.status
				}
				refuseOperation(w, status, err)
				return
			}
			g.log.Info("an operator's word", "path", path, "model", op.Model, "pool", op.Pool, "endpoint", op.Endpoint, "url", op.URL, "weight", op.Weight, "policy", op.Policy, "peer", peerOf(r))
			writeJSON(w, http.StatusOK, []byte("{\"ok\":true}\n"))
		}))))
	}
	on("/v1/endpoints/add", func(op operation) error {
		_, members, err := g.members(op)
		if err != nil {
			return err
		}
		return members.set.Add(discovery.Endpoint{URL: op.URL, Name: op.Endpoint, Weight: op.Weight})
	})
	named := func(do func(*discovery.Set, operation) (bool, error)) func(operation) error {
		return func(op operation) error {
			pool, members, err := g.members(op)
			if err != nil {
				return err
			}
			if op.Endpoint == "" {
				return errors.New("endpoint: missing; it is the endpoint's name as GET /v1/pools shows it")
			}
			there, err := do(members.set, op)
			if err == nil && !there {
				err = statusError{http.StatusNotFound, fmt.Errorf("endpoint: pool %q has no %q", pool, op.Endpoint)}
			}
			return err
		}
	}
	on("/v1/endpoints/remove", named(func(s *discovery.Set, op operation) (bool, error) { return s.Remove(op.Endpoint), nil }))
	on("/v1/endpoints/drain", named(func(s *discovery.Set, op operation) (bool, error) { return s.Drain(op.Endpoint, true), nil }))
	on("/v1/endpoints/undrain", named(func(s *discovery.Set, op operation) (bool, error) { return s.Drain(op.Endpoint, false), nil }))
	on("/v1/endpoints/weight", named(func(s *discovery.Set, op operation) (bool, error) { return s.Weigh(op.Endpoint, op.Weight) }))
	on("/v1/shadow", func(op operation) error { return g.shadow(op, c.Shadow) })
	// Profiles hold stacks and sizes, no text of prompts or answers.
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": http.NotFound, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		mux.Handle("GET "+path, t.guard(h))
	}
	on("/v1/token", func(operation) error { return nil }) // is this the token?
	on("/v1/reload", func(operation) error {
		if c.Reload == nil {
			return statusError{http.StatusNotImplemented, errors.New("this process was not started from a file")}
		}
		if err := c.Reload(); err != nil {
			return statusError{http.StatusUnprocessableEntity, err}
		}
		return nil
	})
}

// members returns the pool that an operation names.
func (g *Gateway) members(op operation) (string, *membership, error) {
	g.applying.Lock()
	defer g.applying.Unlock()
	m := g.service.Load().byName[op.Model]
	if m == nil {
		return "", nil, statusError{http.StatusNotFound, fmt.Errorf("model: there is no %q", shorten(op.Model))}
	}
	name := op.Pool
	if name == "" && len(m.pools) == 1 {
		name = m.pools[0].name
	}
	for _, p := range m.pools {
		if p.name == name {
			return name, m.core.pools[name], nil
		}
	}
	return "", nil, statusError{http.StatusNotFound, fmt.Errorf("pool: model %q has no %q", m.Name, shorten(op.Pool))}
}
