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
	errMediaType = &tokenizer.Error{Status: http.StatusBadRequest, Type: "Bad Request",
		Message: "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"}
)

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
	tp := ""
	if n := c.Engine.Profile.TensorParallel; n > 1 {
		tp = fmt.Sprintf("-tp%d", n)
	}
	h := kvblock.Seed(c.Models[0], c.Engine.Profile.Name)
	return fmt.Sprintf("vllm-%s%s-%08x", c.Version, tp, uint32(h))
}

// reply is what all bodies of one call share.
type reply struct {
	*call
	server  *Server
	id      string // quoted, with its prefix
	created int64
	details bool // cached_tokens in usage
}

func (s *Server) newReply(c *call, prefix, id string) *reply {
	return &reply{call: c, server: s, id: quote(prefix + id), created: time.Now().Unix(), details: !s.cfg.HidePromptDetails}
}

// head appends the fields that begin every body.
func (r *reply) head(b []byte, object string) []byte {
	return fmt.Appendf(b, `{"id":%s,"object":"%s","created":%d,"model":%s`, r.id, object, r.created, r.server.model)
}

// finishReason returns an item's, quoted.
func (r *reply) finishReason(item int) string {
	return `"` + r.Items[item].Request.Reason.String() + `"`
}

// full appends the body of a call that is no stream.
func (r *reply) full(b []byte, u usage) []byte {
	object := "chat.completion"
	if r.Route == tokenizer.Completions {
		object = "text_completion"
	}
	b = append(r.head(b, object), `,"choices":[`...)
	for i, item := range r.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"index":%d,`, i)
		if r.Route == tokenizer.Chat {
			b = append(b, `"message":{"role":"assistant","content":"`...)
			b = item.Answer.AppendText(b, 0, item.Answer.Tokens)
			b = fmt.Appendf(b, `","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},`+
				`"logprobs":null,"finish_reason":%s,"stop_reason":null,"token_ids":null,"routed_experts":null}`, r.finishReason(i))
		} else {
			b = append(b, `"text":"`...)
			b = item.Answer.AppendText(b, 0, item.Answer.Tokens)
			b = fmt.Appendf(b, `","logprobs":null,"finish_reason":%s,"stop_reason":null,"token_ids":null,`+
				`"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}`, r.finishReason(i))
		}
	}
	b = fmt.Appendf(b, `],"service_tier":null,"system_fingerprint":%s,`, r.server.fingerprint)
	b = r.fullUsage(b, u)
	if r.Route == tokenizer.Chat {
		b = append(b, `,"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null`...)
	}
	b = append(b, `,"kv_transfer_params":null`...)
	if r.Route == tokenizer.Chat {
		b = append(b, `,"ec_transfer_params":null,"metrics":null`...)
	}
	return append(b, '}')
}

// fullUsage appends the usage of a body that is no stream, where nulls are shown.
func (r *reply) fullUsage(b []byte, u usage) []byte {
	b = fmt.Appendf(b, `"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":`,
		u.prompt, u.prompt+u.completion, u.completion)
	if r.details {
		b = fmt.Appendf(b, `{"cached_tokens":%d,"created_cache_tokens":null,"multimodal_tokens":null}`, u.cached)
	} else {
		b = append(b, "null"...)
	}
	return append(b, `,"completion_tokens_details":null}`...)
}
