package proxy

import (
	"net/http"
	"strings"

	"kvasir/api"
)

// forwarded are the request headers that an endpoint gets to see. Everything else stays
// here: a credential meant for the gateway, a cookie, or a header that a later release
// of some client invents must not leak by default (field case F63).
var forwarded = []string{
	"Accept",
	"Accept-Language",
	"Anthropic-Beta",
	"Anthropic-Version",
	"Content-Type",
	"Endpoint-Load-Metrics-Format",
	"Openai-Beta",
	"Traceparent",
	"Tracestate",
	"User-Agent",
	"X-Data-Parallel-Rank",
	"X-Session-Id",
	"X-Vllm-Priority",
}

// fillRequestHeader makes out, which is empty, the headers of an attempt. id is the request's
// id; authorization is the endpoint's own, nil for none.
func fillRequestHeader(out, in http.Header, id, authorization []string) {
	for _, name := range forwarded {
		if v, ok := in[name]; ok {
			out[name] = v
		}
	}
	if v := out["Content-Type"]; len(v) > 1 {
		out["Content-Type"] = v[:1] // the one that was looked at here
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // keeps the transport from adding its own
	}
	out["X-Request-Id"] = id
	if authorization != nil {
		out["Authorization"] = authorization
	}
}

// hopByHop are the headers of one connection (RFC 9110, section 7.6.1).
var hopByHop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// withheld are the response headers that are an endpoint's own business.
var withheld = map[string]bool{
	"Authorization": true, "Date": true, "Location": true, "Server": true, "Set-Cookie": true, "Www-Authenticate": true,
	"X-Request-Id": true, "Request-Id": true, "X-Kvasir-Endpoint": true, "X-Kvasir-Explain": true,
}

// copyResponseHeader passes an endpoint's response headers on, without those of the
// connection, those that would set state in the client, and any that quote key.
func copyResponseHeader(dst, src http.Header, key string) {
	var listed map[string]bool
	for _, v := range src["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			if listed == nil {
				listed = map[string]bool{}
			}
			listed[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	for name, values := range src {
		if hopByHop[name] || withheld[name] || listed[name] || quotes(values, key) {
			continue
		}
		dst[name] = values
	}
}

func quotes(values []string, key string) bool {
	if key == "" {
		return false
	}
	for _, v := range values {
		if strings.Contains(v, key) {
			return true
		}
	}
	return false
}

// tellRequestID names the request to its client: Anthropic's SDKs look for it under
// another name than OpenAI's.
func tellRequestID(h http.Header, g api.Grammar, id string) {
	h["X-Request-Id"] = []string{id}
	if g == api.Messages || g == api.CountTokens {
		h["Request-Id"] = []string{id}
	}
}

// maxRequestID bounds a request id that a client brings along.
const maxRequestID = 128

// usableRequestID reports whether a client's x-request-id can be kept: short, and made of
// characters that are safe in a header, a log line and an engine's own ids.
func usableRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == ':':
		default:
			return false
		}
	}
	return true
}
