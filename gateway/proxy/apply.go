package proxy

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/limit"
	"kvasir/selection"
	"kvasir/selection/observe/discovery"
	"kvasir/telemetry"
)

// Apply puts a configuration in service in place of the one before. Calls in flight end
// under the one that they began under; what stays of a model keeps all that was learned of
// it. With an error nothing has changed.
func (g *Gateway) Apply(cfg Config) error {
	g.applying.Lock()
	defer g.applying.Unlock()
	s, err := g.newService(cfg)
	if err != nil {
		return err
	}
	for _, m := range s.models {
		g.meet(m)
	}
	if err := g.install(s); err != nil {
		return err
	}
	g.keeper.sync(g)
	return nil
}

// meet finds a model's core, or makes one.
func (g *Gateway) meet(m *model) {
	m.core = g.cores[m.Name]
	if m.core == nil {
		m.core = &core{name: m.Name, pools: map[string]*membership{}}
		m.core.endpoints.Store(&[]*endpoint{})
	}
	for i, p := range m.pools {
		members := m.core.pools[p.name]
		listed := static(m.Machine.Pools[i], p.Pool)
		if members == nil {
			members = &membership{set: &discovery.Set{}}
			m.core.pools[p.name] = members
		}
		members.relist(listed)
	}
}

// relist changes what the configuration lists. What sources have found, and an operator
// has said, stands beside it until the pool's set, which knows both, tells.
func (m *membership) relist(listed []discovery.Endpoint) {
	var entries []discovery.Entry
	for _, e := range m.entries {
		if e.Origin.Kind != discovery.KindStatic {
			entries = append(entries, e)
		}
	}
	for _, e := range listed {
		entry := discovery.Entry{Endpoint: e, Origin: discovery.Origin{Kind: discovery.KindStatic}}
		named := func(x discovery.Endpoint) bool { return x.Name == e.Name }
		at := slices.IndexFunc(m.entries, func(x discovery.Entry) bool { return x.Name == e.Name })
		switch {
		case at >= 0:
			was := m.entries[at]
			entry.Draining = was.Draining
			if was.Weighed {
				entry.Weight, entry.Weighed = was.Weight, true
			}
		case slices.ContainsFunc(m.listed, named):
			continue // an operator has removed it
		}
		entries = append(entries, entry)
	}
	m.entries, m.listed = entries, listed
}

// install makes the service the one that calls begin under, and its models' machines what
// it says.
func (g *Gateway) install(s *service) error {
	g.metrics.Configure(s.names())
	g.purse.become(s.cfg.Retry.Total())
	former := g.service.Load()
	s.pay(g)
	for _, m := range s.models {
		if err := g.fit(m, former.model(m.Name)); err != nil {
			return err
		}
		g.cores[m.Name] = m.core
	}
	g.buffered.limit.Store(s.cfg.Limits.Buffered)
	g.allowance.configure(limit.Config{
		Rules: s.cfg.Caps, FanOut: limit.FanOut{Concurrency: s.cfg.FanOut.Concurrency, Waiting: s.cfg.FanOut.Waiting},
	})
	g.service.Store(s)
	for name, c := range g.cores {
		if s.model(name) == nil {
			// Its calls in flight find nobody else to go to, and those that answer end there.
			c.router.reconfigure(flow.Config{}, func([]flow.Placed) {})
			delete(g.cores, name)
		}
	}
	return nil
}

func (s *service) model(name string) *model {
	if s == nil {
		return nil
	}
	for _, m := range s.models {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// names returns what the metrics count.
func (s *service) names() []telemetry.ModelPools {
	var out []telemetry.ModelPools
	for _, m := range s.models {
		mp := telemetry.ModelPools{Model: m.Name, SLO: telemetry.SLO(m.Machine.SLO)}
		for _, p := range m.pools {
			pe := telemetry.PoolEndpoints{Pool: p.name}
			for _, e := range m.core.pools[p.name].entries {
				pe.Endpoints = append(pe.Endpoints, e.Name)
			}
			mp.Pools = append(mp.Pools, pe)
		}
		out = append(out, mp)
	}
	return out
}

// pay gives the models' machines the budget that they share.
func (s *service) pay(g *Gateway) {
	for _, m := range s.models {
		m.Machine.Total = nil
		if s.cfg.Retry != (attempt.Config{}) {
			m.Machine.Total = &g.purse
		}
	}
}

// fit makes a model's machine what its configuration and its pools' members say.
func (g *Gateway) fit(m, former *model) error {
	cfg := m.Machine
	cfg.Pools = slices.Clone(cfg.Pools)
	if g.peers != nil {
		cfg.Sharing = flow.DefaultSharing(g.peer)
	}
	for i, p := range m.pools {
		if p.metrics == nil {
			p.metrics = g.metrics.Pool(m.Name, p.name)
		}
		if kept := former.policy(p); kept != nil && former != m {
			cfg.Pools[i].Policy = kept
			m.Machine.Pools[i].Policy = kept
		}
		cfg.Pools[i].Endpoints = nil
		for _, e := range m.core.pools[p.name].entries {
			cfg.Pools[i].Endpoints = append(cfg.Pools[i].Endpoints, flow.Endpoint{
				Name: e.Name, Weight: e.Weight, Revision: revision(e, p.keyOf(e)), Draining: e.Draining,
			})
		}
	}
	var failed error
	var joined []*endpoint
	first := m.core.router == nil // all of a model's endpoints join it with its configuration
	defer func() {
		if first {
			return
		}
		for _, e := range joined {
			g.log.Info("endpoint has joined", "model", m.Name, "pool", e.pool.name, "endpoint", e.name, "url", e.URL)
		}
	}()
	place := func(placed []flow.Placed) {
		endpoints := slices.Clone(*m.core.endpoints.Load())
		for _, x := range placed {
			p := m.pools[x.Pool]
			e, err := newEndpoint(p, m.core.pools[p.name].entries[x.Endpoint], x)
			if err != nil {
				failed = fmt.Errorf("model %s: %w", m.Name, err)
				return
			}
			for len(endpoints) <= int(x.Slot) {
				endpoints = append(endpoints, nil)
			}
			if former := endpoints[x.Slot]; former == nil || former.generation != x.Generation {
				joined = append(joined, e)
			}
			e.keepTransport(endpoints[x.Slot])
			endpoints[x.Slot] = e
		}
		m.core.endpoints.Store(&endpoints)
	}
	if m.core.router == nil {
		machine := flow.New(cfg)
		c := m.core
		c.router = newRouter(machine, g.clock, c.endpoint, func(a flow.Action, e *endpoint) { g.notice(c, a, e) })
		c.router.share = func(words []flow.Word) { g.tell(c, words) }
		place(machine.Placement(cfg))
		return failed
	}
	m.core.router.reconfigure(cfg, place)
	return failed
}

// keepTransport takes over the connections of the same endpoint's former self.
func (e *endpoint) keepTransport(former *endpoint) {
	if former != nil && former.generation == e.generation && former.host == e.host && former.pool.transport == e.pool.transport {
		e.transport, e.unpooled = former.transport, former.unpooled
	}
}

// policy returns the policy of the pool's former self, where the rule is the same.
func (m *model) policy(p *pool) selection.Policy {
	if m == nil {
		return nil
	}
	for i, former := range m.pools {
		if former.name == p.name && former.PolicyID == p.PolicyID {
			return m.Machine.Pools[i].Policy
		}
	}
	return nil
}

// revision tells two endpoints of one name apart.
func revision(e discovery.Entry, key string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %q", e.URL, e.Host, key)
	return h.Sum64()
}

// joined takes what a pool's sources, or an operator, have changed.
func (g *Gateway) joined(c *core, name string, entries []discovery.Entry) {
	g.applying.Lock()
	defer g.applying.Unlock()
	members := c.pools[name]
	s := g.service.Load()
	m := s.model(c.name)
	if members == nil || m == nil || m.core != c || slices.Equal(members.entries, entries) {
		return
	}
	members.entries = entries
	g.metrics.Configure(s.names())
	if err := g.fit(m, m); err != nil {
		g.log.Error("a pool could not take its endpoints", "model", c.name, "pool", name, "error", err.Error())
	}
	g.keeper.sync(g)
}

// notice writes what has become of an endpoint.
func (g *Gateway) notice(c *core, a flow.Action, e *endpoint) {
	level, what := slog.LevelInfo, ""
	var more []slog.Attr
	switch a.Kind {
	case flow.Ejected:
		level, what = slog.LevelWarn, "endpoint ejected"
		more = append(more, slog.String("cause", a.Cause.String()))
		e.metrics.Ejected()
		g.changed()
	case flow.Returned:
		what = "endpoint back in rotation"
		g.changed()
	case flow.Restarted:
		what = "endpoint has restarted"
		e.metrics.Restarted()
	case flow.TrustChanged:
		level, what, more = trustLine(a)
	case flow.Freed:
		what = "endpoint has left"
	default:
		return
	}
	g.log.LogAttrs(context.Background(), level, what, append([]slog.Attr{slog.String("model", c.name),
		slog.String("pool", e.pool.name), slog.String("endpoint", e.name)}, more...)...)
}
