package proxy_test

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// A body that is announced and never sent holds no connection, also where no body is
// expected.
func TestAnnouncedBodyHoldsNoConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t, ordered(func(c *scripted.Call) { c.Hold() }))
	defer r.close()
	var clients sync.WaitGroup
	for _, head := range []string{"GET /v1/models", "GET /v1/models/m", "GET /v1/models/nobody", "GET /nowhere", "PUT /v1/embeddings"} {
		c := r.send(head + " HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
		if err := c.SetReadDeadline(time.Now().Add(4 * time.Second)); err != nil {
			t.Fatal(err)
		}
		clients.Go(func() {
			got, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 ") {
				t.Errorf("%s: %q, then %v", head, got, err)
			}
			closeAll(t, c)
		})
	}
	clients.Wait()
}

// A client that reads nothing before it has sent its last byte gets its answer all the
// same (field case F66).
func TestRefusalReachesAClientThatSendsFirst(t *testing.T) {
	s := ordered(good)
	s.config = func(c *proxy.Config) { c.Limits.Buffered = 2 << 20 }
	r := newRig(t, s)
	defer r.close()
	body := strings.Repeat(" ", 20<<20)
	for name, x := range map[string]struct {
		head   string
		status int
	}{
		"too large":        {"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 20971520", 413},
		"large in chunks":  {"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked", 413},
		"an unknown route": {"POST /v1/unknown HTTP/1.1\r\nContent-Length: 20971520", 404},
		"a coding":         {"POST /v1/chat/completions HTTP/1.1\r\nContent-Encoding: lzma\r\nContent-Length: 20971520", 415},
	} {
		t.Run(name, func(t *testing.T) {
			text := x.head + "\r\nHost: g\r\n\r\n"
			if strings.Contains(x.head, "chunked") {
				text += "1400000\r\n" + body + "\r\n0\r\n\r\n"
			} else {
				text += body
			}
			c := r.send(text) // all of it, before anything is read
			defer closeAll(t, c)
			if a := readAnswer(t, c); a.status != x.status {
				t.Errorf("status %d, %v", a.status, a.header)
			}
		})
	}
}

// An upstream that goes on after its end mark, with pings or anything else, keeps neither
// the charge nor, for long, the client.
func TestStreamEndsSoonAfterItsEndMark(t *testing.T) {
	r := newRig(t, ordered(func(c *scripted.Call) {
		events(c, wholeStream("one")...)
		for c.Pause(50*time.Millisecond) && c.Chunk(": ping\n\n") == nil {
		}
	}))
	defer r.close()
	began := time.Now()
	a := r.post(chatPath, streamed)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the stream went on for %v after [DONE]", took)
	}
	if !strings.Contains(a.body, "[DONE]") {
		t.Errorf("%v after %q", a.err, a.body)
	}
	if c := r.record(); c.string("outcome") != "success" {
		t.Errorf("record %v", c)
	}
}
