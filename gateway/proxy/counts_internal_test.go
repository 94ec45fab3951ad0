package proxy

import (
	"encoding/json"
	"testing"

	"kvasir/api"
	"kvasir/gateway/flow"
	"kvasir/selection/signal"
)

// TestUsage_CachedIsAPartOfThePrompt, whatever an engine says, and unknown where it says nothing.
func TestUsage_CachedIsAPartOfThePrompt(t *testing.T) {
	for _, test := range []struct {
		said  api.Usage
		known bool
		want  int
	}{
		{api.Usage{Input: 10, Cached: 4, Output: 1}, true, 4},
		{api.Usage{Input: 10, Cached: 10, Output: 1}, true, 10},
		{api.Usage{Input: 1, Cached: 1 << 28, Output: 1}, true, 1},
		{api.Usage{Input: 10, Cached: api.Unknown, Output: 1}, false, 0},
	} {
		c := &call{route: &route{grammar: api.Chat}}
		u := c.usage(test.said)
		if u.CachedKnown != test.known || u.Cached != test.want || c.record.CachedKnown != test.known || c.record.CachedTokens != test.want {
			t.Errorf("%+v: %+v, in the log %d, known %v", test.said, u, c.record.CachedTokens, c.record.CachedKnown)
		}
	}
}

// TestEndpointView_IsJSONWhateverIsCounted: one engine's odd page hides no pool.
func TestEndpointView_IsJSONWhateverIsCounted(t *testing.T) {
	for _, test := range []struct{ queries, hits, want float64 }{
		{10, 5, 0.5}, {10, 0, 0}, {10, 10, 1}, {1e-320, 10, -1}, {10, 11, -1}, {1e308, 1e-320, 0},
	} {
		e := flow.EndpointState{}
		e.Load.PrefixQueries, e.Load.PrefixHits = signal.Known(test.queries, 1), signal.Known(test.hits, 1)
		v := endpointView(e, 1)
		if _, err := json.Marshal(v); err != nil {
			t.Errorf("%v of %v: %v", test.hits, test.queries, err)
		}
		if got := v.PrefixHitRate; (got == nil) != (test.want < 0) || got != nil && *got != test.want {
			t.Errorf("%v of %v: %v, want %v", test.hits, test.queries, got, test.want)
		}
	}
}
