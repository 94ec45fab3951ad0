package scripted

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// keptBody bounds how much of a body a Record keeps.
const keptBody = 1 << 20

// Record is what a Server notes of one request.
type Record struct {
	Conn, Turn     int // the connection's number and the request's place on it, from 1
	Method, Target string
	Header         []string // lines as they came, without line ends
	ID             string   // x-request-id
	Body           []byte   // its first MiB
	BodyBytes      int64
	BodyHash       uint64 // FNV-1a of all of it

	Arrived time.Time // when its header was complete
	Read    time.Time // when its body was; zero: it was not
	Aborted time.Time // when its peer was seen to be gone, before the script ended
	Ended   time.Time // when the script returned
}

// Get returns the value of a header, and whether it came.
func (r *Record) Get(name string) (string, bool) {
	for _, line := range r.Header {
		if k, v, _ := strings.Cut(line, ":"); strings.EqualFold(k, name) {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

// Call is a request in the hands of its script.
type Call struct {
	server   *Server
	conn     net.Conn
	in       *bufio.Reader
	gone     chan struct{} // closed when the peer is
	watching chan bool     // whether another request's first byte came

	// Guarded by server.mu once the call is listed.
	record Record
	left   bool // gone is closed
	cut    bool // by the script itself
}

// note changes the record.
func (c *Call) note(change func(*Record)) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	change(&c.record)
}

// Record returns what is noted of the request so far.
func (c *Call) Record() Record {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.record
}

// readHeader reads a request's first line and header.
func (c *Call) readHeader() bool {
	for first := true; ; first = false {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return false
		}
		line = strings.TrimRight(line, "\r\n")
		if first {
			c.record.Method, line, _ = strings.Cut(line, " ")
			c.record.Target, _, _ = strings.Cut(line, " ")
			continue
		}
		if line == "" {
			break
		}
		c.record.Header = append(c.record.Header, line)
	}
	c.record.ID, _ = c.record.Get("x-request-id")
	c.record.Arrived = time.Now()
	return true
}

// ReadBody reads the body and begins to watch for the peer's leaving. It reports whether
// the whole body came. Without the option Early it has been called.
func (c *Call) ReadBody() bool {
	hash := fnv.New64a()
	var total int64
	ok := c.eachPiece(func(p []byte) {
		_, _ = hash.Write(p) // never fails
		total += int64(len(p))
		c.note(func(r *Record) {
			r.Body = append(r.Body, p[:min(len(p), keptBody-len(r.Body))]...)
			r.BodyBytes, r.BodyHash = total, hash.Sum64()
		})
	})
	if !ok {
		c.leave()
		return false
	}
	c.note(func(r *Record) { r.BodyHash, r.Read = hash.Sum64(), time.Now() })
	c.watching = make(chan bool, 1)
	c.server.running.Go(c.watch)
	return true
}

// ReadSome reads up to n bytes of the wire's body part and throws them away; for scripts
// that stop reading in the middle of an upload.
func (c *Call) ReadSome(n int64) bool {
	_, err := io.CopyN(io.Discard, c.in, n)
	if err != nil {
		c.leave()
	}
	return err == nil
}

// eachPiece calls f with the pieces of the body, and reports whether it came whole.
func (c *Call) eachPiece(f func([]byte)) bool {
	if te, _ := c.record.Get("transfer-encoding"); strings.EqualFold(te, "chunked") {
		return c.chunked(f)
	}
	length, ok := c.record.Get("content-length")
	if !ok {
		return true
	}
	n, err := strconv.ParseInt(length, 10, 64)
	return err == nil && c.copyPiece(n, f)
}

func (c *Call) copyPiece(n int64, f func([]byte)) bool {
	buf := make([]byte, 32<<10)
	for n > 0 {
		k, err := c.in.Read(buf[:min(n, int64(len(buf)))])
		f(buf[:k])
		n -= int64(k)
		if err != nil && n > 0 {
			return false
		}
	}
	return true
}

func (c *Call) chunked(f func([]byte)) bool {
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return false
		}
		n, err := strconv.ParseInt(strings.TrimRight(line, "\r\n"), 16, 64)
		if err != nil || !c.copyPiece(n, f) {
			return false
		}
		if _, err := c.in.Discard(2); err != nil {
			return false
		}
		if n == 0 {
			return true
		}
	}
}

// watch waits for the next request's first byte, or for the peer to go.
func (c *Call) watch() {
	_, err := c.in.Peek(1)
	if err != nil {
		c.leave()
	}
	c.watching <- err == nil
}

// leave notes that the peer is gone.
func (c *Call) leave() {
	c.note(func(r *Record) {
		if c.left {
			return
		}
		c.left = true
		if r.Ended.IsZero() && !c.cut {
			r.Aborted = time.Now()
		}
		close(c.gone)
	})
}

// Gone is closed when the peer has gone.
func (c *Call) Gone() <-chan struct{} { return c.gone }

// Write writes s in one write, as it is.
func (c *Call) Write(s string) error {
	_, err := io.WriteString(c.conn, s)
	return err
}

// Head writes the status line and the header's lines, with the blank line.
func (c *Call) Head(status int, lines ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for _, l := range lines {
		b.WriteString(l + "\r\n")
	}
	_ = c.Write(b.String() + "\r\n") // a peer that is gone is seen by watch
}

// EventStream writes the head of a chunked stream of events.
func (c *Call) EventStream() {
	c.Head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked")
}

// Chunk writes s as one chunk of a chunked body, in one write.
func (c *Call) Chunk(s string) error { return c.Write(fmt.Sprintf("%x\r\n%s\r\n", len(s), s)) }

// LastChunk ends a chunked body.
func (c *Call) LastChunk() { _ = c.Write("0\r\n\r\n") }

// Stream answers with a stream whose events are a chunk each, ended properly.
func (c *Call) Stream(events ...string) {
	c.EventStream()
	for _, e := range events {
		if c.Chunk(e) != nil {
			return
		}
	}
	c.LastChunk()
}

// Reply answers with a body of known length.
func (c *Call) Reply(status int, contentType, body string, lines ...string) {
	lines = append(lines, "Content-Type: "+contentType, "Content-Length: "+strconv.Itoa(len(body)))
	c.Head(status, lines...)
	_ = c.Write(body)
}

// Pause waits for d. It returns false at once when the peer is gone.
func (c *Call) Pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.gone:
		return false
	}
}

// Hold waits until the peer is gone.
func (c *Call) Hold() { <-c.gone }

// FIN closes the connection in the orderly way.
func (c *Call) FIN() {
	c.note(func(*Record) { c.cut = true })
	_ = c.conn.Close()
}

// RST resets the connection.
func (c *Call) RST() {
	c.note(func(*Record) { c.cut = true })
	if l, ok := c.conn.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0) // on a closed connection there is nothing to reset
	}
	_ = c.conn.Close()
}
