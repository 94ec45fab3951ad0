package emulator

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/engine/tokenizer"
)

// Handler returns vLLM's API. Calls that come before Run wait for it; those that come
// after it has ended find a dead engine.
func (s *Server) Handler() http.Handler {
	score, rerank := s.compute(tokenizer.Score), s.compute(tokenizer.Rerank)
	t := routes{
		"/v1/chat/completions":      {http.MethodPost: s.compute(tokenizer.Chat)},
		"/v1/completions":           {http.MethodPost: s.compute(tokenizer.Completions)},
		"/v1/responses":             {http.MethodPost: s.compute(tokenizer.Responses)},
		"/v1/responses/*":           {http.MethodGet: s.noResponse},
		"/v1/responses/*/cancel":    {http.MethodPost: s.noResponse},
		"/v1/messages":              {http.MethodPost: s.compute(tokenizer.Messages)},
		"/v1/messages/count_tokens": {http.MethodPost: s.countTokens},
		"/v1/embeddings":            {http.MethodPost: s.compute(tokenizer.Embeddings)},
		"/v1/score":                 {http.MethodPost: score},
		"/score":                    {http.MethodPost: score},
		"/v1/rerank":                {http.MethodPost: rerank},
		"/v2/rerank":                {http.MethodPost: rerank},
		"/rerank":                   {http.MethodPost: rerank},
		"/tokenize":                 {http.MethodPost: s.tokenize},
		"/detokenize":               {http.MethodPost: s.detokenize},
		"/v1/models":                {http.MethodGet: s.models},
		"/health":                   {http.MethodGet: s.health},
		"/ping":                     {http.MethodGet: s.health, http.MethodPost: s.health},
		"/load":                     {http.MethodGet: s.load},
		"/version":                  {http.MethodGet: s.version},
		"/metrics":                  {http.MethodGet: s.scrape},
	}
	if s.cfg.Control {
		maps.Copy(t, s.controls())
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if until := time.Until(s.life.Load().born); until > 0 && !strings.HasPrefix(r.URL.Path, controlPrefix) {
			reset(w)
			return
		}
		w.Header().Set("Server", "uvicorn")
		if s.cfg.EchoRequestIDs {
			id := r.Header.Get("X-Request-Id")
			if id == "" {
				id = randomUUID()
			}
			w.Header().Set("X-Request-Id", id)
		}
		if s.cfg.APIKey != "" && guarded(r) && !authorized(r, s.cfg.APIKey) {
			writeJSON(w, http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
			return
		}
		t.serve(w, r)
	})
}

const controlPrefix = "/emulator/"

// guarded reports whether a path asks for the API key
// (vllm/entrypoints/serve/middleware/authenticate.py).
func guarded(r *http.Request) bool {
	if r.Method == http.MethodOptions {
		return false
	}
	return slices.ContainsFunc([]string{"/v1", "/v2", "/inference", "/cohere", controlPrefix},
		func(p string) bool { return strings.HasPrefix(r.URL.Path, p) })
}

func authorized(r *http.Request, key string) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "bearer") && token == key
}

// routes is what to do by path and method. In a path, * stands for one part that is not
// empty.
type routes map[string]map[string]http.HandlerFunc

// serve answers as Starlette does, whose error bodies are not those of the OpenAI API. A
// path with one slash too many is redirected; HEAD is no GET.
func (t routes) serve(w http.ResponseWriter, r *http.Request) {
	methods, ok := t.find(r.URL.Path)
	if !ok {
		if bare, slash := strings.CutSuffix(r.URL.Path, "/"); slash {
			if _, ok := t.find(bare); ok {
				redirect(w, r, bare)
				return
			}
		}
		writeJSON(w, http.StatusNotFound, []byte(`{"detail":"Not Found"}`))
		return
	}
	handle, ok := methods[r.Method]
	if !ok {
		// Each method is a route of its own; the first is the one that names itself.
		w.Header().Set("Allow", slices.Min(slices.Collect(maps.Keys(methods))))
		writeJSON(w, http.StatusMethodNotAllowed, []byte(`{"detail":"Method Not Allowed"}`))
		return
	}
	handle(w, r)
}

func (t routes) find(path string) (map[string]http.HandlerFunc, bool) {
	if methods, ok := t[path]; ok {
		return methods, true
	}
	rest, ok := strings.CutPrefix(path, "/v1/responses/")
	id, tail, cancel := strings.Cut(rest, "/")
	switch {
	case !ok || id == "":
		return nil, false
	case !cancel:
		return t["/v1/responses/*"], true
	}
	methods, ok := t["/v1/responses/*/"+tail]
	return methods, ok
}

func redirect(w http.ResponseWriter, r *http.Request, path string) {
	u := *r.URL
	u.Scheme, u.Host, u.Path, u.RawPath = "http", r.Host, path, ""
	w.Header().Set("Location", u.String())
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// health is 200 while the engine lives, be it ever so busy, asleep or hanging.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-s.done:
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"version":`+quote(s.cfg.Version)+`}`))
}

func (s *Server) load(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, fmt.Appendf(nil, `{"server_load":%d}`, s.life.Load().load.Load()))
}

// models lists a card for every name that the engine answers to, and for every adapter.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	created := strconv.FormatInt(time.Now().Unix(), 10)
	b := []byte(`{"object":"list","data":[`)
	card := func(name, root, parent, length string) {
		if b[len(b)-1] == '}' {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"id":%s,"object":"model","created":%s,"owned_by":"vllm","root":%s,"parent":%s,"max_model_len":%s,`+
			`"permission":[{"id":"modelperm-%s","object":"model_permission","created":%s,"allow_create_engine":false,`+
			`"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,`+
			`"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}`,
			name, created, root, parent, length, randomID(), created)
	}
	for _, name := range s.cfg.Models {
		card(quote(name), s.model, "null", strconv.Itoa(s.cfg.Engine.MaxModelLen))
	}
	for _, a := range s.cfg.Adapters {
		card(quote(a.Name), quote(cmp.Or(a.Path, a.Name)), s.model, "null")
	}
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}

// noResponse answers for the responses that are not stored: all.
func (s *Server) noResponse(w http.ResponseWriter, r *http.Request) {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/responses/"), "/")
	writeError(w, tokenizer.NoResponse(id))
}

// randomUUID returns a random id in hex, as Python's uuid4().hex.
func randomUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return hex.EncodeToString(b[:])
}
