package emulator

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"kvasir/engine"
	"kvasir/engine/tokenizer"
	"kvasir/internal/kvblock"
)

// writeJSON writes a whole reply.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails when the client has left, and then nobody is told
}

// refuse writes the error object of a route's API. What FastAPI refuses has vLLM's common
// shape on every route.
func refuse(w http.ResponseWriter, route tokenizer.Route, err error) {
	if e := engineError(err); route == tokenizer.Messages || route == tokenizer.CountTokens {
		if e.Type != tokenizer.Malformed {
			writeJSON(w, e.Status, fmt.Appendf(nil, `{"type":"error","error":{"type":%s,"message":%s}}`, quote(e.Type), quote(e.Message)))
			return
		}
	}
	writeError(w, err)
}

// writeError writes vLLM's error object; see engineError.
func writeError(w http.ResponseWriter, err error) {
	e := engineError(err)
	param := "null"
	if e.Param != "" {
		param = quote(e.Param)
	}
	writeJSON(w, e.Status, fmt.Appendf(nil, `{"error":{"message":%s,"type":%s,"param":%s,"code":%d}}`,
		quote(e.Message), quote(e.Type), param, e.Status))
}

// engineError returns what a client is told of an error.
func engineError(err error) *tokenizer.Error {
	if e, ok := errors.AsType[*tokenizer.Error](err); ok {
		return e
	}
	status, kind := http.StatusInternalServerError, "InternalServerError"
	if e, ok := errors.AsType[*engine.RequestError](err); ok {
		status, kind = http.StatusBadRequest, "BadRequestError"
		if errors.Is(e, engine.ErrFull) {
			return errOverload
		}
	}
	return &tokenizer.Error{Status: status, Type: kind, Message: err.Error()}
}

// Errors that vLLM gives for reasons of its own.
var (
	errInternal = &tokenizer.Error{Status: http.StatusInternalServerError, Type: "InternalServerError",
		Message: "Internal server error"}
	errDead = &tokenizer.Error{Status: http.StatusInternalServerError, Type: "InternalServerError",
		Message: "EngineCore encountered an issue. See stack trace (above) for the root cause."}
	errOverload = &tokenizer.Error{Status: http.StatusServiceUnavailable, Type: "ServiceUnavailableError",
		Message: "The engine holds as many requests as it may. Please try again later."}
	errLimit = &tokenizer.Error{Status: http.StatusTooManyRequests, Type: "TooManyRequestsError",
		Message: "The emulator takes no more calls for a while."}
	// What a full queue answers is not verified: neither the body's type nor whether there
	// is a Retry-After.
	errQueueFull = &tokenizer.Error{Status: http.StatusServiceUnavailable, Type: "QueueOverflowError",
		Message: "The engine's request queue is full. Please try again later."}
	errMediaType = &tokenizer.Error{Status: http.StatusBadRequest, Type: "Bad Request",
		Message: "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"}
)

// rankOutOfRange is the answer to a data-parallel rank that does not exist.
func rankOutOfRange(rank, ranks int) error {
	return &tokenizer.Error{Status: http.StatusBadRequest, Type: "BadRequestError",
		Message: fmt.Sprintf("data_parallel_rank %d is out of range [0, %d).", rank, ranks)}
}

// quote returns s as JSON, escaped as little as pydantic does.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can always be encoded
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// randomID returns an id as vLLM makes them: 64 random bits in hex.
func randomID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// fingerprint returns the engine's system_fingerprint: its version, its parallelism and a
// hash of what it runs.
func fingerprint(c *Config) string {
	parallel := ""
	if n := c.Engine.Profile.TensorParallel; n > 1 {
		parallel = fmt.Sprintf("-tp%d", n)
	}
	if c.Ranks > 1 {
		parallel += fmt.Sprintf("-dp%d", c.Ranks)
	}
	h := kvblock.Seed(c.Models[0], c.Engine.Profile.Name)
	return fmt.Sprintf("vllm-%s%s-%08x", c.Version, parallel, uint32(h))
}

// reply is what all bodies of one call share.
type reply struct {
	*call
	server  *Server
	id      string // quoted, with its prefix
	model   string // quoted: the engine's own, or the adapter's
	created int64
	details bool // cached_tokens in usage
}

func (s *Server) newReply(c *call, prefix, id string) *reply {
	r := &reply{call: c, server: s, id: quote(prefix + id), model: s.model, created: time.Now().Unix(), details: !s.cfg.HidePromptDetails}
	if c.Adapter != 0 {
		r.model = quote(c.Model)
	}
	return r
}

// head appends the fields that begin every body.
func (r *reply) head(b []byte, object string) []byte {
	return fmt.Appendf(b, `{"id":%s,"object":"%s","created":%d,"model":%s`, r.id, object, r.created, r.model)
}

// finishReason returns an item's, as chat and completions name it. A call that names the
// function to be called gets stop (vllm/entrypoints/openai/chat_completion/serving.py).
func (r *reply) finishReason(item int, p progress) string {
	switch why := r.Items[item].Request.Reason; {
	case p.aborted:
		return engine.Abort.String()
	case why == engine.Stop && r.Tool != "" && !r.ToolNamed:
		return "tool_calls"
	default:
		return why.String()
	}
}

// derived returns an id that belongs to the reply: the same call id gives the same one.
func (r *reply) derived(what string, item int) string {
	return fmt.Sprintf("%016x", uint64(kvblock.Seed(what, r.id, strconv.Itoa(item))))
}

// body appends the body of a call that is no stream.
func (r *reply) body(b []byte, items []progress) []byte {
	switch r.Route {
	case tokenizer.Embeddings:
		return r.embeddings(b)
	case tokenizer.Score:
		return r.scores(b)
	case tokenizer.Rerank:
		return r.ranking(b)
	case tokenizer.Responses:
		return r.response(b, items, r.outputs(items))
	case tokenizer.Messages:
		return r.message(b, items)
	}
	return r.choices(b, items)
}
