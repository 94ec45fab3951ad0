package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
)

func TestModelsAreListed(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	a := r.get("/v1/models")
	var list struct {
		Object string
		Data   []struct{ ID, Object string }
	}
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != 200 {
		t.Fatalf("status %d, %v: %s", a.status, err, a.body)
	}
	if list.Object != "list" || len(list.Data) != 2 || list.Data[0].ID != testModel || list.Data[1].ID != testAlias {
		t.Errorf("list %+v", list)
	}
	for name, status := range map[string]int{testModel: 200, testAlias: 200, "other": 404, "": 404, "m/": 404} {
		a := r.get("/v1/models/" + name)
		if a.status != status {
			t.Errorf("%q: status %d", name, a.status)
		}
		if status == 404 {
			if e := envelope(t, a.body); e.Code != "model_not_found" || e.RequestID != a.header.Get("X-Request-Id") {
				t.Errorf("envelope %+v", e)
			}
		}
	}
	head, err := r.do(t.Context(), http.MethodHead, "/v1/models", nil)
	if err != nil || head.status != 200 || head.body != "" || head.header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %+v, %v", head, err)
	}
}

func TestUnknownModelRouteAndMethod(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	for _, x := range []struct {
		method, path, body string
		status             int
		code, allow        string
	}{
		{"POST", chatPath, `{"model":"nobody","messages":[]}`, 404, "model_not_found", ""},
		{"POST", completionPath, `{"model":"","prompt":"x"}`, 400, "", ""},
		{"POST", "/v1/files", unstreamed, 404, "unknown_route", ""},
		{"POST", "/v1/chat/completions/", unstreamed, 404, "unknown_route", ""},
		{"POST", "//v1/chat/completions", unstreamed, 404, "unknown_route", ""},
		{"POST", "/v1/x/../chat/completions", unstreamed, 404, "unknown_route", ""},
		{"GET", "/", "", 404, "unknown_route", ""},
		{"GET", "/metrics", "", 404, "unknown_route", ""},
		{"GET", "/v1/pools", "", 404, "unknown_route", ""},
		{"GET", chatPath, "", 405, "method_not_allowed", "POST"},
		{"HEAD", chatPath, "", 405, "", "POST"},
		{"DELETE", embedPath, "", 405, "method_not_allowed", "POST"},
		{"OPTIONS", completionPath, "", 405, "method_not_allowed", "POST"},
		{"POST", "/v1/models", "{}", 405, "method_not_allowed", "GET, HEAD"},
		{"DELETE", "/v1/models/m", "", 405, "method_not_allowed", "GET, HEAD"},
	} {
		a, err := r.do(t.Context(), x.method, x.path, strings.NewReader(x.body))
		if err != nil || a.status != x.status || a.header.Get("Allow") != x.allow {
			t.Errorf("%s %s: status %d, Allow %q, %v", x.method, x.path, a.status, a.header.Get("Allow"), err)
			continue
		}
		if x.method == "HEAD" {
			continue
		}
		if e := envelope(t, a.body); e.Code != x.code || e.RequestID == "" || e.RequestID != a.header.Get("X-Request-Id") {
			t.Errorf("%s %s: envelope %+v", x.method, x.path, e)
		}
	}
	if n := r.upstreamCalls(); n != 0 {
		t.Errorf("%d upstream calls", n)
	}
}

// Each route goes to the endpoint under the same path, below its base path.
func TestRoutesGoUpstreamUnderTheSamePath(t *testing.T) {
	s := ordered(func(c *scripted.Call) {
		rec := c.Record()
		if bytes.Contains(rec.Body, []byte(`"stream":true`)) {
			c.Stream(wholeStream("a")...)
			return
		}
		good(c)
	})
	s.config = func(c *proxy.Config) { c.Models[0].Pools[0].Endpoints[0].URL += "/base" }
	r := newRig(t, s)
	defer r.close()
	for path, body := range map[string]string{chatPath: streamed, completionPath: `{"model":"m","prompt":"x"}`, embedPath: embedding} {
		if a := r.post(path, body); a.status != 200 {
			t.Errorf("%s: status %d", path, a.status)
		}
		calls := r.upstreams[0].Calls()
		if last := calls[len(calls)-1]; last.Target != "/base"+path || last.Method != "POST" || string(last.Body) != body {
			t.Errorf("%s went to %s %s with %q", path, last.Method, last.Target, last.Body)
		}
	}
}

// Field case F74: nothing that a client sends becomes a metric's label.
func TestLabelsAreBounded(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	page := func() string {
		w := httptest.NewRecorder()
		promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	send := func(n int) {
		random := rand.New(rand.NewPCG(74, uint64(n)))
		for range n {
			word := fmt.Sprintf("marker%x", random.Uint64())
			c := r.send(fmt.Sprintf("%s /v1/%s HTTP/1.1\r\nHost: %s\r\nX-%s: %s\r\nUser-Agent: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
				strings.ToUpper(word[:8]), word, word, word, word, word))
			_, _ = io.Copy(io.Discard, c) // until it is closed
			closeAll(t, c)
			r.post(chatPath, fmt.Sprintf(`{"model":"%s","user":"%s","messages":[]}`, word, word), "X-Request-Id: "+word)
			r.post(chatPath, "{\"model\":\"\xff\xfe"+word+`","messages":[]}`)
			r.post(chatPath, fmt.Sprintf(`{"model":"m","user":"%s","messages":[]}`, word), "X-Session-Id: "+word)
		}
		r.settle()
	}
	send(5)
	before := page()
	send(100)
	after := page()
	if a, b := strings.Count(before, "\n"), strings.Count(after, "\n"); a != b {
		t.Errorf("%d lines of metrics became %d", a, b)
	}
	if strings.Contains(after, "marker") || strings.Contains(after, "MARKER") || len(after) > 1<<20 {
		t.Errorf("a client's word is on the page, or it is long: %d bytes", len(after))
	}
}

// admin asks the admin listener's handler.
func (r *rig) admin(path string) (int, string) {
	w := httptest.NewRecorder()
	r.gateway.Admin(proxy.AdminConfig{Metrics: promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{})}).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func TestAdminShowsHealthAndPools(t *testing.T) {
	release := make(chan bool)
	r := newRig(t, setup{pools: [][]scripted.Script{{func(c *scripted.Call) { <-release; good(c) }}, {refuse}}})
	defer r.close()
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		if code, body := r.admin(path); code != 200 || body != want {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	done := make(chan bool)
	go func() { defer close(done); r.post(chatPath, unstreamed) }()
	waitForCall(t, r.upstreams[0])
	var views []proxy.ModelView
	code, body := r.admin("/v1/pools")
	if err := json.Unmarshal([]byte(body), &views); err != nil || code != 200 {
		t.Fatalf("%d %v: %s", code, err, body)
	}
	v := views[0]
	if v.Model != testModel || v.InFlight != 1 || len(v.Pools) != 2 || v.Pools[0].Endpoints[0].InFlight != 1 || v.Pools[0].Policy != "round-robin" {
		t.Errorf("pools %+v", v)
	}
	if e := v.Pools[0].Endpoints[0]; e.Running != nil || e.SignalAge != nil || e.KVUsage != nil {
		t.Errorf("what is unknown is shown: %+v", e)
	}
	if _, body := r.admin("/metrics"); !strings.Contains(body, `kvasir_in_flight{endpoint="e1",model="m",pool="p1"} 1`) {
		t.Error("the call in flight is not on /metrics")
	}
	close(release)
	<-done
	if code, _ := r.admin("/v1/chat/completions"); code != 404 {
		t.Errorf("the admin listener has clients' routes: %d", code)
	}
}

// Field case F37: readiness goes first; live streams end normally, kept connections are
// told to close, and the server stops right after the last stream.
func TestF37_DrainLetsStreamsEnd(t *testing.T) {
	release := make(chan bool)
	r := newRig(t, ordered(func(c *scripted.Call) {
		c.EventStream()
		_ = c.Chunk(textEvent("one")) // a peer that left is noted
		<-release
		_ = c.Chunk(finishEvent + doneEvent)
		c.LastChunk()
	}))
	defer r.close()
	const streams = 10
	bodies := make(chan answer, streams)
	for range streams {
		go func() { bodies <- r.post(chatPath, streamed) }()
	}
	eventually(t, 2*time.Second, func() bool { return r.upstreamCalls() == streams }, func() string { return "streams did not start" })
	r.gateway.Drain()
	if code, body := r.admin("/readyz"); code != 503 || body != "draining\n" {
		t.Errorf("readyz: %d %q", code, body)
	}
	if code, _ := r.admin("/healthz"); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	// One that did not hear of it yet is served, once.
	if a := r.get("/v1/models"); a.status != 200 || !a.closes {
		t.Errorf("a late client: status %d, told to close: %v", a.status, a.closes)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(t.Context()) }()
	time.Sleep(20 * time.Millisecond)
	select {
	case err := <-stopped:
		t.Fatalf("stopped with streams in flight: %v", err)
	default:
	}
	close(release)
	for range streams {
		if a := <-bodies; a.status != 200 || a.err != nil || !strings.HasSuffix(a.body, doneEvent) {
			t.Errorf("status %d, %q, %v", a.status, a.body, a.err)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
