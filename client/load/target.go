package load

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"kvasir/api"
	"kvasir/client/workload"
)

// Backend is a language of calls, by the name that vLLM's benchmark gives it.
type Backend struct {
	Name     string
	Endpoint string // the path that speaks it
	Grammar  api.Grammar
	bound    string // the field that bounds the answer's tokens
}

// Backends returns the languages that calls can be sent in.
func Backends() []Backend {
	return []Backend{
		{"openai", "/v1/completions", api.Completions, "max_tokens"},
		{"vllm", "/v1/completions", api.Completions, "max_tokens"},
		{"openai-chat", "/v1/chat/completions", api.Chat, "max_completion_tokens"},
		{"openai-responses", "/v1/responses", api.Responses, "max_output_tokens"},
		{"anthropic", "/v1/messages", api.Messages, "max_tokens"},
	}
}

// Target is what calls are sent to, and how. Its methods are safe for concurrent use once
// Prepare has returned.
type Target struct {
	BaseURL  string // scheme and host, and a path where the API is below one; /v1 at its end may be there or not
	Endpoint string // path; empty: the backend's
	Backend  Backend
	Model    string
	Header   http.Header // added to each call, and in place of what a call has anyway; Host is the host's name
	// Extra has further members of each call's body, and such in place of what a body has
	// anyway; null leaves that out.
	Extra     map[string]json.RawMessage
	IgnoreEOS bool // the answer goes on to its bound (engines know it, providers do not)

	url  string
	head []byte // of each body, from behind the model's name up to where what differs begins
}

// Prepare checks the target and makes it ready. It reports every mistake.
func (t *Target) Prepare() error {
	err := t.check()
	if t.Model == "" {
		err = errors.Join(err, errors.New("no model is named"))
	}
	if err != nil {
		return err
	}
	t.url = t.join(t.endpoint())
	t.head = t.members()
	return nil
}

// check reports every mistake but a missing model.
func (t *Target) check() error {
	var errs []error
	u, err := url.Parse(t.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, fmt.Errorf("base URL is %q; allowed: http:// or https://, a host and perhaps a path", t.BaseURL))
	}
	if !strings.HasPrefix(t.endpoint(), "/") {
		errs = append(errs, fmt.Errorf("endpoint is %q; allowed: a path that begins with /", t.Endpoint))
	}
	for key := range t.Extra {
		if key == "stream" || key == t.promptField() || key == "model" {
			errs = append(errs, fmt.Errorf("extra body has %q, which the load itself decides", key))
		}
	}
	return errors.Join(errs...)
}

func (t *Target) endpoint() string { return cmp.Or(t.Endpoint, t.Backend.Endpoint) }

// join returns the URL of a path. A base URL is given with /v1 at its end (as OpenAI's
// clients take it) or without (as vLLM's benchmark does): both mean the same.
func (t *Target) join(path string) string {
	base := strings.TrimRight(t.BaseURL, "/")
	if u, err := url.Parse(base); err == nil && strings.HasSuffix(u.Path, "/v1") && strings.HasPrefix(path+"/", "/v1/") {
		base = strings.TrimSuffix(base, "/v1")
	}
	return base + path
}

// address adds the target's header to a request.
func (t *Target) address(req *http.Request) {
	maps.Copy(req.Header, t.Header)
	if host := t.Header.Get("Host"); host != "" {
		req.Host = host // net/http takes it from here alone
	}
}

// promptField is the member of a body that holds the prompt.
func (t *Target) promptField() string {
	switch t.Backend.Grammar {
	case api.Completions:
		return "prompt"
	case api.Responses:
		return "input"
	}
	return "messages"
}

// members returns what is the same in all bodies, behind the model's name.
func (t *Target) members() []byte {
	b := []byte(`,"stream":true`)
	add := func(key, value string) {
		if _, given := t.Extra[key]; !given {
			b = append(append(append(api.AppendString(append(b, ','), key), ':'), value...), ""...)
		}
	}
	if g := t.Backend.Grammar; g == api.Chat || g == api.Completions {
		add("stream_options", `{"include_usage":true}`)
	}
	add("temperature", "0") // as vLLM's benchmark has it: greedy
	if t.IgnoreEOS {
		add("ignore_eos", "true")
	}
	keys := make([]string, 0, len(t.Extra))
	for key := range t.Extra {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if value := t.Extra[key]; string(value) != "null" {
			b = append(append(api.AppendString(append(b, ','), key), ':'), value...)
		}
	}
	return b
}

// body returns the body of a call: the model's name, or that of the adapter if there is one,
// the messages, and the greatest number of tokens that the answer may have, at least 1.
func (t *Target) body(adapter string, messages []workload.Message, most int) []byte {
	model := cmp.Or(adapter, t.Model)
	size := len(model) + len(t.head) + 128
	for _, m := range messages {
		size += len(m.Content) + 64
	}
	b := api.AppendString(append(make([]byte, 0, size), `{"model":`...), model)
	b = append(b, t.head...)
	if _, given := t.Extra[t.Backend.bound]; !given {
		b = append(append(append(b, `,"`...), t.Backend.bound...), `":`...)
		b = strconv.AppendInt(b, int64(max(most, 1)), 10)
	}
	switch t.Backend.Grammar {
	case api.Completions:
		b = append(b, `,"prompt":`...)
		b = appendJoined(b, messages)
	case api.Messages:
		// A system prompt stands beside the messages, of which there must be one.
		if len(messages) > 1 && messages[0].Role == "system" {
			b = api.AppendString(append(b, `,"system":`...), messages[0].Content)
			messages = messages[1:]
		}
		b = appendMessages(append(b, `,"messages":`...), messages)
	case api.Responses:
		b = appendMessages(append(b, `,"input":`...), messages)
	default:
		b = appendMessages(append(b, `,"messages":`...), messages)
	}
	return append(b, '}')
}

func appendMessages(b []byte, messages []workload.Message) []byte {
	b = append(b, '[')
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = api.AppendString(append(b, `{"role":`...), m.Role)
		b = api.AppendString(append(b, `,"content":`...), m.Content)
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendJoined writes the messages' contents as one text, a blank line between them.
func appendJoined(b []byte, messages []workload.Message) []byte {
	begin := len(b)
	for i, m := range messages {
		if i > 0 {
			b = append(b[:len(b)-1], `\n\n`...) // in place of the closing quote
		}
		piece := len(b)
		b = api.AppendString(b, m.Content)
		if i > 0 {
			b = append(b[:piece], b[piece+1:]...) // without the opening quote
		}
	}
	if len(b) == begin {
		b = append(b, `""`...)
	}
	return b
}
