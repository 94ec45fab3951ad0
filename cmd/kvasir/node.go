package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kvasir/config"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/proxy"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/prefix"
	"kvasir/telemetry"
	"kvasir/upstream"
)

// node is a gateway in service: its two listeners and its scrapers. serve and demo run
// one.
type node struct {
	gateway     *proxy.Gateway
	transport   *http.Transport
	data, admin *http.Server
	dataAddr    string
	adminAddr   string
	failed      chan error // a listener that stopped by itself
	stopWatch   context.CancelFunc
	watched     chan struct{}
}

// startNode opens the listeners and begins to serve. Both are open when it returns. A
// seed that c does not name is chosen, and written to c.
func startNode(c *config.Config, log *slog.Logger) (*node, error) {
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	n := &node{failed: make(chan error, 2), watched: make(chan struct{})}
	dialer := &net.Dialer{KeepAlive: 15 * time.Second}
	n.transport = proxy.NewTransport(c.Upstream.ConnectTimeout, c.Upstream.IdleTimeout, c.Upstream.Connections, dialer.DialContext)

	registry := prometheus.NewRegistry()
	var err error
	if n.gateway, err = proxy.New(gatewayConfig(c, n.transport, telemetry.New(registry, modelPools(c)), log)); err != nil {
		return nil, err
	}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		telemetry.State(n.gateway.State))

	dataListener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", c.Listen, err)
	}
	adminListener, err := net.Listen("tcp", c.Admin)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("admin %s: %w", c.Admin, err), dataListener.Close())
	}
	n.dataAddr, n.adminAddr = dataListener.Addr().String(), adminListener.Addr().String()

	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	n.data = &http.Server{
		Handler: n.gateway, BaseContext: n.gateway.BaseContext, ErrorLog: errorLog,
		ReadHeaderTimeout: c.Client.HeaderTimeout, IdleTimeout: c.Client.IdleTimeout, MaxHeaderBytes: 64 << 10,
	}
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	n.admin = &http.Server{
		Handler: n.gateway.Admin(metrics), ErrorLog: errorLog,
		ReadHeaderTimeout: c.Client.HeaderTimeout, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		IdleTimeout: c.Client.IdleTimeout, MaxHeaderBytes: 64 << 10,
	}
	go n.run(n.data, dataListener)
	go n.run(n.admin, adminListener)

	ctx, cancel := context.WithCancel(context.Background())
	n.stopWatch = cancel
	go func() {
		defer close(n.watched)
		n.gateway.Watch(ctx)
	}()
	return n, nil
}

func (n *node) run(s *http.Server, l net.Listener) {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		n.failed <- err
	}
}

// stop drains: readiness goes first, after the delay the data listener, calls in flight
// get until grace is over, then what is left is cut. It returns how that went.
func (n *node) stop(delay, grace time.Duration) error {
	n.gateway.Drain()
	time.Sleep(delay) // a second signal ends the process, so this need not be interrupted
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := n.data.Shutdown(ctx)
	if err != nil {
		err = n.cut(grace)
	}
	n.stopWatch()
	<-n.watched
	n.gateway.Close()
	n.transport.CloseIdleConnections()
	return errors.Join(err, n.admin.Close())
}

// lastWords is how long calls that are cut have to tell their clients.
const lastWords = time.Second

// cut ends the calls that did not end in time, and the connections that are left.
func (n *node) cut(grace time.Duration) error {
	var err error
	if calls := n.gateway.InFlight(); calls > 0 {
		err = fmt.Errorf("calls still in flight after %v were cut: %d", grace, calls)
	}
	n.gateway.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if n.data.Shutdown(ctx) == nil {
		return err
	}
	return errors.Join(err, n.data.Close())
}

// newLogger writes JSON lines from the configured level on.
func newLogger(w io.Writer, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo // the configuration was validated
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l}))
}

func modelPools(c *config.Config) []telemetry.ModelPools {
	var out []telemetry.ModelPools
	for _, m := range c.Models {
		mp := telemetry.ModelPools{Model: m.Name}
		for _, p := range m.Pools {
			pe := telemetry.PoolEndpoints{Pool: p.Name}
			for _, e := range p.Endpoints {
				pe.Endpoints = append(pe.Endpoints, e.Name)
			}
			mp.Pools = append(mp.Pools, pe)
		}
		out = append(out, mp)
	}
	return out
}

// gatewayConfig hands each package its part of the configuration.
func gatewayConfig(c *config.Config, rt http.RoundTripper, m *telemetry.Metrics, log *slog.Logger) proxy.Config {
	identity := c.Router
	if identity == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "kvasir"
		}
		identity = host + "|" + c.Listen
	}
	out := proxy.Config{
		Limits: proxy.Limits{
			Calls: c.Limits.Calls, Body: int64(c.Limits.Body), Buffered: int64(c.Limits.Buffered),
			Event: int(c.Limits.Event), Preamble: int(c.Limits.Preamble),
		},
		BlockBytes:  c.Prefix.Block,
		BodyTimeout: c.Client.BodyTimeout, WriteTimeout: c.Client.WriteTimeout,
		Router: identity, Transport: rt, Metrics: m, Log: log, LogCalls: c.Log.Calls,
	}
	for _, mc := range c.Models {
		out.Models = append(out.Models, gatewayModel(c, mc))
	}
	return out
}

func gatewayModel(c *config.Config, mc config.Model) proxy.Model {
	m := proxy.Model{
		Name: mc.Name, Aliases: mc.Aliases,
		Machine: flow.Config{
			Seed: c.Seed, Calls: mc.Calls,
			Retry: attempt.Config(c.Retry), Health: health.Config(c.Health),
			Prefix: prefix.Config{BudgetBytes: int64(c.Prefix.Index), SpeculativeTTL: c.Prefix.Speculative},
		},
	}
	for _, pc := range mc.Pools {
		dialect, _ := upstream.Lookup(pc.Engine) // the configuration was validated
		live := proxy.Pool{ServedAs: pc.ServedAs, Scrape: pc.Signals.Scrape, Dialect: dialect}
		pool := flow.Pool{Name: pc.Name, PolicyName: pc.Policy.Name, Policy: pc.Policy.Params.New(), MaxAge: pc.Signals.MaxAge}
		if k, ok := pool.Policy.(selection.KeyUser); ok && m.KeyHeader == "" {
			m.KeyHeader = k.KeyHeader() // pools of one model agree on it
		}
		for _, e := range pc.Endpoints {
			pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: e.Name, Weight: e.Weight})
			live.Endpoints = append(live.Endpoints, proxy.Endpoint{URL: e.URL, Key: e.Key.Reveal()})
		}
		m.Machine.Pools = append(m.Machine.Pools, pool)
		m.Pools = append(m.Pools, live)
	}
	return m
}
