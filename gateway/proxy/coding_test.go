package proxy_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"kvasir/internal/testkit/scripted"
)

func zipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	closeAll(t, z)
	return b.String()
}

func unzipped(t testing.TB, text string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

// zipStream answers with a compressed stream, flushed after every event, which waits for
// step before each.
func zipStream(step <-chan bool, events []string) scripted.Script {
	return func(c *scripted.Call) {
		c.Head(200, "Content-Type: text/event-stream", "Content-Encoding: gzip", "Transfer-Encoding: chunked")
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		for _, e := range events {
			<-step
			_, _ = io.WriteString(z, e) // into memory
			_ = z.Flush()
			_ = c.Chunk(b.String())
			b.Reset()
		}
		_ = z.Close()
		_ = c.Chunk(b.String())
		c.LastChunk()
	}
}

// Field case F10: a client's Accept-Encoding must not make the stream unreadable.
func TestStreamIsNotCompressedOnTheClientsBehalf(t *testing.T) {
	events := wholeStream("a", "b")
	script := func(c *scripted.Call) {
		rec := c.Record()
		if enc, ok := rec.Get("accept-encoding"); ok && strings.Contains(enc, "gzip") {
			step := make(chan bool)
			close(step)
			zipStream(step, events)(c)
			return
		}
		c.Stream(events...)
	}
	for _, header := range [][]string{nil, {"Accept-Encoding: gzip, br"}} {
		r := newRig(t, ordered(script))
		a := r.post(chatPath, streamed, header...)
		if a.body != joined(events) || a.header.Get("Content-Encoding") != "" {
			t.Errorf("with %v: %q", header, a.body)
		}
		if c := r.record(); c.int("output_tokens") != 3 {
			t.Errorf("with %v: usage not counted: %v", header, c)
		}
		r.close()
	}
}

// Field case F10: compressed although nobody asked, it passes untouched, event by event.
func TestStreamCompressedUnaskedPassesAsItComes(t *testing.T) {
	events, step := wholeStream("a", "b"), make(chan bool, 1)
	r := newRig(t, ordered(zipStream(step, events)))
	defer r.close()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+chatPath, strings.NewReader(streamed))
	if err != nil {
		t.Fatal(err)
	}
	step <- true // the endpoint's first event; the others wait
	resp, err := r.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if enc := resp.Header.Get("Content-Encoding"); enc != "gzip" {
		t.Fatalf("Content-Encoding %q", enc)
	}
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		got := make([]byte, len(e))
		if _, err := io.ReadFull(z, got); err != nil || string(got) != e {
			t.Fatalf("event %d: %q, %v", i, got, err)
		}
		if i+1 < len(events) {
			step <- true // only now: the event before has arrived
		}
	}
	if rest, err := io.ReadAll(z); err != nil || len(rest) > 0 {
		t.Errorf("after the events: %q, %v", rest, err)
	}
	if c := r.record(); c.string("outcome") != "success" || c.has("output_tokens") {
		t.Errorf("record %v: usage that was not read must stay unknown", c)
	}
}

// Field case F11: the header agrees with the bytes, on every way out.
func TestEntityHeadersAgreeWithTheBody(t *testing.T) {
	const gz = "Content-Encoding: gzip"
	for _, x := range []struct {
		name, request, kind, plain string
		status                     int
	}{
		{"error", unstreamed, "application/json", `{"error":{"message":"no","code":400}}`, 400},
		{"answer", unstreamed, "application/json", jsonAnswer, 200},
		{"stream", streamed, "text/event-stream", joined(wholeStream("a")), 200},
		{"error of the last attempt", unstreamed, "application/json", `{"error":{"message":"full"}}`, 503},
	} {
		t.Run(x.name, func(t *testing.T) {
			body := zipped(t, x.plain)
			r := newRig(t, ordered(func(c *scripted.Call) { c.Reply(x.status, x.kind, body, gz) }))
			defer r.close()
			a := r.post(chatPath, x.request)
			if a.err != nil || a.status != x.status || a.header.Get("Content-Encoding") != "gzip" || unzipped(t, a.body) != x.plain {
				t.Errorf("status %d, %v, %d bytes, %v", a.status, a.header, len(a.body), a.err)
			}
			if n := a.header.Get("Content-Length"); n != "" && n != strconv.Itoa(len(a.body)) {
				t.Errorf("Content-Length %s for %d bytes", n, len(a.body))
			}
		})
	}
}

// Field case F12: a client gets what it asked for, or a clear 502.
func TestAnswerOfTheWrongKindIsABadGateway(t *testing.T) {
	sse := func(c *scripted.Call) { c.Stream(wholeStream("a")...) }
	json := func(c *scripted.Call) { c.Reply(200, "application/json; charset=utf-8", jsonAnswer) }
	with := func(stream string) string {
		return `{"model":"m",` + stream + `"messages":[{"role":"user","content":"Hello"}]}`
	}
	for _, x := range []struct {
		name, stream string
		script       scripted.Script
		status       int
		body         string // of a success
		calls        int
	}{
		{"absent, json", ``, json, 200, jsonAnswer, 1},
		{"false, json", `"stream":false,`, json, 200, jsonAnswer, 1},
		{"null, json", `"stream":null,`, json, 200, jsonAnswer, 1},
		{"true, stream", `"stream":true,`, sse, 200, joined(wholeStream("a")), 1},
		{"absent, stream", ``, sse, 502, "", 1},
		{"false, stream", `"stream":false,`, sse, 502, "", 1},
		{"true, json", `"stream":true,`, json, 502, "", 1},
		{"wrong type", `"stream":"false",`, json, 400, "", 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, ordered(x.script))
			defer r.close()
			a := r.post(chatPath, with(x.stream))
			if a.status != x.status {
				t.Errorf("status %d, want %d: %s", a.status, x.status, a.body)
			}
			if x.status == 200 && a.body != x.body {
				t.Errorf("body %q", a.body)
			}
			if x.status != 200 {
				if e := envelope(t, a.body); e.RequestID != a.header.Get("X-Request-Id") || e.Message == "" {
					t.Errorf("envelope %+v", e)
				}
			}
			if got := len(r.upstreams[0].Calls()); got != x.calls {
				t.Errorf("%d upstream calls, want %d", got, x.calls)
			}
		})
	}
}

// The charset in a content type, its case and a missing one don't matter.
func TestContentTypesThatMeanAStream(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "text/event-stream; charset=utf-8", "Text/Event-Stream;charset"} {
		r := newRig(t, ordered(func(c *scripted.Call) {
			c.Head(200, "Content-Type: "+kind, "Transfer-Encoding: chunked")
			_ = c.Chunk(joined(wholeStream("a"))) // a peer that left is noted
			c.LastChunk()
		}))
		if a := r.post(chatPath, streamed); a.status != 200 {
			t.Errorf("%s: status %d, %s", kind, a.status, a.body)
		}
		r.close()
	}
}

// A 1xx on the way is not the answer.
func TestInformationalResponsesAreNotTheAnswer(t *testing.T) {
	r := newRig(t, ordered(func(c *scripted.Call) {
		c.Head(103, "Link: </x>")
		c.Head(100)
		c.Pause(5 * time.Millisecond)
		c.Stream(wholeStream("a")...)
	}))
	defer r.close()
	if a := r.post(chatPath, streamed); a.status != 200 || a.body != joined(wholeStream("a")) {
		t.Errorf("status %d, %q", a.status, a.body)
	}
}
