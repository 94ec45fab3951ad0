// Package client is the callers' side of a run: raw HTTP/1.1 clients that send, read, and
// leave as their behaviour says, and report every byte they got.
package client

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"kvasir/test/endurance/internal/ledger"
)

// When is a point of a call at which a client may leave.
type When uint8

// The points.
const (
	Never     When = iota
	InRequest      // after Bytes bytes of head and body
	AfterTime      // Delay after the request was sent
	AfterBody      // after Bytes bytes of the answer's body, and Delay after the request where that is > 0
)

// How is the way in which a client leaves.
type How uint8

// The ways.
const (
	FIN  How = iota // close
	RST             // reset
	Half            // close the sending side and go on reading
)

// Behaviour is how a client behaves on one call.
type Behaviour struct {
	Wire  []byte // head and body as they go out
	Tail  []byte // sent right behind the request
	Piece int    // bytes a write; 0: all at once
	Pause time.Duration
	Stall int // > 0: nothing more is sent after so many bytes

	Leave When
	How   How
	Bytes int
	Delay time.Duration

	ReadPiece int // bytes a read; 0: as they come
	ReadPause time.Duration
	Receive   int  // the socket's receive buffer; 0: the system's
	Stuck     bool // it does not read at all, but for the time below
	StuckFor  time.Duration
	Reuse     bool // the connection may serve another call

	OnHead func(http.Header) // told of the answer's header
	OnBody func(n int)       // told of each piece of the answer: bytes so far
}

// keptBody bounds what is kept of an answer.
const keptBody = 8 << 20

// Worker runs one call after the other. Its zero value is ready; it keeps a connection
// between calls that allow it.
type Worker struct {
	Addr  string
	Bound time.Duration // for a whole call

	kept net.Conn
	in   *bufio.Reader
}

// Close drops the kept connection.
func (w *Worker) Close() {
	if w.kept != nil {
		_ = w.kept.Close()
		w.kept = nil
	}
}

// run is one call in progress.
type run struct {
	b    *Behaviour
	conn net.Conn
	in   *bufio.Reader

	mu  sync.Mutex
	res ledger.Result
}

// leave makes the client leave, once.
func (r *run) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.res.Left.IsZero() || !r.res.Ended.IsZero() {
		return
	}
	switch r.b.How {
	case RST:
		if t, ok := r.conn.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		r.res.Left = time.Now()
		_ = r.conn.Close()
	case Half:
		r.res.Left = time.Now()
		if t, ok := r.conn.(*net.TCPConn); ok {
			_ = t.CloseWrite()
		}
	default:
		r.res.Left = time.Now()
		_ = r.conn.Close()
	}
}

// Do makes a call.
func (w *Worker) Do(b *Behaviour) *ledger.Result {
	r := &run{b: b}
	r.res.Started = time.Now()
	if err := w.connect(r); err != nil {
		r.res.Err, r.res.Ended = err.Error(), time.Now()
		return &r.res
	}
	if err := r.send(); err != nil {
		r.res.Err = "send: " + err.Error()
		if r.left() && b.How != Half {
			return w.end(r, false)
		}
		// The gateway may have answered before the request was whole.
	}
	return w.end(r, r.receive())
}

func (w *Worker) connect(r *run) error {
	if r.b.Reuse && w.kept != nil {
		r.conn, r.in, w.kept = w.kept, w.in, nil
		r.res.Connected = true
		return r.conn.SetDeadline(time.Now().Add(w.Bound))
	}
	d := net.Dialer{Timeout: w.Bound}
	conn, err := d.Dial("tcp", w.Addr)
	if err != nil {
		return err
	}
	if n := r.b.Receive; n > 0 {
		if err := conn.(*net.TCPConn).SetReadBuffer(n); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	r.conn, r.in = conn, bufio.NewReader(conn)
	r.res.Connected = true
	return conn.SetDeadline(time.Now().Add(w.Bound))
}

func (w *Worker) end(r *run, reusable bool) *ledger.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.res.Ended.IsZero() {
		r.res.Ended = time.Now()
	}
	if r.b.Reuse && reusable && r.res.Left.IsZero() && w.kept == nil {
		w.kept, w.in = r.conn, r.in
		return &r.res
	}
	_ = r.conn.Close()
	return &r.res
}

func (r *run) left() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.res.Left.IsZero()
}

// errLeft ends a request that its client broke off.
var errLeft = errors.New("left")

// send sends the request.
func (r *run) send() error {
	b := r.b
	wire := b.Wire
	until := len(wire)
	if b.Leave == InRequest {
		until = min(b.Bytes, until)
	}
	if b.Stall > 0 {
		until = min(b.Stall, until)
	}
	for at := 0; at < until; {
		n := until - at
		if b.Piece > 0 {
			n = min(n, b.Piece)
		}
		if _, err := r.conn.Write(wire[at : at+n]); err != nil {
			return err
		}
		if at += n; at < until && b.Pause > 0 {
			time.Sleep(b.Pause)
		}
	}
	switch {
	case b.Leave == InRequest:
		if b.Pause > 0 {
			time.Sleep(b.Pause)
		}
		r.leave()
		return errLeft
	case b.Stall > 0:
		return nil
	}
	r.res.Sent = true
	if len(b.Tail) > 0 {
		if _, err := r.conn.Write(b.Tail); err != nil {
			return err
		}
	}
	return nil
}

// receive reads the answer and reports whether the connection can have another call.
func (r *run) receive() bool {
	b, in := r.b, r.in
	if b.Leave == AfterTime || b.Delay > 0 {
		timer := time.AfterFunc(b.Delay, r.leave)
		defer timer.Stop()
	}
	if b.Stuck {
		time.Sleep(b.StuckFor)
		return false
	}
	resp, err := http.ReadResponse(in, nil)
	for err == nil && resp.StatusCode >= 100 && resp.StatusCode < 200 {
		resp, err = http.ReadResponse(in, nil)
	}
	if err != nil {
		r.fail("head: " + err.Error())
		return false
	}
	defer resp.Body.Close()
	r.mu.Lock()
	r.res.Status, r.res.Header = resp.StatusCode, resp.Header
	r.mu.Unlock()
	if b.OnHead != nil {
		b.OnHead(resp.Header)
	}
	if b.Leave == AfterBody && b.Bytes == 0 {
		r.leave()
	}
	size := 32 << 10
	if b.ReadPiece > 0 {
		size = b.ReadPiece
	}
	buf := make([]byte, size)
	total := 0
	for {
		n, err := resp.Body.Read(buf)
		if room := keptBody - len(r.res.Body); room > 0 {
			r.res.Body = append(r.res.Body, buf[:min(n, room)]...)
		}
		total += n
		if b.OnBody != nil && n > 0 {
			b.OnBody(total)
		}
		if err == io.EOF {
			r.mu.Lock()
			r.res.Clean, r.res.Ended = true, time.Now()
			r.mu.Unlock()
			return !resp.Close && len(b.Tail) == 0
		}
		if err != nil {
			r.fail("body: " + err.Error())
			return false
		}
		if b.Leave == AfterBody && total >= b.Bytes {
			r.leave()
		}
		if b.ReadPause > 0 {
			time.Sleep(b.ReadPause)
		}
	}
}

func (r *run) fail(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.res.Err != "" {
		what = r.res.Err + "; " + what
	}
	r.res.Err, r.res.Ended = what, time.Now()
}
