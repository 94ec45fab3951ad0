// Package scripted is an upstream for tests, and so has no layer: an HTTP/1.1 server
// that writes byte for byte what its script says, where a real server would be polite.
// The script chooses write borders, pauses, framing, silence and how the connection
// ends; the server notes what came and when its peer went away. It works on any
// listener, in a testing/synctest bubble over memnet as well as on a socket.
package scripted

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"time"
)

// Script is what the server does with one request. When it returns the connection waits
// for another one, unless the script has ended it. Scripts of several connections run
// at the same time.
type Script func(c *Call)

// Options changes how a Server treats requests.
type Options struct {
	// Early runs the script when the header has come; Call.ReadBody reads the body. By
	// default the body is read before the script runs.
	Early bool
}

// Server is a scripted upstream. It is safe for concurrent use.
type Server struct {
	listener net.Listener
	options  Options
	running  sync.WaitGroup

	mu     sync.Mutex
	script Script
	closed bool
	conns  map[net.Conn]bool
	nConns int
	calls  []*Call
}

// Start serves l until Close.
func Start(l net.Listener, o Options, script Script) *Server {
	s := &Server{listener: l, options: o, script: script, conns: map[net.Conn]bool{}}
	s.running.Go(s.accept)
	return s
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// SetScript replaces the script for requests that arrive from now on.
func (s *Server) SetScript(script Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// Close stops listening, closes all connections and waits until all scripts have
// returned. A script that waits for its peer sees it gone.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	conns := make([]net.Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	_ = s.listener.Close() // a second Close is harmless
	for _, c := range conns {
		_ = c.Close()
	}
	s.running.Wait()
}

// Calls returns a copy of what is noted of the requests so far, in order of arrival.
func (s *Server) Calls() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := make([]Record, len(s.calls))
	for i, c := range s.calls {
		records[i] = c.record
		records[i].Header = slices.Clone(c.record.Header)
	}
	return records
}

// Attempts returns how many requests came with the x-request-id.
func (s *Server) Attempts(id string) int {
	n := 0
	for _, r := range s.Calls() {
		if r.ID == id {
			n++
		}
	}
	return n
}

// Alive returns how many scripts are running whose peer has not gone.
func (s *Server) Alive() int {
	n := 0
	for _, r := range s.Calls() {
		if r.Ended.IsZero() && r.Aborted.IsZero() {
			n++
		}
	}
	return n
}

// Conns returns how many connections were accepted so far.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nConns
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.nConns++
		s.conns[conn] = true
		n := s.nConns
		s.mu.Unlock()
		s.running.Go(func() { s.serve(conn, n) })
	}
}

// serve runs the scripts of one connection's requests.
func (s *Server) serve(conn net.Conn, number int) {
	defer func() {
		_ = conn.Close() // the script may have closed it
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
	}()
	in := bufio.NewReader(conn)
	for turn := 1; ; turn++ {
		c := &Call{server: s, conn: conn, in: in, gone: make(chan struct{})}
		c.record.Conn, c.record.Turn = number, turn
		if !c.readHeader() {
			return
		}
		s.mu.Lock()
		s.calls = append(s.calls, c)
		script := s.script
		s.mu.Unlock()
		if !s.options.Early && !c.ReadBody() {
			c.end()
			return
		}
		script(c)
		if !c.end() {
			return
		}
	}
}

// end notes that the script has returned, and reports whether another request can come.
func (c *Call) end() bool {
	c.note(func(r *Record) { r.Ended = time.Now() })
	if c.watching == nil {
		return false // the body was never read whole
	}
	return <-c.watching
}
