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

// grids has, by rule, the settings that are tried beside its defaults.
var grids = map[string][]string{
	"power-of-two":    {"choice_count=3", "choice_count=4"},
	"consistent-hash": {"blocks=8;load_factor=1.25", "blocks=16;load_factor=1.1", "blocks=32;load_factor=1.25", "blocks=16;load_factor=1.5"},
	"cache-aware": {
		"cache_threshold=0.3;balance_abs_threshold=8;balance_rel_threshold=1.1", "cache_threshold=0.3;balance_abs_threshold=16;balance_rel_threshold=1.5",
		"cache_threshold=0.1;balance_abs_threshold=16;balance_rel_threshold=1.5", "cache_threshold=0.5;balance_abs_threshold=32;balance_rel_threshold=1.1",
		"cache_threshold=0.1;balance_abs_threshold=4;balance_rel_threshold=1.2",
	},
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
