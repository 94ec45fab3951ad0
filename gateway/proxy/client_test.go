package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of the body
	closes bool  // the connection ends with it
}

// post sends a body through net/http and reads the answer to its end. Headers are
// "Name: value".
func (r *rig) post(path, body string, headers ...string) answer {
	r.t.Helper()
	a, err := r.do(r.t.Context(), http.MethodPost, path, strings.NewReader(body), headers...)
	if err != nil {
		r.t.Errorf("POST %s: %v", path, err)
	}
	return a
}

func (r *rig) get(path string, headers ...string) answer {
	r.t.Helper()
	a, err := r.do(r.t.Context(), http.MethodGet, path, nil, headers...)
	if err != nil {
		r.t.Errorf("GET %s: %v", path, err)
	}
	return a
}

func (r *rig) do(ctx context.Context, method, path string, body io.Reader, headers ...string) (answer, error) {
	q, err := http.NewRequestWithContext(ctx, method, "http://"+r.addr+path, body)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		if k == "Content-Type" {
			q.Header.Del(k)
		}
		q.Header.Add(k, v)
	}
	resp, err := r.client.Do(q)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text), err, resp.Close}, nil
}

// rawPost is a whole request as bytes.
func rawPost(path, body string, headers ...string) string {
	lines := append([]string{"POST " + path + " HTTP/1.1", "Host: gateway", "Content-Type: application/json",
		fmt.Sprintf("Content-Length: %d", len(body))}, headers...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// open connects a raw client.
func (r *rig) open() net.Conn {
	r.t.Helper()
	c, err := r.dial(context.Background(), "tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// send connects a raw client and sends text.
func (r *rig) send(text string) net.Conn {
	r.t.Helper()
	c := r.open()
	if _, err := io.WriteString(c, text); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// readUntil reads from a raw client until the text has come.
func readUntil(t testing.TB, c net.Conn, text string) string {
	t.Helper()
	var got []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(got, []byte(text)) {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			t.Fatalf("%v before %q came, after %q", err, text, got)
		}
	}
	return string(got)
}

func closeAll(t testing.TB, cs ...io.Closer) {
	t.Helper()
	for _, c := range cs {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
