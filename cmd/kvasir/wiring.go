package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kvasir/config"
	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/proxy"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/observe"
	"kvasir/selection/observe/discovery"
	"kvasir/selection/policy"
	"kvasir/selection/prefix"
	"kvasir/upstream"
	"kvasir/web"
)

// serverIdle is less than what servers are known to keep idle connections for: uvicorn and
// llama.cpp 5 s, gunicorn 2 s, nginx 60 s.
const serverIdle = 500 * time.Millisecond

// gatewayConfig hands each package its part of the configuration.
func (n *node) gatewayConfig(c *config.Config) (proxy.Config, error) {
	n.transports.begin(c.Upstream)
	plain, err := n.transports.get(config.DefaultPool())
	if err != nil {
		return proxy.Config{}, err
	}
	out := proxy.Config{
		Limits: proxy.Limits{
			Calls: c.Limits.Calls, Body: int64(c.Limits.Body), Buffered: int64(c.Limits.Buffered),
			Event: int(c.Limits.Event), Preamble: int(c.Limits.Preamble), Headers: int(c.Limits.Headers),
		},
		ServerIdle: serverIdle,
		Access:     access(c),
		Tenancy:    tenancy(c), Caps: caps(c), FanOut: proxy.FanOut(c.FanOut),
		Retry:    attempt.Config(c.Retry),
		Timeouts: proxy.Timeouts(c.Timeouts), Heartbeat: c.Client.Heartbeat,
		BlockBytes: c.Prefix.Block, SharePrefixes: c.Prefix.Share == "all", SaltKey: []byte(c.Prefix.Salt.Reveal()),
		BodyTimeout: c.Client.BodyTimeout, WriteTimeout: c.Client.WriteTimeout,
		Router: identity(c), Transport: plain, Metrics: n.metrics, Log: n.log, LogCalls: c.Log.Calls,
	}
	for _, mc := range c.Models {
		m, err := n.gatewayModel(c, mc)
		if err != nil {
			return proxy.Config{}, fmt.Errorf("models.%s: %w", mc.Name, err)
		}
		out.Models = append(out.Models, m)
	}
	return out, nil
}

// adminConfig says what the admin listener shows, and to whom. The page and its labs are in
// the binary; labs says whether they may run, and what it shows live comes from live.
func adminConfig(c *config.Config, registry *prometheus.Registry, labs func() bool, live *web.Live, reload func() error) proxy.AdminConfig {
	host, _, err := net.SplitHostPort(c.Admin)
	if err != nil {
		host = c.Admin
	}
	page, token, loopback := web.Page(labs), c.AdminToken.Reveal(), config.IsLoopback(c.Admin)
	return proxy.AdminConfig{
		Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}),
		Token:   token, Closed: token != "" && !loopback, Loopback: loopback, Host: host,
		Reload: reload, Shadow: shadowPolicy,
		Page: page, Labs: page, Live: live,
	}
}

// shadowPolicy returns a policy with its defaults.
func shadowPolicy(name string) (selection.Policy, error) {
	rule, ok := policy.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("%.64q is none; allowed: %s, or \"\" for off", name, strings.Join(policyNames(), ", "))
	}
	return rule.Params().New(), nil
}

func policyNames() []string {
	var names []string
	for _, r := range policy.Catalog() {
		names = append(names, r.Name)
	}
	return names
}

// identity returns what tells this router from others.
func identity(c *config.Config) string {
	if c.Router != "" {
		return c.Router
	}
	host, err := os.Hostname()
	if err != nil {
		host = "kvasir"
	}
	return host + "|" + c.Listen
}

// access says who may call. A configuration without keys was accepted for loopback alone,
// or because it says that anybody may.
func access(c *config.Config) proxy.Access {
	open := len(c.Clients.Keys) == 0 && c.Clients.KeysFile == "" && c.TLS.ClientCA == ""
	a := proxy.Access{Anonymous: c.Clients.Anonymous || open, Keys: map[[sha256.Size]byte]string{}, Explain: map[string]bool{}}
	for _, k := range c.Clients.Keys {
		a.Keys[k.SHA256] = k.Name
		if k.Explain {
			a.Explain[k.Name] = true
		}
	}
	return a
}

func (n *node) gatewayModel(c *config.Config, mc config.Model) (proxy.Model, error) {
	timeouts := proxy.Timeouts(mc.Timeouts)
	m := proxy.Model{
		Name: mc.Name, Aliases: mc.Aliases, Adapters: mc.Adapters, Timeouts: &timeouts, Deadline: mc.Deadline,
		FirstVisible: mc.Commit == config.CommitFirstVisible,
		Machine: flow.Config{
			Seed: c.Seed, Calls: mc.Calls, SLO: selection.SLO(mc.SLO),
			Retry: attempt.Config(c.Retry), Health: health.Config(c.Health),
			Prefix: prefix.Config{BudgetBytes: int64(c.Prefix.Index), SpeculativeTTL: c.Prefix.Speculative},
		},
	}
	m.Continue = proxy.Continue{Times: mc.Continue.Times, Bytes: int(mc.Continue.Bytes)}
	if mc.Hedge.Budget > 0 {
		m.Machine.Hedge = attempt.HedgeConfig{Ratio: mc.Hedge.Budget, Whole: mc.Hedge.Whole}
		if err := m.Machine.Hedge.SetAfter(mc.Hedge.After); err != nil {
			return m, fmt.Errorf("hedge: after: %w", err)
		}
	}
	for _, pc := range mc.Pools {
		dialect, err := upstream.Lookup(pc.Engine)
		if err != nil {
			return m, err
		}
		live := proxy.Pool{
			ServedAs: pc.ServedAs, Dialect: dialect, Scrape: pc.Signals.Scrape, Key: pc.Discover.Key.Reveal(), PassPriority: pc.PassPriority,
			PolicyID: strings.TrimSpace(fmt.Sprintf("%s %+v", pc.Policy.Name, pc.Policy.Params)),
			Probe:    proxy.Probe{Path: pc.Probe.Path, Interval: pc.Probe.Interval, Timeout: pc.Probe.Timeout},
		}
		if live.Transport, err = n.transports.get(pc); err != nil {
			return m, fmt.Errorf("pool %s: %w", pc.Name, err)
		}
		if pc.Discover.IsSet() {
			source, err := source(pc.Discover, identity(c)+"/"+mc.Name+"/"+pc.Name)
			if err != nil {
				return m, fmt.Errorf("pool %s: discover: %w", pc.Name, err)
			}
			live.Sources = []discovery.Source{source}
		}
		pool := flow.Pool{
			Name: pc.Name, PolicyName: pc.Policy.Name, Policy: pc.Policy.Params.New(),
			MaxAge: pc.Signals.MaxAge, Misses: pc.Probe.Failures,
		}
		pool.Breaker = breaker(pc.Breaker)
		pool.Flights = admission.FlightConfig(pc.SingleFlight)
		pool.Overload = overload(pc.Overload)
		if pool.Queue, err = queue(pc.Queue); err != nil {
			return m, fmt.Errorf("pool %s: queue: %w", pc.Name, err)
		}
		if k, ok := selection.As[selection.KeyUser](pool.Policy); ok && m.KeyHeader == "" {
			m.KeyHeader = k.KeyHeader() // pools of one model agree on it
		}
		for _, e := range pc.Endpoints {
			pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: e.Name, Weight: e.Weight})
			live.Endpoints = append(live.Endpoints, proxy.Endpoint{URL: e.URL, Key: e.Key.Reveal()})
		}
		m.Machine.Pools = append(m.Machine.Pools, pool)
		m.Pools = append(m.Pools, live)
	}
	return m, nil
}

// breaker returns a pool's own rules.
func breaker(rules config.BreakerRules) []health.Rule {
	var out []health.Rule
	for _, r := range rules {
		rule := health.Rule{
			Failures: r.Failures, Ratio: r.Ratio, Volume: r.Volume, Interval: r.Interval,
			Trip: r.Trip, MaxTrip: r.MaxTrip, RetryAfter: r.AcceptRetryAfter, MaxAfter: r.MaxRetryAfter,
		}
		for _, s := range r.Statuses {
			rule.Statuses = append(rule.Statuses, health.Statuses(s))
		}
		out = append(out, rule)
	}
	return out
}

// queue returns a pool's bounds of what waits.
func queue(c config.Queue) (admission.Config, error) {
	order, err := admission.ParseOrder(c.Order)
	by, also := admission.ParsePrincipal(c.Principal)
	gradient := admission.DefaultGradient()
	gradient.Min, gradient.Max, gradient.Tolerance = c.Gradient.Min, c.Gradient.Max, c.Gradient.Tolerance
	return admission.Config{
		Work: c.Work, Tokens: int64(c.Tokens), Order: order, Turn: c.Turn, Length: c.Length, Bytes: int64(c.Bytes),
		MaxWait: c.MaxWait, MaxWaitRatio: c.MaxWaitRatio, Adaptive: c.Limit == config.LimitGradient, Gradient: gradient,
		Fairness: admission.Fairness{By: by, Input: c.Weights.Input, Output: c.Weights.Output, Cached: c.Weights.Cached, Quantum: c.Quantum},
	}, errors.Join(err, also)
}

// overload returns when a pool is saturated.
func overload(c config.Overload) admission.Overload {
	return admission.Overload{
		Waiting: c.Waiting, KVUsage: c.KVUsage, Preemptions: c.Preemptions, Ramp: admission.Ramp{From: c.RefuseFrom, To: c.RefuseTo},
	}
}

// source returns what finds a pool's endpoints. who staggers its looks among those of
// other pools and routers.
func source(d config.Discover, who string) (discovery.Source, error) {
	if d.File != "" {
		return discovery.NewFile(discovery.File{Path: d.File, Interval: d.Interval})
	}
	resolver, err := discovery.NewResolver(d.Resolver)
	if err != nil {
		return nil, err
	}
	dns := discovery.DNS{Resolver: resolver, Interval: d.Interval, Phase: observe.Phase(who, "discovery", d.Interval)}
	if d.DNS != "" {
		dns.URL = d.Scheme + "://" + d.DNS
		return discovery.NewDNS(dns)
	}
	// _service._proto.name is how such records are named; the source takes it in two parts.
	labels := strings.SplitN(d.SRV, ".", 3)
	if len(labels) == 3 && strings.HasPrefix(labels[0], "_") && strings.HasPrefix(labels[1], "_") {
		dns.Service, dns.URL = labels[0]+"."+labels[1], d.Scheme+"://"+labels[2]
		return discovery.NewDNS(dns)
	}
	return nil, fmt.Errorf("srv: %q is no name of SRV records; allowed: _service._tcp.name", d.SRV)
}
