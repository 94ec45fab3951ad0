package emulator

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// life is the engine between two restarts: what a process would be.
type life struct {
	born  time.Time     // until then its connections are reset, as those of a process that starts are refused
	ended chan struct{} // closed by the restart that ends it
	load  atomic.Int64  // calls in flight
}

func newLife(born time.Time) *life { return &life{born: born, ended: make(chan struct{})} }

// errGone is the end of a call whose engine was restarted: its client sees the connection
// break.
var errGone = errors.New("emulator: the engine was restarted")

// reset resets the connection under a reply, as the death of a process does. What was
// flushed may still arrive.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2: the stream is reset
	}
	kill(conn)
}

// kill closes a connection with a reset.
func kill(c net.Conn) {
	if tcp, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// connections are the open ones of Serve, so that a restart can break those that wait for
// their next call, too. It is safe for concurrent use.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]bool
}

// follow is http.Server.ConnState.
func (c *connections) follow(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.open == nil {
			c.open = map[net.Conn]bool{}
		}
		c.open[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// breakAll resets all connections but the one that ctx comes from.
func (c *connections) breakAll(ctx context.Context) {
	own, _ := ctx.Value(connectionKey{}).(net.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		if conn != own {
			kill(conn)
		}
	}
}

type connectionKey struct{}

// remember is http.Server.ConnContext.
func remember(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}
