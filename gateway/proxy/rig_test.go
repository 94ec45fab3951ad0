package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/limit"
	"kvasir/gateway/proxy"
	"kvasir/internal/testkit/memnet"
	"kvasir/internal/testkit/scripted"
	"kvasir/selection/health"
	"kvasir/selection/policy"
	"kvasir/selection/prefix"
	"kvasir/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a gateway between scripted upstreams and a test's clients.
type rig struct {
	t         testing.TB
	gateway   *proxy.Gateway
	addr      string
	upstreams []*scripted.Server // by endpoint, over all pools
	registry  *prometheus.Registry
	records   *recorder
	serverLog *lockedBuffer
	accepted  atomic.Int64 // calls that reached the gateway by a call's route
	attempts  int          // that a call may make: 3
	churned   bool         // series have gone with what they counted: their sums say less
	client    *http.Client

	server    *http.Server
	transport *http.Transport
	running   sync.WaitGroup
	network   *memnet.Network // nil: loopback sockets
}

// setup says what a rig is made of. The zero setup's fields have the defaults named.
type setup struct {
	pools    [][]scripted.Script // endpoints by pool
	options  scripted.Options
	policy   string // round-robin
	network  *memnet.Network
	idle     time.Duration       // of connections to endpoints: 4s
	config   func(*proxy.Config) // changes after all else
	servedAs string              // the model's own name
	wrap     func(http.Handler) http.Handler
	http2    bool // clients speak HTTP/2 without TLS
}

const (
	testModel = "m"
	testAlias = "alias"
)

// ordered gives each script a pool of its own: endpoints are tried in that order.
func ordered(scripts ...scripted.Script) setup {
	var s setup
	for _, script := range scripts {
		s.pools = append(s.pools, []scripted.Script{script})
	}
	return s
}

// pooled puts all scripts into one pool.
func pooled(scripts ...scripted.Script) setup { return setup{pools: [][]scripted.Script{scripts}} }

func endpointName(n int) string { return fmt.Sprintf("e%d", n+1) }

func newRig(t testing.TB, s setup) *rig {
	t.Helper()
	r := &rig{t: t, registry: prometheus.NewRegistry(), records: &recorder{}, serverLog: &lockedBuffer{}, network: s.network, attempts: 3}
	if s.policy == "" {
		s.policy = "round-robin"
	}
	if s.idle == 0 {
		s.idle = 4 * time.Second
	}
	rule, ok := policy.Lookup(s.policy)
	if !ok {
		t.Fatalf("no policy %q", s.policy)
	}
	model := proxy.Model{
		Name: testModel, Aliases: []string{testAlias},
		Machine: flow.Config{
			Seed: 1, Retry: attempt.Default(), Health: health.Default(),
			Prefix: prefix.Config{BudgetBytes: 8 << 20, SpeculativeTTL: 30 * time.Second},
		},
	}
	// Retries that a test asks for are granted unless it is about the budget.
	model.Machine.Retry.Floor, model.Machine.Retry.Backoff, model.Machine.Retry.MaxBackoff = 1e4, 2*time.Millisecond, 10*time.Millisecond
	for p, scripts := range s.pools {
		pool := flow.Pool{Name: fmt.Sprintf("p%d", p+1), PolicyName: s.policy, Policy: rule.Params().New()}
		live := proxy.Pool{ServedAs: s.servedAs}
		for _, script := range scripts {
			up := scripted.Start(r.listen(), s.options, script)
			name := endpointName(len(r.upstreams))
			r.upstreams = append(r.upstreams, up)
			pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: name, Weight: 1})
			live.Endpoints = append(live.Endpoints, proxy.Endpoint{URL: "http://" + up.Addr()})
		}
		model.Machine.Pools = append(model.Machine.Pools, pool)
		model.Pools = append(model.Pools, live)
	}
	r.transport = proxy.NewTransport(proxy.TransportConfig{Connect: 10 * time.Second, Idle: s.idle, PerHost: 1000, Dial: r.dial})
	cfg := proxy.Config{
		Models: []proxy.Model{model},
		Limits: proxy.Limits{Calls: 5000, Body: 1 << 20, Buffered: 256 << 20, Event: 1 << 20, Preamble: 64 << 10},

		BlockBytes: 256, BodyTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		Router: "test", Transport: r.transport, Metrics: telemetry.New(r.registry, attempt.Failures()...),
		Caps:   []limit.Rule{{Scope: limit.Scope{Kind: limit.Model, Name: testModel}}}, // without a bound: what is let in must be settled
		Access: proxy.Access{Anonymous: true}, Log: slog.New(r.records), LogCalls: true,
	}
	if s.config != nil {
		s.config(&cfg)
	}
	var err error
	if r.gateway, err = proxy.New(cfg); err != nil {
		t.Fatal(err)
	}
	r.registry.MustRegister(telemetry.State(r.gateway.State))
	r.serve(s.wrap, s.http2)
	return r
}

func (r *rig) serve(wrap func(http.Handler) http.Handler, http2 bool) {
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost && proxy.IsCall(q.URL.Path) {
			r.accepted.Add(1)
		}
		r.gateway.ServeHTTP(w, q)
	}))
	if wrap != nil {
		handler = wrap(handler)
	}
	r.server = &http.Server{
		Handler: handler, BaseContext: r.gateway.BaseContext, ErrorLog: log.New(r.serverLog, "", 0),
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	transport := &http.Transport{DialContext: r.dial, DisableCompression: true, MaxIdleConnsPerHost: 100}
	if http2 {
		r.server.Protocols, transport.Protocols = &http.Protocols{}, &http.Protocols{}
		r.server.Protocols.SetHTTP1(true)
		r.server.Protocols.SetUnencryptedHTTP2(true)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	l := r.listen()
	r.addr = l.Addr().String()
	r.running.Go(func() { _ = r.server.Serve(l) }) // until it is closed
	r.client = &http.Client{Transport: transport}
}

func (r *rig) listen() net.Listener {
	r.t.Helper()
	var l net.Listener
	var err error
	if r.network != nil {
		l, err = r.network.Listen("host:0")
	} else {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

func (r *rig) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if r.network != nil {
		return r.network.DialContext(ctx, network, addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// close ends everything and checks what must hold after any test: nothing in flight,
// nothing held, one record a call, and no more attempts than allowed.
func (r *rig) close() {
	r.t.Helper()
	r.client.CloseIdleConnections()
	r.settle()
	r.check()
	_ = r.server.Close()
	for _, up := range r.upstreams {
		up.Close()
	}
	r.gateway.Close()
	r.transport.CloseIdleConnections()
	r.running.Wait()
}

// settle waits until nothing is in flight.
func (r *rig) settle() {
	r.t.Helper()
	var busy string
	eventually(r.t, 5*time.Second, func() bool { busy = r.busy(); return busy == "" }, func() string { return busy })
}

// busy says what is not at rest.
func (r *rig) busy() string {
	var b strings.Builder
	s := r.gateway.State()
	if s.CallsInFlight != 0 || s.BufferedBytes != 0 {
		fmt.Fprintf(&b, "calls in flight %d, buffered bytes %d. ", s.CallsInFlight, s.BufferedBytes)
	}
	if got, want := int64(len(r.records.all())), r.accepted.Load(); got < want {
		fmt.Fprintf(&b, "%d records for %d calls. ", got, want)
	}
	for _, m := range s.Models {
		for _, e := range m.Endpoints {
			if e.Outstanding != 0 {
				fmt.Fprintf(&b, "endpoint %s has %d calls. ", e.Endpoint, e.Outstanding)
			}
		}
	}
	if use := fmt.Sprint(r.unsettled()); use != "[]" {
		fmt.Fprintf(&b, "not settled: %s. ", use)
	}
	for _, m := range r.gateway.Pools() {
		if m.InFlight != 0 || m.BetweenTwo != 0 {
			fmt.Fprintf(&b, "machine holds %d calls, %d of them between attempts. ", m.InFlight, m.BetweenTwo)
		}
	}
	return b.String()
}

// unsettled lists what the book of limits holds.
func (r *rig) unsettled() []string {
	v := r.gateway.Tenants()
	all := slices.Concat(v.Models, v.Keys)
	for _, t := range v.Tenants {
		all = append(append(all, t.UseView), t.Models...)
	}
	var out []string
	for _, u := range all {
		if u.Running != 0 || u.Waiting != 0 {
			out = append(out, fmt.Sprintf("%s: %d run, %d wait", u.Name, u.Running, u.Waiting))
		}
	}
	return out
}

// check compares records, metrics and what upstreams saw.
func (r *rig) check() {
	r.t.Helper()
	records := r.records.all()
	if got, want := int64(len(records)), r.accepted.Load(); got != want {
		r.t.Errorf("%d records for %d calls", got, want)
	}
	var ended, attempts float64
	for _, f := range r.gather() {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "kvasir_calls_total":
				ended += m.GetCounter().GetValue()
			case "kvasir_attempts_total":
				attempts += m.GetCounter().GetValue()
			}
		}
	}
	if int64(ended) < r.accepted.Load() && !r.churned {
		r.t.Errorf("kvasir_calls_total adds up to %v for %d calls", ended, r.accepted.Load())
	}
	recorded := 0
	for _, c := range records {
		recorded += c.int("attempts")
		if c.int("attempts") > r.attempts {
			r.t.Errorf("a call made %d attempts: %v", c.int("attempts"), c)
		}
	}
	if float64(recorded) != attempts && !r.churned && !strings.Contains(r.serverLog.String(), "panic") {
		r.t.Errorf("records say %d attempts, kvasir_attempts_total says %v", recorded, attempts)
	}
}

// eventually waits until what holds, and fails the test after the limit.
func eventually(t testing.TB, limit time.Duration, what func() bool, why func() string) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		if what() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still after %v: %s", limit, why())
		}
	}
}

// lockedBuffer is a bytes.Buffer for several writers.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
