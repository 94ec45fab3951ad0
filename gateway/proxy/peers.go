package proxy

import (
	"slices"
	"sync"
	"time"

	"kvasir/gateway/flow"
)

// Peers carries what gateways before the same endpoints tell each other: what they send
// where (flow.Word). Implementations are safe for concurrent use. There is one, for gateways
// of one process: LocalPeers.
type Peers interface {
	// Tell gives the others what is told. It is called outside of every lock and must not
	// wait: what cannot be sent is dropped, and the next telling makes it good. What is told
	// must not be changed.
	Tell(told []Told)

	// Listen has hear called with what others tell, not with what this gateway does, until
	// stop is called. took is how long it has been on its way, as far as is known. hear
	// does not wait for I/O and takes words as they are: machines of other gateways must have
	// made them.
	Listen(hear func(told []Told, took time.Duration)) (stop func())
}

// Told is a word about an endpoint, by names that mean the same at every gateway.
type Told struct {
	Model, Pool, Endpoint, URL string
	Word                       flow.Word
}

// tell has the peers hear what a model's machine has to say.
func (g *Gateway) tell(c *core, words []flow.Word) {
	told := make([]Told, 0, len(words))
	for i := range words {
		w := &words[i]
		if e := c.endpoint(w.Slot); e != nil && e.generation == w.Generation {
			told = append(told, Told{c.name, e.pool.name, e.name, e.URL, *w})
		}
	}
	if len(told) > 0 {
		g.peers.Tell(told)
	}
}

// hear reports what a peer has told. What is of a model or an endpoint that this gateway
// does not have is none of its business.
func (g *Gateway) hear(told []Told, took time.Duration) {
	s := g.service.Load()
	for i := range told {
		t := &told[i]
		m := s.model(t.Model)
		if m == nil {
			continue
		}
		if e := m.core.named(t); e != nil {
			m.core.router.report(flow.Heard(e.slot, e.generation, &t.Word, took))
		}
	}
}

// named returns the endpoint that a peer's word is of: most often the one of the same slot.
func (c *core) named(t *Told) *endpoint {
	is := func(e *endpoint) bool {
		return e != nil && e.name == t.Endpoint && e.pool.name == t.Pool && e.URL == t.URL
	}
	if e := c.endpoint(t.Word.Slot); t.Word.Slot >= 0 && is(e) {
		return e
	}
	all := *c.endpoints.Load()
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

// LocalPeers connects gateways of one process: tests, and what runs several on purpose. The
// zero value is ready to use and safe for concurrent use. What is told is heard at once, by
// the goroutine that tells.
type LocalPeers struct {
	mu      sync.Mutex
	members []*LocalPeer
}

// LocalPeer is one gateway's place among LocalPeers.
type LocalPeer struct {
	all  *LocalPeers
	hear func([]Told, time.Duration) // nil: it does not listen; guarded by all.mu
}

// Join adds a gateway.
func (p *LocalPeers) Join() *LocalPeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &LocalPeer{all: p}
	p.members = append(p.members, m)
	return m
}

// Tell implements Peers.
func (m *LocalPeer) Tell(told []Told) {
	m.all.mu.Lock()
	var hear []func([]Told, time.Duration)
	for _, x := range m.all.members {
		if x != m && x.hear != nil {
			hear = append(hear, x.hear)
		}
	}
	m.all.mu.Unlock()
	for _, h := range hear {
		h(told, 0)
	}
}

// Listen implements Peers. The gateway leaves the others with stop.
func (m *LocalPeer) Listen(hear func([]Told, time.Duration)) (stop func()) {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	m.hear = hear
	return func() {
		m.all.mu.Lock()
		defer m.all.mu.Unlock()
		m.hear = nil
		m.all.members = slices.DeleteFunc(m.all.members, func(x *LocalPeer) bool { return x == m })
	}
}

var _ Peers = (*LocalPeer)(nil)
