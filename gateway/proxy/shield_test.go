package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"kvasir/gateway/proxy"
)

func said(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(text)) })
}

// Who may read the stream and run labs: on loopback whoever is no other site's page and comes
// under no other name; elsewhere whoever has the token.
func TestAdmin_ShowsLiveAndLabsToItsOwnPageAlone(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	loopback := proxy.AdminConfig{Metrics: said("metrics"), Page: said("page"), Live: said("live"), Labs: said("labs"), Loopback: true, Host: "kvasir.internal"}
	withToken := loopback
	withToken.Token = "secret"
	closed := withToken
	closed.Loopback, closed.Closed = false, true
	open := loopback
	open.Loopback = false
	for _, x := range []struct {
		name               string
		config             proxy.AdminConfig
		method, path       string
		host, site, bearer string
		want               int
	}{
		{"the page", loopback, "GET", "/", "127.0.0.1:9090", "", "", 200},
		{"the page under another name", loopback, "GET", "/", "evil.example", "cross-site", "", 200},
		{"an address", loopback, "GET", "/v1/live", "127.0.0.1:9090", "", "", 200},
		{"an address of version 6", loopback, "GET", "/v1/live", "[::1]:9090", "same-origin", "", 200},
		{"an address without a port", loopback, "GET", "/v1/live", "[::1]", "same-origin", "", 200},
		{"localhost", loopback, "GET", "/v1/live", "localhost:9090", "none", "", 200},
		{"localhost in other letters", loopback, "GET", "/v1/live", "LOCALHOST.:9090", "", "", 200},
		{"the configured host", loopback, "GET", "/v1/live", "kvasir.internal:9090", "", "", 200},
		{"another site", loopback, "GET", "/v1/live", "127.0.0.1:9090", "cross-site", "", 403},
		{"another port", loopback, "GET", "/v1/live", "127.0.0.1:9090", "same-site", "", 403},
		{"another name", loopback, "GET", "/v1/live", "evil.example:9090", "same-origin", "", 403},
		{"another name that begins alike", loopback, "GET", "/v1/live", "localhost.evil.example", "", "", 403},
		{"no name", loopback, "GET", "/v1/live", "", "", "", 403},
		{"another name, with a token configured", withToken, "GET", "/v1/live", "evil.example", "same-origin", "", 403},
		{"another site's lab", loopback, "POST", "/v1/labs", "127.0.0.1", "cross-site", "", 403},
		{"another name's lab", loopback, "POST", "/v1/labs", "evil.example", "", "", 403},
		{"another name's list", loopback, "GET", "/v1/labs", "evil.example", "", "", 403},
		{"a lab", loopback, "POST", "/v1/labs", "127.0.0.1", "same-origin", "", 200},
		{"a list", loopback, "GET", "/v1/labs", "127.0.0.1", "same-origin", "", 200},
		{"pools", loopback, "GET", "/v1/pools", "127.0.0.1:9090", "", "", 200},
		{"pools under another name", loopback, "GET", "/v1/pools", "evil.example", "", "", 403},
		{"pools for another site", loopback, "GET", "/v1/pools", "127.0.0.1:9090", "cross-site", "", 403},
		{"pools open to all, under any name", open, "GET", "/v1/pools", "gw.example", "", "", 200},
		{"closed, pools", closed, "GET", "/v1/pools", "gw.example", "", "", 401},
		{"closed, pools with the token", closed, "GET", "/v1/pools", "gw.example", "", "secret", 200},
		{"health under another name", loopback, "GET", "/healthz", "evil.example", "cross-site", "", 200},
		{"metrics under another name", loopback, "GET", "/metrics", "evil.example", "cross-site", "", 200},
		{"closed, without a token", closed, "GET", "/v1/live", "gw.example", "", "", 401},
		{"closed, with a wrong one", closed, "GET", "/v1/live", "gw.example", "", "wrong", 401},
		{"closed, with the token", closed, "GET", "/v1/live", "gw.example", "same-origin", "secret", 200},
		{"closed, from another site", closed, "GET", "/v1/live", "gw.example", "cross-site", "secret", 403},
		{"closed, a lab", closed, "POST", "/v1/labs", "gw.example", "", "", 401},
		{"closed, a lab with the token", closed, "POST", "/v1/labs", "gw.example", "", "secret", 200},
		{"closed, the list", closed, "GET", "/v1/labs", "gw.example", "", "", 200},
		{"closed, the page", closed, "GET", "/", "gw.example", "", "", 200},
		{"open to all, under its name", open, "GET", "/v1/live", "gw.example", "same-origin", "", 200},
		{"open to all, from another site", open, "GET", "/v1/live", "gw.example", "cross-site", "", 403},
	} {
		t.Run(x.name, func(t *testing.T) {
			q := httptest.NewRequest(x.method, x.path, nil)
			q.Host = x.host
			if x.site != "" {
				q.Header.Set("Sec-Fetch-Site", x.site)
			}
			if x.bearer != "" {
				q.Header.Set("Authorization", "Bearer "+x.bearer)
			}
			w := httptest.NewRecorder()
			r.gateway.Admin(x.config).ServeHTTP(w, q)
			if w.Code != x.want {
				t.Errorf("status %d, want %d: %s", w.Code, x.want, w.Body)
			}
		})
	}
}

// What a browser asks for another origin's page is known by its Origin as well, which is there
// where Sec-Fetch-Site is not.
func TestAdmin_LooksAtOrigin(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	open := proxy.AdminConfig{Metrics: said("metrics"), Live: said("live"), Labs: said("labs"), Token: "secret", Shadow: shadows}
	for _, path := range []string{
		"GET /v1/pools", "GET /v1/live", "GET /v1/labs", "POST /v1/labs", "POST /v1/reload", "POST /v1/shadow", "POST /v1/token",
		"POST /v1/endpoints/add", "POST /v1/endpoints/remove", "POST /v1/endpoints/drain", "POST /v1/endpoints/undrain", "POST /v1/endpoints/weight",
	} {
		for _, x := range []struct {
			host    string
			origins []string
			refused bool
		}{
			{"gw.example:9090", nil, false},
			{"gw.example:9090", []string{"http://gw.example:9090"}, false},
			{"gw.example:9090", []string{"https://GW.example:9090"}, false}, // a proxy adds TLS
			{"[::1]:9090", []string{"http://[::1]:9090"}, false},
			{"gw.example:9090", []string{"http://evil.example"}, true},
			{"gw.example:9090", []string{"http://evil.example:9090"}, true},
			{"gw.example:9090", []string{"http://gw.example:9091"}, true},
			{"gw.example:9090", []string{"http://gw.example:9090.evil.example"}, true},
			{"gw.example:9090", []string{"null"}, true},
			{"gw.example:9090", []string{""}, true},
			{"", []string{"null"}, true},
			{"gw.example:9090", []string{"http://gw.example:9090", "http://evil.example"}, true},
		} {
			method, route, _ := strings.Cut(path, " ")
			q := httptest.NewRequest(method, route, nil)
			q.Host = x.host
			q.Header["Origin"] = x.origins
			q.Header.Set("Authorization", "Bearer secret")
			w := httptest.NewRecorder()
			r.gateway.Admin(open).ServeHTTP(w, q)
			if refused := w.Code == http.StatusForbidden; refused != x.refused || refused != strings.Contains(w.Body.String(), "Origin") {
				t.Errorf("%s to %q for %q: %d %s", path, x.host, x.origins, w.Code, w.Body)
			}
		}
	}
	// A page that another site shows can change nothing, even with the token.
	for _, site := range []string{"cross-site", "same-site"} {
		q := httptest.NewRequest("POST", "/v1/endpoints/drain", strings.NewReader(`{"model":"m","endpoint":"e1"}`))
		q.Header.Set("Sec-Fetch-Site", site)
		q.Header.Set("Authorization", "Bearer secret")
		w := httptest.NewRecorder()
		r.gateway.Admin(open).ServeHTTP(w, q)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", site, w.Code, w.Body)
		}
	}
}
