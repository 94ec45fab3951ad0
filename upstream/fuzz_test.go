package upstream

import (
	"fmt"
	"math"
	"testing"

	"kvasir/selection/signal"
)

// fuzzReader holds that whatever the page, a Load has only numbers that can be, of one
// instant, out of samples, with ranks that are ascending, bounded and part of the sums.
func fuzzReader(f *testing.F, read Reader, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		before := string(page)
		l, report := read(Page{Body: page, Header: func(string) string { return before[:min(len(before), 20)] }}, at)
		if string(page) != before {
			t.Error("the page was changed")
		}
		for _, g := range []signal.Gauge{l.Running, l.Waiting, l.KVUsage, l.KVBlocks, l.BlockTokens, l.WaitingTokens,
			l.PrefixQueries, l.PrefixHits, l.Generated, l.Preemptions, l.Started} {
			if g.Known && (!(g.Value >= 0) || math.IsInf(g.Value, 0) || g.At != at) || !g.Known && g != (signal.Gauge{}) {
				t.Errorf("%+v", g)
			}
		}
		if l.KVUsage.Value > 1 || l.KVUsageMax().Value > 1 || l.KVUsageMax().Value < l.KVUsage.Value-1e-9 {
			t.Errorf("usage %v, fullest %v", l.KVUsage, l.KVUsageMax())
		}
		if l.BlockTokens.Known && l.BlockTokens.Value < 1 {
			t.Errorf("a block of %v tokens", l.BlockTokens.Value)
		}
		ranks := l.Ranks.All()
		if len(ranks) == 1 && ranks[0].ID == 0 || len(ranks) > signal.MaxRanks {
			t.Errorf("%d ranks", len(ranks))
		}
		running := 0.0
		for i, r := range ranks {
			if r.ID < 0 || i > 0 && r.ID <= ranks[i-1].ID {
				t.Errorf("rank %d at %d", r.ID, i)
			}
			if r.Running >= 0 {
				running += r.Running
			}
		}
		if running > l.Running.Value*(1+1e-9) {
			t.Errorf("ranks run %v of %v", running, l.Running.Value)
		}
		if report.BadValues < 0 || report.Samples < 0 || fmt.Sprint(report.Missing) != fmt.Sprint(missing(&l)) {
			t.Errorf("report %+v of %+v", report, l)
		}
		if signal.Restarted(l, l) {
			t.Error("an endpoint restarted without a change")
		}
	})
}

func FuzzReadVLLM(f *testing.F) {
	fuzzReader(f, VLLM().ReadLoad, string(golden(f, "vllm.txt")),
		"vllm:num_requests_running 9007199254740992\nvllm:kv_cache_usage_perc{a=\"b\"} -0\nvllm:num_requests_waiting 1e999\n",
		"vllm:cache_config_info{block_size=\"99999999999999999999\",num_gpu_blocks=\"-1\"} NaN",
		"vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"a,b,\",waiting_lora_adapters=\"\\\"c\"} 5\nvllm:lora_requests_info{max_lora=\"4\"} 4\n",
		"vllm:num_requests_running{engine=\"1\"} 1\nvllm:num_requests_running{engine=\"0\"} 2\nvllm:kv_cache_usage_perc{engine=\"0\"} 1\n")
}

func FuzzReadSGLang(f *testing.F) {
	fuzzReader(f, SGLang().ReadLoad, string(golden(f, "sglang_metrics.txt")),
		"sglang_num_running_reqs{dp_rank=\"1\",tp_rank=\"9\"} 1\nsglang:num_running_reqs{dp_rank=\"0\"} 1\nsglang:page_size 1e300\n",
		"sglang:page_size 3\nsglang:max_total_num_tokens 2\nsglang:num_pages -1\n")
}

func FuzzReadSGLangLoads(f *testing.F) {
	fuzzReader(f, SGLang().LoadPages[0].Read, string(golden(f, "sglang_loads.json")),
		`{"loads":[{"dp_rank":1.5,"num_running_reqs":1e400,"token_usage":-0},{"dp_rank":3},null]}`)
}

func FuzzReadSGLangGetLoad(f *testing.F) {
	fuzzReader(f, SGLang().LoadPages[1].Read, string(golden(f, "sglang_get_load.json")), `[{"num_reqs":1,"num_waiting_reqs":2}]`)
}

func FuzzReadLlamaCPP(f *testing.F) {
	fuzzReader(f, LlamaCPP().ReadLoad, string(golden(f, "llamacpp_metrics.txt")),
		"11469572189\nllamacpp:prompt_tokens_total 9007199254740992\nllamacpp:prompt_tokens_cached_total 9007199254740992\n")
}

func FuzzReadLlamaCPPSlots(f *testing.F) {
	fuzzReader(f, LlamaCPP().LoadPages[0].Read, string(golden(f, "llamacpp_slots.json")), string(golden(f, "llamacpp_slots_idle.json")),
		`[{"n_ctx":1e-300,"is_processing":true,"n_prompt_tokens_cache":5,"n_prompt_tokens_processed":5,"next_token":{"n_decoded":5}}]`)
}
