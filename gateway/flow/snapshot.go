package flow

import (
	"slices"
	"time"

	"kvasir/gateway/admission"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/signal"
)

// Snapshot is what a machine knows at an instant, for people and metrics.
type Snapshot struct {
	At          mono.Time
	InFlight    int // calls the machine holds
	Waiting     int // of those, between two attempts, or about to look for an endpoint after a wait
	Held        int // of those, in the pools' queues
	Following   int // of those, waiting for another one that computes what they need
	IndexBytes  int64
	IndexBlocks int
	Untold      int64       // prompts of which peers were not told: too many at one instant
	Unheard     int64       // words of peers beyond MostPeers
	Pools       []PoolState // a pool that has left is here while it has calls
}

// PoolState is one pool of a Snapshot.
type PoolState struct {
	Name, Policy string
	Queue        *QueueState // nil: the pool holds no calls
	Saturation   admission.Saturation
	Demand       DemandState
	Following    int          // calls that wait for a sibling; -1: none ever does
	Shadow       *ShadowState // nil: no other policy ranks the pool's calls beside its own
	Hedge        *HedgeState  // nil: its calls are not hedged
	Endpoints    []EndpointState
}

// QueueState is what waits for a pool.
type QueueState struct {
	Calls  int
	Bytes  int64         // of their bodies
	Tokens int64         // of prefill that they bring
	Oldest time.Duration // how long the one has waited that came first
	Wait   time.Duration // until all will have gone, as predicted; 0 where that is not known
}

// EndpointState is one endpoint of a Snapshot.
type EndpointState struct {
	selection.Endpoint
	Slot                       selection.Slot
	Book                       selection.Book // this gateway's own
	Health                     health.State
	Cause                      health.Cause  // why it is out of rotation
	ProbeIn                    time.Duration // until a call may probe it; 0: now, or it is in rotation
	Healthy                    bool          // its health path says nothing else, or is not asked
	Failures                   int           // consecutive, before content
	BusyFor                    time.Duration
	Share                      float64       // of its share that it may have: 1 unless it is new
	Limit                      int           // most calls in flight, as found; 0: none is
	DarkFor                    time.Duration // how much longer its reports of load are not believed, because it is new
	Draining, Leaving          bool
	Restarts                   int64
	Believed                   bool          // its pool's policy goes by what it is believed to hold
	Trust                      signal.Trust  // in these beliefs
	Compared                   signal.Tokens // likewise: predicted to be cached, and found there
	Dispatched                 int64         // attempts ever sent
	Beaten                     int64         // of those, overtaken by another attempt of their call
	PromptTokens, CachedTokens int64         // of answers that reported both
}

// Snapshot folds what is older than now and returns a copy of the state.
func (m *Machine) Snapshot(now mono.Time) Snapshot {
	m.last = max(m.last, now)
	m.actions = m.actions[:m.carried]
	m.fold(m.last)
	m.carried = len(m.actions)
	m.peers.expire(m.last, m.sharing.Expiry)
	s := Snapshot{At: m.last, Untold: m.telling.untold, Unheard: m.peers.refused, InFlight: m.inFlight, Held: m.holding, Following: m.following}
	for i := range m.calls {
		if ph := m.calls[i].phase; ph == failed || ph == backingOff {
			s.Waiting++
		}
	}
	if m.index != nil {
		s.IndexBytes, s.IndexBlocks = m.index.Bytes(), m.index.Len()
	}
	pools := slices.Clone(m.pools)
	for i := range m.state {
		if p := m.state[i].pool; p != nil && !slices.Contains(pools, p) {
			pools = append(pools, p)
		}
	}
	for _, p := range pools {
		ps := PoolState{Name: p.name, Policy: p.policyName, Queue: m.describeQueue(p), Saturation: m.saturation(m.last, p), Demand: m.demands(m.last, p), Following: -1}
		if p.flights != nil {
			ps.Following = p.flights.Waiting()
		}
		ps.Hedge = m.describeHedges(p)
		if p.shadow != nil {
			ps.Shadow = p.shadow.describe()
		}
		for i := range m.state {
			if m.state[i].pool == p {
				ps.Endpoints = append(ps.Endpoints, m.describe(selection.Slot(i)))
			}
		}
		s.Pools = append(s.Pools, ps)
	}
	return s
}

func (m *Machine) describe(slot selection.Slot) EndpointState {
	s := &m.state[slot]
	e := EndpointState{
		Endpoint: m.endpoints[slot], Slot: slot, Book: m.books[slot],
		Health: s.breaker.State(), Cause: s.breaker.Cause(), Healthy: s.breaker.Healthy(), Failures: s.breaker.Failures(),
		BusyFor: max(s.busyUntil.Sub(m.last), 0), DarkFor: max(s.darkUntil.Sub(m.last), 0), Share: 1, Draining: s.draining, Leaving: s.leaving, Restarts: s.restarts,
		Believed: s.pool.usesOverlap, Trust: s.trust.State(), Compared: s.compared,
		Dispatched: s.dispatched, Beaten: s.beaten, PromptTokens: s.promptSeen, CachedTokens: s.cachedSeen,
	}
	if due, out := s.breaker.ProbeDue(); out {
		e.ProbeIn = max(due.Sub(m.last), 0)
	}
	e.Weight = s.weight
	if q := s.pool.queue; q != nil && q.Config().Adaptive {
		e.Limit = s.limit.Limit(q.Config().Gradient)
	}
	if s.fresh {
		e.Share = m.health.Warmth(s.freshSince, m.last)
	}
	return e
}
