package proxy_test

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// chatOf is a valid request of exactly n bytes.
func chatOf(n int) string {
	const head, tail = `{"model":"m","messages":[{"role":"user","content":"`, `"}]}`
	return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
}

// inChunks is a request with a chunked body, in chunks of at most 10,000 bytes.
func inChunks(path, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", path)
	for len(body) > 0 {
		n := min(len(body), 10_000)
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

// readAnswer reads one response from a raw client.
func readAnswer(t testing.TB, c net.Conn) answer {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err, resp.Close}
}

func hashOf(s string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s) // never fails
	return h.Sum64()
}

// Field case F66: limit-1 and limit pass byte for byte, limit+1 is a 413 that names the
// limit, announced or not, and no endpoint hears of it.
func TestBodyLimitIsExact(t *testing.T) {
	const limit = 200_000
	s := ordered(good)
	s.config = func(c *proxy.Config) { c.Limits.Body = limit }
	r := newRig(t, s)
	defer r.close()
	want := 0
	for _, size := range []int{limit - 1, limit, limit + 1, 2*limit + 300<<10} {
		for _, frame := range []func(string, string) string{
			func(path, body string) string { return rawPost(path, body) }, inChunks,
		} {
			body := chatOf(size)
			c := r.open()
			sent := make(chan error, 1)
			go func() { _, err := io.WriteString(c, frame(chatPath, body)); sent <- err }()
			a := readAnswer(t, c)
			if size <= limit {
				want++
				calls := r.upstreams[0].Calls()
				if a.status != 200 || len(calls) != want {
					t.Fatalf("%d bytes: status %d, %d upstream calls: %s", size, a.status, len(calls), a.body)
				}
				if got := calls[want-1]; got.BodyBytes != int64(size) || got.BodyHash != hashOf(body) {
					t.Errorf("%d bytes: the endpoint got %d others", size, got.BodyBytes)
				}
			} else {
				if a.status != 413 || len(r.upstreams[0].Calls()) != want {
					t.Errorf("%d bytes: status %d, %d upstream calls", size, a.status, len(r.upstreams[0].Calls()))
				}
				if e := envelope(t, a.body); !strings.Contains(e.Message, fmt.Sprint(limit)) {
					t.Errorf("message %q does not name the limit", e.Message)
				}
			}
			closeAll(t, c)
			<-sent // may have failed: the gateway need not read what it refused
		}
	}
}

// Field case F66: the 413 can be read while the client still sends, and before it does.
func TestTooLargeIsAnsweredWhileTheClientSends(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	t.Run("announced", func(t *testing.T) {
		c := r.send("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 999999999\r\n\r\n{")
		if a := readAnswer(t, c); a.status != 413 || !a.closes {
			t.Errorf("status %d, %v", a.status, a.header)
		}
		closeAll(t, c)
	})
	t.Run("chunked, for ever", func(t *testing.T) {
		c := r.send("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n")
		stop := make(chan bool)
		go func() {
			defer close(stop)
			chunk := fmt.Sprintf("%x\r\n%s\r\n", 10_000, strings.Repeat("x", 10_000))
			for {
				if _, err := io.WriteString(c, chunk); err != nil {
					return
				}
			}
		}()
		if a := readAnswer(t, c); a.status != 413 {
			t.Errorf("status %d", a.status)
		}
		closeAll(t, c)
		<-stop
	})
	t.Run("expects 100-continue", func(t *testing.T) {
		c := r.send("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 999999999\r\nExpect: 100-continue\r\n\r\n")
		if a := readAnswer(t, c); a.status != 413 {
			t.Errorf("status %d: a body that is refused must not be asked for", a.status)
		}
		closeAll(t, c)
	})
	if n := r.upstreamCalls(); n != 0 {
		t.Errorf("%d upstream calls", n)
	}
}

// A client that expects 100-continue gets it, then its answer; the endpoint is not asked
// the same.
func TestExpectContinueIsServed(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	c := r.send(strings.Replace(rawPost(chatPath, ""), "Content-Length: 0", fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue", len(unstreamed)), 1))
	readUntil(t, c, "HTTP/1.1 100 Continue\r\n\r\n")
	if _, err := io.WriteString(c, unstreamed); err != nil {
		t.Fatal(err)
	}
	if a := readAnswer(t, c); a.status != 200 || a.body != jsonAnswer {
		t.Errorf("status %d, %q", a.status, a.body)
	}
	closeAll(t, c)
	call := r.upstreams[0].Calls()[0]
	if v, ok := call.Get("expect"); ok {
		t.Errorf("Expect: %s went upstream", v)
	}
}

// Answers to unread bodies wait for nobody: neither for a client that is slow to send
// what is refused, nor for one that never sends it.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	for name, x := range map[string]struct {
		head   string
		status int
	}{
		"encoding": {"POST /v1/chat/completions HTTP/1.1\r\nContent-Encoding: lzma", 415},
		"route":    {"POST /v1/unknown HTTP/1.1", 404},
		"method":   {"PUT /v1/chat/completions HTTP/1.1", 405},
		"models":   {"POST /v1/models HTTP/1.1", 405},
	} {
		t.Run(name, func(t *testing.T) {
			c := r.send(x.head + "\r\nHost: g\r\nContent-Length: 1000\r\n\r\n{")
			began := time.Now()
			if a := readAnswer(t, c); a.status != x.status || !a.closes {
				t.Errorf("status %d, %v", a.status, a.header)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("answered after %v", took)
			}
			closeAll(t, c)
		})
	}
}

// A body that comes too slowly is a 408, one that is framed wrongly a 400; an unfinished
// one, whose client left, is nobody's answer.
func TestBodyThatDoesNotArrive(t *testing.T) {
	s := ordered(good)
	s.config = func(c *proxy.Config) { c.BodyTimeout = 50 * time.Millisecond }
	r := newRig(t, s)
	defer r.close()
	c := r.send(rawPost(chatPath, unstreamed)[:150])
	a := readAnswer(t, c)
	if a.status != 408 {
		t.Errorf("slow: status %d, %s", a.status, a.body)
	}
	if e := envelope(t, a.body); strings.Contains(e.Message, "127.0.0.1") || e.Code != "body_too_slow" {
		t.Errorf("envelope %+v", e)
	}
	closeAll(t, c)

	c = r.send("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")
	if a := readAnswer(t, c); a.status != 400 {
		t.Errorf("wrong framing: status %d, %s", a.status, a.body)
	}
	closeAll(t, c)
}

// The body's time limit is over with the body: a slow answer, and the next call on the
// same connection, are not cut by it. Neither does an old write deadline.
func TestDeadlinesDoNotOutliveTheirPurpose(t *testing.T) {
	t.Parallel()
	s := ordered(func(c *scripted.Call) { c.Pause(300 * time.Millisecond); good(c) })
	s.config = func(c *proxy.Config) { c.BodyTimeout, c.WriteTimeout = 100*time.Millisecond, 150*time.Millisecond }
	r := newRig(t, s)
	defer r.close()
	c := r.open()
	for i := range 2 {
		if _, err := io.WriteString(c, rawPost(chatPath, unstreamed)); err != nil {
			t.Fatal(err)
		}
		if a := readAnswer(t, c); a.status != 200 {
			t.Errorf("call %d: status %d", i, a.status)
		}
		time.Sleep(250 * time.Millisecond)
	}
	for _, path := range []string{"/v1/models", "/nowhere"} {
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: g\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		readAnswer(t, c)
	}
	closeAll(t, c)
}

// However long an endpoint takes to fail, or to say little, its client hears of it.
func TestAnswerAfterALongWaitIsNotCutByAnOldDeadline(t *testing.T) {
	for name, x := range map[string]struct {
		script scripted.Script
		status int
	}{
		"reset":     {func(c *scripted.Call) { c.Pause(time.Minute); c.RST() }, 502},
		"busy":      {func(c *scripted.Call) { c.Pause(time.Minute); status(503)(c) }, 503},
		"no body":   {func(c *scripted.Call) { c.Pause(time.Minute); c.Head(204) }, 502},
		"empty":     {func(c *scripted.Call) { c.Pause(time.Minute); c.Head(200, "Content-Length: 0") }, 502},
		"redirect":  {func(c *scripted.Call) { c.Pause(time.Minute); c.Head(302, "Content-Length: 0") }, 502},
		"an answer": {func(c *scripted.Call) { c.Pause(time.Minute); good(c) }, 200},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, ordered(x.script), func(t *testing.T, r *rig) {
				if a := r.post(chatPath, unstreamed); a.status != x.status {
					t.Errorf("status %d", a.status)
				}
			})
		})
	}
}

// Field case F66: what is not one JSON object, or ambiguous, is a 400 and goes nowhere.
func TestBodiesThatAreNoRequests(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	for name, body := range map[string]string{
		"empty": "", "not json": "hello", "cut": unstreamed[:30], "array": "[" + unstreamed + "]", "string": `"m"`, "null": "null",
		"two":         unstreamed + unstreamed,
		"deep":        `{"model":"m","messages":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`,
		"model twice": `{"model":"m","model":"other","messages":[]}`,
		"no model":    `{"messages":[]}`, "model null": `{"model":null,"messages":[]}`, "model a number": `{"model":1,"messages":[]}`,
	} {
		a := r.post(chatPath, body)
		if a.status != 400 {
			t.Errorf("%s: status %d, %s", name, a.status, a.body)
			continue
		}
		if e := envelope(t, a.body); e.Type != "invalid_request_error" || e.RequestID == "" || strings.Contains(e.Message, "Hello") {
			t.Errorf("%s: envelope %+v", name, e)
		}
	}
	if n := r.upstreamCalls(); n != 0 {
		t.Errorf("%d upstream calls", n)
	}
	if n := r.metric("kvasir_refusals_total", "reason=bad_request"); n != 12 {
		t.Errorf("%v refusals counted", n)
	}
}

// An alias changes the model's name alone; without one nothing changes.
func TestAliasChangesTheModelAlone(t *testing.T) {
	odd := ` { "messages" : [ {"role":"user","content":"model \"alias\" \u00e9 é"} ],` + "\n\t" + `"unknown":[1e3,{"model":"alias"}], "model" : %s , "temperature":0.10 }` + "\n"
	for _, x := range []struct{ servedAs, asked, sent string }{
		{"", `"m"`, `"m"`},
		{"", `"alias"`, `"m"`},
		{"", `"\u006d"`, `"\u006d"`}, // the name itself, however it is written
		{"org/inner-\"x\"", `"m"`, `"org/inner-\"x\""`},
		{"org/inner-\"x\"", `"alias"`, `"org/inner-\"x\""`},
		{"org/inner-\"x\"", `"a\u006cias"`, `"org/inner-\"x\""`},
	} {
		s := ordered(good)
		s.servedAs = x.servedAs
		r := newRig(t, s)
		if a := r.post(chatPath, fmt.Sprintf(odd, x.asked)); a.status != 200 || a.body != jsonAnswer {
			t.Errorf("%v: status %d, %q", x, a.status, a.body)
		}
		if got, want := string(r.upstreams[0].Calls()[0].Body), fmt.Sprintf(odd, x.sent); got != want {
			t.Errorf("%v: the endpoint got %q\nwant %q", x, got, want)
		}
		if c := r.record(); c.string("model") != testModel {
			t.Errorf("%v: record %v", x, c)
		}
		r.close()
	}
}
