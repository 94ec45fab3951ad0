package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"
)

// callThrough makes one call to an upstream behind the handler that wrap makes of the
// proxy to it.
func callThrough(t *testing.T, c cell, wrap func(http.Handler) http.Handler) error {
	t.Helper()
	engine := httptest.NewServer(newUpstream())
	defer engine.Close()
	target, err := url.Parse(engine.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(wrap(fullDuplex(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1,
	})))
	defer front.Close()
	conn, err := dial(front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.conn.Close()
	requests := prepare(c, makeConversations(c.Body, 1)[:1])
	_, err = conn.call(&requests[0], 7, expectedAnswer(c))
	return err
}

// changed replaces bytes of an answer on its way.
type changed struct {
	http.ResponseWriter
	from, to string
}

func (w changed) Write(p []byte) (int, error) {
	_, err := io.WriteString(w.ResponseWriter, strings.Replace(string(p), w.from, w.to, 1))
	return len(p), err
}

func (w changed) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func TestBrokenProxiesAreFoundOut(t *testing.T) {
	answerWith := func(h http.HandlerFunc) func(http.Handler) http.Handler {
		return func(http.Handler) http.Handler { return h }
	}
	rewriting := func(from, to string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(changed{w, from, to}, r)
			})
		}
	}
	for _, tt := range []struct {
		name  string
		wrap  func(http.Handler) http.Handler
		cell  cell
		error string // "" for none
	}{
		{"a good one", func(h http.Handler) http.Handler { return h }, cell{Body: 4 * kib}, ""},
		{"a good one, streaming", func(h http.Handler) http.Handler { return h }, cell{Body: 4 * kib, Events: 8, Pace: time.Millisecond}, ""},
		{"answers by itself", answerWith(func(w http.ResponseWriter, r *http.Request) {}), cell{Body: 4 * kib}, "the upstream got a body of checksum"},
		{"refuses", answerWith(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "busy", http.StatusServiceUnavailable)
		}), cell{Body: 4 * kib}, "status 503: busy"},
		{"changes the body", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(strings.NewReader(strings.Replace(string(b), "user", "User", 2)))
				next.ServeHTTP(w, r)
			})
		}, cell{Body: 4 * kib}, "status 400"},
		{"changes the end of the body", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				b[len(b)-1] = ' '
				r.Body = io.NopCloser(strings.NewReader(string(b)))
				next.ServeHTTP(w, r)
			})
		}, cell{Body: 4 * kib}, "the upstream got a body of checksum"},
		{"changes an event", rewriting("naïve", "naive"), cell{Body: 4 * kib, Events: 64}, "expected"},
		{"drops the end mark", rewriting(doneEvent, ""), cell{Body: 4 * kib, Events: 4}, "expected"},
		{"ends connections", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Connection", "close")
				next.ServeHTTP(w, r)
			})
		}, cell{Body: 4 * kib}, "not kept alive"},
		{"breaks off", answerWith(func(w http.ResponseWriter, r *http.Request) {
			panic(http.ErrAbortHandler)
		}), cell{Body: 4 * kib}, "read the answer's header"},
	} {
		err := callThrough(t, tt.cell, tt.wrap)
		if (err == nil) != (tt.error == "") || !strings.Contains(fmt.Sprint(err), tt.error) {
			t.Errorf("a proxy that %s: %v; expected an error that says %q", tt.name, err, tt.error)
		}
	}
}
