package proxy

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// Access says who may call. Keys are known by their SHA-256 alone, so that neither the
// file nor the memory of this process holds one that could be used; that the hash is
// looked up, and not compared byte by byte, leaves no time to measure that would help to
// guess a key.
type Access struct {
	Anonymous bool                         // calls without a key are taken; one that is wrong is refused all the same
	Keys      map[[sha256.Size]byte]string // hash of a key → its client's name
	Explain   map[string]bool              // clients, by name, that may ask for explanations; where nobody shows who he is everybody may
}

// explains reports whether a client that was let in may ask why its calls went where they
// went. That tells of endpoints, of others' load, and of what others have sent.
func (a *Access) explains(r *http.Request, client string) bool {
	return len(a.Keys) == 0 && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) || a.Explain[client]
}

// admit returns the client's name and whether it may call. A client certificate that the
// listener has verified is as good as a key.
func (a *Access) admit(r *http.Request) (client string, ok bool) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return certName(r.TLS.VerifiedChains[0][0]), true
	}
	if len(a.Keys) == 0 {
		return "", a.Anonymous // keys that clients send all the same belong to nobody here
	}
	key := presented(r.Header)
	if key == "" {
		return "", a.Anonymous
	}
	client, ok = a.Keys[sha256.Sum256([]byte(key))]
	return client, ok
}

// maxClientName bounds a name that comes from a certificate.
const maxClientName = 128

// certName returns the name of a certificate's client, by which its prefixes are kept apart from
// those of others: of common name, URI (as SPIFFE has it), DNS name, mail address and whole
// subject the first that is there. Where none is, or none that can be written, the
// certificate's own hash is. No key's name begins with cert: (config).
func certName(c *x509.Certificate) string {
	name := c.Subject.CommonName
	switch {
	case name != "":
	case len(c.URIs) > 0:
		name = c.URIs[0].String()
	case len(c.DNSNames) > 0:
		name = c.DNSNames[0]
	case len(c.EmailAddresses) > 0:
		name = c.EmailAddresses[0]
	default:
		name = c.Subject.String()
	}
	if name == "" || len(name) > maxClientName || !utf8.ValidString(name) {
		name = fmt.Sprintf("%x", sha256.Sum256(c.Raw))
	}
	return "cert:" + name
}

// presented returns the key that a request shows: as OpenAI's SDKs send it, or as
// Anthropic's do.
func presented(h http.Header) string {
	if scheme, key, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(key)
	}
	return h.Get("X-Api-Key")
}
