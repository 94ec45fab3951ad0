package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"kvasir/test/endurance/internal/program"
)

// watch looks at the gateway's gauges and pools while it works.
func (s *soak) watch() {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		r, page, err := s.gateway.Resources()
		if !s.book.Rules.Check(err == nil, "join", "", "the gateway's metrics", "%v", err) {
			continue
		}
		s.peak = s.peak.Max(r)
		s.gauges(page)
		s.book.Page("/metrics", page.Text)
		if n%2 == 0 {
			s.pools()
			s.tenants(false)
		}
	}
}

// gauges checks that no gauge is negative, and that the series stay the same.
func (s *soak) gauges(page program.Page) {
	for _, name := range counted {
		page.Each(name, func(series string, v float64) {
			s.book.Rules.Check(v >= 0, "3", "", series+" not negative", "%v", v)
		})
	}
	page.Each("kvasir_endpoint_running", func(series string, v float64) {
		known := !strings.Contains(series, `endpoint="`+unmeasured+`"`)
		s.book.Rules.Check(known, "8", "", "no sample of what is unknown", "%s %v", series, v)
	})
	s.series(page)
}

// series checks that nothing that clients make up is in a label, and that there are no
// more series than names and constants allow: some may exist only once they are counted.
func (s *soak) series(page program.Page) {
	for series := range page.Series {
		if strings.Contains(series, "model-") || strings.Contains(series, "nothing") {
			s.book.Rules.Check(false, "10", "", "no label that a client made up", "%s", series)
		}
		if strings.HasPrefix(series, "kvasir_") && !s.baseSeries[series] {
			family, _, _ := strings.Cut(series, "{")
			s.grown.Add(family+"|series", 1)
			s.baseSeries[series] = true
		}
	}
	most := s.base.Series + s.base.Series/4
	s.book.Rules.Check(page.Kvasir() <= most, "10", "", fmt.Sprintf("at most %d series: a quarter more than at the start", most), "%d", page.Kvasir())
}

// pools checks what /v1/pools says.
func (s *soak) pools() {
	text, _, err := s.gateway.Get("/v1/pools")
	if !s.book.Rules.Check(err == nil, "join", "", "/v1/pools", "%v", err) {
		return
	}
	s.book.Page("/v1/pools", text)
	var list []program.Model
	if err := json.Unmarshal(text, &list); !s.book.Rules.Check(err == nil, "join", "", "/v1/pools is JSON", "%v", err) {
		return
	}
	for _, m := range list {
		s.book.Rules.Check(m.InFlight >= 0, "3", "", "in_flight of "+m.Model+" not negative", "%d", m.InFlight)
		for _, p := range m.Pools {
			for _, e := range p.Endpoints {
				where := m.Model + "/" + p.Pool + "/" + e.Endpoint
				s.book.Rules.Check(e.InFlight >= 0, "3", "", "in_flight of "+where+" not negative", "%d", e.InFlight)
				if e.Endpoint == unmeasured {
					s.book.Rules.Check(e.Running == nil && e.Waiting == nil && e.KVUsage == nil, "8", "", "null for "+where+", which has no metrics", "running %v", e.Running)
				} else if e.Running != nil {
					s.book.Rules.Check(*e.Running == 3, "8", "", "running 3 for "+where, "%v", *e.Running)
				}
				if m.Model == calm {
					s.book.Rules.Check(e.State != "ejected" && e.State != "probing" && e.Failures == 0, "7", "",
						where+" in rotation: its calls' only faults are callers'", "%s after %d failures", e.State, e.Failures)
				}
			}
		}
	}
}

// use is what one tenant, key or model uses, in the answer of /v1/tenants.
type use struct {
	Name        string `json:"name"`
	Running     int    `json:"running"`
	Waiting     int    `json:"waiting"`
	Concurrency *int   `json:"concurrency"`
}

// tenants checks what /v1/tenants says: nobody runs less than nothing or more than its cap, and
// nothing once all is over.
func (s *soak) tenants(over bool) {
	if !s.tuned.tenants {
		return
	}
	text, _, err := s.gateway.Get("/v1/tenants")
	if !s.book.Rules.Check(err == nil, "join", "", "/v1/tenants", "%v", err) {
		return
	}
	s.book.Page("/v1/tenants", text)
	var v struct{ Tenants, Keys, Models []use }
	if err := json.Unmarshal(text, &v); !s.book.Rules.Check(err == nil, "join", "", "/v1/tenants is JSON", "%v", err) {
		return
	}
	s.book.Rules.Check(len(v.Tenants) == len(tenants), "10", "", fmt.Sprintf("%d tenants, those of the file", len(tenants)), "%d", len(v.Tenants))
	for kind, list := range map[string][]use{"tenant": v.Tenants, "key": v.Keys, "model": v.Models} {
		for _, u := range list {
			where := kind + " " + u.Name
			s.book.Rules.Check(u.Running >= 0 && u.Waiting >= 0, "3", "", "running and waiting of "+where+" not negative", "%d, %d", u.Running, u.Waiting)
			s.book.Rules.Check(u.Concurrency == nil || u.Running <= *u.Concurrency, "3", "", "no more of "+where+" at a time than its cap", "%d", u.Running)
			s.book.Rules.Check(!over || u.Running == 0 && u.Waiting == 0, "3", "", "nothing of "+where+" at the end", "%d running, %d waiting", u.Running, u.Waiting)
		}
	}
}
