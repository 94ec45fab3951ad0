package proxy

import (
	"encoding/json"
	"net/http"
	"time"

	"kvasir/gateway/limit"
	"kvasir/telemetry"
)

// TenantsView is the answer of /v1/tenants: what is used of the limits.
type TenantsView struct {
	Tenants []TenantView `json:"tenants"`
	Keys    []UseView    `json:"keys"` // those that have caps of their own
	Models  []UseView    `json:"models"`
	FanOut  *FanOutView  `json:"fan_out"` // null: conversations have no bound
}

// TenantView is one configured tenant.
type TenantView struct {
	UseView
	Class    string    `json:"class"`
	Priority int       `json:"priority"`
	Share    float64   `json:"share"`
	Models   []UseView `json:"models"` // of which its use has caps of its own
}

// UseView is what a scope uses. A limit that it does not have is null.
type UseView struct {
	Name        string    `json:"name"`
	Running     int       `json:"running"`
	Waiting     int       `json:"waiting"` // behind others of their conversations
	Concurrency *int      `json:"concurrency"`
	Requests    *RateView `json:"rpm"`
	Tokens      *RateView `json:"tpm"`
	Total       TotalView `json:"total"`
}

// RateView is a rate and what is left of it.
type RateView struct {
	Limit     int     `json:"limit"`
	Remaining int     `json:"remaining"`
	Reset     float64 `json:"reset_seconds"`
}

// TotalView adds up the calls of a scope that have ended.
type TotalView struct {
	Requests  int64 `json:"requests"`
	Refused   int64 `json:"refused"`
	Input     int64 `json:"input_tokens"`
	Cached    int64 `json:"cached_tokens"`
	Output    int64 `json:"output_tokens"`
	Estimated int64 `json:"estimated_calls"` // whose answers reported no usage
}

// FanOutView is the bound of each conversation.
type FanOutView struct {
	Concurrency int     `json:"concurrency"`
	Waiting     int     `json:"waiting"`
	MaxWait     float64 `json:"max_wait_seconds"`
}

// Tenants returns what is used of the limits.
func (g *Gateway) Tenants() TenantsView {
	cfg := &g.service.Load().cfg
	v := TenantsView{Tenants: []TenantView{}, Keys: []UseView{}, Models: []UseView{}}
	if f := cfg.FanOut; f.Concurrency > 0 {
		v.FanOut = &FanOutView{f.Concurrency, f.Waiting, f.MaxWait.Seconds()}
	}
	at := map[string]int{}
	states := g.allowance.states()
	for _, s := range states {
		switch s.Scope.Kind {
		case limit.Tenant:
			t := cfg.Tenancy.Tenants[s.Scope.Name]
			if t.Class == "" {
				t.Class = defaultClass
			}
			if t.Share == 0 {
				t.Share = 1
			}
			at[s.Scope.Name] = len(v.Tenants)
			v.Tenants = append(v.Tenants, TenantView{
				UseView: useView(s, s.Scope.Name), Class: t.Class, Priority: cfg.Tenancy.Classes[t.Class].Priority, Share: t.Share, Models: []UseView{},
			})
		case limit.Key:
			v.Keys = append(v.Keys, useView(s, s.Scope.Name))
		case limit.Model:
			v.Models = append(v.Models, useView(s, s.Scope.Name))
		}
	}
	for _, s := range states {
		if i, known := at[s.Scope.Name]; known && s.Scope.Kind == limit.TenantModel {
			v.Tenants[i].Models = append(v.Tenants[i].Models, useView(s, s.Scope.Model))
		}
	}
	return v
}

func useView(s limit.State, name string) UseView {
	t := s.Total
	v := UseView{
		Name: name, Running: s.Running, Waiting: s.Waiting, Requests: rateView(s.Requests), Tokens: rateView(s.Tokens),
		Total: TotalView{t.Requests, t.Refused, t.Input, t.Cached, t.Output, t.Estimated},
	}
	if n := s.Caps.Concurrency; n > 0 {
		v.Concurrency = &n
	}
	return v
}

func rateView(m limit.Meter) *RateView {
	if m.Limit == 0 {
		return nil
	}
	return &RateView{m.Limit, m.Remaining, m.Reset.Round(time.Microsecond).Seconds()}
}

func (g *Gateway) serveTenants(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(g.Tenants(), "", "  ")
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	writeJSON(w, http.StatusOK, append(body, '\n'))
}

// tenantStates are the tenants as metrics show them.
func (g *Gateway) tenantStates() []telemetry.TenantState {
	var out []telemetry.TenantState
	for _, s := range g.allowance.states() {
		if s.Scope.Kind != limit.Tenant {
			continue
		}
		t := telemetry.TenantState{
			Tenant: s.Scope.Name, Running: s.Running, Waiting: s.Waiting,
			Sent: s.Total.Requests, Refused: s.Total.Refused, Input: s.Total.Input, Cached: s.Total.Cached, Output: s.Total.Output, Estimated: s.Total.Estimated,
		}
		if n := s.Caps.Concurrency; n > 0 {
			t.Concurrency = telemetry.Value{V: float64(max(n-s.Running, 0)), Known: true}
		}
		for _, x := range []struct {
			to   *telemetry.Value
			from limit.Meter
		}{{&t.Requests, s.Requests}, {&t.Tokens, s.Tokens}} {
			*x.to = telemetry.Value{V: float64(x.from.Remaining), Known: x.from.Limit > 0}
		}
		out = append(out, t)
	}
	return out
}
