package proxy

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// A browser reaches what its machine reaches, and does so for any page that it shows. What may
// be read without a token is therefore shown to the gateway's own page alone.

var (
	errOtherSite = errors.New("this is shown to its own page alone, and the request comes from another one (Sec-Fetch-Site)")
	errOtherHost = errors.New("on loopback this is shown under an IP address, localhost or the configured admin host alone, so that no other name can be made to lead here (DNS rebinding)")
)

// shield refuses what a browser asks for another origin's page. On loopback, where no token is
// asked for, it refuses names of other people's as well: who owns a name can have it lead
// here, and then the browser takes their page for ours. Clients that are no browsers send no
// Sec-Fetch-Site, and by default the address that they connect to.
func (c AdminConfig) shield(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch from := r.Header.Get("Sec-Fetch-Site"); {
		case from != "" && from != "same-origin" && from != "none":
			refuseOperation(w, http.StatusForbidden, errOtherSite)
		case c.Loopback && !c.Closed && !ownHost(r.Host, c.Host):
			refuseOperation(w, http.StatusForbidden, errOtherHost)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ownHost reports whether a Host header names this listener by what nobody else can own: an
// IP address, localhost, or the name that the configuration has.
func ownHost(header, configured string) bool {
	host := header
	if name, _, err := net.SplitHostPort(header); err == nil {
		host = name
	}
	host = strings.TrimSuffix(host, ".")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") || configured != "" && strings.EqualFold(host, configured)
}
