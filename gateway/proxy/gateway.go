// Package proxy is layer 2 (gateway), live: the HTTP shell round gateway/flow. It reads
// a client's call, asks the machine where to send it, sends it, passes the answer's
// bytes on untouched while a reader beside the stream recognises what they mean, and
// accounts for the call.
//
// The life of a call is in call.go, one attempt in send.go, the answer's way back in
// receive.go and from there in plain.go or stream.go, the commitment point and the
// account in commit.go; router.go is the lock and the timer round the machine.
package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/api"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/observe"
	"kvasir/telemetry"
	"kvasir/upstream"
)

// Config is what a Gateway needs. All fields but those marked optional must be set.
type Config struct {
	Models []Model
	Limits Limits

	BlockBytes   int           // of the prefix hash, in bytes of text
	BodyTimeout  time.Duration // for a client to send its whole body
	WriteTimeout time.Duration // for a client to take one write

	Router    string            // this gateway's identity; staggers its scrapes among its peers
	Transport http.RoundTripper // to the endpoints; see NewTransport
	Metrics   *telemetry.Metrics
	Log       *slog.Logger
	LogCalls  bool // one line a call, at level info

	// OnDecision, optional, gets every decision that was explained, outside any lock and
	// from the calls' goroutines. Machines whose Config has Explain set explain all.
	OnDecision func(model string, d *selection.Decision)
	// Epoch, optional, is the zero of the machines' clock; default: when New is called.
	Epoch time.Time
}

// Limits bounds what all calls together, or one of them, may hold.
type Limits struct {
	Calls    int   // calls in flight over all models
	Body     int64 // bytes of one request body
	Buffered int64 // bytes of bodies, held preambles and large events over all calls
	Event    int   // bytes of a stream's event that is still looked into; at most sse.MaxLimit
	Preamble int   // bytes held back before a stream's first content
}

// Model is one model that clients may ask for.
type Model struct {
	Name      string
	Aliases   []string
	KeyHeader string // request header whose hash policies see as the key; "" for none
	Machine   flow.Config
	Pools     []Pool // parallel to Machine.Pools
}

// Pool is the live half of a pool.
type Pool struct {
	ServedAs  string        // what the endpoints call the model; "" for its Name
	Scrape    time.Duration // between two scrapes of an endpoint; 0: none
	Dialect   upstream.Dialect
	Endpoints []Endpoint // parallel to the machine's
}

// Endpoint is the live half of an endpoint.
type Endpoint struct {
	URL string // scheme, host, optional base path, no trailing slash
	Key string // sent as a bearer token; "" for none
}

// model is a Model in service.
type model struct {
	Model
	servedAs  []string // by pool
	router    *router
	endpoints []endpoint // by slot
	metrics   []*telemetry.Pool
}

type endpoint struct {
	Endpoint
	urls          [routeCount]*url.URL // by route; not changed once made
	authorization []string             // header values; nil: no key
	name          string
	pool          int
}

// Gateway answers clients. It is safe for concurrent use.
type Gateway struct {
	cfg    Config
	models []*model
	byName map[string]*model
	list   []byte // the body of /v1/models
	clock  func() mono.Time

	unpooled http.RoundTripper // cfg.Transport's, with a connection for each call

	buffered room
	calls    atomic.Int64 // in flight
	lastCall atomic.Uint64
	idPrefix string
	kept     sync.Pool // *call

	draining atomic.Bool
	base     context.Context // of the calls
	cutAll   context.CancelCauseFunc
}

// New returns a gateway. Close it when it serves no more.
func New(cfg Config) (*Gateway, error) {
	if cfg.Epoch.IsZero() {
		cfg.Epoch = time.Now()
	}
	epoch := cfg.Epoch
	g := &Gateway{cfg: cfg, byName: map[string]*model{}, clock: func() mono.Time { return mono.Time(time.Since(epoch)) }}
	g.base, g.cutAll = context.WithCancelCause(context.Background())
	g.buffered.limit = cfg.Limits.Buffered
	g.unpooled = unpooled(cfg.Transport)
	g.kept.New = func() any { return &call{scratch: newScratch()} }
	var prefix [4]byte
	if _, err := rand.Read(prefix[:]); err != nil {
		return nil, fmt.Errorf("choose this gateway's request ids: %w", err)
	}
	g.idPrefix = "kv-" + hex.EncodeToString(prefix[:]) + "-"

	var listed []api.Model
	for _, mc := range cfg.Models {
		m, err := g.newModel(mc)
		if err != nil {
			return nil, err
		}
		g.models = append(g.models, m)
		for _, name := range append([]string{mc.Name}, mc.Aliases...) {
			if g.byName[name] != nil {
				return nil, fmt.Errorf("model name or alias %q is used twice", name)
			}
			g.byName[name] = m
			listed = append(listed, g.entry(name))
		}
	}
	g.list = api.AppendModels(nil, listed)
	return g, nil
}

func (g *Gateway) newModel(mc Model) (*model, error) {
	m := &model{Model: mc}
	m.router = newRouter(flow.New(mc.Machine), g.clock, func(a flow.Action) { g.logHealth(m, a) })
	for p, pool := range mc.Machine.Pools {
		m.servedAs = append(m.servedAs, cmp.Or(mc.Pools[p].ServedAs, mc.Name))
		m.metrics = append(m.metrics, g.cfg.Metrics.Pool(mc.Name, pool.Name))
		for e, ep := range pool.Endpoints {
			live := mc.Pools[p].Endpoints[e]
			e := endpoint{Endpoint: live, name: ep.Name, pool: p}
			if err := e.prepare(); err != nil {
				return nil, fmt.Errorf("model %s, endpoint %s: %w", mc.Name, ep.Name, err)
			}
			m.endpoints = append(m.endpoints, e)
		}
	}
	return m, nil
}

// prepare makes what every attempt at the endpoint needs.
func (e *endpoint) prepare() error {
	for i, rt := range callRoutes {
		u, err := url.Parse(e.URL + rt.path)
		if err != nil {
			return err
		}
		e.urls[i] = u
	}
	if e.Key != "" {
		e.authorization = []string{"Bearer " + e.Key}
	}
	return nil
}

// logHealth writes that an endpoint has left rotation, or is back.
func (g *Gateway) logHealth(m *model, a flow.Action) {
	e := &m.endpoints[a.Slot]
	level, what := slog.LevelWarn, "endpoint ejected"
	if a.Kind == flow.Returned {
		level, what = slog.LevelInfo, "endpoint back in rotation"
	}
	g.cfg.Log.LogAttrs(context.Background(), level, what, slog.String("model", m.Name),
		slog.String("pool", m.Machine.Pools[a.Pool].Name), slog.String("endpoint", e.name))
}

// Watch scrapes the endpoints until ctx ends, then returns once all scrapers have.
func (g *Gateway) Watch(ctx context.Context) {
	client := &http.Client{
		Transport:     g.cfg.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var scrapers sync.WaitGroup
	for _, m := range g.models {
		for slot, e := range m.endpoints {
			pool := m.Pools[e.pool]
			if pool.Scrape <= 0 {
				continue
			}
			target := observe.Target{
				Name: e.name, URL: e.URL + pool.Dialect.MetricsPath, Dialect: pool.Dialect, Interval: pool.Scrape,
			}
			if e.Key != "" {
				target.Header = http.Header{"Authorization": {"Bearer " + e.Key}}
			}
			sink := g.sink(m, selection.Slot(slot), e.name)
			phase := observe.Phase(g.cfg.Router, m.Name+"/"+e.name, pool.Scrape)
			scrapers.Go(func() { observe.Scrape(ctx, client, target, phase, sink) })
		}
	}
	scrapers.Wait()
}

// Close stops the machines' timers. Call it after the last call has ended.
func (g *Gateway) Close() {
	for _, m := range g.models {
		m.router.close()
	}
}

// Ready reports whether the gateway can route at least one model, and why not.
func (g *Gateway) Ready() (bool, string) {
	if g.draining.Load() {
		return false, "draining"
	}
	for _, m := range g.models {
		for _, p := range m.router.snapshot().Pools {
			for _, e := range p.Endpoints {
				if e.Health == inRotation {
					return true, ""
				}
			}
		}
	}
	return false, "no model has an endpoint in rotation"
}

// newRequestID returns an id for a call whose client brought none.
func (g *Gateway) newRequestID(n uint64) string {
	return g.idPrefix + strconv.FormatUint(n, 10)
}
