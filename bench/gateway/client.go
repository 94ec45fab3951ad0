package main

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// client is one connection that makes one call after the other. It writes requests that
// are ready made and reads answers as they come, to leave the CPU to what is measured.
type client struct {
	conn   net.Conn
	reader *bufio.Reader
	buf    []byte
	number []byte
}

func dial(addr string) (*client, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, reader: bufio.NewReaderSize(conn, 32*kib), buf: make([]byte, 32*kib)}, nil
}

// callTimeout bounds one call: a proxy that hangs ends the run.
const callTimeout = 30 * time.Second

// request is a conversation made ready for one cell: what goes before the call's number,
// and after it.
type request struct {
	before, after []byte
	sumBefore     uint32 // of the body's part of before
}

// prepare makes the requests of a cell: the headers are those of OpenAI's Python SDK.
func prepare(c cell, conversations []conversation) []request {
	var out []request
	h := head(c)
	for _, v := range conversations {
		length := len(h) + len(v.before) + 16 + len(v.after)
		before := fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway.internal\r\n"+
			"Accept: application/json\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\n"+
			"User-Agent: OpenAI/Python 2.9.0\r\nAuthorization: Bearer sk-bench-0123456789abcdef0123456789abcdef\r\n"+
			"X-Stainless-Lang: python\r\nX-Stainless-Package-Version: 2.9.0\r\nX-Stainless-Os: Linux\r\nX-Stainless-Arch: x64\r\n"+
			"X-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.12.3\r\nX-Stainless-Async: async:asyncio\r\n"+
			"X-Stainless-Retry-Count: 0\r\nX-Stainless-Read-Timeout: 600\r\nContent-Length: %d\r\n\r\n", length)
		head := len(before)
		before = append(append(before, h...), v.before...)
		out = append(out, request{before, v.after, crc32.Checksum(before[head:], castagnoli)})
	}
	return out
}

// timing is what one call took, from before its first byte was written.
type timing struct {
	first time.Duration // to the first byte of the answer's body
	whole time.Duration // to its last
}

// call makes one call and checks its answer: status, length and checksum, and that the
// upstream got the body that was sent.
func (c *client) call(q *request, n uint64, want expected) (timing, error) {
	c.number = callNumber(c.number[:0], n)
	sum := crc32.Update(q.sumBefore, castagnoli, c.number)
	sum = crc32.Update(sum, castagnoli, q.after)
	start := time.Now()
	if err := c.conn.SetDeadline(start.Add(callTimeout)); err != nil {
		return timing{}, err
	}
	pieces := net.Buffers{q.before, c.number, q.after}
	if _, err := pieces.WriteTo(c.conn); err != nil {
		return timing{}, fmt.Errorf("send: %w", err)
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return timing{}, fmt.Errorf("read the answer's header: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, kib))
		return timing{}, fmt.Errorf("status %d: %s", resp.StatusCode, said)
	}
	if got := resp.Header.Get(sumHeader); got != strconv.FormatUint(uint64(sum), 16) {
		return timing{}, fmt.Errorf("the upstream got a body of checksum %q; sent was %x", got, sum)
	}
	var t timing
	got, err := c.read(resp.Body, start, &t)
	if err != nil {
		return timing{}, fmt.Errorf("read the answer after %d bytes: %w", got.bytes, err)
	}
	if got != want {
		return timing{}, fmt.Errorf("answer of %d bytes, checksum %x; expected %d, %x", got.bytes, got.sum, want.bytes, want.sum)
	}
	if resp.Close {
		return timing{}, fmt.Errorf("the connection is not kept alive")
	}
	return t, nil
}

// read takes in an answer's body.
func (c *client) read(body io.Reader, start time.Time, t *timing) (expected, error) {
	var got expected
	for {
		n, err := body.Read(c.buf)
		if got.bytes == 0 && n > 0 {
			t.first = time.Since(start)
		}
		got.bytes += int64(n)
		got.sum = crc32.Update(got.sum, castagnoli, c.buf[:n])
		if err == io.EOF {
			t.whole = time.Since(start)
			return got, nil
		}
		if err != nil {
			return got, err
		}
	}
}
