package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"kvasir/gateway/admission"
	"kvasir/selection"
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

// queue checks what of a queue's keys depends on others.
func (k *checker) queue(p Pool, at path) {
	q, usual := p.Queue, DefaultQueue()
	if q.Limit == LimitNone && q.Gradient != usual.Gradient {
		k.add(at.key("gradient"), "has no effect without limit: gradient")
	}
	if g := q.Gradient; g.Min > g.Max {
		k.add(at.key("gradient").key("max"), "is %d, but min is %d; it must be at least that", g.Max, g.Min)
	}
	fair := q.Order == admission.Fair.String() || q.Order == admission.FairLocal.String()
	local := q.Order == admission.FairLocal.String()
	if !fair && (q.Principal != usual.Principal || q.Weights != usual.Weights) {
		k.add(at.key("order"), "is %s; principal and weights have an effect with fair and fair-local alone", quote(q.Order))
	}
	if fair && q.Weights.Input == 0 && q.Weights.Output == 0 {
		k.add(at.key("weights"), "has no weight for input or output; one of them must be above 0")
	}
	if fair && q.Weights.Cached > q.Weights.Input {
		k.add(at.key("weights").key("cached"), "is %v; allowed: at most input, %v", q.Weights.Cached, q.Weights.Input)
	}
	if !local && q.Quantum != usual.Quantum {
		k.add(at.key("quantum"), "has an effect with the order fair-local alone, not with %s", quote(q.Order))
	}
	if local && p.Policy.Params != nil && len(p.Policy.Params.Validate()) == 0 {
		if _, looks := selection.As[selection.OverlapUser](p.Policy.Params.New()); !looks {
			k.add(at.key("order"), "fair-local has no effect with policy %s, which does not look at prefixes; use fair", quote(p.Policy.Name))
		}
	}
}
