package emulator

import (
	"net/http"
	"strings"

	"kvasir/engine"
	"kvasir/engine/tokenizer"
)

// report writes the load report that a client of chat and completions can ask for
// (vllm/entrypoints/serve/utils/orca_metrics.py): two gauges as of the last step. In TEXT
// several ranks repeat the keys; in JSON the last rank's value is kept.
func (s *Server) report(w http.ResponseWriter, r *http.Request, route tokenizer.Route) {
	if route != tokenizer.Chat && route != tokenizer.Completions {
		return
	}
	format := strings.ToUpper(r.Header.Get("endpoint-load-metrics-format"))
	ranks := s.perRank()
	gauges := []struct {
		name string
		of   func(engine.Stats) float64
	}{
		{"num_requests_waiting", func(s engine.Stats) float64 { return float64(s.Waiting) }},
		{"kv_cache_usage_perc", func(s engine.Stats) float64 { return s.KVUsage }},
	}
	var pairs []string
	switch format {
	case "TEXT":
		for _, g := range gauges {
			for _, k := range ranks {
				pairs = append(pairs, "named_metrics."+g.name+"="+repr(g.of(k)))
			}
		}
		w.Header().Set("endpoint-load-metrics", "TEXT "+strings.Join(pairs, ", "))
	case "JSON":
		for _, g := range gauges {
			pairs = append(pairs, `"`+g.name+`": `+repr(g.of(ranks[len(ranks)-1])))
		}
		w.Header().Set("endpoint-load-metrics", `JSON {"named_metrics": {`+strings.Join(pairs, ", ")+`}}`)
	}
}
