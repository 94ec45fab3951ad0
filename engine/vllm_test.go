package engine

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"kvasir/accelerator"
	"kvasir/internal/mono"
)

// logged is one request of a real vLLM's log; see testdata/vllm/README.md.
type logged struct {
	Prompt     int     `json:"input_toks"`
	Output     int     `json:"output_toks"`
	Queued     float64 `json:"queued_ts"`
	FirstToken float64 `json:"first_token_ts"`
	LastToken  float64 `json:"last_token_ts"`
}

// latencies are seconds, one a request.
type latencies struct{ ttft, tpot, e2e []float64 }

func (l *latencies) add(queued, first, last float64, tokens int) {
	l.ttft = append(l.ttft, first-queued)
	l.e2e = append(l.e2e, last-queued)
	if tokens > 1 {
		l.tpot = append(l.tpot, (last-first)/float64(tokens-1))
	}
}

// The model against two real engines. On the RTX 4090 the KV cache is saturated and
// requests queue for a minute and are preempted; on the RTX PRO 6000 it never fills.
// Nothing is fitted to the logs but the second host's overhead a step.
func TestEngine_MatchesRealVLLM(t *testing.T) {
	for _, c := range []struct {
		log      string
		profile  string
		blocks   int // 0: the profile's
		maxSeqs  int
		overhead time.Duration
		// Largest relative errors of the means, and of the 99th percentile of TTFT.
		ttft, tpot, e2e, ttft99 float64
	}{
		{"rtx-4090", "llama-3.1-8b/rtx-4090", 2588 - 1, 256, 0, 0.05, 0.03, 0.05, 0.05},
		{"rtx-pro-6000", "llama-3.1-8b/rtx-pro-6000", 0, 128, 2 * time.Millisecond, 0.10, 0.05, 0.05, 0.10},
	} {
		t.Run(c.log, func(t *testing.T) {
			profile, err := accelerator.Lookup(c.profile)
			if err != nil {
				t.Fatal(err)
			}
			cfg := Defaults(profile)
			cfg.MaxBatchedTokens, cfg.MaxSeqs, cfg.Overhead = 2048, c.maxSeqs, c.overhead
			if c.blocks > 0 {
				cfg.NumBlocks = c.blocks
			}
			log := readLog(t, c.log)
			var want latencies
			for _, r := range log {
				want.add(r.Queued, r.FirstToken, r.LastToken, r.Output)
			}
			got, stats := replay(t, cfg, log)

			near := func(what string, got, want, tolerance float64) {
				off := got/want - 1
				t.Logf("%-9s %9.4f s, real %9.4f s, %+.1f %%", what, got, want, 100*off)
				if math.Abs(off) > tolerance {
					t.Errorf("%s is off by %+.1f %%, allowed ±%.0f %%", what, 100*off, 100*tolerance)
				}
			}
			near("mean TTFT", mean(got.ttft), mean(want.ttft), c.ttft)
			near("mean TPOT", mean(got.tpot), mean(want.tpot), c.tpot)
			near("mean E2E", mean(got.e2e), mean(want.e2e), c.e2e)
			near("p99 TTFT", p99(got.ttft), p99(want.ttft), c.ttft99)
			t.Logf("%d preemptions, %d steps", stats.Preemptions, stats.Steps)
		})
	}
}

func readLog(t *testing.T, name string) []logged {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "vllm", name+".requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var log []logged
	for s := bufio.NewScanner(f); s.Scan(); {
		var r logged
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		log = append(log, r)
	}
	if len(log) != 300 {
		t.Fatalf("%d requests, want 300", len(log))
	}
	return log
}

// replay submits the log's requests when they were queued and returns what the model
// makes of them.
func replay(t *testing.T, cfg Config, log []logged) (latencies, Stats) {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	epoch := log[0].Queued
	for i, r := range log {
		// Queued is stamped between two steps, and the step that follows has the request.
		at := mono.Time(0).Add(mono.FromSeconds(r.Queued - epoch))
		if err := e.Submit(at, Request{ID: ID(i), PromptTokens: r.Prompt, OutputTokens: r.Output}); err != nil {
			t.Fatal(err)
		}
	}
	first, last := make([]float64, len(log)), make([]float64, len(log))
	for _, o := range e.Advance(mono.Never) {
		at := epoch + o.At.Duration().Seconds()
		if o.First {
			first[o.ID] = at
		}
		last[o.ID] = at
	}
	var l latencies
	for i, r := range log {
		l.add(r.Queued, first[i], last[i], r.Output)
	}
	return l, e.Stats()
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

func p99(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	return s[len(s)*99/100]
}
