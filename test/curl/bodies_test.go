package curl

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"kvasir/internal/testkit/scripted"
)

// TestUpload_WaitsForContinue sends a few megabytes; curl asks first whether it may.
func TestUpload_WaitsForContinue(t *testing.T) {
	s := withEngines(t, "")
	s.write(t, "big.json", bigChat(4<<20))
	for _, line := range []string{
		`curl -sS -v -X POST -T big.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`,
		`curl -sS -v --data-binary @big.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`,
		`cat big.json | curl -sS -v -X POST -T - -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`,
	} {
		r := s.ok(t, line)
		r.answered(t, "")
		if !strings.Contains(r.talk, "> Expect: 100-continue") || !strings.Contains(r.talk, "< HTTP/1.1 100 Continue") {
			t.Errorf("%s\ndid not wait to be told to go on:\n%s", line, r.talk)
		}
	}
}

// TestUpload_TooLargeIsNotSent: curl that asks first is told before it has sent anything.
func TestUpload_TooLargeIsNotSent(t *testing.T) {
	s := withEngines(t, "limits: {body: 1MiB}\n")
	s.write(t, "huge.json", bigChat(4<<20))
	r := s.run(t, `curl -sS -v -X POST -T huge.json -H 'Content-Type: application/json' -w ' %{http_code} %{size_upload}' $KVASIR/v1/chat/completions`)
	r.refused(t, "body_too_large", " 413 0")
	if strings.Contains(r.talk, "100 Continue") {
		t.Errorf("it was told to go on:\n%s", r.talk)
	}
}

// TestUpload_TooLargeIsToldWhileSending: curl that just sends can read the answer all the
// same.
func TestUpload_TooLargeIsToldWhileSending(t *testing.T) {
	s := withEngines(t, "limits: {body: 1MiB}\n")
	s.write(t, "huge.json", bigChat(24<<20))
	s.write(t, "huge.json.gz", compressed(t, "gzip", bigChat(24<<20)))
	for _, line := range []string{
		`curl -sS --data-binary @huge.json -H 'Content-Type: application/json' -H 'Expect:' -w ' %{http_code}' $KVASIR/v1/chat/completions`,
		`curl -sS --data-binary @huge.json -H 'Content-Type: application/json' -H 'Expect:' -H 'Transfer-Encoding: chunked' -w ' %{http_code}' $KVASIR/v1/chat/completions`,
		`curl -sS --data-binary @huge.json.gz -H 'Content-Type: application/json' -H 'Content-Encoding: gzip' -w ' %{http_code}' $KVASIR/v1/chat/completions`,
	} {
		for range 5 { // a reset that overtakes the answer comes now and then
			s.run(t, line).refused(t, "body_too_large", " 413")
		}
	}
	s.ok(t, `curl -sS -d @chat.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`).answered(t, "")
}

// TestUpload_RefusalDoesNotWait: what is clear without the body is said before a slow client
// has sent it, be it small enough to be read.
func TestUpload_RefusalDoesNotWait(t *testing.T) {
	s := withEngines(t, "")
	const size = 240 << 10
	s.write(t, "big.json", bigChat(size))
	for _, line := range []string{
		`curl -sS --limit-rate 20k --data-binary @big.json -H 'Expect:' -w ' %{size_upload}' $KVASIR/v1/nonsense`,
		`curl -sS --limit-rate 20k --data-binary @big.json -H 'Expect:' -H 'Transfer-Encoding: chunked' -w ' %{size_upload}' $KVASIR/v1/nonsense`,
	} {
		r := s.run(t, line)
		body, upload, _ := strings.Cut(r.out, "}} ")
		if sent, err := strconv.Atoi(upload); err != nil || sent >= size || r.code != 0 || !strings.Contains(body, "unknown_route") {
			t.Errorf("curl ended with %d after %q bytes: %s\n%s", r.code, upload, r.out, r.talk)
		}
	}
}

func TestUpload_TooLargeOverHTTP2(t *testing.T) {
	needFeature(t, "HTTP2")
	s := withEngines(t, "limits: {body: 1MiB}\n")
	s.write(t, "huge.json", bigChat(24<<20))
	for _, line := range []string{
		`curl -sS --http2-prior-knowledge --data-binary @huge.json -H 'Content-Type: application/json' -w ' %{http_code}' $KVASIR/v1/chat/completions`,
		`cat huge.json | curl -sS --http2-prior-knowledge -X POST -T - -H 'Content-Type: application/json' -w ' %{http_code}' $KVASIR/v1/chat/completions`,
	} {
		s.run(t, line).refused(t, "body_too_large", " 413")
	}
}

func TestUpload_Chunked(t *testing.T) {
	s := withEngines(t, "")
	r := s.ok(t, `curl -sS -v -d @chat.json -H 'Content-Type: application/json' -H 'Transfer-Encoding: chunked' $KVASIR/v1/chat/completions`)
	r.answered(t, "")
	if !strings.Contains(r.talk, "> Transfer-Encoding: chunked") {
		t.Errorf("it was not sent in chunks:\n%s", r.talk)
	}
}

// compressed returns data in a content coding.
func compressed(t *testing.T, coding string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		var err error
		if w, err = zstd.NewWriter(&b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUpload_Compressed(t *testing.T) {
	s := withEngines(t, "")
	for coding, line := range map[string]string{
		"gzip":    `curl -sS --data-binary @chat.json.gzip -H 'Content-Type: application/json' -H 'Content-Encoding: gzip' $KVASIR/v1/chat/completions`,
		"deflate": `curl -sS --data-binary @chat.json.deflate -H 'Content-Type: application/json' -H 'Content-Encoding: deflate' $KVASIR/v1/chat/completions`,
		"br":      `curl -sS --data-binary @chat.json.br -H 'Content-Type: application/json' -H 'Content-Encoding: br' $KVASIR/v1/chat/completions`,
		"zstd":    `curl -sS --data-binary @chat.json.zstd -H 'Content-Type: application/json' -H 'Content-Encoding: zstd' $KVASIR/v1/chat/completions`,
	} {
		for _, size := range []int{0, 2 << 20} {
			body := []byte(chat)
			if size > 0 {
				body = bigChat(size)
			}
			s.write(t, "chat.json."+coding, compressed(t, coding, body))
			s.ok(t, line).answered(t, "")
		}
	}
	s.run(t, `curl -sS --data-binary @chat.json -H 'Content-Type: application/json' -H 'Content-Encoding: compress' -w ' %{http_code}' $KVASIR/v1/chat/completions`).
		refused(t, "unsupported_content_encoding", " 415")
	s.run(t, `curl -sS --data-binary @chat.json -H 'Content-Type: application/json' -H 'Content-Encoding: gzip' -w ' %{http_code}' $KVASIR/v1/chat/completions`).
		refused(t, "bad_content_encoding", " 400")
}

// TestUpload_Form sends a file and, after it, the model that it is for.
func TestUpload_Form(t *testing.T) {
	s, server := withScript(t, "", func(c *scripted.Call) { c.Reply(200, "application/json", `{"text":"mead"}`) })
	sound := bytes.Repeat([]byte("\x00\xffmead\r\n--"), 300_000)
	s.write(t, "mead.mp3", sound)
	r := s.ok(t, `curl -sS -F file=@mead.mp3 -F model=tiny $KVASIR/v1/audio/transcriptions`)
	if r.out != `{"text":"mead"}` {
		t.Errorf("got %s", r.out)
	}
	if calls := server.Calls(); len(calls) != 1 || calls[0].BodyBytes < int64(len(sound)) || !bytes.Contains(calls[0].Body, sound[:1<<18]) {
		t.Errorf("the endpoint got %d calls", len(calls))
	}
}
