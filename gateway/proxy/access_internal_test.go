package proxy

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"strings"
	"testing"
)

// TestCertName: who has a certificate has a name, and no two that differ have the same.
func TestCertName(t *testing.T) {
	long := strings.Repeat("x", maxClientName)
	for _, test := range []struct {
		name string
		cert x509.Certificate
		want string
	}{
		{"common name", x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, DNSNames: []string{"b.example"}}, "cert:alice"},
		{"URI", x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "a.example", Path: "/b"}}, DNSNames: []string{"b.example"}}, "cert:spiffe://a.example/b"},
		{"DNS name", x509.Certificate{DNSNames: []string{"b.example", "c.example"}, EmailAddresses: []string{"d@e"}}, "cert:b.example"},
		{"mail address", x509.Certificate{EmailAddresses: []string{"d@e"}, Subject: pkix.Name{Organization: []string{"o"}}}, "cert:d@e"},
		{"subject", x509.Certificate{Subject: pkix.Name{Organization: []string{"tenant1"}}}, "cert:O=tenant1"},
		{"as long as may be", x509.Certificate{Subject: pkix.Name{CommonName: long}}, "cert:" + long},
	} {
		if got := certName(&test.cert); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	seen := map[string]bool{}
	for _, c := range []x509.Certificate{
		{Raw: []byte("1")}, {Raw: []byte("2")},
		{Raw: []byte("3"), Subject: pkix.Name{CommonName: long + "1"}}, {Raw: []byte("4"), Subject: pkix.Name{CommonName: long + "2"}},
		{Raw: []byte("5"), Subject: pkix.Name{CommonName: "\xff"}},
	} {
		name := certName(&c)
		if seen[name] || len(name) > maxClientName+len("cert:") || !strings.HasPrefix(name, "cert:") {
			t.Errorf("%q", name)
		}
		seen[name] = true
	}
}
