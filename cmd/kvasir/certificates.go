package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"

	"kvasir/config"
)

// certificates are what the data listener shows, and whom it trusts. Handshakes take them
// as they are at the moment, so that they can be replaced under a listener that goes on
// (field case F77).
type certificates struct {
	pair    atomic.Pointer[tls.Certificate]
	clients atomic.Pointer[x509.CertPool] // nil: clients show none
}

// load reads the files. With an error nothing has changed.
func (cs *certificates) load(c config.TLS) error {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	var clients *x509.CertPool
	if c.ClientCA != "" {
		data, err := os.ReadFile(c.ClientCA)
		if err != nil {
			return fmt.Errorf("tls.client_ca: %w", err)
		}
		clients = x509.NewCertPool()
		if !clients.AppendCertsFromPEM(data) {
			return fmt.Errorf("tls.client_ca: %s holds no certificate", c.ClientCA)
		}
	}
	cs.pair.Store(&pair)
	cs.clients.Store(clients)
	return nil
}

// config returns the listener's configuration. NextProtos is the caller's to set.
func (cs *certificates) config() *tls.Config {
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return cs.pair.Load(), nil
		},
	}
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		clients := cs.clients.Load()
		if clients == nil {
			return nil, nil
		}
		mutual := cfg.Clone()
		mutual.GetConfigForClient = nil
		mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, clients
		return mutual, nil
	}
	return cfg
}
