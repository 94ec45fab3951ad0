package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"kvasir/engine"
	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/policy"
	"kvasir/selection/prefix"
)

// Scenario is a pool of engines behind one or several equal gateways, a workload, and what
// is measured. Gateways are configured as kvasir serve is by default.
type Scenario struct {
	Rule    policy.Rule
	Params  policy.Params // of the rule
	Engines []Engine
	Weights []float64 // by engine; nil: all 1

	Gateways int           // at least 1; each has a view and an index of its own
	Scrape   time.Duration // between two readings of an engine's gauges; 0: none are read
	Delay    time.Duration // from a reading until the gateway has it
	Stagger  bool          // gateways read at instants of their own; else all at the same ones
	Loss     float64       // share of the readings that are lost, 0 to 1

	Sharing   flow.Sharing  // gateways tell each other what they send; Peer is filled in
	PeerDelay time.Duration // until the others have it
	PeerLoss  float64       // share of what is told that a gateway does not get, 0 to 1

	// Shadow is the rule of a policy that ranks the calls beside the one that places them, with
	// ShadowParams or its defaults; without a name there is none. Decided hears of its choices.
	Shadow       policy.Rule
	ShadowParams policy.Params

	Workload SessionsConfig // Routers, Seed, EngineBlockTokens and Ended are filled in
	Warmup   time.Duration  // calls that come earlier are not measured
	SLO      SLO
	Seed     uint64

	Queue  admission.Config       // of each gateway's pool; off by default
	Flight admission.FlightConfig // likewise
	Limits *Limits                // of each gateway; nil: it lets everybody in

	Overload admission.Overload // of each gateway's pool
	// Reference is the engine whose unloaded prefill SLO.Prefill counts in; nil: the first of
	// Engines. It stays the same where the pools of several runs are to be held to one SLO.
	Reference *engine.Config

	// Misses, where above 0, ends a run with ErrHopeless soon after more of the measured calls
	// than that have missed the SLO.
	Misses int64

	Retry  attempt.Config
	Hedge  attempt.HedgeConfig // off by default
	Health health.Config
	Prefix prefix.Config
	MaxAge time.Duration // of signals; 0: any age counts

	Stopped func() bool // see Config

	// Sampled, where set, hears every second what each engine reports.
	Sampled func(e int, now mono.Time, s *engine.Stats)

	// Watched, where set, hears every second what each gateway knows.
	Watched func(gateway int, s *flow.Snapshot)

	// Decided, where set, hears of every decision, with its explanation.
	Decided func(gateway int, d *selection.Decision)

	// Ended, where set, hears of every call once it is over, the warm-up's included, of its
	// session, and which of that it is.
	Ended func(s *SessionRecord, number int, r *Record)
}

// Defaults fills in what a scenario leaves empty, with the values that kvasir serve has.
func (s *Scenario) Defaults() {
	if s.Gateways == 0 {
		s.Gateways = 1
	}
	if s.Retry == (attempt.Config{}) {
		s.Retry = attempt.Default()
	}
	if s.Health == (health.Config{}) {
		s.Health = health.Default()
	}
	if s.Prefix == (prefix.Config{}) {
		s.Prefix = prefix.Config{BudgetBytes: prefix.DefaultBudgetBytes, SpeculativeTTL: prefix.DefaultSpeculativeTTL}
	}
	if s.Overload == (admission.Overload{}) {
		s.Overload = admission.DefaultOverload()
	}
	if s.Params == nil && s.Rule.Params != nil {
		s.Params = s.Rule.Params()
	}
	if s.ShadowParams == nil && s.Shadow.Params != nil {
		s.ShadowParams = s.Shadow.Params()
	}
}

// Run simulates the scenario after Defaults.
func (s Scenario) Run() (*Summary, error) {
	s.Defaults()
	if len(s.Engines) == 0 {
		return nil, fmt.Errorf("no engines")
	}
	m := meters{all: NewMeter(mono.Time(s.Warmup), mono.Never, s.SLO, len(s.Engines)), classes: map[string]*Meter{}, tenants: map[string]*Meter{}}
	reference := s.Engines[0].Config
	if s.Reference != nil {
		reference = *s.Reference
	}
	m.all.Unloaded = func(tokens int) time.Duration { return Unloaded(&reference, tokens) }
	w := s.Workload
	w.Routers, w.Seed, w.Ended, w.EngineBlockTokens = s.Gateways, s.Seed, m.session, s.Engines[0].Config.BlockTokens
	w.Exhausted = m.until
	feed, err := NewSessions(w)
	if err != nil {
		return nil, err
	}
	hopeless := false
	cfg := Config{
		Engines: s.Engines, Feed: feed, Stopped: func() bool {
			hopeless = s.Misses > 0 && m.all.calls-m.all.good > s.Misses
			return hopeless || s.Stopped != nil && s.Stopped()
		}, Sampled: s.Sampled, Watched: s.Watched, Gaps: m.all.Gaps, Decided: s.Decided,
		Ended: func(r *Record) {
			st := r.Tag.(*step)
			m.call(&st.session.record, r)
			if s.Ended != nil {
				s.Ended(&st.session.record, st.index, r)
			}
		},
	}
	for g := range s.Gateways {
		cfg.Routers = append(cfg.Routers, s.Router(g))
	}
	result, err := Run(cfg)
	if failed := feed.Close(); failed != nil && err == nil {
		err = failed
	}
	if hopeless {
		err = ErrHopeless
	}
	if err != nil {
		return nil, err
	}
	summary := m.summary()
	summary.QueuePeak = Number(slices.Max(result.Waited))
	summary.Events = result.Events
	summary.KVUtilization = Number(result.Usage)
	for _, e := range result.Stats {
		summary.Preemptions += Number(e.Preemptions)
	}
	for _, parts := range []map[string]Summary{summary.Classes, summary.Tenants} {
		for name, c := range parts {
			nan := Number(math.NaN())
			c.QueuePeak, c.KVUtilization, c.Preemptions = nan, nan, nan
			parts[name] = c
		}
	}
	return &summary, nil
}

// ErrHopeless is returned by a run that has missed the SLO too often; see Scenario.Misses.
var ErrHopeless = errors.New("too many calls have missed the SLO")

// meters are that of a run, and those of its classes and tenants.
type meters struct {
	all     *Meter
	classes map[string]*Meter
	tenants map[string]*Meter
}

// of returns the meter of a part of the run.
func (m *meters) of(parts map[string]*Meter, name string) *Meter {
	c := parts[name]
	if c == nil {
		c = NewMeter(m.all.From, m.all.To, m.all.SLO, len(m.all.sent))
		c.Unloaded = m.all.Unloaded
		parts[name] = c
	}
	return c
}

func (m *meters) call(s *SessionRecord, r *Record) {
	m.all.Call(r)
	m.of(m.classes, s.Class).Call(r)
	m.of(m.tenants, s.Tenant).Call(r)
}

func (m *meters) session(r *SessionRecord) {
	m.all.Session(r)
	m.of(m.classes, r.Class).Session(r)
	m.of(m.tenants, r.Tenant).Session(r)
}

// until ends the time that is measured with the last call that comes by itself.
func (m *meters) until(last mono.Time) {
	m.all.To = last + 1
	for _, parts := range []map[string]*Meter{m.classes, m.tenants} {
		for _, c := range parts {
			c.To = last + 1
		}
	}
}

func (m *meters) summary() Summary {
	s := m.all.Summary()
	s.Classes, s.Tenants = summaries(m.classes), summaries(m.tenants)
	return s
}

// summaries returns nil where there is one part alone: it is the whole.
func summaries(parts map[string]*Meter) map[string]Summary {
	if len(parts) < 2 {
		return nil
	}
	all := map[string]Summary{}
	for name, c := range parts {
		all[name] = c.Summary()
	}
	return all
}

// Router returns one of the gateways, counted from 0. The scenario has its Defaults.
func (s *Scenario) Router(g int) Router {
	pool := flow.Pool{Name: "pool", PolicyName: s.Rule.Name, Policy: s.Params.New(), MaxAge: s.MaxAge, Queue: s.Queue, Flights: s.Flight, Overload: s.Overload}
	for e := range s.Engines {
		weight := 1.0
		if s.Weights != nil {
			weight = s.Weights[e]
		}
		pool.Endpoints = append(pool.Endpoints, flow.Endpoint{Name: fmt.Sprintf("engine-%d", e+1), Weight: weight})
	}
	r := Router{
		Scrape: s.Scrape, Delay: s.Delay, Limits: s.Limits,
		Machine: flow.Config{
			Seed: s.Seed + uint64(g), Retry: s.Retry, Hedge: s.Hedge, Health: s.Health, Prefix: s.Prefix,
			SLO: selection.SLO{TTFT: s.SLO.TTFT, TPOT: s.SLO.TPOT}, Pools: []flow.Pool{pool},
		},
	}
	if s.ShadowParams != nil {
		r.Shadow = &Shadow{Pool: pool.Name, PolicyName: s.Shadow.Name, Policy: s.ShadowParams.New()}
	}
	r.Machine.Total = attempt.NewBudget(s.Retry.Total())
	r.Machine.Explain = s.Decided != nil
	r.PeerDelay = s.PeerDelay
	if r.Machine.Sharing = s.Sharing; s.Sharing.On {
		r.Machine.Sharing.Peer = flow.PeerID(g + 1)
	}
	if s.PeerLoss > 0 {
		r.PeerLoss = func(peer int, now mono.Time) bool {
			x := seed.New(s.Seed, seed.PeerLoss, uint64(g)<<32|uint64(peer), uint64(now))
			return x.Float64() < s.PeerLoss
		}
	}
	for e := range s.Engines {
		// Of one gateway, readings are spread over the interval; so they are of several only
		// where these are staggered.
		who := uint64(0)
		if s.Stagger {
			who = uint64(g) + 1
		}
		phase := seed.New(s.Seed, seed.Scrape, who, uint64(e))
		r.Phases = append(r.Phases, mono.FromSeconds(phase.Float64()*s.Scrape.Seconds()))
	}
	if s.Loss > 0 {
		r.Loss = func(e int, now mono.Time) bool {
			x := seed.New(s.Seed, seed.Loss, uint64(g)<<32|uint64(e), uint64(now))
			return x.Float64() < s.Loss
		}
	}
	return r
}
