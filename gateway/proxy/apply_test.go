package proxy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kvasir/gateway/flow"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/scripted"
	"kvasir/selection/observe/discovery"
)

// watching runs the rig's discovery, scrapers and probes until the function is called.
func (r *rig) watching() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.gateway.Watch(ctx) }()
	return func() { cancel(); <-ended }
}

// operate sends an operator's request to the admin listener's handler.
func (r *rig) operate(token, path, body string) (int, string) {
	w := httptest.NewRecorder()
	q := httptest.NewRequest("POST", path, strings.NewReader(body))
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	r.gateway.Admin(proxy.AdminConfig{
		Metrics: promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}), Token: adminToken, Shadow: shadows,
		Reload: func() error { return fmt.Errorf("models: missing") },
	}).ServeHTTP(w, q)
	return w.Code, w.Body.String()
}

// members names the endpoints of the test's model that take calls.
func (r *rig) members() []string {
	var out []string
	for _, p := range r.gateway.Pools()[0].Pools {
		for _, e := range p.Endpoints {
			if !e.Draining {
				out = append(out, e.Endpoint)
			}
		}
	}
	return out
}

func (r *rig) wantMembers(want ...string) {
	r.t.Helper()
	eventually(r.t, 5*time.Second, func() bool { return fmt.Sprint(r.members()) == fmt.Sprint(want) },
		func() string { return fmt.Sprintf("members %v, want %v", r.members(), want) })
}

func TestOperator_AddsDrainsAndRemoves(t *testing.T) {
	s := pooled(good, good)
	var before proxy.Config
	s.config = func(c *proxy.Config) {
		c.Models[0].Machine.Health.SlowStart = 0
		before = *c
	}
	r := newRig(t, s)
	r.churned = true
	defer r.close()
	stop := r.watching()
	defer stop()
	extra := scripted.Start(r.listen(), scripted.Options{}, good)
	defer extra.Close()

	for _, x := range []struct {
		token, path, body string
		status            int
		says              string
	}{
		{"", "/v1/endpoints/drain", `{"model":"m","endpoint":"e1"}`, 401, "admin token"},
		{"wrong", "/v1/endpoints/drain", `{"model":"m","endpoint":"e1"}`, 401, "admin token"},
		{adminToken, "/v1/endpoints/drain", `{"model":"nobody","endpoint":"e1"}`, 404, `model: there is no \"nobody\"`},
		{adminToken, "/v1/endpoints/drain", `{"model":"m","pool":"p9","endpoint":"e1"}`, 404, "pool"},
		{adminToken, "/v1/endpoints/drain", `{"model":"m","endpoint":"e9"}`, 404, "e9"},
		{adminToken, "/v1/endpoints/drain", `{"model":"m"}`, 400, "endpoint: missing"},
		{adminToken, "/v1/endpoints/drain", `{"modle":"m"}`, 400, "modle"},
		{adminToken, "/v1/endpoints/drain", `[`, 400, "body"},
		{adminToken, "/v1/endpoints/drain", `[]`, 400, "body"},
		{adminToken, "/v1/endpoints/drain", `{"model":"m","endpoint":"e1"} {}`, 400, "something follows its JSON object"},
		{adminToken, "/v1/endpoints/drain", `{"model":"m","endpoint":"e1"}]`, 400, "something follows its JSON object"},
		{adminToken, "/v1/endpoints/drain", `{"model":"m","endpoint":"e1","endpoint":"e2"}`, 400, "endpoint: the key is there twice"},
		{adminToken, "/v1/endpoints/drain", `{"model":"m","endpoint":"e1","Endpoint":"e2"}`, 400, "Endpoint: the key is there twice"},
		{adminToken, "/v1/endpoints/drain", `{"model":"m","endpoint":{"a":1}}`, 400, "cannot unmarshal object"},
		{adminToken, "/v1/endpoints/drain", strings.Repeat(" ", 64<<10) + `{}`, 400, "too large"},
		{adminToken, "/v1/endpoints/drain", `null`, 404, "model"},
		{adminToken, "/v1/endpoints/drain", " \n", 404, "model"},
		{adminToken, "/v1/endpoints/add", `{"model":"m","url":"ftp://x"}`, 400, "http"},
		{adminToken, "/v1/reload", ``, 422, "models: missing"},
	} {
		if code, body := r.operate(x.token, x.path, x.body); code != x.status || !strings.Contains(body, x.says) {
			t.Errorf("%s %s: %d %s", x.path, x.body, code, body)
		}
	}

	do := func(path, body string) {
		t.Helper()
		if code, said := r.operate(adminToken, path, body); code != 200 {
			t.Fatalf("%s %s: %d %s", path, body, code, said)
		}
	}
	eventually(t, 5*time.Second, func() bool { // once the pool's set runs
		code, _ := r.operate(adminToken, "/v1/endpoints/drain", `{"model":"m","endpoint":"e1"}`)
		return code == 200
	}, func() string { return "draining an endpoint is refused" })
	r.wantMembers("e2")
	for range 6 {
		if a := r.post(chatPath, unstreamed); a.status != 200 || a.header.Get("X-Kvasir-Endpoint") != "e2" {
			t.Fatalf("status %d from %s", a.status, a.header.Get("X-Kvasir-Endpoint"))
		}
	}
	do("/v1/endpoints/add", fmt.Sprintf(`{"model":"alias","url":"http://%s","endpoint":"e3","weight":2}`, extra.Addr()))
	r.wantMembers("e2", "e3")
	if err := r.gateway.Apply(before); err != nil { // a reload
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.members()); got != "[e2 e3]" {
		t.Errorf("after a reload the members are %s", got)
	}
	do("/v1/endpoints/undrain", `{"model":"m","endpoint":"e1"}`)
	r.wantMembers("e1", "e2", "e3")
	for range 9 {
		r.post(chatPath, unstreamed)
	}
	if n := len(extra.Calls()); n != 3 {
		t.Errorf("the endpoint that was added got %d of 9 calls in turn", n)
	}
	if r.metric("kvasir_attempts_total", "endpoint=e3", "outcome=success") != 3 {
		t.Error("its calls are not counted under its name")
	}
	do("/v1/endpoints/remove", `{"model":"m","endpoint":"e3"}`)
	r.wantMembers("e1", "e2")
	do("/v1/endpoints/remove", `{"model":"m","endpoint":"e2"}`)
	r.wantMembers("e1")
	if err := r.gateway.Apply(before); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.members()); got != "[e1]" {
		t.Errorf("a reload brought back what was removed: %s", got)
	}
	do("/v1/endpoints/add", fmt.Sprintf(`{"model":"m","url":"http://%s","endpoint":"e2"}`, r.upstreams[1].Addr()))
	r.wantMembers("e1", "e2")
	eventually(t, 5*time.Second, func() bool { return !strings.Contains(fmt.Sprint(r.gather()), `"e3"`) },
		func() string { return "series of the endpoint that was removed are still there" })
}

// A weight that an operator sets outlasts a reload, which may give another one, and goes with
// the endpoint.
func TestOperator_WeighsEndpoints(t *testing.T) {
	s := pooled(good, good)
	s.policy = "weighted-round-robin"
	var before proxy.Config
	s.config = func(c *proxy.Config) {
		c.Models[0].Machine.Health.SlowStart = 0
		before = *c
	}
	r := newRig(t, s)
	r.churned = true
	defer r.close()
	stop := r.watching()
	defer stop()
	const path = "/v1/endpoints/weight"
	weights := func() string {
		var out []string
		for _, e := range r.gateway.Pools()[0].Pools[0].Endpoints {
			out = append(out, fmt.Sprint(e.Endpoint, "=", e.Weight))
		}
		return fmt.Sprint(out)
	}
	eventually(t, 5*time.Second, func() bool { // once the pool's set runs
		code, _ := r.operate(adminToken, path, `{"model":"m","endpoint":"e1","weight":3}`)
		return code == 200
	}, func() string { return "a weight is refused" })
	want := func(wanted string) {
		t.Helper()
		eventually(t, 5*time.Second, func() bool { return weights() == wanted }, func() string { return weights() + ", want " + wanted })
	}
	want("[e1=3 e2=1]")
	for range 8 {
		r.post(chatPath, unstreamed)
	}
	if n := len(r.upstreams[0].Calls()); n != 6 {
		t.Errorf("the endpoint with three times the weight got %d of 8 calls", n)
	}
	before.Models[0].Machine.Pools[0].Endpoints[1].Weight = 5
	if err := r.gateway.Apply(before); err != nil { // a reload
		t.Fatal(err)
	}
	if got := weights(); got != "[e1=3 e2=5]" {
		t.Errorf("at once after a reload: %s", got)
	}
	time.Sleep(50 * time.Millisecond) // the set has spoken anew
	want("[e1=3 e2=5]")
	for _, x := range []struct {
		token, body string
		status      int
		says        string
	}{
		{"", `{"model":"m","endpoint":"e1","weight":3}`, 401, "admin token"},
		{adminToken, `{"model":"m","endpoint":"e1"}`, 400, "weight: 0 is not allowed; allowed: above 0 to 1000"},
		{adminToken, `{"model":"m","endpoint":"e1","weight":-1}`, 400, "weight: -1 is not allowed"},
		{adminToken, `{"model":"m","endpoint":"e1","weight":1001}`, 400, "weight: 1001 is not allowed"},
		{adminToken, `{"model":"m","endpoint":"e9","weight":2}`, 404, "e9"},
		{adminToken, `{"model":"m","weight":2}`, 400, "endpoint: missing"},
	} {
		if code, body := r.operate(x.token, path, x.body); code != x.status || !strings.Contains(body, x.says) {
			t.Errorf("%s: %d %s", x.body, code, body)
		}
	}
	want("[e1=3 e2=5]")
	for _, do := range [][2]string{{"remove", `{"model":"m","endpoint":"e1"}`}, {"add", fmt.Sprintf(`{"model":"m","endpoint":"e1","url":"http://%s"}`, r.upstreams[0].Addr())}} {
		if code, body := r.operate(adminToken, "/v1/endpoints/"+do[0], do[1]); code != 200 {
			t.Fatalf("%s: %d %s", do[0], code, body)
		}
		time.Sleep(20 * time.Millisecond)
	}
	want("[e1=1 e2=5]")
}

// Without a token nothing can be changed.
func TestOperator_WithoutATokenThereIsNone(t *testing.T) {
	r := newRig(t, ordered(good))
	defer r.close()
	w := httptest.NewRecorder()
	q := httptest.NewRequest("POST", "/v1/endpoints/drain", strings.NewReader(`{"model":"m","endpoint":"e1"}`))
	q.Header.Set("Authorization", "Bearer ")
	r.gateway.Admin(proxy.AdminConfig{Metrics: http.NotFoundHandler()}).ServeHTTP(w, q)
	if w.Code != 403 || !strings.Contains(w.Body.String(), "admin_token") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A call that waits at an endpoint that is removed goes elsewhere; a stream that runs
// there ends there.
func TestF36_RemovalReachesCallsThatWait(t *testing.T) {
	release := make(chan bool)
	hang := func(c *scripted.Call) {
		if strings.Contains(string(c.Record().Body), "wait") {
			c.Hold()
			return
		}
		events(c, roleEvent, textEvent("one"))
		<-release
		_ = c.Chunk(textEvent("two") + finishEvent + doneEvent)
		c.LastChunk()
	}
	r := newRig(t, ordered(hang, streams(wholeStream("elsewhere")...)))
	r.churned = true
	defer r.close()
	stop := r.watching()
	defer stop()
	waiting, running := make(chan answer, 1), make(chan answer, 1)
	go func() { running <- r.post(chatPath, streamed) }()
	go func() {
		waiting <- r.post(chatPath, strings.Replace(streamed, "Hello", "wait", 1))
	}()
	eventually(t, 5*time.Second, func() bool { return len(r.upstreams[0].Calls()) == 2 }, func() string { return "not both calls came" })
	time.Sleep(100 * time.Millisecond)         // the first content arrives
	eventually(t, 5*time.Second, func() bool { // once the pool's set runs
		code, _ := r.operate(adminToken, "/v1/endpoints/remove", `{"model":"m","pool":"p1","endpoint":"e1"}`)
		return code == 200
	}, func() string { return "removing an endpoint is refused" })
	select {
	case a := <-waiting:
		if a.status != 200 || a.body != joined(wholeStream("elsewhere")) {
			t.Errorf("the call that waited: status %d, %q", a.status, a.body)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the call that waited goes on waiting")
	}
	close(release)
	if a := <-running; a.err != nil || !strings.HasSuffix(a.body, textEvent("two")+finishEvent+doneEvent) {
		t.Errorf("the stream that ran: %v, %q", a.err, a.body)
	}
	eventually(t, 5*time.Second, func() bool { return len(r.gateway.Pools()[0].Pools[0].Endpoints) == 0 },
		func() string { return "the endpoint is still there" })
}

// A reload keeps streams and what was learned, and takes what is new.
func TestApply_KeepsWhatStays(t *testing.T) {
	release := make(chan bool)
	slow := func(c *scripted.Call) {
		events(c, roleEvent, textEvent("one"))
		<-release
		_ = c.Chunk(finishEvent + doneEvent)
		c.LastChunk()
	}
	var before proxy.Config
	s := ordered(slow)
	s.config = func(c *proxy.Config) { before = *c }
	r := newRig(t, s)
	r.churned = true
	defer r.close()
	running := make(chan answer, 1)
	go func() { running <- r.post(chatPath, streamed) }()
	waitForCall(t, r.upstreams[0])

	after := before
	after.Limits.Body = 100
	after.Models = append([]proxy.Model(nil), before.Models...)
	after.Models[0].Aliases = []string{"another"}
	second := before.Models[0]
	second.Name, second.Aliases = "second", nil
	after.Models = append(after.Models, second)
	if err := r.gateway.Apply(after); err != nil {
		t.Fatal(err)
	}
	if n := r.gateway.Pools()[0].Pools[0].Endpoints[0]; n.InFlight != 1 || n.Dispatched != 1 {
		t.Errorf("after the reload the endpoint is %+v", n)
	}
	if a := r.post(chatPath, strings.Repeat(" ", 200)+unstreamed); a.status != 413 {
		t.Errorf("the new bound on bodies does not hold: status %d", a.status)
	}
	for model, status := range map[string]int{"alias": 404, "another": 200, "second": 200} {
		r.upstreams[0].SetScript(good)
		if a := r.post(chatPath, fmt.Sprintf(`{"model":%q,"messages":[]}`, model)); a.status != status {
			t.Errorf("%s: status %d", model, a.status)
		}
	}
	close(release)
	if a := <-running; a.err != nil || !strings.HasSuffix(a.body, doneEvent) {
		t.Errorf("the stream that ran: %v, %q", a.err, a.body)
	}

	bad := after
	bad.Models = append(bad.Models, second)
	if err := r.gateway.Apply(bad); err == nil {
		t.Error("a model that is there twice was accepted")
	}
	if a := r.get("/v1/models/second"); a.status != 200 {
		t.Error("a configuration that was refused has changed something")
	}
	if err := r.gateway.Apply(before); err != nil {
		t.Fatal(err)
	}
	if a := r.post(chatPath, `{"model":"second","messages":[]}`); a.status != 404 {
		t.Errorf("a model that is gone: status %d", a.status)
	}
	if strings.Contains(fmt.Sprint(r.gather()), `"second"`) {
		t.Error("its series are still there")
	}
}

// A reload keeps the connections to an endpoint that a source names, whose certificate is
// for that name: each such endpoint has a transport of its own.
func TestApply_KeepsConnections(t *testing.T) {
	var conns atomic.Int32
	up := httptest.NewUnstartedServer(http.HandlerFunc(answerJSON))
	up.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	up.StartTLS()
	defer up.Close()
	roots := x509.NewCertPool()
	roots.AddCert(up.Certificate())
	transport := proxy.NewTransport(proxy.TransportConfig{
		Connect: 10 * time.Second, Idle: 4 * time.Second, PerHost: 100,
		TLS: &tls.Config{RootCAs: roots}, Dial: (&net.Dialer{}).DialContext,
	})
	defer transport.CloseIdleConnections()
	found := &fleet{lists: make(chan []discovery.Endpoint)}
	var before proxy.Config
	s := ordered(good)
	s.config = func(c *proxy.Config) {
		c.Models[0].Machine.Pools[0].Endpoints, c.Models[0].Pools[0].Endpoints = nil, nil
		c.Models[0].Pools[0].Sources = []discovery.Source{found}
		c.Models[0].Pools[0].Transport = transport
		before = *c
	}
	r := newRig(t, s)
	r.churned = true
	defer r.close()
	stop := r.watching()
	defer stop()
	found.lists <- []discovery.Endpoint{{URL: up.URL, Host: "example.com", Name: "named", Weight: 1}}
	r.wantMembers("named")
	for range 3 {
		if a := r.post(chatPath, unstreamed); a.status != 200 {
			t.Fatalf("status %d, %s", a.status, a.body)
		}
		if err := r.gateway.Apply(before); err != nil {
			t.Fatal(err)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for three calls with reloads between", n)
	}
}

// A reload that renames a model and keeps the old name as an alias loses no call, not even
// one whose body comes meanwhile.
func TestApply_ACallThatArrivesMeanwhileGoesByWhatIsNew(t *testing.T) {
	var before proxy.Config
	s := ordered(good)
	s.config = func(c *proxy.Config) { before = *c }
	r := newRig(t, s)
	r.churned = true
	defer r.close()
	after := before
	after.Models = append([]proxy.Model(nil), before.Models...)
	after.Models[0].Name, after.Models[0].Aliases = "renamed", []string{"m"}
	for i, gone := range []bool{false, true} {
		if err := r.gateway.Apply(before); err != nil {
			t.Fatal(err)
		}
		want := 200
		if gone {
			after.Models[0].Aliases = nil
			want = 404
		}
		c := r.open()
		text := rawPost(chatPath, unstreamed)
		if _, err := io.WriteString(c, text[:len(text)-5]); err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, func() bool { return r.accepted.Load() > int64(i) }, func() string { return "the call has not come" })
		time.Sleep(20 * time.Millisecond) // it reads its body
		if err := r.gateway.Apply(after); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, text[len(text)-5:]); err != nil {
			t.Fatal(err)
		}
		if a := readAnswer(t, c); a.status != want {
			t.Errorf("the old name is gone: %v; status %d, %s", gone, a.status, a.body)
		}
		closeAll(t, c)
	}
}

// fleet is a source whose list the test sets.
type fleet struct{ lists chan []discovery.Endpoint }

func (*fleet) Origin() discovery.Origin {
	return discovery.Origin{Kind: discovery.KindDNS, Of: "http://fleet"}
}

func (f *fleet) Watch(ctx context.Context, tell func([]discovery.Endpoint, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case list := <-f.lists:
			tell(list, nil)
		}
	}
}

// Endpoints that come and go leave nothing behind.
func TestF75_ChurnLeavesNothingBehind(t *testing.T) {
	found := &fleet{lists: make(chan []discovery.Endpoint)}
	s := ordered(good)
	s.config = func(c *proxy.Config) {
		c.Models[0].Pools[0].Sources = []discovery.Source{found}
		c.Models[0].Pools[0].Scrape = 50 * time.Millisecond
		c.Models[0].Pools[0].Probe = proxy.Probe{Path: "/health", Interval: 50 * time.Millisecond, Timeout: time.Second}
	}
	r := newRig(t, s)
	r.churned = true
	defer r.close()
	stop := r.watching()
	defer stop()
	list := func(round int) []discovery.Endpoint {
		var out []discovery.Endpoint
		for i := range 20 {
			out = append(out, discovery.Endpoint{URL: fmt.Sprintf("http://%s/%d-%d", r.upstreams[0].Addr(), round, i), Name: fmt.Sprintf("x%d-%d", round, i), Weight: 1})
		}
		return out
	}
	baseline := 0
	for round := range 30 {
		found.lists <- list(round)
		for range 5 {
			if a := r.post(chatPath, unstreamed); a.status != 200 {
				t.Fatalf("status %d, %s", a.status, a.body)
			}
		}
		if round == 5 {
			baseline = runtime.NumGoroutine()
		}
	}
	found.lists <- []discovery.Endpoint{}
	r.wantMembers("e1")
	eventually(t, 10*time.Second, func() bool {
		return runtime.NumGoroutine() <= baseline+10 && !strings.Contains(fmt.Sprint(r.gather()), `"x`)
	}, func() string {
		return fmt.Sprintf("%d goroutines, %d at the beginning; series: %v", runtime.NumGoroutine(), baseline, strings.Contains(fmt.Sprint(r.gather()), `"x`))
	})
	text, err := json.Marshal(r.gateway.Pools())
	if err != nil || strings.Contains(string(text), `"x`) {
		t.Errorf("%v, %s", err, text)
	}
}

// A pool that finds its endpoints answers with 503 until it has any.
func TestDiscovery_FillsAPool(t *testing.T) {
	found := &fleet{lists: make(chan []discovery.Endpoint)}
	s := ordered(good)
	s.config = func(c *proxy.Config) {
		m := &c.Models[0]
		m.Pools[0].Sources, m.Pools[0].Endpoints, m.Pools[0].Key = []discovery.Source{found}, nil, "found-key"
		m.Machine.Pools = []flow.Pool{m.Machine.Pools[0]}
		m.Machine.Pools[0].Endpoints = nil
	}
	r := newRig(t, s)
	defer r.close()
	stop := r.watching()
	defer stop()
	if a := r.post(chatPath, unstreamed); a.status != 503 || envelope(t, a.body).Code != "no_endpoint" || a.header.Get("Retry-After") == "" {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	if code, _ := r.admin("/readyz"); code != 503 {
		t.Errorf("ready with nobody: %d", code)
	}
	found.lists <- []discovery.Endpoint{{URL: "http://" + r.upstreams[0].Addr(), Name: "found", Weight: 1}}
	r.wantMembers("found")
	if a := r.post(chatPath, unstreamed); a.status != 200 || a.header.Get("X-Kvasir-Endpoint") != "found" {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	if v, _ := r.upstreams[0].Calls()[0].Get("authorization"); v != "Bearer found-key" {
		t.Errorf("authorization %q", v)
	}
	if code, _ := r.admin("/readyz"); code != 200 {
		t.Errorf("not ready: %d", code)
	}
	if r.metric("kvasir_discovery_age_seconds", "pool=p1") > 5 {
		t.Error("the age of what was found is not shown")
	}
}
