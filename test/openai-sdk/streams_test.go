package openaisdk

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"kvasir/internal/testkit/scripted"
)

// begun sends a stream up to its first content, and goes on as next says.
func begun(next func(c *scripted.Call)) scripted.Script {
	return func(c *scripted.Call) {
		s := script[c.Record().Target]
		c.EventStream()
		_ = c.Chunk(s[0])
		_ = c.Chunk(s[1])
		if c.Pause(pause) { // what comes together with the end may still be had elsewhere
			next(c)
		}
	}
}

// TestStream_BrokenOffIsAnError: whoever reads the text alone must see that it is short.
func TestStream_BrokenOffIsAnError(t *testing.T) {
	for _, test := range []struct {
		name, keys string
		next       func(c *scripted.Call)
		typ, code  string
	}{
		{"FIN", "", (*scripted.Call).FIN, "server_error", "upstream_broke_off"},
		{"RST", "", (*scripted.Call).RST, "server_error", "upstream_broke_off"},
		{"an end without the rest", "", (*scripted.Call).LastChunk, "server_error", "upstream_broke_off"},
		{"silence", "timeouts: {idle: 1s}\n", (*scripted.Call).Hold, "timeout_error", "upstream_stalled"},
		{"pings alone", "timeouts: {progress: 1s}\n", func(c *scripted.Call) {
			for c.Pause(50*time.Millisecond) && c.Chunk(": ping\n\n") == nil {
			}
		}, "timeout_error", "upstream_stalled"},
		{"too long", "timeouts: {total: 1s}\n", (*scripted.Call).Hold, "timeout_error", "upstream_overdue"},
	} {
		for _, s := range streams {
			t.Run(test.name+s.route, func(t *testing.T) {
				t.Parallel()
				r := withScript(t, test.keys, begun(test.next), begun(test.next))
				text, err := s.read(t, r.client(), "tiny")
				if text != "mead, " {
					t.Errorf("text is %q", text)
				}
				if e := streamError(t, err); e.Code != test.code || e.Type != test.typ || e.Message == "" {
					t.Errorf("got %+v", e)
				}
				if n := r.upstreamCalls(); n != 1 {
					t.Errorf("%d attempts after content was sent", n)
				}
				r.idle(t)
			})
		}
	}
}

// errorEvents are the errors that endpoints send in their streams.
var errorEvents = map[string]string{
	"/v1/chat/completions": "data: {\"error\":{\"message\":\"out of memory\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\ndata: [DONE]\n\n",
	"/v1/completions":      "data: {\"error\":{\"message\":\"out of memory\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\ndata: [DONE]\n\n",
	"/v1/responses":        "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"code\":\"500\",\"param\":null},\"sequence_number\":4}\n\n",
}

func sendError(c *scripted.Call) {
	_ = c.Chunk(errorEvents[c.Record().Target])
	c.LastChunk()
}

// TestStream_EndpointsOwnError passes on after content, and is had elsewhere before it.
func TestStream_EndpointsOwnError(t *testing.T) {
	early := func(c *scripted.Call) {
		c.EventStream()
		_ = c.Chunk(script[c.Record().Target][0])
		sendError(c)
	}
	for _, s := range streams {
		t.Run("after content"+s.route, func(t *testing.T) {
			t.Parallel()
			r := withScript(t, "", begun(sendError))
			text, err := s.read(t, r.client(), "tiny")
			if e := streamError(t, err); text != "mead, " || e.Message != "out of memory" {
				t.Errorf("got %q, %+v", text, e)
			}
			r.idle(t)
		})
		t.Run("before content"+s.route, func(t *testing.T) {
			t.Parallel()
			r := withScript(t, "", early)
			text, err := s.read(t, r.client(), "tiny")
			if e := streamError(t, err); text != "" || e.Message != "out of memory" {
				t.Errorf("got %q, %+v", text, e)
			}
			r.idle(t)
		})
		t.Run("before content, with another endpoint"+s.route, func(t *testing.T) {
			t.Parallel()
			r := withScript(t, "", early, answers)
			for range 6 { // whichever is asked first
				if text, err := s.read(t, r.client(), "tiny"); text != wholeText || err != nil {
					t.Errorf("got %q, %v", text, err)
				}
			}
			if len(r.servers[0].Calls()) == 0 {
				t.Error("the endpoint that fails was never asked")
			}
		})
	}
}

// TestResponses_FailedEventPasses: an endpoint that tells its failure as the reference
// documents it is passed on as it came.
func TestResponses_FailedEventPasses(t *testing.T) {
	for _, event := range []string{
		named("response.failed", `"sequence_number":4,"response":`+strings.Replace(response("failed", ""), `"model"`, `"error":{"code":"server_error","message":"out of memory"},"model"`, 1)),
		named("error", `"code":"500","message":"out of memory","param":null,"sequence_number":4`),
	} {
		r := withScript(t, "", begun(func(c *scripted.Call) {
			_ = c.Chunk(event)
			c.LastChunk()
		}))
		c := r.client()
		s := c.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{
			Model: "tiny", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Who?")},
		})
		var last responses.ResponseStreamEventUnion
		n := 0
		for ; s.Next(); n++ {
			last = s.Current()
		}
		message := last.Message
		if last.Type == "response.failed" {
			message = last.Response.Error.Message
		}
		if s.Err() != nil || !strings.HasPrefix(event, "event: "+last.Type+"\n") || message != "out of memory" {
			t.Errorf("last of %d events is %q (%s), error %v", n, last.Type, message, s.Err())
		}
		r.idle(t)
	}
}

const beats = "client: {heartbeat: 100ms}\n"

// pause is several heartbeats long.
const pause = 300 * time.Millisecond

// TestHeartbeats_AreNotSeen: an endpoint that is slow, with events that have ids.
func TestHeartbeats_AreNotSeen(t *testing.T) {
	slow := func(c *scripted.Call) {
		if !c.Pause(pause) {
			return
		}
		c.EventStream()
		for i, e := range script[c.Record().Target] {
			_ = c.Chunk(fmt.Sprintf("id: %d\n%s", i, e))
			c.Pause(pause)
		}
		c.LastChunk()
	}
	for _, s := range streams {
		t.Run(s.route, func(t *testing.T) {
			t.Parallel()
			r := withScript(t, beats, slow)
			if text, err := s.read(t, r.client(), "tiny"); text != wholeText || err != nil {
				t.Errorf("got %q, %v", text, err)
			}
			if n := r.Metric(t, "kvasir_heartbeats_total"); n < 4 {
				t.Errorf("%v heartbeats", n)
			}
		})
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
		name   string
		keys   string
		script scripted.Script
		want   said
	}{
		{"400", "", late(refuses(400)), said{Message: "no room here", Type: "its_type", Code: "400"}},
		{"503", "", late(refuses(503)), said{Message: "no room here", Type: "its_type", Code: "503"}},
		{"FastAPI's 404", "", late(func(c *scripted.Call) { c.Reply(404, "application/json", `{"detail":"Not Found"}`) }), said{Message: "Not Found"}},
		{"no JSON", "", late(func(c *scripted.Call) { c.Reply(500, "text/html", "<h1>Oops</h1>") }), said{Code: "upstream_failed", Type: "server_error"}},
		{"RST", "", late((*scripted.Call).RST), said{Code: "upstream_broken", Type: "server_error"}},
		{"JSON", "", late(func(c *scripted.Call) { c.Reply(200, "application/json", `{"id":"x"}`) }), said{Code: "bad_upstream_answer", Type: "server_error"}},
		{"header timeout", "timeouts: {header: 500ms}\n", (*scripted.Call).Hold, said{Code: "upstream_header_timeout", Type: "timeout_error"}},
		{"an error in the stream", "", late(func(c *scripted.Call) { c.EventStream(); sendError(c) }), said{Message: "out of memory"}},
	} {
		for _, s := range streams {
			t.Run(test.name+s.route, func(t *testing.T) {
				t.Parallel()
				r := withScript(t, beats+test.keys, test.script)
				text, err := s.read(t, r.client(), "tiny")
				got, want := streamError(t, err), test.want
				if text != "" || got.Message == "" || want.Message != "" && got.Message != want.Message ||
					want.Type != "" && got.Type != want.Type || want.Code != nil && got.Code != want.Code {
					t.Errorf("got %q, %+v, want %+v", text, got, want)
				}
				if r.Metric(t, "kvasir_heartbeats_total") == 0 {
					t.Error("no heartbeat")
				}
				r.idle(t)
			})
		}
	}
}

// TestHeartbeats_AnotherAttemptAfterTheStreamIsOpen: a heartbeat does not use up the right
// to another attempt.
func TestHeartbeats_AnotherAttemptAfterTheStreamIsOpen(t *testing.T) {
	fails := func(c *scripted.Call) {
		if c.Pause(pause) {
			c.RST()
		}
	}
	for _, s := range streams {
		t.Run(s.route, func(t *testing.T) {
			t.Parallel()
			r := withScript(t, beats, fails, answers)
			for range 6 { // whichever is asked first
				if text, err := s.read(t, r.client(), "tiny"); text != wholeText || err != nil {
					t.Errorf("got %q, %v", text, err)
				}
			}
			if len(r.servers[0].Calls()) == 0 {
				t.Error("the endpoint that fails was never asked")
			}
		})
	}
}
