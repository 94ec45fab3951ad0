package proxy_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// encode puts content codings on a body, the first one first.
func encode(t testing.TB, body []byte, names ...string) []byte {
	t.Helper()
	for _, name := range names {
		var b bytes.Buffer
		var w io.WriteCloser
		var err error
		switch name {
		case "gzip":
			w = gzip.NewWriter(&b)
		case "deflate":
			w = zlib.NewWriter(&b)
		case "raw deflate":
			w, err = flate.NewWriter(&b, 5)
		case "br":
			w = brotli.NewWriter(&b)
		case "zstd":
			w, err = zstd.NewWriter(&b)
		}
		if err == nil {
			_, err = w.Write(body)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		body = b.Bytes()
	}
	return body
}

// Compressed bodies are read, routed, and sent on as they are without their coding, on
// every route.
func TestF65_CompressedBodies(t *testing.T) {
	r := newRig(t, ordered(func(c *scripted.Call) { c.Reply(200, "application/json", `{}`) }))
	defer r.close()
	requests := map[string]string{
		chatPath: unstreamed, embedPath: embedding, "/v1/responses": `{"model":"m","input":"x"}`,
		"/v1/messages": `{"model":"m","messages":[]}`, "/v1/rerank": `{"model":"m","query":"q","documents":[]}`,
	}
	for path, text := range requests {
		big := strings.TrimSuffix(text, "}") + `,"pad":"` + strings.Repeat("lorem ipsum ", 20_000) + `"}`
		for header, names := range map[string][]string{
			"gzip": {"gzip"}, "X-GZIP": {"gzip"}, "deflate": {"deflate"}, "Deflate": {"raw deflate"}, "br": {"br"}, "zstd": {"zstd"},
			"gzip, gzip": {"gzip", "gzip"}, "br,zstd": {"br", "zstd"}, "identity": nil, "identity, gzip": {"gzip"},
		} {
			for _, body := range []string{text, big} {
				before := len(r.upstreams[0].Calls())
				a := r.post(path, string(encode(t, []byte(body), names...)), "Content-Encoding: "+header)
				if a.status != 200 {
					t.Fatalf("%s, %s: status %d, %s", path, header, a.status, a.body)
				}
				got := r.upstreams[0].Calls()[before]
				if string(got.Body) != body {
					t.Errorf("%s, %s: the endpoint got %d bytes, want %d", path, header, len(got.Body), len(body))
				}
				if _, ok := got.Get("content-encoding"); ok {
					t.Errorf("%s, %s: the coding went on", path, header)
				}
				if n, _ := got.Get("content-length"); n != fmt.Sprint(len(body)) {
					t.Errorf("%s, %s: content-length %s for %d bytes", path, header, n, len(body))
				}
			}
		}
	}
}

func TestF65_WhatIsNoSoundCodingIsRefusedClearly(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	bomb := encode(t, bytes.Repeat([]byte(" "), 64<<20), "gzip")
	nested := encode(t, bytes.Repeat([]byte(" "), 256<<20), "gzip", "gzip")
	whole := encode(t, []byte(unstreamed), "zstd")
	for name, x := range map[string]struct {
		header string
		body   []byte
		status int
		code   string
	}{
		"unknown":                   {"lzma", []byte(unstreamed), 415, "unsupported_content_encoding"},
		"one unknown":               {"gzip, lzma", []byte(unstreamed), 415, "unsupported_content_encoding"},
		"too many":                  {"gzip, gzip, gzip", encode(t, []byte(unstreamed), "gzip", "gzip", "gzip"), 415, "unsupported_content_encoding"},
		"wrong label":               {"gzip", whole, 400, "bad_content_encoding"},
		"no such bytes":             {"br", []byte(unstreamed), 400, "bad_content_encoding"},
		"cut":                       {"zstd", whole[:len(whole)-3], 400, "bad_content_encoding"},
		"empty":                     {"gzip", nil, 400, "bad_content_encoding"},
		"bomb":                      {"gzip", bomb, 413, "body_too_large"},
		"bomb in a bomb":            {"gzip, gzip", nested, 413, "body_too_large"},
		"bytes behind it, deflate":  {"deflate", append(encode(t, []byte(unstreamed), "deflate"), "junk"...), 400, "bad_content_encoding"},
		"bytes behind it, gzip":     {"gzip", append(encode(t, []byte(unstreamed), "gzip"), "junk"...), 400, "bad_content_encoding"},
		"bytes behind an inner one": {"deflate, gzip", encode(t, append(encode(t, []byte(unstreamed), "deflate"), "junk"...), "gzip"), 400, "bad_content_encoding"},
		"much of nothing inside":    {"gzip, zstd", encode(t, bytes.Repeat(encode(t, nil, "gzip"), 500_000), "zstd"), 413, "body_too_large"},
		"one too many":              {"gzip", encode(t, bytes.Repeat([]byte(" "), 1<<20+1), "gzip"), 413, "body_too_large"},
		"wrong, unmarked":           {"", encode(t, []byte(unstreamed), "gzip"), 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if x.header != "" {
				headers = []string{"Content-Encoding: " + x.header}
			}
			a := r.post(chatPath, string(x.body), headers...)
			if a.status != x.status {
				t.Fatalf("status %d, %s", a.status, a.body)
			}
			if e := envelope(t, a.body); e.Code != x.code || strings.Contains(e.Message, "Hello") {
				t.Errorf("envelope %+v", e)
			}
		})
	}
	if n := r.upstreamCalls(); n != 0 {
		t.Errorf("%d upstream calls", n)
	}
}

// A body whose coding has ended, and that goes on, holds its call no longer than the body
// timeout.
func TestF65_ACodingThatEndsBeforeItsBody(t *testing.T) {
	s := ordered(good)
	s.config = func(c *proxy.Config) { c.BodyTimeout = 2 * short }
	r := newRig(t, s)
	defer r.close()
	body := encode(t, []byte(unstreamed), "deflate")
	c := r.send(fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n\r\n%s", len(body)+1, body))
	defer closeAll(t, c)
	if a := readAnswer(t, c); a.status != 408 {
		t.Errorf("status %d, %s", a.status, a.body)
	}
}

// The model of an upload stands anywhere in it, and its files pass as they are.
func TestF67_Uploads(t *testing.T) {
	s := ordered(func(c *scripted.Call) { c.Reply(200, "application/json", `{"text":"x"}`) })
	s.servedAs = "the-inner-name"
	r := newRig(t, s)
	defer r.close()
	file := strings.Repeat("\x00\xff--b inside\r\n --b\r\n", 10_000)
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	audio := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n" + file + "\r\n"
	for name, body := range map[string]string{
		"model first": part("model", "m") + audio + "--b--\r\n",
		"model last":  audio + part("language", "is") + part("model", "m") + "--b--\r\n",
	} {
		for _, contentType := range []string{"multipart/form-data; boundary=b", `multipart/form-data; boundary="b"`} {
			before := len(r.upstreams[0].Calls())
			a, err := r.do(t.Context(), "POST", "/v1/audio/transcriptions", io.MultiReader(strings.NewReader(body)), "Content-Type: "+contentType)
			if err != nil || a.status != 200 {
				t.Fatalf("%s: %v, status %d, %s", name, err, a.status, a.body)
			}
			got := r.upstreams[0].Calls()[before]
			if want := strings.Replace(body, part("model", "m"), part("model", "the-inner-name"), 1); string(got.Body) != want {
				t.Errorf("%s: the endpoint got other bytes", name)
			}
		}
	}
	for name, body := range map[string]string{
		"no model": audio + "--b--\r\n", "no end": part("model", "m") + audio, "no parts": "x", "another boundary": "--c\r\n\r\n--c--\r\n",
	} {
		a, err := r.do(t.Context(), "POST", "/v1/audio/transcriptions", strings.NewReader(body), "Content-Type: multipart/form-data; boundary=b")
		if err != nil || a.status != 400 {
			t.Errorf("%s: %v, status %d, %s", name, err, a.status, a.body)
			continue
		}
		envelope(t, a.body)
	}
}

// Image edits come as JSON, too.
func TestImageEditsAsJSON(t *testing.T) {
	s := ordered(func(c *scripted.Call) { c.Reply(200, "application/json", `{}`) })
	s.servedAs = "inner"
	r := newRig(t, s)
	defer r.close()
	if a := r.post("/v1/images/edits", `{"prompt":"a cat","model":"m"}`); a.status != 200 {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	if got := string(r.upstreams[0].Calls()[0].Body); got != `{"prompt":"a cat","model":"inner"}` {
		t.Errorf("the endpoint got %s", got)
	}
}
