package sim

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
)

const second = mono.Time(time.Second)

// near allows for a histogram's buckets.
func near(have Number, want float64) bool {
	return math.Abs(float64(have)-want) <= 0.008*math.Abs(want)+1e-12
}

func TestMeter_Definitions(t *testing.T) {
	m := NewMeter(10*second, 20*second, SLO{TTFT: time.Second, TPOT: 100 * time.Millisecond}, 2)
	for _, r := range []Record{
		{At: 9 * second, First: 10 * second, End: 11 * second, Tokens: 5, Prompt: 7, Attempts: 1, Outcome: attempt.Success},                 // warm-up
		{At: 20 * second, First: 21 * second, End: 22 * second, Tokens: 5, Prompt: 7, Attempts: 1, Outcome: attempt.Success},                // too late
		{At: 10 * second, First: 11 * second, End: 12 * second, Tokens: 11, Prompt: 100, Cached: 40, Attempts: 1, Outcome: attempt.Success}, // good: 1 s, 100 ms
		{At: 12 * second, First: 14 * second, End: 15 * second, Tokens: 21, Prompt: 300, Engine: 1, Attempts: 2, Outcome: attempt.Success},  // 2 s, 50 ms
		{At: 13 * second, First: 13 * second, End: 15 * second, Tokens: 1, Prompt: 100, Cached: 60, Attempts: 1, Outcome: attempt.Success},  // good: one token has no TPOT
		{At: 19 * second, End: 19 * second, Engine: -1, Attempts: 0, Refused: flow.NoEndpoint},                                              // refused
		{At: 19 * second, First: 19 * second, End: 25 * second, Tokens: 3, Prompt: 50, Engine: 1, Attempts: 1, Outcome: attempt.Broken},     // cut
	} {
		m.Call(&r)
	}
	m.Session(&SessionRecord{At: 11 * second, End: 15 * second})
	m.Session(&SessionRecord{At: 11 * second, End: 12 * second, Failed: true})
	m.Session(&SessionRecord{At: 1 * second, End: 12 * second})
	m.Gaps(0, 15*second, engine.Gap{First: 10 * time.Millisecond, Last: 30 * time.Millisecond, Steps: 3, Sequences: 2}) // 10, 20, 30 ms, twice
	m.Gaps(0, 5*second, engine.Gap{First: time.Second, Last: time.Second, Steps: 100, Sequences: 1})                    // warm-up
	s := m.Summary()
	for _, x := range []struct {
		name string
		have Number
		want float64
	}{
		{"calls", s.Calls, 5}, {"succeeded", s.Succeeded, 3},
		{"refused", s.Unfinished[flow.NoEndpoint.String()], 1}, {"broken", s.Unfinished[attempt.Broken.String()], 1},
		{"attainment", s.Attainment, 2.0 / 5}, {"goodput", s.Goodput, 2.0 / 10}, {"rate", s.Rate, 5.0 / 10},
		{"output", s.OutputRate, 33.0 / 10}, {"cached", s.CachedRatio, 100.0 / 500},
		{"ttft max", s.TTFT.Max, 2}, {"ttft mean", s.TTFT.Mean, 1}, {"ttft p50", s.TTFT.P50, 1},
		{"tpot max", s.TPOT.Max, 0.1}, {"tpot mean", s.TPOT.Mean, 0.075},
		{"e2e max", s.E2E.Max, 3}, {"normalized max", s.Normalized.Max, 2}, {"normalized p50", s.Normalized.P50, 2.0 / 11},
		{"itl mean", s.ITL.Mean, 0.02}, {"itl max", s.ITL.Max, 0.03},
		{"session", s.Session.Mean, 4}, {"failed sessions", s.FailedSessions, 1},
		{"gap", s.AssignmentGap, 0}, {"work", s.WorkImbalance, 300 / 200.0}, {"retries", s.Retries, 1},
	} {
		if !near(x.have, x.want) {
			t.Errorf("%s is %v; want %v", x.name, x.have, x.want)
		}
	}
}

// An empty result is null in JSON, never a zero that could be taken for a time.
func TestSummary_NothingIsNull(t *testing.T) {
	m := NewMeter(0, second, SLO{TTFT: 1}, 1)
	out, err := json.Marshal(m.Summary())
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(out, &back); err != nil {
		t.Fatal(err)
	}
	if back["slo_attainment"] != nil || back["ttft_s"].(map[string]any)["p50"] != nil || back["goodput_rps"] != 0.0 {
		t.Errorf("%s", out)
	}
}

func TestMean_OfRuns(t *testing.T) {
	a := Summary{Calls: 10, TTFT: Quantiles{P50: 1}, Unfinished: map[string]Number{"broken": 4}}
	b := Summary{Calls: 20, TTFT: Quantiles{P50: Number(math.NaN())}}
	mean, half := Mean([]Summary{a, b})
	if mean.Calls != 15 || mean.TTFT.P50 != 1 || mean.Unfinished["broken"] != 2 {
		t.Errorf("mean %+v", mean)
	}
	// Student's t with one degree of freedom, 12.706, times the standard error, 5.
	if !near(half.Calls, 63.53) || !math.IsNaN(float64(half.TTFT.P50)) {
		t.Errorf("half widths %+v", half)
	}
}
