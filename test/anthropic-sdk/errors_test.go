package anthropicsdk

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"kvasir/internal/testkit/scripted"
)

func TestErrors_OfTheGateway(t *testing.T) {
	r := withEngines(t)
	c := r.client()
	for _, test := range []struct {
		name string
		do   func() error
		want failure
	}{
		{"unknown model", func() error {
			_, err := c.Messages.New(t.Context(), question("nobody", "hi", 1))
			return err
		}, failure{status: 404, kind: anthropic.ErrorTypeNotFoundError, message: "nobody"}},
		{"unknown model of a stream", func() error {
			_, _, err := read(t, c, question("nobody", "hi", 1))
			return err
		}, failure{status: 404, kind: anthropic.ErrorTypeNotFoundError, message: "nobody"}},
		{"unknown model of a count", func() error {
			_, err := c.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: "nobody", Messages: question("", "hi", 1).Messages})
			return err
		}, failure{status: 404, kind: anthropic.ErrorTypeNotFoundError, message: "nobody"}},
		{"wrong type", func() error {
			_, err := c.Messages.New(t.Context(), question("tiny", "hi", 1), option.WithJSONSet("stream", "yes"))
			return err
		}, failure{status: 400, kind: anthropic.ErrorTypeInvalidRequestError, message: "stream"}},
		{"the engine's own refusal", func() error {
			_, err := c.Messages.New(t.Context(), question("tiny", strings.Repeat("long ", 200_000), 1))
			return err
		}, failure{status: 400, kind: "BadRequestError", message: "maximum context length"}},
		{"unknown route", func() error {
			_, err := c.Messages.Batches.Get(t.Context(), "b1", anthropic.MessageBatchGetParams{})
			return err
		}, failure{status: 404, kind: anthropic.ErrorTypeNotFoundError, message: "/v1/messages/batches/b1"}},
		{"unknown route elsewhere", func() error {
			return c.Post(t.Context(), "v1/complete", map[string]any{"model": "tiny"}, nil)
		}, failure{status: 404, kind: anthropic.ErrorTypeNotFoundError, message: "/v1/complete"}},
		{"wrong method", func() error {
			return c.Get(t.Context(), "v1/messages", nil, nil)
		}, failure{status: 405, kind: anthropic.ErrorTypeInvalidRequestError, message: "POST"}},
	} {
		t.Run(test.name, func(t *testing.T) { test.want.check(t, test.do()) })
	}
}

// TestErrors_NameTheRequest: the SDK shows an id that the gateway's log has, too.
func TestErrors_NameTheRequest(t *testing.T) {
	r := withScript(t, "", refuses(400, "invalid_request_error"))
	c := r.client()
	for _, model := range []string{"nobody", "tiny"} {
		_, err := c.Messages.New(t.Context(), question(model, "hi", 1))
		e := apiError(t, err)
		if id := e.Response.Header.Get("x-request-id"); id == "" || e.RequestID != id {
			t.Errorf("%s: the SDK shows request id %q; x-request-id is %q", model, e.RequestID, id)
		}
	}
}

func TestErrors_OfEndpoints(t *testing.T) {
	one := func(s scripted.Script) []scripted.Script { return []scripted.Script{s} }
	both := func(s scripted.Script) []scripted.Script { return []scripted.Script{s, s} }
	for _, test := range []struct {
		name    string
		scripts []scripted.Script
		want    failure
	}{
		{"400", both(refuses(400, "invalid_request_error")), failure{status: 400, kind: anthropic.ErrorTypeInvalidRequestError, message: "no room here"}},
		{"413", both(refuses(413, "request_too_large")), failure{status: 413, kind: "request_too_large", message: "no room here"}},
		{"429", one(refuses(429, "rate_limit_error", "Retry-After: 7", "anthropic-ratelimit-requests-remaining: 0")),
			failure{status: 429, kind: anthropic.ErrorTypeRateLimitError, message: "no room here", retryAfter: "7"}},
		{"529", one(refuses(529, "overloaded_error")), failure{status: 529, kind: anthropic.ErrorTypeOverloadedError, message: "no room here", retryAfter: "1"}},
		{"503", one(refuses(503, "overloaded_error", "Retry-After: 7")), failure{status: 503, kind: anthropic.ErrorTypeOverloadedError, message: "no room here", retryAfter: "7"}},
		{"500 everywhere", both(refuses(500, "api_error")), failure{status: 500, kind: anthropic.ErrorTypeAPIError, message: "no room here", shouldRetry: "false"}},
		{"reset", one((*scripted.Call).RST), failure{status: 502, kind: anthropic.ErrorTypeAPIError, message: "attempts made: 1"}},
		{"a stream where none was asked for", one(answers), failure{status: 502, kind: anthropic.ErrorTypeAPIError, message: "text/event-stream"}},
		{"an engine without the route", both(func(c *scripted.Call) { c.Reply(404, "application/json", `{"detail":"Not Found"}`) }), failure{status: 404, message: "Not Found", shouldRetry: "false"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := withScript(t, "", test.scripts...)
			_, err := r.client().Messages.New(t.Context(), question("tiny", "hi", 1))
			test.want.check(t, err)
			r.idle(t)
		})
	}
}

// TestErrors_OfLimits: what the gateway itself has no room for is Anthropic's "overloaded".
func TestErrors_OfLimits(t *testing.T) {
	t.Run("limits.calls", func(t *testing.T) {
		r := withScript(t, "limits: {calls: 1}\n", (*scripted.Call).Hold)
		c := r.client()
		held := make(chan error, 1)
		go func() {
			_, err := c.Messages.New(t.Context(), question("tiny", "hi", 1))
			held <- err
		}()
		t.Cleanup(func() { <-held })
		for r.upstreamCalls() == 0 {
			select {
			case err := <-held:
				t.Fatal(err)
			default:
			}
		}
		_, err := c.Messages.New(t.Context(), question("tiny", "hi", 1))
		failure{status: 503, kind: anthropic.ErrorTypeOverloadedError, message: "limits.calls", retryAfter: "1"}.check(t, err)
	})
	t.Run("limits.body", func(t *testing.T) {
		r := withScript(t, "limits: {body: 1MiB}\n", answers)
		_, err := r.client().Messages.New(t.Context(), question("tiny", strings.Repeat("x", 4<<20), 1))
		failure{status: 413, kind: "request_too_large", message: "limits.body"}.check(t, err)
	})
	t.Run("timeouts.header", func(t *testing.T) {
		r := withScript(t, "timeouts: {header: 200ms}\n", (*scripted.Call).Hold)
		_, err := ask(t, r.client())
		failure{status: 504, kind: anthropic.ErrorTypeTimeoutError, message: "timeouts.header: 200ms"}.check(t, err)
	})
}

func TestClientKeys(t *testing.T) {
	r := withScript(t, fmt.Sprintf("clients:\n  keys: [{name: team-a, sha256: \"%x\"}]\n", sha256.Sum256([]byte("kv_right"))), answers)
	none := option.WithHeaderDel("x-api-key")
	for _, test := range []struct {
		name  string
		shown []option.RequestOption
		let   bool
	}{
		{"x-api-key", []option.RequestOption{option.WithAPIKey("kv_right")}, true},
		{"a bearer token", []option.RequestOption{none, option.WithAuthToken("kv_right")}, true},
		{"a wrong x-api-key", []option.RequestOption{option.WithAPIKey("kv_wrong")}, false},
		{"a wrong bearer token", []option.RequestOption{none, option.WithAuthToken("kv_wrong")}, false},
		{"none", []option.RequestOption{none, option.WithAuthToken("")}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, err := ask(t, r.client(test.shown...))
			if test.let {
				if err != nil || text != wholeText {
					t.Errorf("got %q, %v", text, err)
				}
				return
			}
			failure{status: 401, kind: anthropic.ErrorTypeAuthenticationError, message: "x-api-key"}.check(t, err)
		})
	}
	for _, call := range r.servers[0].Calls() {
		for _, name := range []string{"x-api-key", "authorization"} {
			if got, came := call.Get(name); came {
				t.Errorf("the endpoint was shown %s %q", name, got)
			}
		}
	}
	r.idle(t)
	if n := r.Metric(t, "kvasir_refusals_total", `reason="unauthorized"`); n != 3 {
		t.Errorf("%v calls were refused as unauthorized, want 3", n)
	}
}

// TestRetries_DoNotMultiply: the SDK makes up to 3 attempts of a call, the gateway up to 3
// of each; 9 upstream calls for one is what must not be (field case F22).
func TestRetries_DoNotMultiply(t *testing.T) {
	const most = 3
	for _, status := range []int{429, 500, 529} {
		for endpoints := 1; endpoints <= 3; endpoints++ {
			t.Run(fmt.Sprintf("%d of %d", status, endpoints), func(t *testing.T) {
				t.Parallel()
				scripts := make([]scripted.Script, endpoints)
				for i := range scripts {
					scripts[i] = refuses(status, "api_error")
				}
				r := withScript(t, "", scripts...)
				c := r.client(option.WithMaxRetries(2)) // the SDK's default
				if _, err := c.Messages.New(t.Context(), question("tiny", "hi", 1)); err == nil {
					t.Error("no error")
				}
				if n := r.upstreamCalls(); n > most {
					t.Errorf("one call became %d upstream calls, want at most %d", n, most)
				}
			})
		}
	}
}
