package proxy

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"kvasir/selection"
)

func TestExplain_ShowsWhatThePolicySaw(t *testing.T) {
	text := explain(&selection.Decision{
		Pool: "p", Policy: "cache-aware", Reason: "match", Chosen: 1,
		Candidates: []selection.Candidate{
			{Endpoint: "a", Score: math.NaN(), SignalAge: -1},
			{Endpoint: "b", Score: 2, Overlap: 66, OverlapTokens: 5120, Outstanding: 3, SignalAge: 1500 * time.Millisecond},
		},
	})
	var d struct{ Candidates []map[string]any }
	if err := json.Unmarshal([]byte(text), &d); err != nil || len(d.Candidates) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	for i, want := range []map[string]any{
		{"endpoint": "a", "score": nil, "overlap_blocks": 0.0, "overlap_tokens": 0.0, "outstanding": 0.0, "signal_age_seconds": nil},
		{"endpoint": "b", "score": 2.0, "overlap_blocks": 66.0, "overlap_tokens": 5120.0, "outstanding": 3.0, "signal_age_seconds": 1.5},
	} {
		for k, v := range want {
			if got, there := d.Candidates[i][k]; !there || got != v {
				t.Errorf("candidate %d: %s is %v, want %v", i, k, got, v)
			}
		}
	}
}
