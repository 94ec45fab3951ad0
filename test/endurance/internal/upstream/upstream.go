// Package upstream is the engines' side of a run: HTTP/1.1 servers that write byte for
// byte what a plan says, and note in the ledger what came and what became of it.
package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/test/endurance/internal/ledger"
)

// Site is one of a server's base paths: the server as an endpoint of one pool.
type Site struct {
	Served string // the name by which this pool's endpoints know the model
	Key    string // that must come as bearer token; "": none must come
}

// Script plans what an attempt gets. n is how many the call had before.
type Script func(s *Server, site string, c *ledger.Call, mark string, n int) *Plan

// Config is one server.
type Config struct {
	Name    string          // the endpoint's name in the gateway's configuration
	Sites   map[string]Site // by base path, "/name"
	Metrics string          // the body of /metrics; "": 404
	Private []string        // values that must not come in any header
	Script  Script
	Refuse  func() bool // whether the connection that has come is reset at once; nil: none is
}

// Server is one upstream.
type Server struct {
	Config
	book    *ledger.Book
	addr    string
	nonce   atomic.Uint64
	refused atomic.Int64 // connections that were reset at once

	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]bool
	closed   bool
	running  sync.WaitGroup
}

// Start listens on a free loopback port.
func Start(book *ledger.Book, c Config) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{Config: c, book: book, addr: l.Addr().String(), conns: map[*conn]bool{}}
	s.serve(l)
	return s, nil
}

// Addr returns the server's address, which stays while it is down.
func (s *Server) Addr() string { return s.addr }

// Refused returns how many connections were reset at once.
func (s *Server) Refused() int64 { return s.refused.Load() }

func (s *Server) serve(l net.Listener) {
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	s.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if s.Refuse != nil && s.Refuse() {
				s.refused.Add(1)
				reset(c)
				continue
			}
			k := &conn{Conn: c, server: s}
			s.mu.Lock()
			if s.closed || s.listener != l {
				s.mu.Unlock()
				reset(c)
				continue
			}
			s.conns[k] = true
			s.mu.Unlock()
			s.running.Go(k.serve)
		}
	})
}

// Down stops listening; kill resets the connections too, as the death of a process does.
func (s *Server) Down(kill bool) {
	s.mu.Lock()
	l := s.listener
	s.listener = nil
	var list []*conn
	for c := range s.conns {
		if kill {
			list = append(list, c)
		}
	}
	s.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	for _, c := range list {
		c.kill()
	}
}

// Up listens again.
func (s *Server) Up() error {
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	s.serve(l)
	return nil
}

// Close stops the server and waits for its connections.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Down(true)
	s.running.Wait()
}

// conn is one connection.
type conn struct {
	net.Conn
	server *Server

	mu      sync.Mutex
	call    *ledger.Call // of the newest attempt
	attempt *ledger.Attempt
	ended   time.Time
	killed  bool
}

// certain is how long after an attempt's end the death of its connection can't harm it.
const certain = 2 * time.Second

// kill resets the connection and notes that its attempt may have suffered.
func (c *conn) kill() {
	c.mu.Lock()
	c.killed = true
	if c.attempt != nil && (c.ended.IsZero() || time.Since(c.ended) < certain) {
		a := c.attempt
		c.call.Note(func() { a.Killed = true })
	}
	c.mu.Unlock()
	reset(c.Conn)
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// request is a request that has come.
type request struct {
	method, target string
	header         textproto.MIMEHeader
	body           []byte
}

func (c *conn) serve() {
	defer func() {
		_ = c.Close()
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		delete(c.server.conns, c)
	}()
	in := bufio.NewReader(c)
	for {
		r, err := readRequest(in)
		if err != nil {
			return
		}
		again := false
		if r.method == http.MethodGet {
			again = c.get(r)
		} else {
			again = c.answer(r, in)
		}
		if !again {
			return
		}
	}
}

func readRequest(in *bufio.Reader) (*request, error) {
	tp := textproto.NewReader(in)
	line, err := tp.ReadLine()
	if err != nil {
		return nil, err
	}
	r := &request{}
	r.method, line, _ = strings.Cut(line, " ")
	r.target, _, _ = strings.Cut(line, " ")
	if r.header, err = tp.ReadMIMEHeader(); err != nil {
		return nil, err
	}
	var src io.Reader = http.NoBody
	if strings.EqualFold(r.header.Get("Transfer-Encoding"), "chunked") {
		return nil, errors.New("chunked requests are not known here")
	} else if n, err := strconv.ParseInt(r.header.Get("Content-Length"), 10, 64); err == nil {
		src = io.LimitReader(in, n)
		r.body = make([]byte, 0, n)
	}
	buf := bytes.NewBuffer(r.body)
	_, err = io.Copy(buf, src)
	r.body = buf.Bytes()
	if n, _ := strconv.Atoi(r.header.Get("Content-Length")); err == nil && len(r.body) < n {
		err = io.ErrUnexpectedEOF
	}
	return r, err
}

// get answers what is no call.
func (c *conn) get(r *request) bool {
	status, body := 404, "not found\n"
	switch {
	case strings.HasSuffix(r.target, "/metrics") && c.server.Metrics != "":
		status, body = 200, c.server.Metrics
	case strings.HasSuffix(r.target, "/health"):
		status, body = 200, ""
	}
	_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(body), body)
	return err == nil
}

// answer deals with a call: it notes the attempt and does what its plan says.
func (c *conn) answer(r *request, in *bufio.Reader) bool {
	s := c.server
	id := r.header.Get("X-Request-Id")
	call := s.book.Find(id)
	site := "/" + strings.SplitN(r.target+"/", "/", 3)[1]
	known, ok := s.Sites[site]
	if call == nil || !ok {
		// Unless its peer is gone already: then this process alone is late.
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		_, err := in.Peek(1)
		running := errors.Is(err, os.ErrDeadlineExceeded)
		s.book.Rules.Check(!s.book.Known(id) || !running, "4", id, "no attempt of a call that is long over", "one at %s", s.Name)
		s.book.Rules.Check(ok, "join", id, "a configured path", "%q at %s", r.target, s.Name)
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		return false
	}
	mark := fmt.Sprintf("<%s@%s.%d>", id, s.Name, s.nonce.Add(1))
	a := &ledger.Attempt{Endpoint: s.Name, Mark: mark, Arrived: time.Now(),
		BadBody: badBody(r, call, site, known), BadHeader: badHeader(r, known, s.Private)}
	n := call.AddAttempt(a)
	p := s.Script(s, site, call, mark, n)
	call.Note(func() {
		a.Fault, a.Status, a.Whole, a.Final, a.Unfit, a.Leak, a.Classes = p.Fault, p.Status, p.Whole, p.Final, p.Unfit, p.Leak, p.Classes
		a.Coded = slices.ContainsFunc(p.Header, func(h string) bool { return strings.HasPrefix(h, "Content-Encoding:") })
		a.RetryAfter, a.Silent = p.RetryAfter, p.Silent
		a.Stream, a.Endless = strings.HasPrefix(p.Type, "text/event-stream"), p.Endless
	})
	c.mu.Lock()
	c.call, c.attempt, c.ended = call, a, time.Time{}
	if c.killed {
		call.Note(func() { a.Killed, a.Late = true, true })
	}
	c.mu.Unlock()

	w := &wire{conn: c, call: call, attempt: a, gone: make(chan struct{}), again: make(chan bool, 1)}
	s.running.Go(func() { w.watch(in) })
	reuse := w.run(p)
	now := time.Now()
	c.mu.Lock()
	c.ended = now
	c.mu.Unlock()
	call.Note(func() { a.Ended = now })
	if !reuse {
		_ = c.Close()
		<-w.again
		return false
	}
	return <-w.again
}

// badBody returns how the request differs from the client's.
func badBody(r *request, c *ledger.Call, site string, known Site) string {
	want := c.Body
	if known.Served != c.Model {
		want = bytes.Replace(want, []byte(`"model":"`+c.Model+`"`), []byte(`"model":"`+known.Served+`"`), 1)
	}
	if got := strings.TrimPrefix(r.target, site); got != c.Route || r.method != http.MethodPost {
		return fmt.Sprintf("%s %s instead of POST %s", r.method, got, c.Route)
	}
	if !bytes.Equal(r.body, want) {
		return fmt.Sprintf("%d bytes instead of %d: %.200q instead of %.200q", len(r.body), len(want), r.body, want)
	}
	if e := r.header.Get("Content-Encoding"); e != "" {
		return "content encoding " + e + " of a body that has none"
	}
	return ""
}

// badHeader returns what is wrong with the request's header.
func badHeader(r *request, known Site, private []string) string {
	want := ""
	if known.Key != "" {
		want = "Bearer " + known.Key
	}
	if got := r.header.Get("Authorization"); got != want {
		return fmt.Sprintf("authorization %q instead of %q", got, want)
	}
	for name, values := range r.header {
		for _, secret := range private {
			if strings.Contains(strings.Join(values, "\n"), secret) {
				return fmt.Sprintf("%s: %q", name, values)
			}
		}
	}
	return ""
}

// Flap takes the server down and up again at random until stop is closed: sometimes the
// listener alone, sometimes everything.
func (s *Server) Flap(r *rand.Rand, up, down time.Duration, stop <-chan struct{}) error {
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d/2 + time.Duration(r.Int64N(int64(d)))):
			return true
		case <-stop:
			return false
		}
	}
	for wait(up) {
		s.Down(r.IntN(2) == 0)
		again := wait(down)
		if err := s.Up(); err != nil {
			return err
		}
		if !again {
			break
		}
	}
	return nil
}
