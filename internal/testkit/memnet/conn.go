package memnet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Conn is one end of a connection. Beside net.Conn it has what *net.TCPConn offers for
// closing: CloseWrite is a half close, and SetLinger(0) makes Close a
// reset. It is safe for concurrent use.
type Conn struct {
	net           *Network
	seq           uint64
	local, remote Addr
	accepted      bool // the listener's end

	link *link
	peer *Conn

	// Guarded by link.mu.
	in          buffer // what the peer wrote and this end has not read
	finished    bool   // this end writes no more
	closed      bool
	linger      int // SetLinger's seconds; -1: default
	read, write deadline
}

// link is what the two ends share.
type link struct {
	mu     sync.Mutex
	change sync.Cond
	reset  bool
}

// pairLocked makes a connection whose dialing end is at from and whose accepting end is
// at to. The caller holds n.mu.
func (n *Network) pairLocked(from, to Addr) (client, server *Conn) {
	n.seq++
	k := &link{}
	k.change.L = &k.mu
	client = &Conn{net: n, seq: n.seq, local: from, remote: to, link: k, linger: -1}
	server = &Conn{net: n, seq: n.seq, local: to, remote: from, link: k, linger: -1, accepted: true}
	client.peer, server.peer = server, client
	return client, server
}

// Read reads what has arrived; it waits while nothing has. After the peer closed it
// returns the rest and then io.EOF, after a reset the rest and then ECONNRESET.
func (c *Conn) Read(p []byte) (int, error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.fail("read", net.ErrClosed)
		case c.read.expired:
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		case len(p) == 0:
			return 0, nil
		case c.in.len() > 0:
			n := c.in.take(p)
			c.link.change.Broadcast()
			return n, nil
		case c.link.reset:
			return 0, c.fail("read", os.NewSyscallError("read", syscall.ECONNRESET))
		case c.peer.finished:
			return 0, io.EOF
		}
		c.link.change.Wait()
	}
}

// Write hands p to the peer's buffer; it waits while that is full. To a peer that has
// closed it fails with EPIPE, after a reset with ECONNRESET.
func (c *Conn) Write(p []byte) (int, error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	written := 0
	for {
		switch {
		case c.closed:
			return written, c.fail("write", net.ErrClosed)
		case c.write.expired:
			return written, c.fail("write", os.ErrDeadlineExceeded)
		case c.link.reset:
			return written, c.fail("write", os.NewSyscallError("write", syscall.ECONNRESET))
		case c.finished || c.peer.closed:
			return written, c.fail("write", os.NewSyscallError("write", syscall.EPIPE))
		}
		if n := c.peer.in.put(p[written:]); n > 0 {
			written += n
			c.link.change.Broadcast()
		}
		if written == len(p) {
			return written, nil
		}
		c.link.change.Wait()
	}
}

// Close closes this end: the peer reads what is left and then io.EOF. After SetLinger(0)
// it is a reset instead.
func (c *Conn) Close() error {
	c.link.mu.Lock()
	if c.closed {
		c.link.mu.Unlock()
		return c.fail("close", net.ErrClosed)
	}
	c.closed, c.finished = true, true
	c.in = buffer{}
	if c.linger == 0 {
		c.link.reset = true
	}
	c.read.stop()
	c.write.stop()
	c.link.change.Broadcast()
	c.link.mu.Unlock()
	if c.accepted {
		c.net.forget(c)
	} else {
		c.net.forget(c.peer)
	}
	return nil
}

// CloseWrite says that this end writes no more: the peer reads what is left, then io.EOF.
func (c *Conn) CloseWrite() error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closed {
		return c.fail("close", net.ErrClosed)
	}
	c.finished = true
	c.link.change.Broadcast()
	return nil
}

// SetLinger is as in net.TCPConn; only zero has an effect: Close resets the connection.
func (c *Conn) SetLinger(seconds int) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	c.linger = seconds
	return nil
}

// reset breaks the connection from this end's side: what it had not read is lost.
func (c *Conn) reset() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.reset = true
	c.in = buffer{}
	c.link.change.Broadcast()
}

// LocalAddr returns this end's address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the other end's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline makes Read fail with os.ErrDeadlineExceeded from t on; the zero time
// lifts it.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.read, t) }

// SetWriteDeadline makes Write fail with os.ErrDeadlineExceeded from t on; the zero time
// lifts it.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.write, t) }

func (c *Conn) setDeadline(d *deadline, t time.Time) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	d.set(c.link, t)
	c.link.change.Broadcast()
	return nil
}

func (c *Conn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// deadline is guarded by its link's mu.
type deadline struct {
	expired bool
	timer   *time.Timer
	version int // tells a timer that fired late that it was replaced
}

func (d *deadline) stop() {
	d.version++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

func (d *deadline) set(k *link, t time.Time) {
	d.stop()
	d.expired = false
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.expired = true
		return
	}
	version := d.version
	d.timer = time.AfterFunc(left, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if d.version == version {
			d.expired = true
			k.change.Broadcast()
		}
	})
}

// buffer is a queue of at most BufferBytes bytes; it grows as needed.
type buffer struct {
	bytes []byte
	head  int // bytes before it were taken
}

func (b *buffer) len() int { return len(b.bytes) - b.head }

func (b *buffer) put(p []byte) int {
	n := min(len(p), BufferBytes-b.len())
	if b.head > 0 && len(b.bytes)+n > cap(b.bytes) {
		b.bytes = b.bytes[:copy(b.bytes, b.bytes[b.head:])]
		b.head = 0
	}
	b.bytes = append(b.bytes, p[:n]...)
	return n
}

func (b *buffer) take(p []byte) int {
	n := copy(p, b.bytes[b.head:])
	b.head += n
	if b.head == len(b.bytes) {
		b.bytes, b.head = b.bytes[:0], 0
	}
	return n
}
