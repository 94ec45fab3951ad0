package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"kvasir/config"
	"kvasir/gateway/proxy"
)

// transports are the ways to endpoints. Pools that trust and speak alike share one, and a
// reload that changes neither keeps the connections.
type transports struct {
	upstream config.Upstream
	byKey    map[transportKey]*http.Transport
}

type transportKey struct {
	upstream config.Upstream
	protocol string
	tls      config.PoolTLS
	files    [sha256.Size]byte // of what tls names
}

func (ts *transports) begin(u config.Upstream) {
	ts.upstream = u
	if ts.byKey == nil {
		ts.byKey = map[transportKey]*http.Transport{}
	}
}

// get returns the way to a pool's endpoints.
func (ts *transports) get(p config.Pool) (http.RoundTripper, error) {
	key := transportKey{upstream: ts.upstream, protocol: p.Protocol, tls: p.TLS}
	hash := sha256.New()
	var files [3][]byte
	for i, name := range []string{p.TLS.CA, p.TLS.Cert, p.TLS.Key} {
		if name == "" {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		files[i] = data
		fmt.Fprintf(hash, "%d:%s", len(data), data)
	}
	hash.Sum(key.files[:0])
	if t := ts.byKey[key]; t != nil {
		return t, nil
	}
	cfg, err := clientTLS(p.TLS, files)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{KeepAlive: 15 * time.Second}
	t := proxy.NewTransport(proxy.TransportConfig{
		Connect: ts.upstream.ConnectTimeout, Idle: ts.upstream.IdleTimeout, PerHost: ts.upstream.Connections,
		Protocol: proxy.Protocol(p.Protocol), TLS: cfg, Dial: dialer.DialContext,
	})
	ts.byKey[key] = t
	return t, nil
}

func clientTLS(c config.PoolTLS, files [3][]byte) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.Insecure}
	if ca := files[0]; ca != nil {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("tls.ca: %s holds no certificate", c.CA)
		}
	}
	if files[1] != nil {
		pair, err := tls.X509KeyPair(files[1], files[2])
		if err != nil {
			return nil, fmt.Errorf("tls.cert: %s: %w", c.Cert, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

func (ts *transports) close() {
	for _, t := range ts.byKey {
		t.CloseIdleConnections()
	}
}
