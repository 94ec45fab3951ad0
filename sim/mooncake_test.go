package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"kvasir/accelerator"
	"kvasir/client/workload"
	"kvasir/engine"
	"kvasir/internal/kvblock"
	"kvasir/selection/policy"
)

func mooncake(t testing.TB) []workload.Session {
	f, err := os.Open("/work/shared/traces/mooncake/conversation_trace.jsonl")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	var out []workload.Session
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	n := 0
	for sc.Scan() {
		var l struct {
			Timestamp    int   `json:"timestamp"`
			InputLength  int   `json:"input_length"`
			OutputLength int   `json:"output_length"`
			HashIDs      []int `json:"hash_ids"`
		}
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		c := workload.Call{PromptTokens: l.InputLength, OutputTokens: l.OutputLength}
		for i, id := range l.HashIDs {
			if i < l.InputLength/512 {
				c.Blocks = append(c.Blocks, kvblock.Seed(fmt.Sprint(id)))
			}
		}
		n++
		out = append(out, workload.Session{ID: fmt.Sprint(n), At: time.Duration(l.Timestamp)*time.Millisecond + time.Duration(n%10)*293*time.Millisecond, Calls: []workload.Call{c}})
	}
	return out
}

func TestMooncake(t *testing.T) {
	sessions := mooncake(t)
	for _, name := range []string{"random", "least-outstanding", "cache-aware"} {
		rule := mustLookup(t, name)
		start := time.Now()
		s, err := mooncakeScenario(t, rule, sessions).Run()
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		t.Logf("%s %v %.0f calls/s: %+v", name, took, float64(len(sessions))/took.Seconds(), *s)
	}
}

func mooncakeScenario(t testing.TB, rule policy.Rule, sessions []workload.Session) Scenario {
	profile, err := accelerator.Lookup("llama-3.1-8b/h100-tp1")
	if err != nil {
		t.Fatal(err)
	}
	e := engine.Defaults(profile)
	e.BlockTokens = 512
	e.NumBlocks = profile.Blocks(512)
	sc := Scenario{Rule: rule, Scrape: time.Second, Seed: 1, SLO: SLO{TTFT: 4 * time.Second, TPOT: 100 * time.Millisecond}, Warmup: 300 * time.Second}
	for range 8 {
		sc.Engines = append(sc.Engines, Engine{Config: e})
	}
	sc.Workload = SessionsConfig{Rate: 1.5, Source: workload.Source{Name: "mooncake", BlockTokens: 512, Sessions: func(yield func(workload.Session, error) bool) {
		for _, s := range sessions {
			if !yield(s, nil) {
				return
			}
		}
	}}}
	return sc
}
