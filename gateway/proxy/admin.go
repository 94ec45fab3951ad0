package proxy

import (
	"encoding/json"
	"net/http"
	"time"

	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/signal"
	"kvasir/telemetry"
)

const inRotation = health.InRotation

// Admin returns the handler of the admin listener: /healthz (the process lives), /readyz
// (it can route at least one model), /v1/pools, and /metrics by the handler given.
func (g *Gateway) Admin(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if ok, why := g.Ready(); !ok {
			writeText(w, http.StatusServiceUnavailable, why+"\n")
			return
		}
		writeText(w, http.StatusOK, "ready\n")
	})
	mux.HandleFunc("GET /v1/pools", func(w http.ResponseWriter, r *http.Request) {
		body, err := json.MarshalIndent(g.Pools(), "", "  ")
		if err != nil {
			writeText(w, http.StatusInternalServerError, err.Error()+"\n")
			return
		}
		writeJSON(w, http.StatusOK, append(body, '\n'))
	})
	mux.Handle("GET /metrics", metrics)
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
	InFlight    int        `json:"in_flight"`
	BetweenTwo  int        `json:"between_attempts"`
	IndexBytes  int64      `json:"prefix_index_bytes"`
	IndexBlocks int        `json:"prefix_index_blocks"`
	Pools       []PoolView `json:"pools"`
}

// PoolView is one pool of a ModelView.
type PoolView struct {
	Pool      string         `json:"pool"`
	Policy    string         `json:"policy"`
	Endpoints []EndpointView `json:"endpoints"`
}

// EndpointView is one endpoint of a PoolView. What is unknown is null.
type EndpointView struct {
	Endpoint      string   `json:"endpoint"`
	URL           string   `json:"url"`
	State         string   `json:"state"`
	Failures      int      `json:"consecutive_failures"`
	Weight        float64  `json:"weight"`
	InFlight      int      `json:"in_flight"`
	Dispatched    int64    `json:"dispatched"`
	Running       *float64 `json:"running"`
	Waiting       *float64 `json:"waiting"`
	KVUsage       *float64 `json:"kv_usage"`
	SignalAge     *float64 `json:"signal_age_seconds"`
	PrefixHitRate *float64 `json:"prefix_hit_rate"`     // as the engine reports it, of all its callers
	CachedShare   *float64 `json:"cached_prompt_share"` // of this gateway's prompt tokens, as the answers' usage reports it
}

// Pools returns the state of all models, for /v1/pools and the demo's table.
func (g *Gateway) Pools() []ModelView {
	views := make([]ModelView, 0, len(g.models))
	for _, m := range g.models {
		s := m.router.snapshot()
		v := ModelView{
			Model: m.Name, Aliases: m.Aliases, InFlight: s.InFlight, BetweenTwo: s.Waiting,
			IndexBytes: s.IndexBytes, IndexBlocks: s.IndexBlocks,
		}
		for _, p := range s.Pools {
			pv := PoolView{Pool: p.Name, Policy: p.Policy}
			for _, e := range p.Endpoints {
				pv.Endpoints = append(pv.Endpoints, endpointView(e, m.endpoints[e.Slot].URL, s.At))
			}
			v.Pools = append(v.Pools, pv)
		}
		views = append(views, v)
	}
	return views
}

func endpointView(e flow.EndpointState, url string, now mono.Time) EndpointView {
	v := EndpointView{
		Endpoint: e.Name, URL: url, State: e.Health.String(), Failures: e.Failures, Weight: e.Weight,
		InFlight: int(e.Book.Outstanding), Dispatched: e.Dispatched,
		Running: known(e.Load.Running), Waiting: known(e.Load.Waiting), KVUsage: known(e.Load.KVUsage),
	}
	if age := e.Load.Age(now); age >= 0 {
		s := age.Seconds()
		v.SignalAge = &s
	}
	if q := e.Load.PrefixQueries; q.Known && q.Value > 0 && e.Load.PrefixHits.Known {
		rate := e.Load.PrefixHits.Value / q.Value
		v.PrefixHitRate = &rate
	}
	if e.PromptTokens > 0 {
		share := float64(e.CachedTokens) / float64(e.PromptTokens)
		v.CachedShare = &share
	}
	return v
}

func known(g signal.Gauge) *float64 {
	if !g.Known {
		return nil
	}
	return &g.Value
}

// sink takes what a scraper learns of an endpoint to the model's machine. A scrape that
// failed teaches nothing: the age of what is known goes on growing.
func (g *Gateway) sink(m *model, slot selection.Slot, name string) func(time.Duration, signal.Load, error) {
	failing := false
	return func(took time.Duration, load signal.Load, err error) {
		if err == nil {
			failing = false
			m.router.signal(slot, 0, load, took)
			return
		}
		if !failing {
			g.cfg.Log.Warn("scrape failed", "model", m.Name, "endpoint", name, "error", err.Error())
		}
		failing = true
	}
}

// State is the snapshot that telemetry shows at each scrape of the gateway's own metrics.
func (g *Gateway) State() telemetry.Snapshot {
	s := telemetry.Snapshot{CallsInFlight: int(g.calls.Load()), BufferedBytes: g.buffered.used.Load()}
	for _, m := range g.models {
		snap := m.router.snapshot()
		ms := telemetry.ModelState{Model: m.Name, IndexBytes: snap.IndexBytes, IndexBlocks: snap.IndexBlocks}
		for _, p := range snap.Pools {
			for _, e := range p.Endpoints {
				es := telemetry.EndpointState{
					Pool: p.Name, Endpoint: e.Name, Outstanding: int(e.Book.Outstanding), Rotation: rotation(e.Health),
					Running: value(e.Load.Running), Waiting: value(e.Load.Waiting), KVUsage: value(e.Load.KVUsage),
				}
				if age := e.Load.Age(snap.At); age >= 0 {
					es.SignalAge = telemetry.Value{V: age.Seconds(), Known: true}
				}
				ms.Endpoints = append(ms.Endpoints, es)
			}
		}
		s.Models = append(s.Models, ms)
	}
	return s
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
