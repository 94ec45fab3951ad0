package proxy

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"

	"kvasir/api"
	"kvasir/gateway/flow"
	"kvasir/internal/kvblock"
	"kvasir/selection"
	"kvasir/selection/observe/discovery"
	"kvasir/selection/signal"
	"kvasir/telemetry"
)

// service is what one configuration has become. It is not changed once it is there: a
// call that began under it ends under it.
type service struct {
	cfg    Config
	models []*model
	byName map[string]*model // aliases and adapters included

	adapters map[string]adapter
	list     []byte // the body of /v1/models
}

// adapter is a LoRA adapter of a model.
type adapter struct {
	name string
	hash kvblock.Hash
}

// model is a model of a service.
type model struct {
	Model
	*core
	timeouts Timeouts
	pools    []*pool
}

// core is what of a model outlasts a configuration.
type core struct {
	name      string
	router    *router
	endpoints atomic.Pointer[[]*endpoint] // by slot
	pools     map[string]*membership      // by name; guarded by Gateway.applying
}

// endpoint returns the endpoint that has the slot. An action's slot keeps its endpoint as
// long as the action's call is charged to it.
func (c *core) endpoint(slot selection.Slot) *endpoint {
	all := *c.endpoints.Load()
	if int(slot) >= len(all) {
		return nil
	}
	return all[slot]
}

// membership is who belongs to a pool: what its configuration lists and its sources find,
// and what an operator has said at run time.
type membership struct {
	set     *discovery.Set
	listed  []discovery.Endpoint // by the configuration
	entries []discovery.Entry    // in service
}

// pool is a pool of a model of a service.
type pool struct {
	Pool
	name, policy string
	servedAs     string
	metrics      *telemetry.Pool
	transport    http.RoundTripper
	unpooled     http.RoundTripper // transport's, with a connection for each call
}

// endpoint is an endpoint in service.
type endpoint struct {
	Endpoint
	name          string
	pool          *pool
	slot          selection.Slot
	generation    uint32
	urls          [routeCount]*url.URL // by route; not changed once made
	host          string               // of the Host header; "": the URL's
	authorization []string             // header values; nil: no key
	multiplexed   bool                 // calls share its connections, over HTTP/2
	metrics       *telemetry.Endpoint
	heard         *atomic.Int64 // when it was last reported alive, by the machine's clock
	transport     http.RoundTripper
	unpooled      http.RoundTripper
}

// newService makes a service of a configuration, and changes nothing else.
func (g *Gateway) newService(cfg Config) (*service, error) {
	s := &service{cfg: cfg, byName: map[string]*model{}, adapters: map[string]adapter{}}
	if s.cfg.Tenancy.Classes == nil {
		s.cfg.Tenancy.Classes = defaultClasses()
	}
	var listed []api.Model
	for _, mc := range cfg.Models {
		m := &model{Model: mc, timeouts: cfg.Timeouts}
		if mc.Timeouts != nil {
			m.timeouts = *mc.Timeouts
		}
		for i, pc := range mc.Pools {
			for _, e := range pc.Endpoints {
				if _, err := url.Parse(e.URL); err != nil {
					return nil, fmt.Errorf("model %s: %w", mc.Name, err)
				}
			}
			machine := mc.Machine.Pools[i]
			pc.PolicyID = cmp.Or(pc.PolicyID, machine.PolicyName)
			p := &pool{Pool: pc, name: machine.Name, policy: machine.PolicyName, servedAs: cmp.Or(pc.ServedAs, mc.Name)}
			p.transport = pc.Transport
			if p.transport == nil {
				p.transport = cfg.Transport
			}
			p.unpooled = unpooled(p.transport)
			m.pools = append(m.pools, p)
		}
		s.models = append(s.models, m)
		for _, name := range mc.Adapters {
			s.adapters[name] = adapter{name, signal.Adapter(name)}
		}
		for _, name := range slices.Concat([]string{mc.Name}, mc.Aliases, mc.Adapters) {
			if s.byName[name] != nil {
				return nil, fmt.Errorf("name %q of a model, an alias or an adapter is used twice", name)
			}
			s.byName[name] = m
			listed = append(listed, g.entry(s, name))
		}
	}
	s.list = api.AppendModels(nil, listed)
	return s, nil
}

// static returns the endpoints that a pool's configuration lists.
func static(mp flow.Pool, p Pool) []discovery.Endpoint {
	out := make([]discovery.Endpoint, 0, len(p.Endpoints))
	for i, e := range p.Endpoints {
		out = append(out, discovery.Endpoint{URL: e.URL, Name: mp.Endpoints[i].Name, Weight: mp.Endpoints[i].Weight})
	}
	return out
}

// newEndpoint makes what every attempt at the endpoint needs.
func newEndpoint(p *pool, e discovery.Entry, placed flow.Placed) (*endpoint, error) {
	out := &endpoint{
		Endpoint: Endpoint{URL: e.URL, Key: p.keyOf(e)}, name: e.Name, pool: p,
		slot: placed.Slot, generation: placed.Generation,
		metrics: p.metrics.Endpoint(e.Name), heard: &atomic.Int64{}, transport: p.transport, unpooled: p.unpooled,
	}
	for i := range callRoutes {
		u, err := url.Parse(e.URL + callRoutes[i].path)
		if err != nil {
			return nil, err
		}
		out.urls[i] = u
	}
	out.multiplexed = multiplexed(p.transport)
	if out.Key != "" {
		out.authorization = []string{"Bearer " + out.Key}
	}
	if e.Host != "" {
		out.host = e.Host
		if port := out.urls[0].Port(); port != "" {
			out.host += ":" + port
		}
		if named := serverName(p.transport, e.Host); out.urls[0].Scheme == "https" && named != nil {
			out.transport, out.unpooled = named, unpooled(named)
		}
	}
	return out, nil
}

// keyOf returns the key of an endpoint: its own where the configuration lists it, else
// that of what is found, else the one that all endpoints have which are listed.
func (p *pool) keyOf(e discovery.Entry) string {
	if e.Origin.Kind == discovery.KindStatic {
		for _, listed := range p.Endpoints {
			if listed.URL == e.URL {
				return listed.Key
			}
		}
	}
	if p.Key != "" || len(p.Endpoints) == 0 {
		return p.Key
	}
	for _, listed := range p.Endpoints {
		if listed.Key != p.Endpoints[0].Key {
			return ""
		}
	}
	return p.Endpoints[0].Key
}
