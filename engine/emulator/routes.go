package emulator

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// routes is what to do by path and method.
type routes map[string]map[string]http.HandlerFunc

// handler answers as uvicorn and Starlette do, whose error bodies are not those of the
// OpenAI API.
func (t routes) handler(apiKey string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "uvicorn")
		if apiKey != "" && strings.HasPrefix(r.URL.Path, "/v1") && r.Header.Get("Authorization") != "Bearer "+apiKey {
			writeJSON(w, http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
			return
		}
		methods, ok := t[r.URL.Path]
		if !ok {
			writeJSON(w, http.StatusNotFound, []byte(`{"detail":"Not Found"}`))
			return
		}
		handle, ok := methods[r.Method]
		if !ok {
			w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
			writeJSON(w, http.StatusMethodNotAllowed, []byte(`{"detail":"Method Not Allowed"}`))
			return
		}
		handle(w, r)
	})
}

// health is 200 while the engine lives, be it ever so busy.
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

// models lists a card for every name that the engine answers to.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	created := strconv.FormatInt(time.Now().Unix(), 10)
	b := []byte(`{"object":"list","data":[`)
	for i, name := range s.cfg.Models {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"id":%s,"object":"model","created":%s,"owned_by":"vllm","root":%s,"parent":null,"max_model_len":%d,`+
			`"permission":[{"id":"modelperm-%s","object":"model_permission","created":%s,"allow_create_engine":false,`+
			`"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,`+
			`"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}`,
			quote(name), created, s.model, s.cfg.Engine.MaxModelLen, randomID(), created)
	}
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}
