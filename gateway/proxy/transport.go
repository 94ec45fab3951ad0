package proxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"kvasir/gateway/attempt"
)

// DialFunc opens a connection to an endpoint.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// NewTransport returns a transport for endpoints. It keeps idle connections for
// idleTimeout, which must be shorter than the endpoints keep theirs (uvicorn: 5 s), and
// adds nothing to requests: no compression, no replays, no environment proxy.
func NewTransport(connectTimeout, idleTimeout time.Duration, idlePerEndpoint int, dial DialFunc) *http.Transport {
	bounded := func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		return dial(ctx, network, addr)
	}
	return &http.Transport{
		DialContext:            bounded,
		TLSHandshakeTimeout:    connectTimeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    idlePerEndpoint,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 256 << 10,
		ReadBufferSize:         readBuffer,
		WriteBufferSize:        readBuffer,
	}
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

// staleWindow is how soon after sending a reused connection must break for the break to
// be blamed on the connection: an endpoint that closes idle connections does so without
// looking, and the answer to what it never read is a reset within a round trip.
const staleWindow = 100 * time.Millisecond

// connWatch sees what became of an attempt's connection. The transport reports from
// goroutines of its own, which may outlast the attempt.
type connWatch struct {
	connected, reused, answered atomic.Bool
	sent                        atomic.Int64 // when the request was written whole, in nanoseconds since start; 0: it was not
	start                       time.Time
}

func (w *connWatch) attach(ctx context.Context) context.Context {
	w.start = time.Now()
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			w.reused.Store(i.Reused)
			w.connected.Store(true)
		},
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				w.sent.Store(max(int64(time.Since(w.start)), 1))
			}
		},
		GotFirstResponseByte: func() { w.answered.Store(true) },
	})
}

// blame says what it means that the attempt's connection failed.
func (w *connWatch) blame() attempt.Outcome {
	switch {
	case !w.connected.Load():
		return attempt.ConnectFailed
	case w.reused.Load() && !w.answered.Load() && w.soon():
		return attempt.StaleConnection
	default:
		return attempt.Broken
	}
}

// soon reports whether the request is still being sent, or was a moment ago.
func (w *connWatch) soon() bool {
	sent := w.sent.Load()
	return sent == 0 || time.Since(w.start)-time.Duration(sent) < staleWindow
}
