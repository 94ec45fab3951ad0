// Package discovery is layer 3 (endpoint selection), live: it finds out which endpoints
// a pool should have. A Source (a fixed list, a DNS name, a file) says the whole list
// again and again; a Set makes one list of what several sources and an operator say, and
// tells when it differs. Nothing here calls an endpoint: whether a listed one answers is
// for health to find out.
package discovery

import (
	"context"
	"time"
)

// Most is how many endpoints one source may list, and an operator add, where nothing
// lower is asked for.
const Most = 512

// leastInterval is the shortest time from one look to the next that a source accepts.
const leastInterval = 10 * time.Millisecond

// Endpoint is one address that can answer. Sources hand them over in the form that
// Normal returns.
type Endpoint struct {
	URL    string  // http or https, host and perhaps port and base path
	Name   string  // unique within the Set; from Normal: host:port and the base path where it was empty
	Weight float64 // capacity relative to the others, above 0 and at most 1000; from Normal: 1 where it was 0

	// Host is the name that the endpoint is called by where URL has an address in its
	// place: for TLS the server's name (sent, and checked against the certificate), for
	// HTTP the Host header, to which URL's port belongs. Empty: URL's own host.
	Host string
}

// Kind says what sort of source an endpoint comes from.
type Kind string

// The kinds of sources.
const (
	KindStatic Kind = "static" // listed in the configuration
	KindDNS    Kind = "dns"
	KindFile   Kind = "file"
	KindAdmin  Kind = "admin" // added by an operator at run time
)

// Origin names a source.
type Origin struct {
	Kind Kind
	Of   string // the URL whose name is looked up, or the file's path; empty for the other kinds
}

// String returns the kind, and what is read where there is something.
func (o Origin) String() string {
	if o.Of == "" {
		return string(o.Kind)
	}
	return string(o.Kind) + " " + o.Of
}

// Source says which endpoints there should be. A Source has no state of its own: Watch
// may be called again after it returned.
type Source interface {
	// Origin names the source, the same way at each call.
	Origin() Origin

	// Watch looks at once and then again and again until ctx ends, and returns when its
	// goroutines have. It calls tell after each look, whether anything changed or not,
	// one call at a time, and not once ctx has ended.
	//
	// endpoints is the whole list as far as it is known: one that can't be read anew
	// stands as it was last. nil says that nothing is known, an empty one that there is
	// none. err says why the look was not clean. Whoever is told changes neither.
	Watch(ctx context.Context, tell func(endpoints []Endpoint, err error))
}

// static is a list that doesn't change.
type static []Endpoint

// NewStatic returns a source that lists the endpoints and is done.
func NewStatic(endpoints []Endpoint) (Source, error) {
	list := make(static, 0, len(endpoints))
	for _, e := range endpoints {
		e, err := e.Normal()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

func (static) Origin() Origin { return Origin{Kind: KindStatic} }

// Watch tells once: what was said in the configuration doesn't age.
func (s static) Watch(ctx context.Context, tell func([]Endpoint, error)) {
	if ctx.Err() == nil {
		tell(s, nil)
	}
}

var (
	_ Source = static(nil)
	_ Source = (*dns)(nil)
	_ Source = (*file)(nil)
)
