package proxy

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// A browser reaches what its machine reaches, and does so for any page that it shows. What may
// be read without a token is therefore shown to the gateway's own page alone.

var (
	errOtherSite = errors.New("this is shown to its own page alone, and the request comes from another one (Sec-Fetch-Site)")
	errOrigin    = errors.New("this is for its own page alone, and the request's Origin has another host than its Host; a proxy in front must hand the Host on")
	errOtherHost = errors.New("on loopback this is shown under an IP address, localhost or the configured admin host alone, so that no other name can be made to lead here (DNS rebinding)")
)

// sameOrigin refuses what a browser asks for another origin's page. Browsers say so in
// Sec-Fetch-Site; where they leave it out (before 2023, and over http to another machine), a
// POST and whatever goes to another origin have an Origin. Clients that are no browsers send
// neither.
func sameOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch from := r.Header.Get("Sec-Fetch-Site"); {
		case from != "" && from != "same-origin" && from != "none":
			refuseOperation(w, http.StatusForbidden, errOtherSite)
		case !ownOrigin(r.Header.Values("Origin"), r.Host):
			refuseOperation(w, http.StatusForbidden, errOrigin)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// shield lets through what sameOrigin does. On loopback, where no token is asked for, it refuses
// names of other people's as well: who owns a name can have it lead here, and then the browser
// takes their page for ours. Clients that are no browsers send by default the address that they
// connect to.
func (c AdminConfig) shield(next http.Handler) http.Handler {
	return sameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.Loopback && !c.Closed && !ownHost(r.Host, c.Host) {
			refuseOperation(w, http.StatusForbidden, errOtherHost)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// ownOrigin reports whether the Origin headers, if there are any, have the host and port of
// the Host header. The scheme is not compared: a proxy in front may add TLS. An origin that the
// browser keeps to itself, null, is another one.
func ownOrigin(origins []string, host string) bool {
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, host) {
			return false
		}
	}
	return true
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
