package discovery

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?$`)

var errBrackets = errors.New("an IPv6 address stands in brackets, such as [::1]:8000")

// weightMost bounds an endpoint's weight, and nameMost the bytes of its name.
const (
	weightMost = 1000
	nameMost   = 128
)

// Normal returns e as a Set knows it: its URL as NormalURL writes it, a name, a weight,
// and Host in small letters. The error names the field that is wrong.
func (e Endpoint) Normal() (Endpoint, error) {
	normal, err := NormalURL(e.URL)
	if err != nil {
		return Endpoint{}, fmt.Errorf("url: %w", err)
	}
	e.URL = normal
	if e.Name == "" {
		e.Name = Place(normal)
	}
	if e.Weight == 0 {
		e.Weight = 1
	}
	e.Host = strings.ToLower(e.Host)
	switch {
	case len(e.Name) > nameMost:
		return Endpoint{}, fmt.Errorf("name: %s is longer than %d bytes", quote(e.Name), nameMost)
	case strings.ContainsFunc(e.Name, func(r rune) bool { return r <= ' ' || r > '~' }):
		return Endpoint{}, fmt.Errorf("name: %s has spaces or characters that are not visible ASCII", quote(e.Name))
	case checkWeight(e.Weight) != nil:
		return Endpoint{}, checkWeight(e.Weight)
	case e.Host != "" && !isHost(e.Host):
		return Endpoint{}, fmt.Errorf("host: %s is no host name", quote(e.Host))
	}
	return e, nil
}

// checkWeight says why a weight is not allowed; nil: it is.
func checkWeight(weight float64) error {
	if !(weight > 0 && weight <= weightMost) { // NaN too
		return fmt.Errorf("weight: %v is not allowed; allowed: above 0 to %d", weight, weightMost)
	}
	return nil
}

// NormalURL returns an endpoint's base URL without final slashes and a final /v1, with
// its scheme and host in small letters, and an IPv6 address in its shortest spelling. The
// error never shows what might be a password.
func NormalURL(raw string) (string, error) {
	if raw == "" {
		return "", errors.New("missing")
	}
	u, err := url.Parse(raw)
	switch {
	case strings.Contains(raw, "@"):
		return "", errors.New("a user or password in the URL is not accepted")
	case strings.ContainsAny(raw, "?#"):
		return "", errors.New("a query or fragment in the URL is not accepted")
	case err != nil && strings.Count(raw, ":") > 2 && !strings.Contains(raw, "["):
		return "", errBrackets
	case err != nil:
		return "", fmt.Errorf("%s is no URL such as http://10.0.0.1:8000", quote(raw))
	case u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "":
		return "", fmt.Errorf("%s does not start with http:// or https://", quote(raw))
	case u.Host == "" || !isHost(u.Hostname()):
		return "", fmt.Errorf("%s has no valid host", quote(raw))
	case strings.HasSuffix(u.Host, ":") || u.Port() != "" && !isPort(u.Port()):
		return "", fmt.Errorf("%s has no port from 1 to 65535", quote(raw))
	}
	base := strings.TrimRight(u.EscapedPath(), "/")
	for rest, more := base, true; more; base = strings.TrimRight(rest, "/") {
		rest, more = strings.CutSuffix(base, "/v1")
	}
	return u.Scheme + "://" + normalHost(u) + base, nil
}

// normalHost returns a URL's host in its one shortest spelling, and its port where it
// has one.
func normalHost(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	if address, err := netip.ParseAddr(u.Hostname()); err == nil && address.Is6() {
		// RFC 6874: the % before a zone is itself escaped.
		host = "[" + strings.Replace(address.String(), "%", "%25", 1) + "]"
	}
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	return host
}

// Place returns where a URL that NormalURL returned leads to: host:port and the base
// path. Two endpoints with one place are the same, and a place is an endpoint's name
// where it has no other.
func Place(normal string) string {
	scheme, place, _ := strings.Cut(normal, "://")
	host, base := place, ""
	if i := strings.IndexByte(place, '/'); i >= 0 {
		host, base = place[:i], place[i:]
	}
	hasPort := strings.LastIndexByte(host, ':') > strings.LastIndexByte(host, ']')
	hasZone := strings.Contains(host, "%25")
	if hasPort && !hasZone {
		return place
	}
	if !hasPort {
		host += ":" + portOf(scheme, "")
	}
	return strings.Replace(host, "%25", "%", 1) + base
}

// portOf returns the port, its scheme's where there is none.
func portOf(scheme, port string) string {
	switch {
	case port != "":
		return port
	case scheme == "https":
		return "443"
	default:
		return "80"
	}
}

func isHost(host string) bool {
	if strings.Contains(host, ":") {
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	return len(host) <= 253 && hostname.MatchString(host)
}

// isPort accepts the one decimal spelling of a port that can be called.
func isPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == port
}

// quote returns text in quotes, on one line, and cut where it is long.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strconv.Quote(text)
}
