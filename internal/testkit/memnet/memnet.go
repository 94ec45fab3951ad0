// Package memnet is an in-memory TCP for tests, and so has no layer: listeners and
// buffered duplex connections with deadlines, half close and reset, which never leave
// the process and start no goroutine. Whatever blocks, blocks on a condition variable,
// which testing/synctest counts as durably blocked: make the Network, its listeners and
// its connections inside the bubble, and virtual time passes while all of them wait.
//
// Both directions of a connection have a buffer, as the kernel's sockets do. Over
// net.Pipe, which has none, an HTTP answer that starts before the request's body was
// read deadlocks or breaks.
package memnet

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// BufferBytes is how much one direction of a connection holds before Write blocks.
const BufferBytes = 64 << 10

// Backlog is how many connections a listener holds that nobody accepted yet; a dial
// beyond it is refused.
const Backlog = 1024

// Ports given to "host:0" listeners and to dialing ends, in turn.
const firstPort, portCount = 49152, 16384

// Network is a set of listeners and of the connections to them. It is safe for
// concurrent use.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	conns     map[string]map[*Conn]struct{} // accepting ends by the address dialed
	ports     int                           // ports handed out so far
	seq       uint64                        // connections made so far
}

// New returns a network in which nobody listens.
func New() *Network {
	return &Network{listeners: map[string]*listener{}, conns: map[string]map[*Conn]struct{}{}}
}

// Listen listens on addr, "host:port"; port 0 chooses a free one. Hosts are names and
// nothing more: nothing is resolved, and addresses are compared as strings. An address
// that is taken gives EADDRINUSE.
func (n *Network) Listen(addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: err}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == "0" {
		addr = n.freePortLocked(host)
	}
	if n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: Addr(addr), Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	l := &listener{net: n, addr: Addr(addr)}
	l.ready.L = &n.mu
	n.listeners[addr] = l
	return l, nil
}

func (n *Network) freePortLocked(host string) string {
	for {
		addr := net.JoinHostPort(host, strconv.Itoa(firstPort+n.ports%portCount))
		n.ports++
		if n.listeners[addr] == nil {
			return addr
		}
	}
}

// Dial is DialContext without a context.
func (n *Network) Dial(network, addr string) (net.Conn, error) {
	return n.DialContext(context.Background(), network, addr)
}

// DialContext connects to the listener on addr; it fits http.Transport.DialContext. It
// never blocks: the connection exists at once, accepted or not. Where nobody listens, or
// the listener's backlog is full, it fails with ECONNREFUSED.
func (n *Network) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: Addr(addr), Err: err}
	}
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return fail(net.UnknownNetworkError(network))
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[addr]
	if l == nil || len(l.backlog) >= Backlog {
		return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	client, server := n.pairLocked(Addr(n.freePortLocked("127.0.0.1")), l.addr)
	if n.conns[addr] == nil {
		n.conns[addr] = map[*Conn]struct{}{}
	}
	n.conns[addr][server] = struct{}{}
	l.backlog = append(l.backlog, server)
	l.ready.Signal()
	return client, nil
}

// Kill does what the death of the process that listens on addr does: the listener is
// closed, and every connection to it is reset. What a peer had already received it can
// still read; then it sees ECONNRESET. Dials are refused until Listen is called again. The
// newest connection goes first, so that nobody comes to rely on the order of opening.
func (n *Network) Kill(addr string) {
	n.mu.Lock()
	if l := n.listeners[addr]; l != nil {
		l.closeLocked()
	}
	conns := make([]*Conn, 0, len(n.conns[addr]))
	for c := range n.conns[addr] {
		conns = append(conns, c)
	}
	delete(n.conns, addr)
	n.mu.Unlock()
	slices.SortFunc(conns, func(a, b *Conn) int { return cmp.Compare(b.seq, a.seq) })
	for _, c := range conns {
		c.reset()
	}
}

// Conns returns how many connections to addr are open: accepted or not, closed by
// neither end.
func (n *Network) Conns(addr string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns[addr])
}

func (n *Network) forget(c *Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	addr := string(c.local)
	delete(n.conns[addr], c)
	if len(n.conns[addr]) == 0 {
		delete(n.conns, addr)
	}
}

// Addr is an address in a Network: "host:port".
type Addr string

// Network returns "tcp": to the code under test this is TCP.
func (Addr) Network() string { return "tcp" }

func (a Addr) String() string { return string(a) }

type listener struct {
	net  *Network
	addr Addr

	// Guarded by net.mu.
	ready   sync.Cond
	backlog []*Conn
	closed  bool
}

func (l *listener) Accept() (net.Conn, error) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	for len(l.backlog) == 0 && !l.closed {
		l.ready.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	c := l.backlog[0]
	l.backlog = l.backlog[1:]
	return c, nil
}

// Close stops listening. Connections that nobody accepted are reset; the others live on.
func (l *listener) Close() error {
	l.net.mu.Lock()
	if l.closed {
		l.net.mu.Unlock()
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	orphans := l.closeLocked()
	l.net.mu.Unlock()
	for _, c := range orphans {
		c.reset()
		l.net.forget(c)
	}
	return nil
}

func (l *listener) closeLocked() (orphans []*Conn) {
	orphans, l.backlog, l.closed = l.backlog, nil, true
	delete(l.net.listeners, string(l.addr))
	l.ready.Broadcast()
	return orphans
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) String() string { return fmt.Sprintf("memnet listener on %s", l.addr) }
