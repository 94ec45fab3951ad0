package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?$`)

var errBrackets = errors.New("an IPv6 address stands in brackets, such as [::1]:8000")

// checkAddress accepts an address to listen on: host:port, where the host may be
// empty (every address of the machine) and the port 0 (any free one).
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		if strings.Count(address, ":") > 1 && !strings.Contains(address, "[") {
			return errBrackets
		}
		return errors.New("expected host:port")
	}
	if host != "" && !isHost(host) {
		return fmt.Errorf("%s is no host", quote(host))
	}
	if !isPort(port) {
		return fmt.Errorf("the port %s is not a number from 0 to 65535", quote(port))
	}
	return nil
}

func isHost(host string) bool {
	if strings.Contains(host, ":") {
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	last := strings.TrimSuffix(host, ".")
	last = last[strings.LastIndexByte(last, '.')+1:]
	if strings.Trim(last, "0123456789") == "" {
		// No domain ends in a number (RFC 3696 section 2), so an IPv4 address is meant.
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	return len(host) <= 253 && hostname.MatchString(host)
}

// checkTarget accepts an address that is called: a host and a port that is not 0.
func checkTarget(address string) error {
	if err := checkAddress(address); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(address)
	if host == "" {
		return errors.New("expected a host before the port")
	}
	if port == "0" {
		return errors.New("the port 0 can't be called")
	}
	return nil
}

var dnsName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?)*\.?$`)

// checkName accepts a name that DNS can hold, with underscores as SRV records have them
// (RFC 2782).
func checkName(name string) error {
	if len(name) > 253 || !dnsName.MatchString(name) {
		return errors.New("expected labels of letters, digits, - and _ with dots between")
	}
	return nil
}

// checkPath accepts the path of a request, with a query where there is one.
func checkPath(p string) error {
	const most = 1024
	u, err := url.Parse(p)
	switch {
	case !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//"):
		return errors.New("expected one / at the start")
	case len(p) > most:
		return fmt.Errorf("it is longer than %d bytes", most)
	case err != nil || u.Fragment != "" || strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("it has characters that no request line carries")
	}
	return nil
}

// IsLoopback tells whether only this machine can call an address. One that is no
// address counts as loopback: that mistake is reported by itself.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, notIP := netip.ParseAddr(host)
	return err != nil || strings.EqualFold(host, "localhost") || notIP == nil && ip.IsLoopback()
}

func isPort(port string) bool {
	n, ok := parseWhole(port)
	return ok && n <= 65535 && strconv.FormatUint(n, 10) == port
}

// normalURL returns an endpoint's base URL without final slashes and a final /v1, and
// with its scheme and host in small letters. The error never shows what might be a
// password.
func normalURL(raw string) (string, error) {
	if raw == "" {
		return "", errors.New("missing")
	}
	u, err := url.Parse(raw)
	switch {
	case strings.Contains(raw, "@"):
		return "", errors.New("a user or password in the URL is not accepted; use key")
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
	case strings.HasSuffix(u.Host, ":") || u.Port() != "" && (!isPort(u.Port()) || u.Port() == "0"):
		return "", fmt.Errorf("%s has no port from 1 to 65535", quote(raw))
	}
	base := strings.TrimRight(u.EscapedPath(), "/")
	for _, route := range []string{"/chat/completions", "/completions", "/embeddings"} {
		if strings.HasSuffix(base, route) {
			return "", fmt.Errorf("%s ends in a route; leave %s out, it is added", quote(raw), route)
		}
	}
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

// endpointName returns host:port and the base path of a URL that normalURL returned.
func endpointName(normal string) string {
	address, base := addressOf(normal)
	return address + base
}

// addressOf returns the host and port that a normal URL leads to, and its base path.
func addressOf(normal string) (address, base string) {
	u, err := url.Parse(normal)
	if err != nil {
		return normal, "" // not a normal URL; Validate reports it
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port), u.EscapedPath()
}
