package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// salted reports whether a call to the endpoint gets the client's salt.
func (c *call) salted(e *endpoint) bool {
	return len(c.svc.cfg.SaltKey) > 0 && e.pool.Dialect.CacheSalt && c.bodyGrammar().TakesCacheSalt()
}

// cacheSalt returns what keeps the call's prefixes apart in an engine's cache: HMAC-SHA-256
// of the client's name and of the salt that the call brings, if any. Who does not know the
// key can neither make another client's salt nor read a name out of one, whatever it sends as
// its own. It has 43 characters, which is the length that vLLM advises, and always as many:
// see upstream.SGLang.
func (c *call) cacheSalt() string {
	if c.salt == "" {
		mac := hmac.New(sha256.New, c.svc.cfg.SaltKey)
		var length [8]byte // keeps name and salt apart
		binary.BigEndian.PutUint64(length[:], uint64(len(c.record.Client)))
		mac.Write(length[:])
		mac.Write([]byte(c.record.Client))
		if c.asked.CacheSalt != nil {
			mac.Write([]byte{1})
			mac.Write(c.asked.CacheSalt)
		}
		c.salt = base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	return c.salt
}
