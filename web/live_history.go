package web

import (
	"math"
	"time"

	"kvasir/gateway/proxy"
)

// history is the last LivePoints seconds of what charts show. Its size is bounded by the
// endpoints: 2.4 KB each. It is not safe for concurrent use.
type history struct {
	began  time.Time
	tick   int // of the newest point; the first is 0
	models []*historyModel
}

type historyModel struct {
	name                       string
	perSecond, goodput, ttft95 *ring
	pools                      []*historyPool
}

type historyPool struct {
	name      string
	queue     *ring
	endpoints []*historyEndpoint
}

type historyEndpoint struct {
	name              string
	inFlight, waiting *ring
}

// ring holds a number for each of the last LivePoints ticks; NaN is unknown.
type ring struct{ values [LivePoints]float32 }

func newRing() *ring {
	r := &ring{}
	for i := range r.values {
		r.values[i] = float32(math.NaN())
	}
	return r
}

func (r *ring) set(tick int, v float64) { r.values[tick%LivePoints] = float32(v) }

// last returns the n values up to the tick, oldest first.
func (r *ring) last(tick, n int) Numbers {
	out := make(Numbers, n)
	for i := range out {
		out[i] = float64(r.values[(tick-n+1+i+LivePoints)%LivePoints])
	}
	return out
}

func newHistory(now time.Time) *history { return &history{began: now, tick: -1} }

// points returns how many ticks there are to tell of.
func (h *history) points() int { return min(h.tick+1, LivePoints) }

// add notes the state at a look. Seconds without a look stay unknown; what is no longer there
// is forgotten.
func (h *history) add(now time.Time, models []proxy.ModelView, recent func(model string) LivePoint) {
	from := h.tick + 1
	h.tick = max(from, int(now.Sub(h.began).Round(time.Second)/time.Second))
	from = max(from, h.tick-LivePoints+1)
	former := h.models
	h.models = nil
	for _, v := range models {
		m := named(former, v.Model, func(m *historyModel) string { return m.name })
		if m == nil {
			m = &historyModel{name: v.Model, perSecond: newRing(), goodput: newRing(), ttft95: newRing()}
		}
		p := recent(v.Model)
		h.put(m.perSecond, from, p.PerSecond)
		h.put(m.goodput, from, orNaN(p.Goodput))
		h.put(m.ttft95, from, orNaN(p.TTFTP95))
		m.add(h, from, v.Pools)
		h.models = append(h.models, m)
	}
}

// put sets the newest point, and those since from that nobody looked at.
func (h *history) put(r *ring, from int, v float64) {
	for tick := from; tick < h.tick; tick++ {
		r.set(tick, math.NaN())
	}
	r.set(h.tick, v)
}

func (m *historyModel) add(h *history, from int, pools []proxy.PoolView) {
	former := m.pools
	m.pools = nil
	for _, v := range pools {
		p := named(former, v.Pool, func(p *historyPool) string { return p.name })
		if p == nil {
			p = &historyPool{name: v.Pool, queue: newRing()}
		}
		queued := math.NaN()
		if v.Queue != nil {
			queued = float64(v.Queue.Calls)
		}
		h.put(p.queue, from, queued)
		p.add(h, from, v.Endpoints)
		m.pools = append(m.pools, p)
	}
}

func (p *historyPool) add(h *history, from int, endpoints []proxy.EndpointView) {
	byName := make(map[string]*historyEndpoint, len(p.endpoints))
	for _, e := range p.endpoints {
		byName[e.name] = e
	}
	former := p.endpoints
	p.endpoints = make([]*historyEndpoint, 0, len(former))
	seen := make(map[string]int, len(endpoints)) // calls at those of the name
	for _, v := range endpoints {
		e := byName[v.Endpoint]
		if e == nil {
			e = &historyEndpoint{name: v.Endpoint, inFlight: newRing(), waiting: newRing()}
			byName[v.Endpoint] = e
		}
		calls, twice := seen[v.Endpoint]
		seen[v.Endpoint] = calls + v.InFlight
		h.put(e.inFlight, from, float64(calls+v.InFlight))
		if twice { // one that leaves has the name of another
			continue
		}
		h.put(e.waiting, from, orNaN(v.Waiting))
		p.endpoints = append(p.endpoints, e)
	}
}

// named finds the one of the name; nil: there is none.
func named[T any](all []*T, name string, of func(*T) string) *T {
	for _, x := range all {
		if of(x) == name {
			return x
		}
	}
	return nil
}

func orNaN(p *float64) float64 {
	if p == nil {
		return math.NaN()
	}
	return *p
}

// view returns the history for a watcher that comes. at is the newest point's instant.
func (h *history) view(at time.Time) LiveHistory {
	n := h.points()
	v := LiveHistory{At: proxy.UnixSeconds(at), Step: 1, Recent: LiveRecent, Points: n, Models: []LiveHistoryModel{}}
	for _, m := range h.models {
		mv := LiveHistoryModel{
			Model: m.name, PerSecond: m.perSecond.last(h.tick, n), Goodput: m.goodput.last(h.tick, n), TTFTP95: m.ttft95.last(h.tick, n),
			Pools: []LiveHistoryPool{},
		}
		for _, p := range m.pools {
			pv := LiveHistoryPool{Pool: p.name, Queue: p.queue.last(h.tick, n), Endpoints: []LiveHistoryEndpoint{}}
			for _, e := range p.endpoints {
				pv.Endpoints = append(pv.Endpoints, LiveHistoryEndpoint{e.name, e.inFlight.last(h.tick, n), e.waiting.last(h.tick, n)})
			}
			mv.Pools = append(mv.Pools, pv)
		}
		v.Models = append(v.Models, mv)
	}
	return v
}
