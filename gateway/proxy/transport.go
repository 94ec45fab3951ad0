package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"kvasir/gateway/attempt"
)

// DialFunc opens a connection to an endpoint.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Protocol is how endpoints are spoken to.
type Protocol string

// The protocols.
const (
	HTTP1 Protocol = "http1" // over TLS too, whatever the server would rather have
	H2    Protocol = "h2"    // HTTP/2 over TLS, for https URLs
	H2C   Protocol = "h2c"   // HTTP/2 without TLS, by prior knowledge, for http URLs
)

// TransportConfig is what a transport is made of.
type TransportConfig struct {
	Connect  time.Duration // to make a connection, and once more for the TLS handshake
	Idle     time.Duration // keeps idle connections so long; must be shorter than the endpoints keep theirs (uvicorn: 5 s)
	PerHost  int           // idle connections kept for an endpoint
	Protocol Protocol      // "" for HTTP1
	TLS      *tls.Config   // nil: the system's roots
	Dial     DialFunc
}

// How a dead HTTP/2 connection is found: it is shared, so that one which no longer brings
// anything takes every call with it that is sent over it (field case F42).
const (
	pingAfter = 5 * time.Second
	pingWait  = 3 * time.Second
)

// NewTransport returns a transport for endpoints. It adds nothing to requests: no
// compression, no replays, no environment proxy.
func NewTransport(c TransportConfig) *http.Transport {
	bounded := func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, c.Connect)
		defer cancel()
		return c.Dial(ctx, network, addr)
	}
	t := &http.Transport{
		DialContext:            bounded,
		TLSHandshakeTimeout:    c.Connect,
		TLSClientConfig:        c.TLS,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    c.PerHost,
		IdleConnTimeout:        c.Idle,
		MaxResponseHeaderBytes: 256 << 10,
		ReadBufferSize:         readBuffer,
		WriteBufferSize:        readBuffer,
		Protocols:              &http.Protocols{},
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWait, WriteByteTimeout: pingAfter + pingWait},
	}
	switch c.Protocol {
	case H2:
		t.Protocols.SetHTTP2(true)
	case H2C:
		t.Protocols.SetUnencryptedHTTP2(true)
	default:
		t.Protocols.SetHTTP1(true)
	}
	return t
}

// serverName returns a transport like rt that asks TLS servers for the name, and checks
// it: for endpoints whose address was found under it. What isn't an *http.Transport is not
// known here, and nil.
func serverName(rt http.RoundTripper, name string) http.RoundTripper {
	t, ok := rt.(*http.Transport)
	if !ok {
		return nil
	}
	named := t.Clone()
	if named.TLSClientConfig == nil {
		named.TLSClientConfig = &tls.Config{}
	}
	if named.TLSClientConfig.ServerName == "" {
		named.TLSClientConfig.ServerName = name
	}
	return named
}

// unpooled returns a transport like rt whose every call has a connection of its own: what
// follows a stale connection must not meet another one from the same pool, since idle
// connections to one endpoint tend to die together. What isn't an *http.Transport has no
// pool that is known here and stays as it is.
func unpooled(rt http.RoundTripper) http.RoundTripper {
	pooled, ok := rt.(*http.Transport)
	if !ok {
		return rt
	}
	fresh := pooled.Clone()
	fresh.DisableKeepAlives = true
	return fresh
}

// multiplexed reports whether calls share connections, over HTTP/2.
func multiplexed(rt http.RoundTripper) bool {
	t, ok := rt.(*http.Transport)
	return ok && t.Protocols != nil && !t.Protocols.HTTP1()
}

// A kept connection that breaks before the answer is blamed on the connection where that is
// how a closed one shows. An endpoint that has in fact died shows it to the next connection.
const (
	// staleWindow is how soon after sending it must break where it had been idle for long: an
	// endpoint that closes idle connections does so without looking, and the answer to what
	// it never read is a reset, once its loop, which other work can block for a while, comes
	// round to it.
	staleWindow = 2 * time.Second
	// promptWindow is how soon where it had not: some endpoints close kept connections when
	// they want their threads back (llama.cpp's server does), and the end is there already as
	// the call is sent. What works on a call for longer has read it.
	promptWindow = 50 * time.Millisecond
)

// connWatch sees what became of an attempt's connection. The transport reports from
// goroutines of its own, which may outlast the attempt.
type connWatch struct {
	connected, answered atomic.Bool
	kept                atomic.Bool  // the connection had carried a call before
	idle                atomic.Bool  // ... and been idle for as long as servers may close it after
	written             atomic.Bool  // the transport reads the request's body no more
	sent                atomic.Int64 // when the request was written whole, in nanoseconds since start; 0: it was not
	start               time.Time
	serverIdle          time.Duration
	trace               httptrace.ClientTrace
}

func (w *connWatch) init() {
	w.trace = httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			w.kept.Store(i.Reused) // handed over by the call before, or idle
			w.idle.Store(i.Reused && i.WasIdle && i.IdleTime >= w.serverIdle)
			w.connected.Store(true)
		},
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				w.sent.Store(max(int64(time.Since(w.start)), 1))
			}
			w.written.Store(true)
		},
		GotFirstResponseByte: func() { w.answered.Store(true) },
	}
}

func (w *connWatch) attach(ctx context.Context, serverIdle time.Duration) context.Context {
	w.start, w.serverIdle = time.Now(), serverIdle
	return httptrace.WithClientTrace(ctx, &w.trace)
}

// through reports whether all that is reported of an attempt has been, each thing once.
func (w *connWatch) through() bool {
	return w.connected.Load() && w.written.Load() && w.answered.Load()
}

// reset readies the watch for another attempt.
func (w *connWatch) reset() {
	w.connected.Store(false)
	w.kept.Store(false)
	w.idle.Store(false)
	w.answered.Store(false)
	w.written.Store(false)
	w.sent.Store(0)
}

// blame says what it means that the attempt's connection failed with the error.
func (w *connWatch) blame(err error) attempt.Outcome {
	switch {
	case !w.connected.Load() && exhausted(err):
		return attempt.Exhausted
	case !w.connected.Load() && timedOut(err):
		return attempt.ConnectTimeout
	case !w.connected.Load():
		return attempt.ConnectFailed
	case refusedStream(err):
		return attempt.StaleConnection
	case w.answered.Load():
		return attempt.Broken
	case w.idle.Load() && w.within(staleWindow), w.kept.Load() && w.within(promptWindow):
		return attempt.StaleConnection
	default:
		return attempt.Broken
	}
}

// refusedStream reports whether an HTTP/2 server has said that it did not process the
// call: it refused the stream, or went away with a lower last stream. The transport would
// send such a request again by itself if it could rewind the body, and says so; that text
// is the only sign of it (net/http's internal http2 package, Transport.shouldRetryRequest).
func refusedStream(err error) bool {
	if errors.Is(err, errRefusedAgain) || errors.Is(err, http.ErrBodyReadAfterClose) { // ... and has begun to, in vain
		return true
	}
	text := err.Error()
	return strings.Contains(text, "http2: Transport: cannot retry err") || strings.Contains(text, "cannot rewind body after connection loss")
}

// exhausted reports whether a connection failed for want of something of this process's
// own: file descriptors, ports, memory.
func exhausted(err error) bool {
	for _, e := range [...]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// within reports whether the request is still being sent, or was so short a time ago.
func (w *connWatch) within(d time.Duration) bool {
	sent := w.sent.Load()
	return sent == 0 || time.Since(w.start)-time.Duration(sent) < d
}
