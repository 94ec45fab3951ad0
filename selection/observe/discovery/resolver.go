package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Resolver looks names up; *net.Resolver is one. Its methods return soon after ctx ends,
// and are safe for concurrent use. A name that the DNS says doesn't exist, or has no
// records of the kind, is a *net.DNSError with IsNotFound.
type Resolver interface {
	// LookupNetIP returns the addresses of host; network is "ip" for both families, "ip4" or "ip6".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	// LookupSRV returns the SRV records of name, where service and proto are empty.
	LookupSRV(ctx context.Context, service, proto, name string) (cname string, records []*net.SRV, err error)
}

// NewResolver returns a resolver that asks the server, an IP address with or without a
// port (53); with "", those that the machine's resolv.conf names. Either way the
// machine's hosts file goes first, and resolv.conf's search list applies to names
// without a final dot.
//
// A lookup that gets only half of its answer (the A records, but an error for the AAAA
// records) fails as a whole: half a list would take endpoints away.
func NewResolver(server string) (Resolver, error) {
	address, err := serverAddress(server)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	return &net.Resolver{
		PreferGo:     true, // the C library's can't be told a server, nor be given up
		StrictErrors: true,
		Dial: func(ctx context.Context, network, asked string) (net.Conn, error) {
			if address != "" {
				asked = address
			}
			conn, err := dialer.DialContext(ctx, network, asked)
			if err != nil {
				return nil, err
			}
			// The resolver waits for an answer until its own deadline, even where the
			// lookup has been given up; a closed connection ends that.
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			return conn, nil
		},
	}, nil
}

// serverAddress returns the server with a port, "" for "".
func serverAddress(server string) (string, error) {
	if server == "" {
		return "", nil
	}
	if a, err := netip.ParseAddrPort(server); err == nil && a.Port() != 0 {
		return a.String(), nil
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(server, "["), "]")
	if a, err := netip.ParseAddr(bare); err == nil {
		return netip.AddrPortFrom(a, 53).String(), nil
	}
	return "", fmt.Errorf("resolver: %s is not allowed; allowed: an IP address, with or without a port, such as 10.0.0.10:53", quote(server))
}

// isGone tells an answer that there is no such thing from the lack of an answer.
func isGone(err error) bool {
	e, ok := errors.AsType[*net.DNSError](err)
	return ok && e.IsNotFound
}

// why says why a lookup failed, in the same words each time it fails for the same
// reason: the resolver's own have the port that it happened to ask from, and the server
// that resolv.conf names, whoever was asked.
func why(err error) string {
	e, ok := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case !ok:
		return err.Error()
	case e.IsNotFound:
		return "the DNS has no such name, or no addresses for it"
	case e.IsTimeout:
		return "no answer in time"
	}
	return strings.TrimSpace(e.Err[strings.LastIndex(e.Err, ": ")+1:])
}
