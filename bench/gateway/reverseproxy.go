package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// serveReverseProxy is the measure: the standard library's proxy between two addresses,
// LISTEN and UPSTREAM, with nothing but what a careful user sets.
func serveReverseProxy(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("reverse-proxy: expected LISTEN UPSTREAM")
	}
	listen, upstream := args[0], args[1]
	target := &url.URL{Scheme: "http", Host: upstream}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		BufferPool:    &bufferPool{sync.Pool{New: func() any { return new([32 * kib]byte) }}},
		Transport: &http.Transport{
			DisableCompression:  true,
			MaxIdleConnsPerHost: 1024,
			IdleConnTimeout:     time.Minute,
		},
	}
	s := &http.Server{Addr: listen, Handler: fullDuplex(proxy)}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// fullDuplex keeps the server from closing a request's body when its answer begins. The
// transport looks once more into the body after its last byte; a server that is quicker
// makes that fail, and the transport breaks the answer off in the middle.
func fullDuplex(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1 always can
		next.ServeHTTP(w, r)
	})
}

// bufferPool implements httputil.BufferPool.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte  { return p.pool.Get().(*[32 * kib]byte)[:] }
func (p *bufferPool) Put(b []byte) { p.pool.Put((*[32 * kib]byte)(b)) }
