package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Defaults of a DNS source.
const (
	DefaultDNSInterval = 5 * time.Second
	DefaultDNSTimeout  = 10 * time.Second // two tries of 5s each, as resolv.conf has them where it says nothing
	DefaultDNSKeep     = 5 * time.Minute
)

// DNS describes a source of one endpoint per address of a name, such as that of a
// headless service in Kubernetes. A record's TTL is not seen: an address counts as new
// or gone at the first look after the resolver says so, an Interval later at most.
//
// What the DNS can't say, it doesn't change. A lookup that times out or fails keeps the
// last good list, however long it goes on: a DNS server's outage is no news of
// endpoints. A name that the DNS says doesn't exist keeps it for Keep, for a short gap is
// usual while a service is replaced, and then lists none: addresses are given to others
// before long, and Kubernetes answers so for a service none of whose engines is ready.
type DNS struct {
	// URL has the scheme, the name, the port and the base path: http://engines.prod.svc:8000.
	// A final dot behind the name spares the search list's lookups.
	URL string
	// Service asks for SRV records in place of addresses: "_http._tcp" looks up
	// _http._tcp.engines.prod.svc; URL then has no port. Of the records those with the
	// lowest priority count; their targets are looked up in turn, and each has one
	// endpoint per address. Weights are relative to the heaviest record, which has 1; a
	// weight of 0, which RFC 2782 gives "a very small chance", counts as 1 beside the
	// others, and a target with several addresses shares its weight among them.
	Service string
	// Network is "ip4" or "ip6" for one family alone; "" and "ip" are both. Where each
	// engine has an address of each, both would list it twice.
	Network string
	// Resolver is who is asked; nil: NewResolver("").
	Resolver Resolver

	Interval time.Duration // from one look to the next; 0: DefaultDNSInterval; at least 10ms
	Timeout  time.Duration // of one look, all its lookups together; 0: DefaultDNSTimeout
	Keep     time.Duration // 0: DefaultDNSKeep
	Phase    time.Duration // when within Interval the looks after the first are, from 0 to below Interval
	Most     int           // addresses used, the lowest first; 0: Most
}

var serviceName = regexp.MustCompile(`^_[A-Za-z0-9-]+\._(tcp|udp)$`)

// dns is a DNS whose mistakes were found and whose defaults are in place.
type dns struct {
	DNS
	scheme, name, base string
	port               uint16 // 0 with Service
}

// NewDNS returns the source that d describes. The error names every field that is wrong.
//
// Its endpoints have the name in Host: TLS checks the name that was configured, never one
// that the DNS said.
func NewDNS(d DNS) (Source, error) {
	d.Interval = cmp.Or(d.Interval, DefaultDNSInterval)
	d.Timeout = cmp.Or(d.Timeout, DefaultDNSTimeout)
	d.Keep = cmp.Or(d.Keep, DefaultDNSKeep)
	d.Network = cmp.Or(d.Network, "ip")
	d.Most = cmp.Or(d.Most, Most)
	s := &dns{DNS: d}
	if err := errors.Join(s.readURL(), s.validate()); err != nil {
		return nil, err
	}
	if s.Resolver == nil {
		r, err := NewResolver("")
		if err != nil {
			return nil, err
		}
		s.Resolver = r
	}
	return s, nil
}

func (s *dns) readURL() error {
	normal, err := NormalURL(s.URL)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	u, err := url.Parse(normal)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	s.URL, s.scheme, s.name, s.base = normal, u.Scheme, u.Hostname(), u.EscapedPath()
	if _, err := netip.ParseAddr(s.name); err == nil {
		return fmt.Errorf("url: %s is an address, not a name; list it as an endpoint", quote(s.name))
	}
	longest := s.scheme + "://[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535" + s.base
	if _, err := (Endpoint{URL: longest}).Normal(); err != nil {
		return err
	}
	if s.Service != "" {
		if u.Port() != "" {
			return fmt.Errorf("url: the port %s is not allowed beside a service: SRV records have it", u.Port())
		}
		return nil
	}
	port, err := strconv.ParseUint(portOf(u.Scheme, u.Port()), 10, 16)
	if err != nil {
		return fmt.Errorf("url: port: %w", err)
	}
	s.port = uint16(port)
	return nil
}

func (s *dns) validate() error {
	var wrong []error
	refuse := func(bad bool, field string, value any, allowed string) {
		if bad {
			wrong = append(wrong, fmt.Errorf("%s: %v is not allowed; allowed: %s", field, value, allowed))
		}
	}
	refuse(s.Service != "" && !serviceName.MatchString(s.Service), "service", quote(s.Service), "such as _http._tcp")
	refuse(!slices.Contains([]string{"ip", "ip4", "ip6"}, s.Network), "network", quote(s.Network), "ip, ip4, ip6")
	refuse(s.Interval < leastInterval, "interval", s.Interval, "at least "+leastInterval.String())
	refuse(s.Timeout < 0, "timeout", s.Timeout, "above 0")
	refuse(s.Keep < 0, "keep", s.Keep, "above 0")
	refuse(s.Phase < 0 || s.Phase >= s.Interval, "phase", s.Phase, "from 0 to below the interval")
	refuse(s.Most < 0, "most", s.Most, "above 0")
	return errors.Join(wrong...)
}

func (s *dns) Origin() Origin {
	if s.Service == "" {
		return Origin{KindDNS, s.URL}
	}
	return Origin{KindDNS, s.scheme + "://" + s.Service + "." + s.name + s.base}
}

func (s *dns) Watch(ctx context.Context, tell func([]Endpoint, error)) {
	start := time.Now()
	w := watch{dns: s}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		endpoints, err := w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		tell(endpoints, err)
		timer.Reset(untilBeat(time.Since(start)-s.Phase, s.Interval))
	}
}

// untilBeat returns the time to the next beat, which are at the multiples of interval
// from 0 on, given the time since the first.
func untilBeat(since, interval time.Duration) time.Duration {
	if since < 0 {
		return -since
	}
	return interval - since%interval
}

// watch is what lasts from one look to the next.
type watch struct {
	*dns
	own     lastGood[netip.Addr]             // without Service
	records lastGood[record]                 // with Service
	hosts   map[string]*lastGood[netip.Addr] // of the records' targets
}

// address is one place that the DNS named.
type address struct {
	netip.AddrPort
	weight float64
}

// look asks the DNS once and returns the whole list, with the error of what it couldn't
// say.
func (w *watch) look(ctx context.Context) ([]Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	var addresses []address
	var err error
	if w.Service != "" {
		addresses, err = w.lookService(ctx)
	} else {
		addresses, err = w.lookName(ctx)
	}
	if addresses == nil {
		return nil, err
	}
	return w.endpoints(addresses, err)
}

// lookName asks for the addresses of the name itself; nil where nothing is known.
func (w *watch) lookName(ctx context.Context) ([]address, error) {
	found, err := w.resolve(ctx, w.name)
	found, err = w.own.heard(found, err, w.Keep)
	if found == nil {
		return nil, err
	}
	addresses := make([]address, 0, len(found))
	for _, a := range found {
		addresses = append(addresses, address{netip.AddrPortFrom(a, w.port), 1})
	}
	return addresses, err
}

// resolve returns the addresses of a name that can be called, nil with an error.
func (w *watch) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	found, err := w.Resolver.LookupNetIP(ctx, w.Network, name)
	if err != nil {
		return nil, lookupError{name, err}
	}
	usable := make([]netip.Addr, 0, len(found))
	for _, a := range found {
		// An unspecified address, with which some resolvers block a name, would lead
		// back to this machine.
		if a = a.Unmap().WithZone(""); a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() {
			usable = append(usable, a)
		}
	}
	if len(usable) == 0 {
		return nil, fmt.Errorf("lookup of %s: none of its %d addresses can be called", name, len(found))
	}
	return usable, nil
}

// endpoints makes the list of addresses, in their order and each once.
func (w *watch) endpoints(addresses []address, err error) ([]Endpoint, error) {
	slices.SortStableFunc(addresses, func(a, b address) int { return a.Compare(b.AddrPort) })
	addresses = slices.CompactFunc(addresses, func(a, b address) bool { return a.AddrPort == b.AddrPort })
	if n := len(addresses); n > w.Most {
		addresses = addresses[:w.Most]
		err = errors.Join(err, fmt.Errorf("%s has %d addresses, of which %d are used", w.name, n, w.Most))
	}
	list := make([]Endpoint, 0, len(addresses))
	for _, a := range addresses {
		e := Endpoint{
			URL:    w.scheme + "://" + a.String() + w.base, // an AddrPort has brackets where it needs them
			Weight: a.weight,
			Host:   strings.TrimSuffix(w.name, "."),
		}
		e.Name = Place(e.URL)
		list = append(list, e)
	}
	return list, err
}

// lookupError says which name couldn't be looked up.
type lookupError struct {
	name string
	err  error
}

func (e lookupError) Error() string { return "lookup of " + e.name + ": " + why(e.err) }
func (e lookupError) Unwrap() error { return e.err }

// lastGood is what the DNS last said of a name, as far as that counts.
type lastGood[T any] struct {
	value []T       // nil: it has said nothing; empty: it has said that there is none, for long
	gone  time.Time // since when it says without a break that there is none; zero: it doesn't
}

// heard takes an answer, nil where there is only an error, and returns what holds now.
func (l *lastGood[T]) heard(value []T, err error, keep time.Duration) ([]T, error) {
	switch now := time.Now(); {
	case value != nil:
		l.value, l.gone = value, time.Time{}
	case !isGone(err):
		l.gone = time.Time{}
	case l.gone.IsZero():
		l.gone = now
	case now.Sub(l.gone) >= keep:
		l.value = []T{}
		err = fmt.Errorf("%w; for %v, so that none is left", err, keep)
	}
	return l.value, err
}
