package proxy

import (
	"encoding/json"
	"net/http"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/signal"
	"kvasir/telemetry"
)

const inRotation = health.InRotation

// AdminConfig is what the admin listener needs beside the gateway.
type AdminConfig struct {
	Metrics http.Handler // of /metrics
	// Token is asked for on everything that changes something; "": nothing can be changed.
	Token string
	// Closed asks for the token on /v1/pools too. Health and metrics are always open: who
	// watches over processes has no keys.
	Closed bool
	// Reload reads the configuration anew; nil: it can't be.
	Reload func() error
	// Shadow returns a policy of the name, with its defaults, for POST /v1/shadow; nil: there
	// are none. The error names those that there are.
	Shadow func(name string) (selection.Policy, error)

	Page http.Handler // GET of what is no route of the listener's: the page; nil: none
	Live http.Handler // GET /v1/live: its stream; nil: none
	Labs http.Handler // /v1/labs: its experiments; nil: none
	// Loopback says that the listener can be reached from this machine alone, by which it is
	// no secret for this machine's browsers; see shield. Host is the configured name.
	Loopback bool
	Host     string
}

// Admin returns the handler of the admin listener: /healthz (the process lives), /readyz
// (it can route at least one model), /metrics, /v1/pools, /v1/tenants, the page with /v1/live and /v1/labs,
// and what an operator may change at run time (operate.go).
func (g *Gateway) Admin(c AdminConfig) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if ok, why := g.Ready(); !ok {
			writeText(w, http.StatusServiceUnavailable, why+"\n")
			return
		}
		writeText(w, http.StatusOK, "ready\n")
	})
	mux.Handle("GET /metrics", c.Metrics)
	token := newToken(c.Token)
	pools := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := json.MarshalIndent(g.Pools(), "", "  ")
		if err != nil {
			writeText(w, http.StatusInternalServerError, err.Error()+"\n")
			return
		}
		writeJSON(w, http.StatusOK, append(body, '\n'))
	})
	closed := func(h http.Handler) http.Handler {
		if c.Closed {
			return token.guard(h)
		}
		return h
	}
	mux.Handle("GET /v1/pools", c.shield(closed(pools)))
	mux.Handle("GET /v1/tenants", c.shield(closed(http.HandlerFunc(g.serveTenants))))
	if c.Live != nil {
		mux.Handle("GET /v1/live", c.shield(closed(c.Live)))
	}
	if c.Labs != nil {
		mux.Handle("GET /v1/labs", c.shield(c.Labs))          // a list, the same everywhere
		mux.Handle("POST /v1/labs", c.shield(closed(c.Labs))) // takes a core for a while
	}
	if c.Page != nil {
		mux.Handle("GET /", c.Page)
	}
	g.operations(mux, token, c)
	return mux
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// ModelView is one model in the answer of /v1/pools.
type ModelView struct {
	Model       string     `json:"model"`
	Aliases     []string   `json:"aliases,omitempty"`
	Adapters    []string   `json:"adapters,omitempty"`
	InFlight    int        `json:"in_flight"`
	BetweenTwo  int        `json:"between_attempts"`
	IndexBytes  int64      `json:"prefix_index_bytes"`
	IndexBlocks int        `json:"prefix_index_blocks"`
	SLO         *SLOView   `json:"slo"` // null: none is configured
	Pools       []PoolView `json:"pools"`
}

// SLOView is what a model's calls are to keep; null: no bound.
type SLOView struct {
	TTFT *float64 `json:"ttft_seconds"`
	TPOT *float64 `json:"tpot_seconds"`
}

// PoolView is one pool of a ModelView.
type PoolView struct {
	Pool       string          `json:"pool"`
	Policy     string          `json:"policy"`
	Following  *int            `json:"single_flight,omitempty"` // calls that wait for a sibling, where some may
	Queue      *QueueView      `json:"queue,omitempty"`         // of a pool that holds calls
	Hedge      *HedgeView      `json:"hedge,omitempty"`         // of a pool whose late calls get a second attempt
	Saturation *SaturationView `json:"saturation"`              // null: nothing is known
	Demand     *DemandView     `json:"demand"`                  // what is asked of it beside what it can do
	Shadow     *ShadowTally    `json:"shadow"`                  // of the policy that is shadowed; null: none is
	Endpoints  []EndpointView  `json:"endpoints"`
}

// QueueView is what a PoolView's pool holds.
type QueueView struct {
	Calls  int     `json:"calls"`
	Bytes  int64   `json:"bytes"`
	Tokens int64   `json:"tokens"` // of prefill that they bring
	Oldest float64 `json:"oldest_seconds"`
	Wait   float64 `json:"predicted_wait_seconds"` // until all will have gone; 0 also where that is not known
}

// SaturationView is a PoolView's saturation: 1 is where calls below priority 0 stay out. Values
// are means over endpoints.
type SaturationView struct {
	Level float64            `json:"level"` // of each endpoint's worst axis
	Leads string             `json:"leads"` // the axis that is highest
	Axes  map[string]float64 `json:"axes"`  // waiting, kv_usage, preemptions, ttft; those that are known
}

func saturationView(s *admission.Saturation) *SaturationView {
	if !s.Known {
		return nil
	}
	v := &SaturationView{Level: s.Value, Leads: s.Leads.String(), Axes: map[string]float64{}}
	for _, a := range admission.Axes() {
		if l := s.Axes[a]; l.Known {
			v.Axes[a.String()] = l.Value
		}
	}
	return v
}

// HedgeView is what has come of a PoolView's hedges.
type HedgeView struct {
	After  *float64 `json:"after_seconds"` // without content until a streamed call is hedged; null: too few first tokens were seen
	Sent   int64    `json:"sent"`
	Won    int64    `json:"won"`    // their content was first
	Lost   int64    `json:"lost"`   // the first attempt's was, or the client left
	Failed int64    `json:"failed"` // they ended without content
	Wasted int64    `json:"wasted_prompt_tokens"`
}

func hedgeView(h *flow.HedgeState) *HedgeView {
	if h == nil {
		return nil
	}
	v := &HedgeView{Sent: h.Sent, Won: h.Won, Lost: h.Lost, Failed: h.Failed, Wasted: h.Wasted}
	if h.After > 0 {
		v.After = new(h.After.Seconds())
	}
	return v
}

// saturationStates is saturationView for metrics.
func saturationStates(pool string, s *admission.Saturation) (all []telemetry.SaturationState) {
	if s.Known {
		all = append(all, telemetry.SaturationState{Pool: pool, Axis: "overall", Level: s.Value})
	}
	for _, a := range admission.Axes() {
		if l := s.Axes[a]; l.Known {
			all = append(all, telemetry.SaturationState{Pool: pool, Axis: a.String(), Level: l.Value})
		}
	}
	return all
}

// EndpointView is one endpoint of a PoolView. What is unknown is null.
type EndpointView struct {
	Endpoint      string   `json:"endpoint"`
	URL           string   `json:"url"`
	Origin        string   `json:"origin"` // static, dns, file or admin
	State         string   `json:"state"`
	Cause         string   `json:"cause,omitempty"`            // why it is out of rotation
	ProbeIn       float64  `json:"probe_in_seconds,omitempty"` // until a call may probe it
	Healthy       bool     `json:"healthy"`                    // its health path says nothing else
	Draining      bool     `json:"draining"`
	Leaving       bool     `json:"leaving,omitempty"`
	BusySeconds   float64  `json:"busy_seconds"` // how much longer it is left alone for want of room
	Failures      int      `json:"consecutive_failures"`
	Restarts      int64    `json:"restarts"`
	Weight        float64  `json:"weight"`
	Share         float64  `json:"share"`                      // of its share of calls; below 1 while it is new
	Blackout      float64  `json:"blackout_seconds,omitempty"` // how much longer its reports of load are not believed, because it is new
	InFlight      int      `json:"in_flight"`
	Limit         int      `json:"limit,omitempty"` // most calls in flight, as found; of a pool with queue.limit
	Dispatched    int64    `json:"dispatched"`
	Running       *float64 `json:"running"`
	Waiting       *float64 `json:"waiting"`
	KVUsage       *float64 `json:"kv_usage"`
	SignalAge     *float64 `json:"signal_age_seconds"`
	PrefixHitRate *float64 `json:"prefix_hit_rate"`     // as the engine reports it, of all its callers
	CachedShare   *float64 `json:"cached_prompt_share"` // of this gateway's prompt tokens, as the answers' usage reports it

	// Where the pool's policy goes by prefixes: exact, approximate or load-only, and how much of
	// what was believed to be cached was, as the answers' usage reports it.
	PrefixTrust     *string `json:"prefix_trust"`
	PrefixPredicted *int64  `json:"prefix_predicted_tokens"`
	PrefixReported  *int64  `json:"prefix_reported_tokens"`
}

// Pools returns the state of all models, for /v1/pools and the demo's table.
func (g *Gateway) Pools() []ModelView {
	models := g.service.Load().models
	views := make([]ModelView, 0, len(models))
	for _, m := range models {
		s := m.router.snapshot()
		v := ModelView{
			Model: m.Name, Aliases: m.Aliases, Adapters: m.Adapters, InFlight: s.InFlight, BetweenTwo: s.Waiting,
			IndexBytes: s.IndexBytes, IndexBlocks: s.IndexBlocks, SLO: sloView(m.Machine.SLO),
		}
		origins := g.origins(m)
		for _, p := range s.Pools {
			pv := PoolView{Pool: p.Name, Policy: p.Policy, Shadow: shadowTally(p.Shadow, s.At), Endpoints: []EndpointView{}}
			pv.Saturation, pv.Demand = saturationView(&p.Saturation), demandView(&p)
			if p.Following >= 0 {
				pv.Following = &p.Following
			}
			pv.Hedge = hedgeView(p.Hedge)
			if q := p.Queue; q != nil {
				pv.Queue = &QueueView{Calls: q.Calls, Bytes: q.Bytes, Tokens: q.Tokens, Oldest: q.Oldest.Seconds(), Wait: q.Wait.Seconds()}
			}
			for _, e := range p.Endpoints {
				ev := endpointView(e, s.At)
				if live := m.core.endpoint(e.Slot); live != nil {
					ev.URL = live.URL
				}
				ev.Origin = origins[[2]string{p.Name, e.Name}]
				pv.Endpoints = append(pv.Endpoints, ev)
			}
			v.Pools = append(v.Pools, pv)
		}
		views = append(views, v)
	}
	return views
}

func sloView(s selection.SLO) *SLOView {
	if s == (selection.SLO{}) {
		return nil
	}
	var v SLOView
	if s.TTFT > 0 {
		v.TTFT = new(s.TTFT.Seconds())
	}
	if s.TPOT > 0 {
		v.TPOT = new(s.TPOT.Seconds())
	}
	return &v
}

// origins returns where the endpoints of a model come from, by pool and name.
func (g *Gateway) origins(m *model) map[[2]string]string {
	g.applying.Lock()
	defer g.applying.Unlock()
	out := map[[2]string]string{}
	for name, members := range m.core.pools {
		for _, e := range members.entries {
			out[[2]string{name, e.Name}] = string(e.Origin.Kind)
		}
	}
	return out
}

func endpointView(e flow.EndpointState, now mono.Time) EndpointView {
	v := EndpointView{
		Endpoint: e.Name, State: e.Health.String(), Cause: e.Cause.String(), ProbeIn: e.ProbeIn.Seconds(), Healthy: e.Healthy,
		Draining: e.Draining, Leaving: e.Leaving, BusySeconds: e.BusyFor.Seconds(),
		Failures: e.Failures, Restarts: e.Restarts, Weight: e.Weight, Share: e.Share, Blackout: e.DarkFor.Seconds(),
		InFlight: int(e.Book.Outstanding), Limit: e.Limit, Dispatched: e.Dispatched,
		Running: known(e.Load.Running), Waiting: known(e.Load.Waiting), KVUsage: known(e.Load.KVUsage),
	}
	if age := e.Load.Age(now); age >= 0 {
		s := age.Seconds()
		v.SignalAge = &s
	}
	if q := e.Load.PrefixQueries; q.Known && q.Value > 0 && e.Load.PrefixHits.Known {
		if rate := e.Load.PrefixHits.Value / q.Value; rate >= 0 && rate <= 1 { // NaN is neither
			v.PrefixHitRate = &rate
		}
	}
	if e.PromptTokens > 0 {
		share := float64(e.CachedTokens) / float64(e.PromptTokens)
		v.CachedShare = &share
	}
	if e.Believed {
		trust := e.Trust.String()
		v.PrefixTrust, v.PrefixPredicted, v.PrefixReported = &trust, &e.Compared.Predicted, &e.Compared.Found
	}
	return v
}

func known(g signal.Gauge) *float64 {
	if !g.Known {
		return nil
	}
	return &g.Value
}

// State is the snapshot that telemetry shows at each scrape of the gateway's own metrics.
func (g *Gateway) State() telemetry.Snapshot {
	var s telemetry.Snapshot
	s.CallsInFlight, s.BufferedBytes = g.Load()
	s.Tenants = g.tenantStates()
	for _, m := range g.service.Load().models {
		snap := m.router.snapshot()
		ms := telemetry.ModelState{Model: m.Name, IndexBytes: snap.IndexBytes, IndexBlocks: snap.IndexBlocks}
		at := map[[2]string]int{} // index in ms.Endpoints
		for _, p := range snap.Pools {
			ms.Saturation = append(ms.Saturation, saturationStates(p.Name, &p.Saturation)...)
			ms.Demand = append(ms.Demand, demandState(p.Name, &p.Demand))
			if p.Following >= 0 {
				ms.Flights = append(ms.Flights, telemetry.FlightState{Pool: p.Name, Calls: p.Following})
			}
			if h := p.Hedge; h != nil {
				ms.Hedges = append(ms.Hedges, telemetry.HedgeState{
					Pool: p.Name, Won: h.Won, Lost: h.Lost, Failed: h.Failed, Wasted: h.Wasted,
					After: telemetry.Value{V: h.After.Seconds(), Known: h.After > 0},
				})
			}
			if q := p.Queue; q != nil {
				ms.Queues = append(ms.Queues, telemetry.QueueState{Pool: p.Name, Calls: q.Calls, Bytes: q.Bytes, Tokens: q.Tokens, Wait: q.Wait.Seconds()})
			}
			for _, e := range p.Endpoints {
				es := endpointState(p.Name, e, snap.At)
				key := [2]string{p.Name, e.Name}
				i, twice := at[key]
				switch {
				case !twice:
					at[key] = len(ms.Endpoints)
					ms.Endpoints = append(ms.Endpoints, es)
				case e.Leaving: // one that has the name of another: its calls are shown with that one's
					ms.Endpoints[i].Outstanding += es.Outstanding
				default:
					es.Outstanding += ms.Endpoints[i].Outstanding
					ms.Endpoints[i] = es
				}
			}
		}
		ms.Discovery = g.discovered(m)
		s.Models = append(s.Models, ms)
	}
	return s
}

// discovered says how the pools of a model fare that are discovered.
func (g *Gateway) discovered(m *model) []telemetry.DiscoveryState {
	g.applying.Lock()
	defer g.applying.Unlock()
	var out []telemetry.DiscoveryState
	for _, p := range m.pools {
		if len(p.Sources) == 0 {
			continue
		}
		oldest, heard := time.Duration(0), true
		for _, s := range m.core.pools[p.name].set.Status() {
			heard = heard && s.Heard
			oldest = max(oldest, s.Age)
		}
		if heard {
			out = append(out, telemetry.DiscoveryState{Pool: p.name, Age: oldest.Seconds()})
		}
	}
	return out
}

func endpointState(pool string, e flow.EndpointState, now mono.Time) telemetry.EndpointState {
	es := telemetry.EndpointState{
		Pool: pool, Endpoint: e.Name, Outstanding: int(e.Book.Outstanding), Rotation: rotation(e.Health),
		Draining: e.Draining, Healthy: e.Healthy, BusyFor: e.BusyFor.Seconds(), Share: e.Share,
		Running: value(e.Load.Running), Waiting: value(e.Load.Waiting), KVUsage: value(e.Load.KVUsage),
		Limit: above(float64(e.Limit)),
	}
	if age := e.Load.Age(now); age >= 0 {
		es.SignalAge = telemetry.Value{V: age.Seconds(), Known: true}
	}
	if e.Believed {
		es.PrefixTrust = telemetry.Value{V: float64(e.Trust), Known: true}
		es.PrefixPredicted = telemetry.Value{V: float64(e.Compared.Predicted), Known: true}
		es.PrefixReported = telemetry.Value{V: float64(e.Compared.Found), Known: true}
	}
	return es
}

func value(g signal.Gauge) telemetry.Value { return telemetry.Value{V: g.Value, Known: g.Known} }

func rotation(s health.State) telemetry.Rotation {
	switch s {
	case health.InRotation:
		return telemetry.InRotation
	case health.Probing:
		return telemetry.Probing
	default:
		return telemetry.Ejected
	}
}
