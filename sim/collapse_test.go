package sim

import (
	"testing"
	"time"

	"kvasir/accelerator"
	"kvasir/client/arrival"
	"kvasir/client/workload"
	"kvasir/engine"
	"kvasir/selection"
	"kvasir/selection/policy"
)

// conversationLike is a workload as Mooncake's conversation trace is one: the same 512 tokens
// start every call, and the turns of a conversation share the rest.
const conversationLike = "conversations:systems=1,system=512,history=lognormal/6000/1/200/60000,turns=lognormal/2/0.6/1/8," +
	"user=lognormal/500/1/20/8000,output=lognormal/340/0.7/20/2000,gap=lognormal/40s/1/2s/3m,context=100000"

// collapse runs a rule on eight replicas and returns the most calls that one of them got, by
// the mean.
func collapse(t *testing.T, text string) float64 {
	t.Helper()
	rule, params, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	g, err := workload.Parse(conversationLike)
	if err != nil {
		t.Fatal(err)
	}
	process, err := arrival.Parse("poisson:rate=4")
	if err != nil {
		t.Fatal(err)
	}
	source, err := workload.Generate("like", g, 1, process.Instants(1))
	if err != nil {
		t.Fatal(err)
	}
	all := source.Sessions
	source.Sessions = func(yield func(workload.Session, error) bool) {
		n := 0
		for s, err := range all {
			if n++; !yield(s, err) || n == 500 {
				return
			}
		}
	}
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	c := engine.Defaults(profile)
	c.BlockTokens, c.NumBlocks = 128, 307_200/128
	s := Scenario{
		Rule: rule, Params: params, Scrape: time.Second, Seed: 1,
		Workload: SessionsConfig{Source: source, Rate: 1},
	}
	for range 8 {
		s.Engines = append(s.Engines, Engine{Config: c})
	}
	result, err := s.Run()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return float64(result.CallImbalance)
}

// spread is what the busiest of eight replicas may have, by the mean. Rules that weigh the
// work of a call against its wait do not spread calls evenly where there is little to wait for.
const spread = 3

// Where one block starts every call, whoever follows the longest prefix alone follows the
// first call: one replica gets nearly all. No rule of the catalogue does so by default.
func TestCollapse_NoRuleFollowsTheBlockThatStartsEveryCall(t *testing.T) {
	if most := collapse(t, "cache-aware:cache_threshold=0;balance_abs_threshold=1000000"); most < 7 {
		t.Errorf("the longest prefix alone: the busiest replica got %.2f times the mean; expected nearly 8: this workload shows nothing", most)
	}
	tried := 0
	for _, rule := range policy.Catalog() {
		if _, uses := rule.Params().New().(selection.OverlapUser); !uses {
			continue
		}
		tried++
		most := collapse(t, rule.Name)
		t.Logf("%s: %.2f", rule.Name, most)
		if !(most < spread) {
			t.Errorf("%s: the busiest replica got %.2f times the mean; allowed: below %v", rule.Name, most, spread)
		}
	}
	if tried == 0 {
		t.Error("no rule uses overlap")
	}
}
