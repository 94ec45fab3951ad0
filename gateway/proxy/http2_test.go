package proxy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

// Clients over HTTP/2: calls, streams, errors, bodies, and a stream that is reset.
func TestHTTP2_Clients(t *testing.T) {
	s := ordered(streams(wholeStream("yes")...))
	s.http2 = true
	r := newRig(t, s)
	defer r.close()
	a := r.post(chatPath, streamed)
	if a.status != 200 || a.body != joined(wholeStream("yes")) {
		t.Errorf("status %d, %q", a.status, a.body)
	}
	r.upstreams[0].SetScript(good)
	if a := r.post(chatPath, unstreamed); a.body != jsonAnswer {
		t.Errorf("%q", a.body)
	}
	if a := r.post(chatPath, string(encode(t, []byte(unstreamed), "gzip")), "Content-Encoding: gzip"); a.body != jsonAnswer {
		t.Errorf("%q", a.body)
	}
	if a := r.post(chatPath, strings.Repeat(" ", 2<<20)); a.status != 413 {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	if a := r.post("/v1/nothing", strings.Repeat(" ", 1<<20)); a.status != 404 {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	r.upstreams[0].SetScript(func(c *scripted.Call) { events(c, roleEvent, textEvent("one")+"data: {"); c.RST() })
	if a := r.post(chatPath, streamed); a.err == nil {
		t.Errorf("half an event ends cleanly: %q", a.body)
	}
}

// Field case F14 over HTTP/2: a client resets its stream, and the upstream is aborted.
func TestF14_ResetOfAnHTTP2Stream(t *testing.T) {
	s := ordered(func(c *scripted.Call) { events(c, roleEvent, textEvent("one")); c.Hold() })
	s.http2 = true
	r := newRig(t, s)
	defer r.close()
	ctx, cancel := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, "POST", "http://"+r.addr+chatPath, strings.NewReader(streamed))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	if resp.ProtoMajor != 2 {
		t.Fatalf("spoken: %s", resp.Proto)
	}
	buf := make([]byte, 10)
	if _, err := io.ReadFull(resp.Body, buf); err != nil {
		t.Fatal(err)
	}
	cancel()
	began := time.Now()
	eventually(t, 2*time.Second, func() bool { return !r.upstreams[0].Calls()[0].Aborted.IsZero() },
		func() string { return "the upstream saw no abort" })
	if took := r.upstreams[0].Calls()[0].Aborted.Sub(began); took > 500*time.Millisecond {
		t.Errorf("aborted after %v", took)
	}
	_ = resp.Body.Close()
	r.settle()
	if c := r.record(); c.string("outcome") != "client_gone" {
		t.Errorf("record %v", c)
	}
}

// Over HTTP/2 the write timeout bounds a write, and not a call that has nothing to write.
func TestHTTP2_TheWriteTimeoutIsForWrites(t *testing.T) {
	s := ordered(func(c *scripted.Call) {
		if strings.Contains(string(c.Record().Body), `"stream":true`) {
			events(c, roleEvent, textEvent("one"))
			c.Pause(4 * short)
			_ = c.Chunk(finishEvent + doneEvent)
			c.LastChunk()
			return
		}
		c.Pause(4 * short)
		good(c)
	})
	s.http2 = true
	s.config = func(c *proxy.Config) { c.WriteTimeout = short }
	r := newRig(t, s)
	defer r.close()
	if a := r.post(chatPath, unstreamed); a.status != 200 || a.body != jsonAnswer || a.err != nil {
		t.Errorf("status %d, %q, %v", a.status, a.body, a.err)
	}
	if a := r.post(chatPath, streamed); a.err != nil || !strings.HasSuffix(a.body, doneEvent) {
		t.Errorf("%v after %q", a.err, a.body)
	}
}

// h2Upstream is a real HTTP/2 server behind a link that can be cut.
type h2Upstream struct {
	*httptest.Server
	calls atomic.Int64
	link  *link
}

// link passes connections on until it goes dark: then nothing comes through any more, and
// nobody is told.
type link struct {
	net.Listener
	mu    sync.Mutex
	conns []*linkConn
}

type linkConn struct {
	net.Conn
	dark atomic.Bool
}

func (l *link) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	lc := &linkConn{Conn: c}
	l.mu.Lock()
	l.conns = append(l.conns, lc)
	l.mu.Unlock()
	return lc, nil
}

func (l *link) goDark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.dark.Store(true)
	}
}

func (c *linkConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if !c.dark.Load() || err != nil {
			return n, err
		}
	}
}

func (c *linkConn) Write(p []byte) (int, error) {
	if c.dark.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func newH2Upstream(t *testing.T, protocol proxy.Protocol, streams int, handler http.HandlerFunc) *h2Upstream {
	t.Helper()
	u := &h2Upstream{}
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("spoken upstream: %s", r.Proto)
		}
		u.calls.Add(1)
		handler(w, r)
	}))
	u.Config.ErrorLog = log.New(io.Discard, "", 0)
	u.link = &link{Listener: u.Listener}
	u.Listener = u.link
	p := &http.Protocols{}
	p.SetHTTP2(protocol == proxy.H2)
	p.SetUnencryptedHTTP2(protocol == proxy.H2C)
	u.Config.Protocols = p
	u.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	if protocol == proxy.H2 {
		u.EnableHTTP2 = true
		u.StartTLS()
	} else {
		u.Start()
	}
	t.Cleanup(u.Close)
	return u
}

// h2Rig is a gateway that speaks HTTP/2 with its endpoints.
func h2Rig(t *testing.T, protocol proxy.Protocol, ping time.Duration, ups ...*h2Upstream) (*rig, *http.Transport) {
	var scripts []scripted.Script
	for range ups {
		scripts = append(scripts, good)
	}
	transport := proxy.NewTransport(proxy.TransportConfig{
		Connect: 10 * time.Second, Idle: 4 * time.Second, PerHost: 100, Protocol: protocol,
		TLS: &tls.Config{InsecureSkipVerify: true}, Dial: (&net.Dialer{}).DialContext,
	})
	if ping > 0 {
		transport.HTTP2.SendPingTimeout, transport.HTTP2.PingTimeout = ping, ping
	}
	s := pooled(scripts...)
	s.config = func(c *proxy.Config) {
		c.Transport = transport
		for i, u := range ups {
			c.Models[0].Pools[0].Endpoints[i].URL = u.URL
		}
	}
	return newRig(t, s), transport
}

func answerJSON(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, jsonAnswer)
}

func TestHTTP2_Endpoints(t *testing.T) {
	for _, protocol := range []proxy.Protocol{proxy.H2, proxy.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			up := newH2Upstream(t, protocol, 0, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), `"stream":true`) {
					w.Header().Set("Content-Type", "text/event-stream")
					for _, e := range wholeStream("yes") {
						_, _ = io.WriteString(w, e)
						w.(http.Flusher).Flush()
					}
					return
				}
				answerJSON(w, r)
			})
			r, transport := h2Rig(t, protocol, 0, up)
			defer r.close()
			defer transport.CloseIdleConnections()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if a := r.post(chatPath, streamed); a.status != 200 || a.body != joined(wholeStream("yes")) {
						t.Errorf("status %d, %q", a.status, a.body)
					}
					if a := r.post(chatPath, unstreamed); a.body != jsonAnswer {
						t.Errorf("%q", a.body)
					}
				})
			}
			all.Wait()
		})
	}
}

// Field case F42: where an endpoint takes one stream a connection, more connections are
// made; one that dies silently is found by a ping, and calls go elsewhere.
func TestF42_AConnectionThatDiesSilently(t *testing.T) {
	up := newH2Upstream(t, proxy.H2C, 0, answerJSON)
	other := newH2Upstream(t, proxy.H2C, 0, answerJSON)
	r, transport := h2Rig(t, proxy.H2C, 100*time.Millisecond, up, other)
	defer r.close()
	defer transport.CloseIdleConnections()
	for range 4 {
		r.post(chatPath, unstreamed)
	}
	up.link.goDark()
	began := time.Now()
	for range 6 {
		if a := r.post(chatPath, unstreamed); a.status != 200 {
			t.Errorf("status %d, %s", a.status, a.body)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("six calls took %v", took)
	}
	before := up.calls.Load()
	for range 6 {
		r.post(chatPath, unstreamed)
	}
	if up.calls.Load() == before {
		t.Error("the endpoint, which lives, gets no calls over a new connection")
	}
}

func TestF42_OneStreamAConnection(t *testing.T) {
	var running, most atomic.Int64
	up := newH2Upstream(t, proxy.H2C, 1, func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		time.Sleep(50 * time.Millisecond)
		answerJSON(w, r)
	})
	r, transport := h2Rig(t, proxy.H2C, 0, up)
	defer r.close()
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if a := r.post(chatPath, unstreamed); a.status != 200 {
				t.Errorf("status %d, %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	if most.Load() < 5 {
		t.Errorf("at most %d calls ran at once", most.Load())
	}
}

// A server that goes away in order ends what it has begun, and takes nothing more.
func TestF42_GoAway(t *testing.T) {
	up := newH2Upstream(t, proxy.H2C, 0, answerJSON)
	other := newH2Upstream(t, proxy.H2C, 0, answerJSON)
	r, transport := h2Rig(t, proxy.H2C, 0, up, other)
	defer r.close()
	defer transport.CloseIdleConnections()
	stopped := make(chan error, 1)
	for i := range 60 {
		if i == 20 {
			go func() { stopped <- up.Config.Shutdown(context.Background()) }()
		}
		if a := r.post(chatPath, unstreamed); a.status != 200 {
			t.Fatalf("call %d: status %d, %s", i, a.status, a.body)
		}
	}
	if err := <-stopped; err != nil && !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// A server that refuses every stream unprocessed is asked as often as the machine says: the
// transport's own attempts are unseen by its budget, and wait for seconds.
func TestHTTP2_RefusedStreamsAreTheMachinesToRepeat(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var streams atomic.Int32
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { refuseStreams(conn, &streams) })
		}
	})
	other := newH2Upstream(t, proxy.H2C, 0, answerJSON)
	refusing := &h2Upstream{Server: &httptest.Server{URL: "http://" + l.Addr().String()}}
	r, transport := h2Rig(t, proxy.H2C, 0, refusing, other)
	start := time.Now()
	for range 2 { // one for each endpoint
		if a := r.post(chatPath, unstreamed); a.status != 200 {
			t.Errorf("status %d, %s", a.status, a.body)
		}
	}
	attempts := int32(r.metric("kvasir_attempts_total", "endpoint=e1"))
	if n := streams.Load(); attempts == 0 || n > 3*attempts { // at first, at once, after a second
		t.Errorf("%d streams of %d attempts in %v", n, attempts, time.Since(start))
	}
	r.close()
	transport.CloseIdleConnections()
	_ = l.Close()
	conns.Wait()
}

// refuseStreams is an HTTP/2 server that processes nothing.
func refuseStreams(conn net.Conn, streams *atomic.Int32) {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(conn, conn)
	if f.WriteSettings() != nil {
		return
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			streams.Add(1)
			_ = f.WriteRSTStream(frame.StreamID, http2.ErrCodeRefusedStream) // the next read tells
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck() // likewise
			}
		}
	}
}
