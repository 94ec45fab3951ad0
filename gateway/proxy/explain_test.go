package proxy

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
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

// TestExplain_FitsIntoAHeader_AndHasTheChosenOne has more candidates, and more to say of each,
// than a header holds.
func TestExplain_FitsIntoAHeader_AndHasTheChosenOne(t *testing.T) {
	for _, c := range []struct {
		candidates, parts int
		most              int // candidates that are shown at most
	}{{3, 9, 3}, {40, 0, maxExplained}, {40, 9, maxExplained}, {3, 500, 1}} {
		for chosen := range c.candidates {
			d := &selection.Decision{Pool: "p", Policy: "x", Chosen: chosen}
			for i := range c.candidates {
				k := selection.Candidate{
					Endpoint: fmt.Sprintf("endpoint-%d", i),
					Signals: []selection.Reading{
						{Name: "running", Value: 3, Source: selection.FromReport, Age: time.Second}, {Name: "kv_usage", Value: math.Inf(1), Source: selection.FromReport, Age: time.Second},
						{Name: "waiting", Value: 0, Source: selection.FromReport, Age: 2 * time.Second}, {Name: "pending", Value: 1, Source: selection.FromDispatches},
					},
				}
				for range c.parts {
					k.Parts = append(k.Parts, selection.Part{Name: "some_part_seconds", Value: 1.0 / 3})
				}
				d.Candidates = append(d.Candidates, k)
			}
			text := explain(d)
			var got struct {
				Chosen     string
				Candidates []struct {
					Endpoint string
					Signals  []struct {
						Source string
						Values map[string]*float64
					}
				}
				Omitted int `json:"candidates_omitted"`
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			n, there := len(got.Candidates), 0
			for _, k := range got.Candidates {
				if k.Endpoint == got.Chosen {
					there++
				}
			}
			if there != 1 || n > c.most || n+got.Omitted != c.candidates || c.parts < 100 && len(text) > 8<<10 {
				t.Fatalf("%d candidates with %d parts: %d shown, %d omitted, the chosen one %d times, %d bytes", c.candidates, c.parts, n, got.Omitted, there, len(text))
			}
			if c.parts == 9 && c.candidates == 40 && n < 8 {
				t.Errorf("only %d of %d candidates are shown", n, c.candidates)
			}
			s := got.Candidates[0].Signals
			if len(s) != 3 || *s[0].Values["running"] != 3 || s[0].Values["kv_usage"] != nil || s[2].Source != "dispatches" {
				t.Errorf("signals %+v", s)
			}
		}
	}
	if text := string(marshal(short(1.0 / 3))); !strings.HasPrefix(text, "0.3333") || len(text) != 6 {
		t.Errorf("a third is %s", text)
	}
}
