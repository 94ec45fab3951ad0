package proxy_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// events writes an event stream's head and the events, each in a chunk.
func events(c *scripted.Call, texts ...string) {
	c.EventStream()
	for _, e := range texts {
		_ = c.Chunk(e) // a peer that left is noted
		c.Pause(5 * time.Millisecond)
	}
}

// A stream that its endpoint cuts ends in exactly one error event where it stands between
// two events, and in a broken connection where it does not: never in a clean end.
func TestStreamCutByItsEndpointNeverEndsCleanly(t *testing.T) {
	half := textEvent("three")[:20]
	cuts := map[string]struct {
		script func(c *scripted.Call)
		torn   bool
	}{
		"fin":                       {script: func(c *scripted.Call) { c.FIN() }},
		"rst":                       {script: func(c *scripted.Call) { c.RST() }},
		"last chunk without finish": {script: func(c *scripted.Call) { c.LastChunk() }},
		"fin inside an event":       {script: func(c *scripted.Call) { _ = c.Chunk(half); c.FIN() }, torn: true},
		"rst inside an event":       {script: func(c *scripted.Call) { _ = c.Chunk(half); c.Pause(20 * time.Millisecond); c.RST() }, torn: true},
		"end inside an event":       {script: func(c *scripted.Call) { _ = c.Chunk(half); c.LastChunk() }, torn: true},
		"end inside a chunk":        {script: func(c *scripted.Call) { _ = c.Write("ff\r\n" + half); c.FIN() }, torn: true},
		"end inside the event after the finish": {script: func(c *scripted.Call) {
			_ = c.Chunk(finishEvent + usageEvent[:40])
			c.LastChunk()
		}, torn: true},
		"end inside a field's name after the finish": {script: func(c *scripted.Call) {
			_ = c.Chunk(finishEvent + "da")
			c.LastChunk()
		}, torn: true},
		"whole event without blank line": {script: func(c *scripted.Call) {
			_ = c.Chunk(strings.TrimRight(textEvent("three"), "\n"))
			c.LastChunk()
		}, torn: true},
	}
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(func(c *scripted.Call) {
				events(c, roleEvent, textEvent("one"), textEvent("two"))
				cut.script(c)
			}, func(c *scripted.Call) { c.Stream(wholeStream("wrong")...) }))
			defer r.close()
			a := r.post(chatPath, streamed)
			sent := roleEvent + textEvent("one") + textEvent("two")
			if !strings.HasPrefix(a.body, sent) {
				t.Fatalf("got %q", a.body)
			}
			rest := a.body[len(sent):]
			switch {
			case strings.Contains(a.body, "[DONE]"), strings.Contains(a.body, "wrong"):
				t.Errorf("got %q", a.body)
			case cut.torn && a.err == nil:
				t.Errorf("a clean end after %q", rest)
			case !cut.torn:
				data, ok := strings.CutPrefix(rest, "data: ")
				if a.err != nil || !ok || strings.Count(rest, "\n\n") != 1 {
					t.Fatalf("%v after %q", a.err, rest)
				}
				if e := envelope(t, data); e.RequestID != a.header.Get("X-Request-Id") || e.Code == "" {
					t.Errorf("envelope %+v", e)
				}
			}
			if n := len(r.upstreams[1].Calls()); n != 0 {
				t.Errorf("%d attempts after the first content", n)
			}
			if c := r.record(); c.string("outcome") != "endpoint_failure" || c.int("attempts") != 1 {
				t.Errorf("record %v", c)
			}
		})
	}
}

// A clean end without [DONE] after a finish reason passes as it came and is counted, once.
func TestCleanEndWithoutDoneIsCompleteAndCounted(t *testing.T) {
	for name, text := range map[string]string{
		"after finish":             roleEvent + textEvent("one") + finishEvent,
		"after usage":              roleEvent + textEvent("one") + finishEvent + usageEvent,
		"without last blank line":  roleEvent + textEvent("one") + strings.TrimRight(finishEvent, "\n"),
		"finish in the first read": finishEvent,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(func(c *scripted.Call) { c.Stream(text) }))
			defer r.close()
			if a := r.post(chatPath, streamed); a.body != text || a.err != nil {
				t.Errorf("got %q, %v", a.body, a.err)
			}
			if c := r.record(); c.string("outcome") != "success" || !c.has("done_missing") {
				t.Errorf("record %v", c)
			}
			if n := r.metric("kvasir_stream_oddities_total", "kind=done_missing"); n != 1 {
				t.Errorf("done_missing counted %v times", n)
			}
		})
	}
}

// After [DONE] an endpoint that never closes holds neither its charge nor the client.
func TestEndpointThatNeverClosesAfterDoneIsLet(t *testing.T) {
	text := joined(wholeStream("one"))
	inBubble(t, ordered(func(c *scripted.Call) {
		c.EventStream()
		_ = c.Chunk(text) // a peer that left is noted
		c.Hold()
	}), func(t *testing.T, r *rig) {
		c := r.send(rawPost(chatPath, streamed))
		readUntil(t, c, doneEvent)
		time.Sleep(time.Millisecond)
		if s := r.gateway.State(); s.Models[0].Endpoints[0].Outstanding != 0 {
			t.Error("the charge is held after [DONE]")
		}
		readUntil(t, c, "0\r\n\r\n")
		closeAll(t, c)
		if rec := r.record(); rec.string("outcome") != "success" || rec.has("done_missing") {
			t.Errorf("record %v", rec)
		}
	})
}

// What follows [DONE], if anything, is passed on as well.
func TestBytesAfterDonePass(t *testing.T) {
	text := joined(wholeStream("one")) + ": bye\n\n" + textEvent("more")
	inBubble(t, ordered(pieces(text, len(text)-40, len(text)-10)), func(t *testing.T, r *rig) {
		if a := r.post(chatPath, streamed); a.body != text || a.err != nil {
			t.Errorf("got %q, %v", a.body, a.err)
		}
	})
}

// A connection that breaks after [DONE] spoils nothing.
func TestBreakAfterDoneIsACleanEnd(t *testing.T) {
	text := joined(wholeStream("one"))
	for name, end := range map[string]func(*scripted.Call){"fin": (*scripted.Call).FIN, "rst": (*scripted.Call).RST} {
		r := newRig(t, ordered(func(c *scripted.Call) {
			c.EventStream()
			_ = c.Chunk(text) // a peer that left is noted
			c.Pause(10 * time.Millisecond)
			end(c)
		}))
		if a := r.post(chatPath, streamed); a.body != text || a.err != nil {
			t.Errorf("%s: got %q, %v", name, a.body, a.err)
		}
		if c := r.record(); c.string("outcome") != "success" {
			t.Errorf("%s: record %v", name, c)
		}
		r.close()
	}
}

// Field case F23: an error before the first content is had elsewhere; the client sees the
// second endpoint alone, with one preamble and one id.
func TestErrorBeforeContentIsRetriedUnseen(t *testing.T) {
	preamble := ": ping\n\n" + roleEvent + ": ping\n\n"
	good := strings.ReplaceAll(joined(wholeStream("good")), `"c1"`, `"c2"`)
	for name, bad := range map[string]scripted.Script{
		"error event":          func(c *scripted.Call) { events(c, preamble, errorEvent); c.LastChunk() },
		"error and done":       func(c *scripted.Call) { events(c, preamble, errorEvent+doneEvent); c.LastChunk() },
		"error event, silence": func(c *scripted.Call) { events(c, preamble, errorEvent); c.Hold() },
		"error at once":        func(c *scripted.Call) { c.Stream(errorEvent) },
		"cut after preamble":   func(c *scripted.Call) { events(c, preamble); c.FIN() },
		"reset after preamble": func(c *scripted.Call) { events(c, preamble); c.RST() },
		"end after preamble":   func(c *scripted.Call) { events(c, preamble); c.LastChunk() },
		"end inside preamble":  func(c *scripted.Call) { events(c, roleEvent[:30]); c.LastChunk() },
		"cut after head":       func(c *scripted.Call) { c.EventStream(); c.FIN() },
		"half a head":          func(c *scripted.Call) { _ = c.Write("HTTP/1.1 200 OK\r\nContent-Ty"); c.FIN() },
		"no answer":            func(c *scripted.Call) { c.FIN() },
		"garbage":              func(c *scripted.Call) { _ = c.Write("SSH-2.0-OpenSSH\r\n"); c.FIN() },
		"bad gateway":          func(c *scripted.Call) { c.Reply(502, "text/html", "<html>") },
		"busy":                 func(c *scripted.Call) { c.Reply(503, "application/json", `{"error":{}}`) },
		"busy, slow body":      func(c *scripted.Call) { c.Head(503, "Content-Length: 100"); c.Hold() },
		"gateway timeout":      func(c *scripted.Call) { c.Reply(504, "text/plain", "") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(bad, func(c *scripted.Call) { c.Stream(good) }))
			defer r.close()
			a := r.post(chatPath, streamed)
			if a.status != 200 || a.body != good || a.err != nil {
				t.Errorf("status %d, %q, %v", a.status, a.body, a.err)
			}
			if got := a.header.Get("X-Kvasir-Endpoint"); got != "e2" {
				t.Errorf("x-kvasir-endpoint %q", got)
			}
			if c := r.record(); c.string("outcome") != "success" || c.int("attempts") != 2 || c.string("endpoint") != "e2" {
				t.Errorf("record %v", c)
			}
			if n := r.metric("kvasir_attempts_total", "endpoint=e1"); n != 1 {
				t.Errorf("%v attempts counted for e1", n)
			}
		})
	}
}

// The last endpoint's own words reach the client when no other attempt follows.
func TestLastErrorBeforeContentReachesTheClient(t *testing.T) {
	text := roleEvent + errorEvent + doneEvent
	r := newRig(t, ordered(func(c *scripted.Call) { c.Stream(text) }))
	defer r.close()
	if a := r.post(chatPath, streamed); a.status != 200 || a.body != text || a.err != nil {
		t.Errorf("status %d, %q, %v", a.status, a.body, a.err)
	}
	if c := r.record(); c.string("outcome") != "endpoint_failure" {
		t.Errorf("record %v", c)
	}
}

// A stream error whose rest never comes is answered in the gateway's own words.
func TestLastErrorThatIsNotWholeIsReplaced(t *testing.T) {
	for name, script := range map[string]scripted.Script{
		"stream": func(c *scripted.Call) { events(c, roleEvent+errorEvent+"data: {"); c.Hold() },
		"status": func(c *scripted.Call) { c.Head(503, "Content-Length: 100"); _ = c.Write(`{"error"`); c.Hold() },
		"big":    func(c *scripted.Call) { c.Reply(503, "text/html", strings.Repeat("x", 5<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(script))
			defer r.close()
			a := r.post(chatPath, streamed)
			if a.status < 500 || a.err != nil {
				t.Fatalf("status %d, %v", a.status, a.err)
			}
			if e := envelope(t, a.body); e.RequestID != a.header.Get("X-Request-Id") {
				t.Errorf("envelope %+v", e)
			}
		})
	}
}

// An error of the caller inside the stream, before content, is final and passes whole.
func TestCallersFaultInTheStreamIsFinal(t *testing.T) {
	text := roleEvent + quotaEvent + doneEvent
	r := newRig(t, ordered(pieces(text, len(roleEvent), len(roleEvent)+30, len(text)-5), func(c *scripted.Call) { c.Stream(wholeStream("wrong")...) }))
	defer r.close()
	if a := r.post(chatPath, streamed); a.status != 200 || a.body != text || a.err != nil {
		t.Errorf("status %d, %q, %v", a.status, a.body, a.err)
	}
	if c := r.record(); c.string("outcome") != "caller_fault" || c.int("attempts") != 1 {
		t.Errorf("record %v", c)
	}
}

// Field case F08's kind, on the chat route: an error after content passes as it came, and
// is the one terminal event, however the transfer then ends.
func TestErrorAfterContentPassesAsTheOneTerminalEvent(t *testing.T) {
	sent := roleEvent + textEvent("one") + errorEvent
	for name, end := range map[string]func(*scripted.Call){
		"ended":   (*scripted.Call).LastChunk,
		"fin":     (*scripted.Call).FIN,
		"rst":     func(c *scripted.Call) { c.Pause(20 * time.Millisecond); c.RST() },
		"silence": (*scripted.Call).Hold,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(func(c *scripted.Call) { events(c, roleEvent, textEvent("one"), errorEvent); end(c) },
				func(c *scripted.Call) { c.Stream(wholeStream("wrong")...) }))
			defer r.close()
			if a := r.post(chatPath, streamed); a.body != sent || a.err != nil {
				t.Errorf("got %q, %v", a.body, a.err)
			}
			if c := r.record(); c.string("outcome") != "endpoint_failure" || c.int("attempts") != 1 {
				t.Errorf("record %v", c)
			}
		})
	}
}

// More preamble than may be held back is let go: no other attempt is made then.
func TestPreambleOverItsBoundIsLetGo(t *testing.T) {
	preamble := strings.Repeat(roleEvent, 10)
	s := ordered(func(c *scripted.Call) { events(c, preamble, preamble); c.FIN() },
		func(c *scripted.Call) { c.Stream(wholeStream("wrong")...) })
	s.config = func(c *proxy.Config) { c.Limits.Preamble = len(preamble) + 10 }
	r := newRig(t, s)
	defer r.close()
	a := r.post(chatPath, streamed)
	rest, ok := strings.CutPrefix(a.body, preamble+preamble)
	if !ok || a.err != nil || !strings.HasPrefix(rest, `data: {"error"`) {
		t.Errorf("got %q, %v", a.body, a.err)
	}
	if c := r.record(); c.int("attempts") != 1 || c.string("outcome") != "endpoint_failure" || c.has("ttft_seconds") {
		t.Errorf("record %v", c)
	}
}

// A non-streamed answer that is cut breaks the client's connection too; before its first
// byte it is had elsewhere.
func TestCutAnswerIsNeverTakenForWhole(t *testing.T) {
	for name, x := range map[string]struct {
		script   scripted.Script
		attempts int
	}{
		"short content length": {func(c *scripted.Call) {
			c.Head(200, "Content-Type: application/json", "Content-Length: 500")
			_ = c.Write(jsonAnswer[:100])
			c.Pause(10 * time.Millisecond)
			c.FIN()
		}, 1},
		"missing last chunk": {func(c *scripted.Call) {
			c.Head(200, "Content-Type: application/json", "Transfer-Encoding: chunked")
			_ = c.Chunk(jsonAnswer)
			c.Pause(10 * time.Millisecond)
			c.FIN()
		}, 1},
		"error body cut": {func(c *scripted.Call) {
			c.Head(400, "Content-Type: application/json", "Content-Length: 500")
			_ = c.Write(`{"error":`)
			c.Pause(10 * time.Millisecond)
			c.RST()
		}, 1},
		"nothing of the body": {func(c *scripted.Call) {
			c.Head(200, "Content-Type: application/json", "Content-Length: 500")
			c.RST()
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ordered(x.script, func(c *scripted.Call) { c.Reply(200, "application/json", jsonAnswer) }))
			defer r.close()
			a := r.post(chatPath, unstreamed)
			if (a.err == nil) != (x.attempts == 2) {
				t.Errorf("status %d, %q, %v", a.status, a.body, a.err)
			}
			if c := r.record(); c.int("attempts") != x.attempts {
				t.Errorf("record %v", c)
			}
		})
	}
}

// A client that closes only its own side counts as gone, and must not be given an empty
// answer in place of one.
func TestHalfClosedClientGetsNoEmptyAnswer(t *testing.T) {
	r := newRig(t, ordered(func(c *scripted.Call) { c.Hold() }))
	defer r.close()
	c := r.send(rawPost(chatPath, unstreamed))
	eventually(t, 2*time.Second, func() bool { return len(r.upstreams[0].Calls()) == 1 }, func() string { return "no call upstream" })
	closeAll(t, closer(c.(interface{ CloseWrite() error }).CloseWrite))
	if got, _ := io.ReadAll(c); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	closeAll(t, c)
	if rec := r.record(); rec.string("outcome") != "client_gone" {
		t.Errorf("record %v", rec)
	}
}

type closer func() error

func (c closer) Close() error { return c() }

// A JSON answer that is an error passes as it came, and is not counted as a success.
func TestErrorObjectWithStatus200IsNoSuccess(t *testing.T) {
	for body, outcome := range map[string]string{
		`{"error":{"message":"died","code":500}}`:      "endpoint_failure",
		`{"object":"error","message":"no","code":400}`: "caller_fault",
	} {
		r := newRig(t, ordered(func(c *scripted.Call) { c.Reply(200, "application/json", body) }))
		if a := r.post(chatPath, unstreamed); a.status != 200 || a.body != body {
			t.Errorf("status %d, %q", a.status, a.body)
		}
		if c := r.record(); c.string("outcome") != outcome || c.int("attempts") != 1 {
			t.Errorf("record %v", c)
		}
		r.close()
	}
}

// What is held back of a stream is booked as buffered; where there is no room it is let
// go, and another attempt is then no longer possible.
func TestHeldPreambleIsBooked(t *testing.T) {
	preamble := strings.Repeat(roleEvent, 10)
	script := func(c *scripted.Call) {
		events(c, preamble)
		c.Pause(2 * time.Second)
		_ = c.Chunk(errorEvent + doneEvent) // a peer that left is noted
		c.LastChunk()
	}
	t.Run("held", func(t *testing.T) {
		inBubble(t, ordered(script, func(c *scripted.Call) { c.Stream(wholeStream("good")...) }), func(t *testing.T, r *rig) {
			c := r.send(rawPost(chatPath, streamed))
			time.Sleep(time.Second)
			if held := r.gateway.State().BufferedBytes; held != int64(8<<10+len(preamble)) {
				t.Errorf("%d bytes are booked", held)
			}
			readUntil(t, c, doneEvent)
			closeAll(t, c)
		})
	})
	t.Run("no room", func(t *testing.T) {
		s := ordered(script, func(c *scripted.Call) { c.Stream(wholeStream("wrong")...) })
		s.config = func(c *proxy.Config) { c.Limits.Buffered = 8<<10 + 100 }
		inBubble(t, s, func(t *testing.T, r *rig) {
			if a := r.post(chatPath, streamed); a.body != preamble+errorEvent+doneEvent || a.err != nil {
				t.Errorf("got %q, %v", a.body, a.err)
			}
			if rec := r.record(); rec.int("attempts") != 1 || rec.string("outcome") != "endpoint_failure" {
				t.Errorf("record %v", rec)
			}
		})
	})
}
