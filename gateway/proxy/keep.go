package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"kvasir/selection"
	"kvasir/selection/observe"
	"kvasir/selection/observe/discovery"
	"kvasir/selection/signal"
	"kvasir/upstream"
)

// keeper runs what keeps the knowledge of endpoints fresh: for each endpoint a scraper and
// a prober, for each pool its discovery. sync makes them those of the service.
type keeper struct {
	ctx     context.Context // of Watch; nil: it has not begun
	running map[keptKey]*keptEndpoint
	finding map[poolKey]*keptPool
	wg      sync.WaitGroup
}

type keptKey struct {
	core       *core
	slot       selection.Slot
	generation uint32
}

type keptEndpoint struct {
	pool Pool // under which it runs
	stop context.CancelFunc
}

type poolKey struct {
	core *core
	name string
}

type keptPool struct {
	origins []discovery.Origin
	listed  []discovery.Endpoint
	stop    context.CancelFunc
	stopped chan struct{}
}

// Watch keeps the knowledge of endpoints fresh until ctx ends, then returns once all that
// it runs has ended.
func (g *Gateway) Watch(ctx context.Context) {
	g.applying.Lock()
	g.keeper.ctx = ctx
	g.keeper.sync(g)
	g.applying.Unlock()
	<-ctx.Done()
	g.applying.Lock()
	g.keeper.ctx = nil
	g.applying.Unlock()
	g.keeper.wg.Wait()
}

// sync starts what is missing and stops what is too much. It is called with
// Gateway.applying held.
func (k *keeper) sync(g *Gateway) {
	if k.ctx == nil {
		return
	}
	s := g.service.Load()
	k.syncEndpoints(g, s)
	k.syncPools(g, s)
}

func (k *keeper) syncEndpoints(g *Gateway, s *service) {
	wanted := map[keptKey]*endpoint{}
	for _, m := range s.models {
		for _, p := range m.pools {
			names := m.core.pools[p.name].entries
			for _, e := range *m.core.endpoints.Load() {
				if e != nil && e.pool == p && slices.ContainsFunc(names, func(x discovery.Entry) bool { return x.Name == e.name }) {
					wanted[keptKey{m.core, e.slot, e.generation}] = e
				}
			}
		}
	}
	for key, kept := range k.running {
		if e := wanted[key]; e == nil || !sameWatch(e.pool.Pool, kept.pool) {
			kept.stop()
			delete(k.running, key)
		}
	}
	for key, e := range wanted {
		if k.running[key] == nil {
			ctx, cancel := context.WithCancel(k.ctx)
			k.running[key] = &keptEndpoint{pool: e.pool.Pool, stop: cancel}
			k.watch(ctx, g, key, e, s.cfg.Router)
		}
	}
}

func sameWatch(a, b Pool) bool {
	return a.Scrape == b.Scrape && a.Probe == b.Probe && a.Dialect.Name == b.Dialect.Name
}

// watch runs an endpoint's scraper and prober.
func (k *keeper) watch(ctx context.Context, g *Gateway, key keptKey, e *endpoint, routerID string) {
	client := &http.Client{Transport: e.transport}
	header := http.Header{}
	if e.authorization != nil {
		header["Authorization"] = e.authorization
	}
	if e.host != "" {
		header.Set("Host", e.host)
	}
	name := key.core.name + "/" + e.name
	doubt := make(chan struct{}, 1)
	if every := e.pool.Scrape; every > 0 {
		target := observe.Target{
			Name: e.name, Base: e.URL, Dialect: e.pool.Dialect, Interval: every, Header: header,
		}
		clean := true
		target.Warn = func(r upstream.Report) { clean = false }
		sink := g.sink(key, e, &clean, doubt)
		phase := observe.Phase(routerID, name, every)
		k.wg.Go(func() { observe.Scrape(ctx, client, target, phase, sink) })
	}
	probe := e.pool.Probe
	path := probe.Path
	if path == "" {
		path = e.pool.Dialect.HealthPath
	}
	if probe.Interval <= 0 || path == "" {
		return
	}
	target := observe.ProbeTarget{Name: e.name, URL: e.URL + path, Header: header, Interval: probe.Interval, Timeout: probe.Timeout, Doubt: doubt}
	phase := observe.Phase(routerID, name+path, probe.Interval)
	k.wg.Go(func() { observe.Probe(ctx, client, target, phase, g.heard(key, e)) })
}

// sink takes what a scraper learns of an endpoint to the model's machine. A scrape that
// failed teaches nothing: the age of what is known goes on growing. The first one that found
// nobody listening raises a doubt, so that the health path is asked at once.
func (g *Gateway) sink(key keptKey, e *endpoint, clean *bool, doubt chan<- struct{}) observe.Sink {
	failing, refused := false, false
	return func(took time.Duration, load signal.Load, err error) {
		e.metrics.Scraped(err == nil, *clean)
		*clean = true
		was := refused
		if refused = observe.Refused(err); refused && !was {
			select {
			case doubt <- struct{}{}:
			default: // there is one already
			}
		}
		if err == nil {
			failing = false
			key.core.router.signal(key.slot, key.generation, load, took)
			return
		}
		if !failing {
			g.log.Warn("scrape failed", "model", key.core.name, "pool", e.pool.name, "endpoint", e.name, "error", err.Error())
		}
		failing = true
	}
}

// heard takes what an endpoint's health path says to the model's machine. A path that
// may not exist says nothing as long as it has never answered well: providers have none.
func (g *Gateway) heard(key keptKey, e *endpoint) func(bool, error) {
	failing, known := false, false
	return func(ok bool, err error) {
		if known = known || ok; known || !errors.Is(err, observe.ErrNoPage) {
			key.core.router.health(key.slot, key.generation, ok)
		}
		if !ok && !failing {
			g.log.Warn("health path fails", "model", key.core.name, "pool", e.pool.name, "endpoint", e.name, "error", err.Error())
		}
		failing = !ok
	}
}

func (k *keeper) syncPools(g *Gateway, s *service) {
	if k.finding == nil {
		k.finding = map[poolKey]*keptPool{}
	}
	wanted := map[poolKey]bool{}
	for _, m := range s.models {
		for i, p := range m.pools {
			key := poolKey{m.core, p.name}
			wanted[key] = true
			listed := static(m.Machine.Pools[i], p.Pool)
			var origins []discovery.Origin
			for _, source := range p.Sources {
				origins = append(origins, source.Origin())
			}
			kept := k.finding[key]
			if kept != nil && slices.Equal(kept.origins, origins) && slices.Equal(kept.listed, listed) {
				continue
			}
			next := &keptPool{origins: origins, listed: listed, stopped: make(chan struct{})}
			var ctx context.Context
			ctx, next.stop = context.WithCancel(k.ctx)
			k.finding[key] = next
			sources := slices.Clone(p.Sources)
			if fixed, err := discovery.NewStatic(listed); err == nil {
				sources = append([]discovery.Source{fixed}, sources...)
			}
			k.wg.Go(func() {
				defer close(next.stopped)
				if kept != nil { // a set runs once at a time
					kept.stop()
					<-kept.stopped
				}
				g.find(ctx, m.core, p.name, sources)
			})
		}
	}
	for key, kept := range k.finding {
		if !wanted[key] {
			kept.stop()
			delete(k.finding, key)
		}
	}
}

// find runs a pool's discovery.
func (g *Gateway) find(ctx context.Context, c *core, name string, sources []discovery.Source) {
	g.applying.Lock()
	members := c.pools[name]
	g.applying.Unlock()
	err := members.set.Run(ctx, sources,
		func(entries []discovery.Entry) { g.joined(c, name, entries) },
		func(o discovery.Origin, err error) {
			if err != nil {
				g.log.Warn("discovery", "model", c.name, "pool", name, "source", o.String(), "error", err.Error())
				return
			}
			g.log.Info("discovery is well again", "model", c.name, "pool", name, "source", o.String())
		})
	if err != nil {
		g.log.Error("discovery does not run", "model", c.name, "pool", name, "error", err.Error())
	}
}
