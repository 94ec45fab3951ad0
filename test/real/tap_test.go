package real

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// tap stands between the gateway and a server and keeps what each said.
type tap struct {
	address string // where the gateway connects

	mu    sync.Mutex
	conns []*tapped
}

// tapped is one connection's bytes.
type tapped struct {
	mu               sync.Mutex
	request, respond bytes.Buffer
}

func newTap(t testing.TB, server string) *tap {
	t.Helper()
	l := listener(t)
	p := &tap{address: l.Addr().String()}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			c := &tapped{}
			p.mu.Lock()
			p.conns = append(p.conns, c)
			p.mu.Unlock()
			go c.pipe(out, in, &c.request)
			go c.pipe(in, out, &c.respond)
		}
	}()
	return p
}

// pipe keeps what from says before it passes it on, and ends both when either does.
func (c *tapped) pipe(to, from net.Conn, kept *bytes.Buffer) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		c.mu.Lock()
		kept.Write(b[:n])
		c.mu.Unlock()
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// said is an answer of the server as it came.
type said struct {
	header http.Header
	body   []byte
}

// answers returns what the server answered to calls of the path, in order.
func (p *tap) answers(t testing.TB, path string) (out []said) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.mu.Lock()
		asked := bufio.NewReader(bytes.NewReader(c.request.Bytes()))
		told := bufio.NewReader(bytes.NewReader(c.respond.Bytes()))
		c.mu.Unlock()
		for {
			req, err := http.ReadRequest(asked)
			if err != nil {
				break
			}
			_, _ = io.Copy(io.Discard, req.Body)
			resp, err := http.ReadResponse(told, req)
			if err != nil {
				t.Fatalf("the server's answer to %s: %v", req.URL.Path, err)
			}
			b := body(t, resp)
			if req.URL.Path == path {
				out = append(out, said{resp.Header, b})
			}
		}
	}
	return out
}
