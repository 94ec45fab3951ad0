package contest

import (
	"slices"
)

// Peers are the policies that the default one is set beside, at the defaults that their
// sources document, as policy.Parse reads them.
func Peers() []string {
	return []string{
		"random", "round-robin", "least-outstanding", "power-of-two", "least-kv", "consistent-hash", "prefix-hash",
		"cache-aware", "cache-aware-spill", "kv-cost", "weighted-scorers", "sticky-until-saturated", "lmetric", "least-prefill-left",
	}
}

// grids has, by rule, the settings that are tried beside its defaults: those that its source
// or its users' issues name, and what lies around them.
var grids = map[string][]string{
	"power-of-two":    {"choice_count=3", "choice_count=4"},
	"consistent-hash": {"blocks=8;load_factor=1.25", "blocks=16;load_factor=1.1", "blocks=32;load_factor=1.25", "blocks=16;load_factor=1.5"},
	"prefix-hash": {
		"prefix_token_count=1024", "prefix_token_count=2048", "prefix_token_count=1024;load_factor=1.1;balance_abs_threshold=4",
		"prefix_token_count=4096;load_factor=1.1;balance_abs_threshold=4",
	},
	"cache-aware": {
		"balance_abs_threshold=8;balance_rel_threshold=1.1", "balance_abs_threshold=16;balance_rel_threshold=1.5",
		"cache_threshold=0.1;balance_abs_threshold=16;balance_rel_threshold=1.5", "cache_threshold=0.5;balance_abs_threshold=32;balance_rel_threshold=1.1",
		"cache_threshold=0.1;balance_abs_threshold=4;balance_rel_threshold=1.2",
	},
	"cache-aware-spill": {
		"balance_abs_threshold=4;balance_rel_threshold=1.2", "balance_abs_threshold=8;balance_rel_threshold=1.5",
		"cache_threshold=0.1;balance_abs_threshold=8;balance_rel_threshold=1.2", "cache_threshold=0.1;balance_abs_threshold=16;balance_rel_threshold=1.5",
		"balance_abs_threshold=8;balance_rel_threshold=1.2;overlap_decay=1",
	},
	"kv-cost": {
		"overlap_score_credit_decay=1", "prefill_load_scale=2", "prefill_load_scale=4", "prefill_load_scale=8",
		"decode_active_request_weight=8", "prefill_load_scale=4;decode_active_request_weight=8",
	},
	"weighted-scorers": {
		"prefix_cache_weight=2;queue_weight=1;kv_cache_utilization_weight=1", "prefix_cache_weight=1;queue_weight=1;kv_cache_utilization_weight=1",
		"prefix_cache_weight=3;queue_weight=2;kv_cache_utilization_weight=2;running_requests_weight=2", "prefix_cache_weight=3;active_request_weight=3;queue_weight=0;kv_cache_utilization_weight=0",
		"prefix_cache_weight=2;token_load_weight=3;queue_threshold_tokens=100000;queue_weight=0;kv_cache_utilization_weight=0",
		"affinity_threshold=0.8;max_ttft_penalty=2s;prefix_cache_weight=1;queue_weight=2;kv_cache_utilization_weight=0;active_request_weight=2",
	},
	"lmetric": {"hotspot_window=0s", "hotspot_window=10s"},
	"sticky-until-saturated": {
		"max_ttft_penalty=500ms", "max_ttft_penalty=1s", "max_ttft_penalty=2s", "max_ttft_penalty=5s",
		"affinity_threshold=0.5;max_ttft_penalty=1s", "affinity_threshold=0.5;max_ttft_penalty=3s",
	},
}

// Grid returns a policy with the settings that are tried when its parameters are tuned, the
// documented ones first. A policy that is given with parameters is not tuned.
func Grid(policy string) []string {
	out := []string{policy}
	for _, setting := range grids[policy] {
		out = append(out, policy+":"+setting)
	}
	return out
}

// Leaders returns the indices of the n goodputs with the highest means, the best first.
func Leaders(goodputs []*Goodput, n int) []int {
	order := make([]int, len(goodputs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := goodputs[a].mean(), goodputs[b].mean(); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return order[:min(n, len(order))]
}
