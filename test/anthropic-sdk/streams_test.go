package anthropicsdk

import (
	"fmt"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"

	"kvasir/internal/testkit/scripted"
)

const beats = "client: {heartbeat: 100ms}\n"

// pause is several heartbeats long.
const pause = 300 * time.Millisecond

// begun sends a stream up to its first content, and goes on as next says.
func begun(next func(c *scripted.Call)) scripted.Script {
	return func(c *scripted.Call) {
		c.EventStream()
		_ = c.Chunk(script[0])
		_ = c.Chunk(script[1])
		if c.Pause(pause) { // what comes together with the end may still be had elsewhere
			next(c)
		}
	}
}

// inStream checks an error that came with a status of 200.
func inStream(t *testing.T, err error, kind anthropic.ErrorType, message string) {
	t.Helper()
	failure{status: 200, kind: kind, message: message}.check(t, err)
}

// TestStream_BrokenOffIsAnError: whoever reads the text alone must see that it is short.
func TestStream_BrokenOffIsAnError(t *testing.T) {
	for _, test := range []struct {
		name, keys string
		next       func(c *scripted.Call)
		kind       anthropic.ErrorType
		message    string
	}{
		{"FIN", "", (*scripted.Call).FIN, anthropic.ErrorTypeAPIError, "broke off"},
		{"RST", "", (*scripted.Call).RST, anthropic.ErrorTypeAPIError, "broke off"},
		{"an end without the rest", "", (*scripted.Call).LastChunk, anthropic.ErrorTypeAPIError, "broke off"},
		{"silence", "timeouts: {idle: 1s}\n", (*scripted.Call).Hold, anthropic.ErrorTypeTimeoutError, "timeouts.idle"},
		{"pings alone", "timeouts: {progress: 1s}\n", func(c *scripted.Call) {
			for c.Pause(50*time.Millisecond) && c.Chunk(named("ping", "")) == nil {
			}
		}, anthropic.ErrorTypeTimeoutError, "timeouts.progress"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := withScript(t, test.keys, begun(test.next), begun(test.next))
			text, err := ask(t, r.client())
			if text != "mead, " {
				t.Errorf("text is %q", text)
			}
			inStream(t, err, test.kind, test.message)
			if n := r.upstreamCalls(); n != 1 {
				t.Errorf("%d attempts after content was sent", n)
			}
			r.idle(t)
		})
	}
}

// TestStream_EndpointsOwnError passes on after content, and is had elsewhere before it.
func TestStream_EndpointsOwnError(t *testing.T) {
	overloaded := func(c *scripted.Call) {
		_ = c.Chunk("event: error\ndata: " + envelope("overloaded_error") + "\n\n")
		c.LastChunk()
	}
	early := func(c *scripted.Call) {
		c.EventStream()
		_ = c.Chunk(script[0])
		overloaded(c)
	}
	t.Run("after content", func(t *testing.T) {
		r := withScript(t, "", begun(overloaded))
		text, err := ask(t, r.client())
		if text != "mead, " {
			t.Errorf("text is %q", text)
		}
		inStream(t, err, anthropic.ErrorTypeOverloadedError, "no room here")
		r.idle(t)
	})
	t.Run("before content", func(t *testing.T) {
		r := withScript(t, "", early)
		text, err := ask(t, r.client())
		if e := apiError(t, err); text != "" || e.Type() != anthropic.ErrorTypeOverloadedError {
			t.Errorf("got %q, type %q: %s", text, e.Type(), e.RawJSON())
		}
		r.idle(t)
	})
	t.Run("before content, with another endpoint", func(t *testing.T) {
		r := withScript(t, "", early, answers)
		for range 4 {
			text, m, err := read(t, r.client(), question("tiny", "Who?", 20))
			if err != nil || text != wholeText || len(m.Content) != 1 {
				t.Errorf("got %q in %d blocks, %v", text, len(m.Content), err)
			}
		}
		if len(r.servers[0].Calls()) == 0 {
			t.Error("the endpoint that fails was never asked")
		}
	})
}

// TestHeartbeats_AreNotSeen: an endpoint that is slow, with events that have ids.
func TestHeartbeats_AreNotSeen(t *testing.T) {
	r := withScript(t, beats, func(c *scripted.Call) {
		if !c.Pause(pause) {
			return
		}
		c.EventStream()
		for i, e := range script {
			_ = c.Chunk(fmt.Sprintf("id: %d\n%s", i, e))
			c.Pause(pause)
		}
		c.LastChunk()
	})
	text, m, err := read(t, r.client(), question("tiny", "Who?", 20))
	if err != nil || text != wholeText || m.Usage.OutputTokens != 4 || m.StopReason != "end_turn" {
		t.Errorf("got %q, %+v, %v", text, m, err)
	}
	if n := r.Metric(t, "kvasir_heartbeats_total"); n < 4 {
		t.Errorf("%v heartbeats", n)
	}
}

// TestHeartbeats_ErrorAfterTheStreamIsOpen: with a status of 200 sent, what goes wrong must
// come as an error in the stream.
func TestHeartbeats_ErrorAfterTheStreamIsOpen(t *testing.T) {
	late := func(next scripted.Script) scripted.Script {
		return func(c *scripted.Call) {
			if c.Pause(pause) {
				next(c)
			}
		}
	}
	for _, test := range []struct {
		name, keys string
		script     scripted.Script
		kind       anthropic.ErrorType
		message    string
	}{
		{"400", "", late(refuses(400, "invalid_request_error")), anthropic.ErrorTypeInvalidRequestError, "no room here"},
		{"429", "", late(refuses(429, "rate_limit_error")), anthropic.ErrorTypeRateLimitError, "no room here"},
		{"529", "", late(refuses(529, "overloaded_error")), anthropic.ErrorTypeOverloadedError, "no room here"},
		{"503 without a type", "", late(func(c *scripted.Call) { c.Reply(503, "application/json", `{"detail":"full"}`) }), anthropic.ErrorTypeOverloadedError, "full"},
		{"no JSON", "", late(func(c *scripted.Call) { c.Reply(500, "text/html", "<h1>Oops</h1>") }), anthropic.ErrorTypeAPIError, "status 500"},
		{"RST", "", late((*scripted.Call).RST), anthropic.ErrorTypeAPIError, "attempts made: 1"},
		{"header timeout", "timeouts: {header: 500ms}\n", (*scripted.Call).Hold, anthropic.ErrorTypeTimeoutError, "timeouts.header"},
		{"overloaded in the stream", "", late(func(c *scripted.Call) {
			c.Stream("event: error\ndata: " + envelope("overloaded_error") + "\n\n")
		}), anthropic.ErrorTypeOverloadedError, "no room here"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := withScript(t, beats+test.keys, test.script)
			text, err := ask(t, r.client())
			if text != "" {
				t.Errorf("text is %q", text)
			}
			inStream(t, err, test.kind, test.message)
			if r.Metric(t, "kvasir_heartbeats_total") == 0 {
				t.Error("no heartbeat")
			}
			r.idle(t)
		})
	}
}
