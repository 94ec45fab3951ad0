package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// discover checks where endpoints are found.
func (k *checker) discover(s Discover, at path) {
	if s.sources() > 1 {
		k.add(at, "dns, srv and file exclude each other; one of them is needed")
	}
	if host, _, err := net.SplitHostPort(s.DNS); err == nil {
		if _, err := netip.ParseAddr(host); err == nil {
			k.add(at.key("dns"), "%s is an address, not a name; list it under endpoints", quote(s.DNS))
		}
	}
	if s.Resolver != "" && s.DNS == "" && s.SRV == "" {
		k.add(at.key("resolver"), "%s has no effect without dns or srv", quote(s.Resolver))
	}
}

// transport checks how a pool's endpoints are spoken with: their schemes, the protocol
// and the TLS section agree.
func (k *checker) transport(p Pool, at path) {
	schemes := p.schemes()
	http, https := slices.Contains(schemes, "http"), slices.Contains(schemes, "https")
	switch {
	case p.Protocol == "h2" && http:
		k.add(at.key("protocol"), "h2 is spoken over https, and the pool has http endpoints; h2c is for those")
	case p.Protocol == "h2c" && https:
		k.add(at.key("protocol"), "h2c is spoken over http, and the pool has https endpoints; h2 is for those")
	}
	in := at.key("tls")
	k.pair(in, p.TLS.Cert, p.TLS.Key)
	if p.TLS.Insecure && p.TLS.CA != "" {
		k.add(in.key("insecure"), "nothing is checked, so ca is in vain")
	}
	if p.TLS.isSet() && len(schemes) > 0 && !https && p.Discover.File == "" {
		k.add(in, "has no effect: no endpoint of the pool is called with https")
	}
}

// schemes lists the schemes of a pool's endpoints, as far as they are known before any
// is found.
func (p Pool) schemes() []string {
	var out []string
	for _, e := range p.Endpoints {
		if scheme, _, ok := strings.Cut(e.URL, "://"); ok {
			out = append(out, strings.ToLower(scheme))
		}
	}
	if p.Discover.DNS != "" || p.Discover.SRV != "" {
		out = append(out, p.Discover.Scheme)
	}
	return out
}
