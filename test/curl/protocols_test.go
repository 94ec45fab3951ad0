package curl

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

func TestHTTP10(t *testing.T) {
	s := withEngines(t, "")
	s.ok(t, `curl -sS --http1.0 -d @chat.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`).answered(t, "")
	s.ok(t, `curl -sS -N --http1.0 -d @stream.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`).streamed(t, "")
}

func TestHTTP2_WithoutTLS(t *testing.T) {
	needFeature(t, "HTTP2")
	s := withEngines(t, "")
	s.write(t, "big.json", bigChat(4<<20))
	s.ok(t, `curl -sS --http2-prior-knowledge -d @chat.json -H 'Content-Type: application/json' -w ' %{http_version}' $KVASIR/v1/chat/completions`).answered(t, " 2")
	s.ok(t, `curl -sS -N --http2-prior-knowledge -d @stream.json -H 'Content-Type: application/json' -w ' %{http_version}' $KVASIR/v1/chat/completions`).streamed(t, " 2")
	s.ok(t, `curl -sS --http2-prior-knowledge --data-binary @big.json -H 'Content-Type: application/json' -w ' %{http_version}' $KVASIR/v1/chat/completions`).answered(t, " 2")
	// An upgrade from HTTP/1.1 is not offered (RFC 9113 has dropped it); curl goes on without.
	s.ok(t, `curl -sS --http2 -d @chat.json -H 'Content-Type: application/json' -w ' %{http_version}' $KVASIR/v1/chat/completions`).answered(t, " 1.1")
}

func TestHTTP2_SwitchedOff(t *testing.T) {
	needFeature(t, "HTTP2")
	s := withEngines(t, "client: {http2: false}\n")
	if r := s.run(t, `curl -sS --http2-prior-knowledge $KVASIR/v1/models`); r.code == 0 {
		t.Errorf("it speaks HTTP/2: %s", r.out)
	}
	s.ok(t, `curl -sS -d @chat.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`).answered(t, "")
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	s := withEngines(t, fmt.Sprintf("tls: {cert: %q, key: %q}\n", a.serverCert, a.serverKey))
	s.base = "https" + strings.TrimPrefix(s.base, "http")
	s.write(t, "ca.pem", a.ca)
	version := "1.1"
	if curlHas(t, "HTTP2") {
		version = "2"
	}
	s.ok(t, `curl -sS --cacert ca.pem -d @chat.json -H 'Content-Type: application/json' -w ' %{http_version}' $KVASIR/v1/chat/completions`).answered(t, " "+version)
	s.ok(t, `curl -sS -N --cacert ca.pem -d @stream.json -H 'Content-Type: application/json' -w ' %{http_version}' $KVASIR/v1/chat/completions`).streamed(t, " "+version)
	s.ok(t, `curl -sS --http1.1 --cacert ca.pem -d @chat.json -H 'Content-Type: application/json' -w ' %{http_version}' $KVASIR/v1/chat/completions`).answered(t, " 1.1")
	const unknownCA = 60
	if r := s.run(t, `curl -sS $KVASIR/v1/models`); r.code != unknownCA {
		t.Errorf("without the CA curl ended with %d: %s", r.code, r.talk)
	}
	if r := s.run(t, `curl -sS http://${KVASIR#https://}/v1/models -w ' %{http_code}'`); !strings.HasSuffix(r.out, " 400") {
		t.Errorf("in the clear curl ended with %d: %s", r.code, r.out)
	}
}

func TestTLS_ClientCertificates(t *testing.T) {
	a := newAuthority(t)
	s := withEngines(t, fmt.Sprintf("tls: {cert: %q, key: %q, client_ca: %q}\n", a.serverCert, a.serverKey, a.caFile))
	s.base = "https" + strings.TrimPrefix(s.base, "http")
	s.write(t, "ca.pem", a.ca)
	s.write(t, "client.pem", a.clientCert)
	s.write(t, "client.key", a.clientKey)
	s.ok(t, `curl -sS --cacert ca.pem --cert client.pem --key client.key -d @chat.json -H 'Content-Type: application/json' $KVASIR/v1/chat/completions`).answered(t, "")
	if r := s.run(t, `curl -sS --cacert ca.pem $KVASIR/v1/models`); r.code == 0 {
		t.Errorf("without a certificate curl got %s", r.out)
	}
}

// TestHTTP2_RefusalKeepsTheConnection: what is refused before its body was read is one
// stream's business; others of the connection may be in the middle of an answer.
func TestHTTP2_RefusalKeepsTheConnection(t *testing.T) {
	needFeature(t, "HTTP2")
	a := newAuthority(t)
	s := withEngines(t, fmt.Sprintf("tls: {cert: %q, key: %q}\n", a.serverCert, a.serverKey))
	s.base = "https" + strings.TrimPrefix(s.base, "http")
	s.write(t, "ca.pem", a.ca)
	r := s.ok(t, `curl -sS --cacert ca.pem -d @chat.json -w '%{http_code} %{num_connects}\n' -o 1.json -o 2.json $KVASIR/v1/nonsense $KVASIR/v1/nonsense`)
	if r.out != "404 1\n404 0\n" {
		t.Errorf("statuses and new connections are %q, want 404 1 and 404 0", r.out)
	}
}

// TestIdleConnection_IsReused makes a second call seven and a half seconds after the first
// one, as slowly as --rate lets it: over the connection that was idle since. (That curl
// 7.88 can't reuse a connection with --http2-prior-knowledge has nothing to do with us; over
// TLS it speaks HTTP/2.)
func TestIdleConnection_IsReused(t *testing.T) {
	needCurl(t, 7, 84) // --rate
	a := newAuthority(t)
	for name, test := range map[string]struct{ keys, scheme, line string }{
		"HTTP/1.1": {"", "http", `curl -sS -v --http1.1 --rate 8/m -d @chat.json -H 'Content-Type: application/json' -w '%{http_code} %{num_connects}\n' -o 1.json -o 2.json $KVASIR/v1/chat/completions $KVASIR/v1/chat/completions`},
		"TLS":      {fmt.Sprintf("tls: {cert: %q, key: %q}\n", a.serverCert, a.serverKey), "https", `curl -sS -v --cacert ca.pem --rate 8/m -d @chat.json -H 'Content-Type: application/json' -w '%{http_code} %{num_connects}\n' -o 1.json -o 2.json $KVASIR/v1/chat/completions $KVASIR/v1/chat/completions`},
		"a stream": {"", "http", `curl -sS -v -N --http1.1 --rate 8/m -d @stream.json -H 'Content-Type: application/json' -w '%{http_code} %{num_connects}\n' -o 1.json -o 2.json $KVASIR/v1/chat/completions $KVASIR/v1/chat/completions`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withEngines(t, test.keys)
			s.base = test.scheme + strings.TrimPrefix(s.base, "http")
			s.write(t, "ca.pem", a.ca)
			r := s.ok(t, test.line)
			if r.out != "200 1\n200 0\n" || !regexp.MustCompile(`(?i)re-?using existing`).MatchString(r.talk) {
				t.Errorf("statuses and new connections are %q, want 200 1 and 200 0\n%s", r.out, r.talk)
			}
			for _, name := range []string{"1.json", "2.json"} {
				if got := (ran{out: s.read(t, name)}); strings.HasPrefix(got.out, "data: ") {
					got.streamed(t, "")
				} else {
					got.answered(t, "")
				}
			}
		})
	}
}
