package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// TLS is about certificates on the clients' address.
type TLS struct {
	// Certificate chain in PEM, the router's own first. Set together with key.
	Cert string `config:"cert" allowed:"PATH"`
	// Its private key in PEM.
	Key string `config:"key" allowed:"PATH"`
	// CAs in PEM; clients must show a certificate that one of them signed.
	ClientCA string `config:"client_ca" allowed:"PATH"`
}

// Clients says who may call.
type Clients struct {
	// Let in calls without a key: although there are keys, or off loopback although there are none.
	Anonymous bool `config:"anonymous"`
	// The keys that let clients in, each by its SHA-256; `kvasir key` makes one.
	Keys ClientKeys `config:"keys"`
	// A file with more of them, a list as in keys. No message shows what is in it.
	KeysFile string `config:"keys_file" allowed:"PATH"`
}

// ClientKeys are the keys of clients. Load adds those of keys_file to the
// configuration's own, unless secrets are skipped.
type ClientKeys []ClientKey

// ClientKey is one key that lets a client in.
type ClientKey struct {
	// Unique over all keys; shown in the log for the key.
	Name string `config:"name"`
	// SHA-256 of the key in 64 hex digits, small letters.
	SHA256 KeyHash `config:"sha256" allowed:"SHA-256"`
	// Its client may ask with x-kvasir-explain why its calls went where they went, which tells of endpoints, of others' load and of what others have sent.
	Explain bool `config:"explain"`
	// The tenant whose calls these are, one of tenants. Empty: the client is one of its own.
	Tenant string `config:"tenant"`
	// Its client may ask for a class or a priority above its tenant's; others only for a lower one.
	Raise bool `config:"raise"`
	// What the key's calls may use, beside what its tenant's may.
	Caps Caps `config:"caps"`
}

// DefaultClientKey returns a key without name and hash, as a file's starts.
func DefaultClientKey() ClientKey { return ClientKey{Caps: DefaultCaps()} }

// KeyHash is the SHA-256 of a client's key. A key is random, so that nothing is won by
// a slower hash. The zero KeyHash is none.
type KeyHash [sha256.Size]byte

// HashKey returns the hash of a key.
func HashKey(key string) KeyHash { return sha256.Sum256([]byte(key)) }

// Hex returns the hash as a file writes it.
func (h KeyHash) Hex() string { return hex.EncodeToString(h[:]) }

// String returns enough of the hash to tell two apart, and no more.
func (h KeyHash) String() string {
	if h == (KeyHash{}) {
		return ""
	}
	return hex.EncodeToString(h[:4]) + "…"
}

func (h *KeyHash) decode(d *decoder, n *yaml.Node, at where) {
	raw, err := hex.DecodeString(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || len(raw) != len(h) || hex.EncodeToString(raw) != n.Value {
		d.fail(n, at, "expected a key's SHA-256 in 64 hex digits, small letters; the value is not shown")
		return
	}
	copy(h[:], raw)
}

// decode appends a list of keys. Somebody may have written a key where its name or hash
// belongs, so no message shows what is there.
func (ks *ClientKeys) decode(d *decoder, n *yaml.Node, at where) {
	before := d.hidden
	d.hidden = true
	defer func() { d.hidden = before }()
	if n.Kind != yaml.SequenceNode {
		d.mismatch(n, at, "a list of mappings", strings.Join(names(fieldsOf(&ClientKey{}, nil)), ", "))
		return
	}
	for i, c := range n.Content {
		w := where{at.canon.index(len(*ks)), at.shown.index(i)}
		key := DefaultClientKey()
		d.mark(w, c)
		d.value(reflect.ValueOf(&key).Elem(), "", c, w)
		*ks = append(*ks, key)
	}
}

// keysFile adds the keys of keys_file to those of the configuration.
func (d *decoder) keysFile(c *Clients) {
	at := path{}.key("clients").key("keys_file")
	if c.KeysFile == "" || d.env.SkipSecrets || d.failed[at.id()] {
		return
	}
	data, err := d.read(c.KeysFile, maxFile)
	if err != nil {
		d.report(d.placeOf(at), err.Error())
		return
	}
	if isBlank(data) {
		return // nobody is let in
	}
	configuration := d.file
	d.file = c.KeysFile
	defer func() { d.file = configuration }()
	root, problems := parseYAML(data)
	for _, p := range problems {
		d.reportAt(p.Line, p.Column, nil, p.Message)
	}
	if root != nil {
		d.refuse(root)
		c.Keys.decode(d, root, where{canon: path{}.key("clients").key("keys")})
	}
}

// isBlank tells whether data has nothing but comments.
func isBlank(data []byte) bool {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}
