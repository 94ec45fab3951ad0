package proxy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

func withHeartbeat(s setup, every time.Duration) setup {
	s.config = func(c *proxy.Config) { c.Heartbeat = every }
	return s
}

// Bytes reach a client that waits, without the right to another attempt being given up.
func TestF04_AWaitingClientHearsSomethingAndARetryIsStillPossible(t *testing.T) {
	for name, quiet := range map[string]scripted.Script{
		"silent before the header": func(c *scripted.Call) { c.Pause(short * 3); c.RST() },
		"silent after it":          func(c *scripted.Call) { c.EventStream(); c.Pause(short * 3); c.RST() },
		"with comments": func(c *scripted.Call) {
			c.EventStream()
			for range 9 {
				_ = c.Chunk(": upstream ping\n\n")
				c.Pause(short / 3)
			}
			c.RST()
		},
		"a preamble, then an error": func(c *scripted.Call) {
			events(c, roleEvent)
			c.Pause(short * 3)
			_ = c.Chunk(errorEvent)
			c.LastChunk()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, withHeartbeat(ordered(quiet, streams(wholeStream("good")...)), short/2))
			defer r.close()
			began := time.Now()
			c := r.send(rawPost(chatPath, streamed))
			defer closeAll(t, c)
			readUntil(t, c, ": waiting\n")
			if took := time.Since(began); took > short*2 {
				t.Errorf("the first heartbeat came after %v", took)
			}
			rest := readUntil(t, c, "[DONE]")
			if strings.Contains(rest, "upstream ping") || strings.Contains(rest, "died") || !strings.Contains(rest, textEvent("good")) {
				t.Errorf("%q", rest)
			}
			if n := strings.Count(rest, `"role"`); n > 1 {
				t.Errorf("%d preambles", n)
			}
		})
	}
}

// What goes wrong after a heartbeat has opened the stream is told in it.
func TestF04_ErrorsAfterAHeartbeatComeAsEvents(t *testing.T) {
	for name, x := range map[string]struct {
		script scripted.Script
		want   string
	}{
		"nobody answers":        {func(c *scripted.Call) { c.Pause(short * 2); c.RST() }, "upstream_broken"},
		"the endpoint refuses":  {func(c *scripted.Call) { c.Pause(short * 2); status(400)(c) }, "status 400"},
		"the endpoint is full":  {func(c *scripted.Call) { c.Pause(short * 2); status(503)(c) }, "status 503"},
		"JSON in place of it":   {func(c *scripted.Call) { c.Pause(short * 2); good(c) }, "bad_upstream_answer"},
		"an error in its place": {func(c *scripted.Call) { c.Pause(short * 2); c.Stream(quotaEvent) }, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, withHeartbeat(ordered(x.script), short/2))
			defer r.close()
			a := r.post(chatPath, streamed)
			events := strings.ReplaceAll(a.body, ": waiting\n", "")
			data, ok := strings.CutPrefix(events, "data: ")
			if a.status != 200 || !ok || !strings.Contains(data, x.want) || strings.Contains(data, "[DONE]") {
				t.Fatalf("status %d, %q", a.status, a.body)
			}
			if !json.Valid([]byte(data)) || !strings.HasPrefix(data, `{"error":{`) {
				t.Errorf("%q", data)
			}
			if strings.Count(events, "data: ") != 1 {
				t.Errorf("more than one event: %q", events)
			}
		})
	}
}

// A heartbeat stands between two events, and has no blank line of its own: after an id
// field some parsers would dispatch an empty event at it.
func TestF05_HeartbeatsDoNotDispatchEvents(t *testing.T) {
	withID := "id: 7\n" + textEvent("one")
	r := newRig(t, withHeartbeat(ordered(func(c *scripted.Call) {
		events(c, roleEvent, withID)
		c.Pause(short * 3)
		whole := textEvent("two")
		_ = c.Chunk(whole[:40]) // in the middle of an event nothing is put in
		c.Pause(short * 3)
		_ = c.Chunk(whole[40:] + finishEvent + doneEvent)
		c.LastChunk()
	}), short/2))
	defer r.close()
	a := r.post(chatPath, streamed)
	beats := strings.Count(a.body, ": waiting\n")
	if beats < 2 || strings.Contains(a.body, ": waiting\n\n") {
		t.Errorf("%d heartbeats in %q", beats, a.body)
	}
	if got := strings.ReplaceAll(a.body, ": waiting\n", ""); got != roleEvent+withID+textEvent("two")+finishEvent+doneEvent {
		t.Errorf("%q", got)
	}
	if !strings.Contains(a.body, withID+": waiting\n") {
		t.Errorf("the heartbeats do not stand behind the event: %q", a.body)
	}
	if !strings.Contains(a.body, textEvent("two")) {
		t.Errorf("a heartbeat stands within an event: %q", a.body)
	}
	if n := r.metric("kvasir_heartbeats_total"); int(n) != beats {
		t.Errorf("%v heartbeats counted, %d sent", n, beats)
	}
}

func TestHeartbeats_AreForStreamsAlone(t *testing.T) {
	r := newRig(t, withHeartbeat(ordered(func(c *scripted.Call) { c.Pause(short * 3); good(c) }), short/3))
	defer r.close()
	if a := r.post(chatPath, unstreamed); a.body != jsonAnswer {
		t.Errorf("%q", a.body)
	}
}
