package openaisdk

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"kvasir/internal/testkit/scripted"
)

// failure is what the SDK must show of an error. Empty fields may be anything.
type failure struct {
	status                     int
	typ, code, param, message  string
	retryAfter, shouldNotRetry string
}

func (want failure) check(t *testing.T, err error) {
	t.Helper()
	e := apiError(t, err)
	header := e.Response.Header
	if e.StatusCode != want.status || !strings.Contains(e.Message, want.message) ||
		want.typ != "" && e.Type != want.typ || want.code != "" && e.Code != want.code || want.param != "" && e.Param != want.param {
		t.Errorf("status %d, type %q, code %q, param %q: %s; want %+v", e.StatusCode, e.Type, e.Code, e.Param, e.Message, want)
	}
	if header.Get("x-request-id") == "" {
		t.Error("no x-request-id")
	}
	if got := header.Get("Retry-After"); got != want.retryAfter {
		t.Errorf("Retry-After is %q, want %q", got, want.retryAfter)
	}
	if got := header.Get("x-should-retry"); got != want.shouldNotRetry {
		t.Errorf("x-should-retry is %q, want %q", got, want.shouldNotRetry)
	}
}

func TestErrors_OfTheGateway(t *testing.T) {
	r := withEngines(t)
	c := r.client()
	for _, test := range []struct {
		name string
		do   func() error
		want failure
	}{
		{"unknown model", func() error {
			_, err := c.Chat.Completions.New(t.Context(), question("nobody", "hi", 1))
			return err
		}, failure{status: 404, typ: "not_found_error", code: "model_not_found", param: "model", message: "nobody"}},
		{"unknown model of a response", func() error {
			_, err := c.Responses.New(t.Context(), responses.ResponseNewParams{Model: "nobody", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}})
			return err
		}, failure{status: 404, typ: "not_found_error", code: "model_not_found", param: "model", message: "nobody"}},
		{"wrong type", func() error {
			_, err := c.Chat.Completions.New(t.Context(), question("tiny", "hi", 1), option.WithJSONSet("stream", "yes"))
			return err
		}, failure{status: 400, typ: "invalid_request_error", param: "stream", message: "stream"}},
		{"no model", func() error {
			_, err := c.Chat.Completions.New(t.Context(), question("tiny", "hi", 1), option.WithJSONDel("model"))
			return err
		}, failure{status: 400, typ: "invalid_request_error", param: "model", message: "model"}},
		{"the engine's own refusal", func() error {
			_, err := c.Chat.Completions.New(t.Context(), question("tiny", strings.Repeat("long ", 200_000), 1))
			return err
		}, failure{status: 400, typ: "BadRequestError", param: "input_tokens", message: "maximum context length"}},
		{"the engine's own refusal of a stream", func() error {
			s := c.Chat.Completions.NewStreaming(t.Context(), question("tiny", strings.Repeat("long ", 200_000), 1))
			for s.Next() {
			}
			return s.Err()
		}, failure{status: 400, typ: "BadRequestError", param: "input_tokens", message: "maximum context length"}},
		{"unknown route", func() error {
			return c.Post(t.Context(), "batches", map[string]any{"model": "tiny"}, nil)
		}, failure{status: 404, typ: "not_found_error", code: "unknown_route", message: "/v1/batches"}},
		{"wrong method", func() error {
			return c.Delete(t.Context(), "models/tiny", nil, nil)
		}, failure{status: 405, typ: "invalid_request_error", code: "method_not_allowed", message: "GET"}},
	} {
		t.Run(test.name, func(t *testing.T) { test.want.check(t, test.do()) })
	}
}

func TestErrors_OfEndpoints(t *testing.T) {
	one := func(s scripted.Script) []scripted.Script { return []scripted.Script{s} }
	both := func(s scripted.Script) []scripted.Script { return []scripted.Script{s, s} }
	for _, test := range []struct {
		name    string
		keys    string
		scripts []scripted.Script
		want    failure
	}{
		{"400", "", both(refuses(400)), failure{status: 400, typ: "its_type", code: "400", message: "no room here"}},
		{"413", "", both(refuses(413)), failure{status: 413, typ: "its_type", message: "no room here"}},
		{"429", "", one(refuses(429, "Retry-After: 7")), failure{status: 429, typ: "its_type", message: "no room here", retryAfter: "7"}},
		{"429 without a time", "", one(refuses(429)), failure{status: 429, message: "no room here", retryAfter: "1"}},
		{"503", "", one(refuses(503, "Retry-After: 7")), failure{status: 503, message: "no room here", retryAfter: "7"}},
		{"503 without a time", "", one(refuses(503)), failure{status: 503, message: "no room here", retryAfter: "1"}},
		{"500 everywhere", "", both(refuses(500)), failure{status: 500, message: "no room here", shouldNotRetry: "false"}},
		{"no retries allowed", "retry: {attempts: 0}\n", one(refuses(500)), failure{status: 500, message: "no room here", shouldNotRetry: "false"}},
		{"reset", "", one((*scripted.Call).RST), failure{status: 502, typ: "server_error", code: "upstream_broken", message: "attempts made: 1"}},
		{"a stream where none was asked for", "", one(answers), failure{status: 502, typ: "server_error", code: "bad_upstream_answer", message: "text/event-stream"}},
		{"a redirect", "", one(func(c *scripted.Call) { c.Reply(307, "text/plain", "", "Location: http://elsewhere.example") }),
			failure{status: 502, code: "bad_upstream_answer", message: "307"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := withScript(t, test.keys, test.scripts...)
			c := r.client()
			_, err := c.Chat.Completions.New(t.Context(), question("tiny", "hi", 1))
			test.want.check(t, err)
			r.idle(t)
		})
	}
}

// TestErrors_OfLimits meets each bound while another call holds what there is.
func TestErrors_OfLimits(t *testing.T) {
	holds := func(c *scripted.Call) { c.Hold() }
	for _, test := range []struct {
		name, keys string
		text       string
		held       bool // another call runs
		want       failure
	}{
		{"limits.calls", "limits: {calls: 1}\n", "hi", true, failure{status: 503, typ: "server_error", code: "too_many_calls", message: "limits.calls", retryAfter: "1"}},
		{"limits.buffered", "limits: {body: 768KiB, buffered: 1MiB}\n", strings.Repeat("x", 700<<10), true,
			failure{status: 503, typ: "server_error", code: "buffers_full", message: "limits.buffered", retryAfter: "1"}},
		{"limits.body", "limits: {body: 1MiB}\n", strings.Repeat("x", 4<<20), false, failure{status: 413, typ: "invalid_request_error", code: "body_too_large", message: "limits.body"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := withScript(t, test.keys, holds)
			c := r.client()
			if test.held {
				s := make(chan error, 1)
				go func() {
					_, err := c.Chat.Completions.New(t.Context(), question("tiny", strings.Repeat("y", 600<<10), 1))
					s <- err
				}()
				for r.upstreamCalls() == 0 {
					select {
					case err := <-s:
						t.Fatal(err)
					default:
					}
				}
				t.Cleanup(func() { <-s })
			}
			_, err := c.Chat.Completions.New(t.Context(), question("tiny", test.text, 1))
			test.want.check(t, err)
		})
	}
}

func TestErrors_OfTimeouts(t *testing.T) {
	silent := func(c *scripted.Call) { c.Hold() }
	preamble := func(c *scripted.Call) {
		c.EventStream()
		_ = c.Chunk(script[c.Record().Target][0])
		c.Hold()
	}
	for _, test := range []struct {
		name, keys string
		script     scripted.Script
		want       failure
	}{
		{"header", "timeouts: {header: 200ms}\n", silent, failure{status: 504, typ: "timeout_error", code: "upstream_header_timeout", message: "timeouts.header: 200ms"}},
		{"first token", "timeouts: {first_token: 200ms}\n", preamble, failure{status: 504, typ: "timeout_error", code: "upstream_first_token_timeout", message: "timeouts.first_token: 200ms"}},
		{"total", "timeouts: {total: 200ms}\n", silent, failure{status: 504, typ: "timeout_error", code: "upstream_overdue", message: "timeouts.total: 200ms"}},
	} {
		for _, s := range streams {
			if s.route == "/v1/completions" && test.name == "first token" {
				continue // its preamble is a comment alone
			}
			t.Run(test.name+s.route, func(t *testing.T) {
				t.Parallel()
				r := withScript(t, test.keys, test.script)
				text, err := s.read(t, r.client(), "tiny")
				test.want.check(t, err)
				if text != "" {
					t.Errorf("text is %q", text)
				}
			})
		}
	}
}

// newKey has kvasir make a key, and returns it with the configuration that lets it in.
func newKey(t *testing.T) (key, clients string) {
	t.Helper()
	out, err := exec.Command("go", "run", "-C", "../..", "./cmd/kvasir", "key", "-name", "team-a").Output()
	if err != nil {
		t.Fatalf("kvasir key: %v", err)
	}
	key, line, ok := strings.Cut(string(out), "\n")
	if !ok {
		t.Fatalf("kvasir key printed %q", out)
	}
	return key, "clients:\n  keys:\n    " + line
}

func TestClientKeys(t *testing.T) {
	right, clients := newKey(t)
	r := withScript(t, clients, answers)
	for key, status := range map[string]int{right: 0, right + "x": 401, "": 401} {
		options := []option.RequestOption{option.WithAPIKey(key)}
		if key == "" {
			options = append(options, option.WithHeaderDel("Authorization"))
		}
		c := r.client(options...)
		for _, s := range streams {
			text, err := s.read(t, c, "tiny")
			if status == 0 {
				if err != nil || text != wholeText {
					t.Errorf("%s: got %q, %v", s.route, text, err)
				}
				continue
			}
			failure{status: status, typ: "authentication_error", code: "invalid_api_key", message: "Authorization: Bearer KEY"}.check(t, err)
			if got := apiError(t, err).Response.Header.Get("WWW-Authenticate"); got != "Bearer" {
				t.Errorf("WWW-Authenticate is %q", got)
			}
		}
		if _, err := c.Models.List(t.Context()); (err == nil) != (status == 0) {
			t.Errorf("models with a key that should get status %d: %v", status, err)
		}
	}
	for _, s := range r.servers {
		for _, call := range s.Calls() {
			if got, came := call.Get("Authorization"); came {
				t.Errorf("the endpoint was shown %q", got)
			}
		}
	}
	r.idle(t)
	if n := r.Metric(t, "kvasir_calls_total", `outcome="success"`); n != float64(len(streams)) {
		t.Errorf("%v calls succeeded", n)
	}
}

// TestEndpointThatDeniesItsKey: the client's own key is right, so the client is not told
// that it is wrong.
func TestEndpointThatDeniesItsKey(t *testing.T) {
	r := withScript(t, "", refuses(401))
	_, err := r.client().Chat.Completions.New(t.Context(), question("tiny", "hi", 1))
	if e := apiError(t, err); e.StatusCode == http.StatusUnauthorized {
		t.Errorf("the client got the endpoint's 401: %s", e.Message)
	}
}
