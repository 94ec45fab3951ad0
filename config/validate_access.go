package config

import "strings"

// access checks who may call: nothing that other machines reach is open unless the
// configuration says so.
func (k *checker) access(c *Config) {
	top := path{}
	if !IsLoopback(c.Listen) && !c.Clients.Anonymous && len(c.Clients.Keys) == 0 && c.Clients.KeysFile == "" && c.TLS.ClientCA == "" {
		k.add(top.key("listen"), "%s is reached from other machines, and nothing says who may call; "+
			"set clients.keys, clients.keys_file or tls.client_ca, or clients.anonymous: true", quote(c.Listen))
	}
	switch {
	case c.AdminOpen && c.AdminToken.IsSet():
		k.add(top.key("admin_open"), "admin_token is set, which is in vain when admin is open")
	case !IsLoopback(c.Admin) && !c.AdminOpen && !c.AdminToken.IsSet():
		k.add(top.key("admin"), "%s is reached from other machines; set admin_token, or admin_open: true", quote(c.Admin))
	}
	at := top.key("tls")
	k.pair(at, c.TLS.Cert, c.TLS.Key)
	if c.TLS.ClientCA != "" && c.TLS.Cert == "" && c.TLS.Key == "" {
		k.add(at.key("client_ca"), "clients show certificates over TLS alone; set cert and key")
	}
	k.keys(c.Clients.Keys, top.key("clients").key("keys"))
}

// pair reports a certificate without its key, or a key without its certificate.
func (k *checker) pair(at path, cert, key string) {
	switch {
	case cert != "" && key == "":
		k.add(at.key("key"), "missing; cert and key are set together")
	case cert == "" && key != "":
		k.add(at.key("cert"), "missing; cert and key are set together")
	}
}

// keys checks the keys of clients. Hashes are never shown: one may stand where a key is
// written in its place.
func (k *checker) keys(keys ClientKeys, at path) {
	names, hashes := map[string]bool{}, map[KeyHash]string{}
	for i, key := range keys {
		in := at.index(i)
		k.label(in.key("name"), key.Name)
		if names[key.Name] && key.Name != "" {
			k.add(in.key("name"), "%s is the name of another key", quote(key.Name))
		}
		if strings.HasPrefix(key.Name, "cert:") {
			k.add(in.key("name"), "%s begins with cert:, as the names of clients with certificates do", quote(key.Name))
		}
		names[key.Name] = true
		other, twice := hashes[key.SHA256]
		switch {
		case key.SHA256 == (KeyHash{}):
			k.add(in.key("sha256"), "missing")
		case twice:
			k.add(in.key("sha256"), "is the key of %s already", quote(other))
		default:
			hashes[key.SHA256] = key.Name
		}
	}
}
