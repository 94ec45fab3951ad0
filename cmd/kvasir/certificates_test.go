package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvasir/config"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

var serial = big.NewInt(time.Now().UnixNano())

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t}
	a.cert, a.key, a.pem = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	return a
}

func (a *authority) sign(template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, parentKey := template, key
	if by != nil {
		parent, parentKey = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue writes a certificate and its key into a folder.
func (a *authority) issue(name, dir string) (certFile, keyFile string) {
	a.t.Helper()
	_, key, text := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	write(a.t, certFile, text)
	write(a.t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	return certFile, keyFile
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// running is a node that serves a file's configuration.
type running struct {
	*reloader
	file string
}

func runNode(t *testing.T, text string) *running {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "kvasir.yaml")
	write(t, file, []byte(text))
	c, err := config.Load(file, config.Env{Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	r := &reloader{path: file, env: environment{stdout: io.Discard, stderr: io.Discard, getenv: os.Getenv}}
	r.node, err = startNode(c, nodeOptions{log: slog.New(slog.DiscardHandler), reload: r.reload})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.node.stop(0, time.Second); err != nil {
			t.Error(err)
		}
	})
	return &running{r, file}
}

func engineServer(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"chat.completion","choices":[{"message":{"content":"Hi"}}]}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// ask makes a call over a connection of its own and returns the certificate's name.
func ask(t *testing.T, addr string, cfg *tls.Config) (name, proto string, err error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Post("https://"+addr+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"m","messages":[]}`))
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 {
		return "", "", errors.Join(err, fmt.Errorf("status %d: %s", resp.StatusCode, body))
	}
	return resp.TLS.PeerCertificates[0].Subject.CommonName, resp.Proto, err
}

// A certificate that is replaced is shown at once, one that is half written is not, and a
// stream that runs goes on.
func TestF77_CertificatesAreReplacedUnderTheListener(t *testing.T) {
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	cert, key := ca.issue("first", dir)
	engine := engineServer(t)
	r := runNode(t, fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ntls: {cert: %s, key: %s}\nmodels: {m: [%q]}\n", cert, key, engine.URL))
	cfg := &tls.Config{RootCAs: ca.pool()}
	if name, proto, err := ask(t, r.node.dataAddr, cfg); err != nil || name != "first" || proto != "HTTP/2.0" {
		t.Fatalf("%s over %s, %v", name, proto, err)
	}
	second, secondKey := ca.issue("second", t.TempDir())
	half, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cert, half[:len(half)/2])
	if err := r.reload(); err == nil {
		t.Error("half a certificate was accepted")
	}
	if name, _, err := ask(t, r.node.dataAddr, cfg); err != nil || name != "first" {
		t.Errorf("with half a certificate: %s, %v", name, err)
	}
	for from, to := range map[string]string{second: cert, secondKey: key} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, to, data)
	}
	if err := r.reload(); err != nil {
		t.Fatal(err)
	}
	if name, _, err := ask(t, r.node.dataAddr, cfg); err != nil || name != "second" {
		t.Errorf("after it was replaced: %s, %v", name, err)
	}
}

// Clients show a certificate where client_ca is set, and need no key then.
func TestTLS_ClientCertificates(t *testing.T) {
	ca, other, dir := newAuthority(t, "ca"), newAuthority(t, "other"), t.TempDir()
	cert, key := ca.issue("server", dir)
	caFile := filepath.Join(dir, "ca.pem")
	write(t, caFile, ca.pem)
	engine := engineServer(t)
	r := runNode(t, fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ntls: {cert: %s, key: %s, client_ca: %s}\nmodels: {m: [%q]}\n", cert, key, caFile, engine.URL))
	for name, x := range map[string]struct {
		by *authority
		ok bool
	}{"of the ca": {ca, true}, "of another": {other, false}, "none": {nil, false}} {
		cfg := &tls.Config{RootCAs: ca.pool()}
		if x.by != nil {
			pair, err := tls.LoadX509KeyPair(x.by.issue("client-"+strings.ReplaceAll(name, " ", "-"), dir))
			if err != nil {
				t.Fatal(err)
			}
			cfg.Certificates = []tls.Certificate{pair}
		}
		if _, _, err := ask(t, r.node.dataAddr, cfg); (err == nil) != x.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TLS toward endpoints: their CA, our certificate; what is not trusted is not called, and
// is as soon as it is.
func TestF77_TLSTowardEndpoints(t *testing.T) {
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	engine := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"chat.completion","choices":[{"message":{"content":"Hi"}}]}`)
	}))
	pair, err := tls.LoadX509KeyPair(ca.issue("engine", dir))
	if err != nil {
		t.Fatal(err)
	}
	engine.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()}
	engine.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	engine.StartTLS()
	defer engine.Close()
	cert, key := ca.issue("gateway", dir)
	caFile := filepath.Join(dir, "ca.pem")
	write(t, caFile, newAuthority(t, "another").pem)
	r := runNode(t, fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nmodels: {m: {endpoints: [%q], tls: {ca: %s, cert: %s, key: %s}}}\n", engine.URL, caFile, cert, key))
	status := func() int {
		resp, err := http.Post("http://"+r.node.dataAddr+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		return resp.StatusCode
	}
	if s := status(); s != 502 {
		t.Errorf("an endpoint that is not trusted: status %d", s)
	}
	write(t, caFile, ca.pem)
	if err := r.reload(); err != nil {
		t.Fatal(err)
	}
	if s := status(); s != 200 {
		t.Errorf("once it is trusted: status %d", s)
	}
}

// SIGHUP's work: a file that is wrong changes nothing, and one that is right everything
// that can be changed.
func TestReload_RefusesWhatIsWrongAndKeepsTheOld(t *testing.T) {
	engine := engineServer(t)
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nmodels: {m: [%q]}\n", engine.URL)
	r := runNode(t, text)
	list := func() string {
		resp, err := http.Get("http://" + r.node.dataAddr + "/v1/models")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	before := list()
	write(t, r.file, []byte(text+"nonsense: 1\n"))
	if err := r.reload(); err == nil || list() != before {
		t.Errorf("a wrong file: %v, models %s", err, list())
	}
	write(t, r.file, []byte(text + "limits: {calls: 7}\n")[:len(text)-3])
	if err := r.reload(); err == nil || list() != before {
		t.Errorf("half a file: %v, models %s", err, list())
	}
	write(t, r.file, []byte(strings.Replace(text, "m: [", "n: [", 1)))
	if err := r.reload(); err != nil || !strings.Contains(list(), `"n"`) || strings.Contains(list(), `"m"`) {
		t.Errorf("a right file: %v, models %s", err, list())
	}
}

// page.labs: they are turned off and on without a restart.
func TestReload_TurnsLabsOffAndOn(t *testing.T) {
	engine := engineServer(t)
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nmodels: {m: [%q]}\npage: {labs: ", engine.URL)
	r := runNode(t, text+"true}\n")
	before := r.node.current()
	for _, x := range []struct {
		labs string
		want int
	}{{"true", http.StatusOK}, {"false", http.StatusForbidden}, {"true", http.StatusOK}} {
		write(t, r.file, []byte(text+x.labs+"}\n"))
		if err := r.reload(); err != nil {
			t.Fatal(err)
		}
		if keys := needRestart(before, r.node.current()); len(keys) > 0 {
			t.Errorf("%s need a restart", keys)
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			body := ""
			if method == http.MethodPost {
				body = `{"lab":"knee"}`
			}
			if status, said := fetch(t, method, "http://"+r.node.adminAddr+"/v1/labs", body); status != x.want {
				t.Errorf("labs %s, %s: %d %.200s", x.labs, method, status, said)
			}
		}
	}
	// A file that is wrong changes nothing.
	write(t, r.file, []byte(text+"false}\nnonsense: 1\n"))
	if err := r.reload(); err == nil || !r.node.labs.Load() {
		t.Errorf("a wrong file: %v, labs on: %v", err, r.node.labs.Load())
	}
}

// watch_file: a change is taken once it has settled.
func TestReload_OnAChangeOfTheFile(t *testing.T) {
	engine := engineServer(t)
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nmodels: {m: [%q]}\n", engine.URL)
	r := runNode(t, text)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.run(ctx, nil, true) }()
	time.Sleep(100 * time.Millisecond) // it has looked once
	write(t, r.file, []byte(strings.Replace(text, "m: [", "n: [", 1)))
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get("http://" + r.node.dataAddr + "/v1/models/n")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the change was not taken")
		}
	}
	cancel()
	<-ended
}
