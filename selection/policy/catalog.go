package policy

import (
	"time"

	"kvasir/selection"
)

// Catalog returns every rule, simple ones first. It is the only list of them: a rule
// that is here can be named in a file and on the command line, and has to keep the
// laws that the package's tests hold over the whole list.
func Catalog() []Rule {
	return []Rule{
		{
			Name:    "random",
			Doc:     "an endpoint drawn uniformly",
			Source:  "article 4.1",
			Reasons: []selection.Reason{ReasonDrawn},
			Params:  func() Params { return &Random{} },
		},
		{
			Name:    "round-robin",
			Doc:     "the endpoint after the one picked last, in a fixed order",
			Source:  "article 4.1",
			Reasons: []selection.Reason{ReasonTurn},
			Params:  func() Params { return &RoundRobin{} },
		},
		{
			Name:    "weighted-round-robin",
			Doc:     "in turn, each as often as its weight says and spread evenly",
			Source:  "article 4.1; nginx's smooth weighted round robin",
			Reasons: []selection.Reason{ReasonTurn},
			Params:  func() Params { return &WeightedRoundRobin{} },
		},
		{
			Name:    "least-outstanding",
			Doc:     "the endpoint with the fewest accepted and unfinished calls, of all",
			Source:  "article 4.1",
			Reasons: []selection.Reason{ReasonFewest},
			Params:  func() Params { return &LeastOutstanding{} },
		},
		{
			Name:    "power-of-two",
			Doc:     "of two endpoints drawn at random, the one with fewer outstanding calls",
			Source:  "article 4.1; Azar, Broder, Karlin, Upfal 1994; Mitzenmacher 1996; Envoy's choice_count",
			Reasons: []selection.Reason{ReasonLighter},
			Params:  func() Params { return &PowerOfTwo{ChoiceCount: 2} },
		},
		{
			Name:    "weighted-least-request",
			Doc:     "in turn by weight / (outstanding + 1)^bias",
			Source:  "article 4.3; Envoy's weighted least request",
			Reasons: []selection.Reason{ReasonTurn},
			Params:  func() Params { return &WeightedLeastRequest{ActiveRequestBias: 1} },
		},
		{
			Name:    "ewma-latency",
			Doc:     "the lowest peak-sensitive average of time to first token times (outstanding + 1)",
			Source:  "article 4.1; Finagle's PeakEwma",
			Reasons: []selection.Reason{ReasonLowestCost, ReasonUnmeasured},
			Params:  func() Params { return &EWMALatency{Decay: 10 * time.Second} },
		},
		{
			Name:   "consistent-hash",
			Doc:    "the key's place on a ring, walked on past endpoints that are above their share",
			Source: "article 4.1; Mirrokni, Thorup, Zadimoghaddam 2016",
			Reasons: []selection.Reason{
				ReasonPrompt, ReasonPromptOverflow, ReasonHeader, ReasonHeaderOverflow,
				ReasonHeaderAbsent, ReasonHeaderAbsentOverflow, ReasonConversation, ReasonConversationOverflow,
				ReasonNoConversation, ReasonNoConversationOverflow, ReasonNoKey, ReasonNoKeyOverflow,
			},
			Params: func() Params {
				return &ConsistentHash{Key: "prompt", Header: "x-session-id", Blocks: 16, LoadFactor: 1.25}
			},
		},
		{
			Name:    "least-kv",
			Doc:     "the fewest KV blocks in use or soon needed by calls that wait or were just sent",
			Source:  "article 4.1 and 4.2",
			Reasons: []selection.Reason{ReasonReported, ReasonMedian, ReasonOwnCounts},
			Params:  func() Params { return &LeastKV{} },
		},
		{
			Name:    "cache-aware",
			Doc:     "the longest matching prefix while it is long enough and the pool balanced, else the least load",
			Source:  "article 5.5; SGLang's Rust gateway",
			Reasons: []selection.Reason{ReasonImbalanced, ReasonMatch, ReasonNoMatch},
			Params: func() Params {
				return &CacheAware{CacheThreshold: 0.3, BalanceAbsThreshold: 64, BalanceRelThreshold: 1.5}
			},
		},
		{
			Name:    "cache-aware-spill",
			Doc:     "the longest matching prefix while it is long enough and who holds it not above the mean by far, else the least load",
			Source:  "SMG's cache_aware since August 2026",
			Reasons: []selection.Reason{ReasonMatch, ReasonNoMatch, ReasonSpill},
			Params: func() Params {
				return &CacheAwareSpill{CacheThreshold: 0.3, BalanceAbsThreshold: 64, BalanceRelThreshold: 1.5}
			},
		},
		{
			Name:    "prefix-hash",
			Doc:     "the place of the prompt's first tokens on a ring, or the least load where that endpoint is above the mean",
			Source:  "article 6.2; SGLang's prefix_hash",
			Reasons: []selection.Reason{ReasonPrompt, ReasonPromptOverflow, ReasonNoKey},
			Params:  func() Params { return &PrefixHash{PrefixTokenCount: 256, LoadFactor: 1.25, BalanceAbsThreshold: 10} },
		},
		{
			Name:    "lmetric",
			Doc:     "the lowest product of prefill work and calls, this one included",
			Source:  "LMetric, arXiv 2603.15202",
			Reasons: []selection.Reason{ReasonLeastProduct, ReasonHotspot},
			Params:  func() Params { return &LMetric{HotspotWindow: time.Minute} },
		},
		{
			Name:    "least-prefill-left",
			Doc:     "the fewest tokens to prefill before this call's first token",
			Source:  "LPWL of agentic-kvc",
			Reasons: []selection.Reason{ReasonLeastPrefill},
			Params:  func() Params { return &LeastPrefillLeft{} },
		},
		{
			Name:    "sticky-until-saturated",
			Doc:     "the fewest tokens to prefill among those that hold the prompt, until they are seconds behind the others",
			Source:  "llm-d's prefix-cache-affinity-filter and token-load-scorer",
			Reasons: []selection.Reason{ReasonWarm, ReasonCold, ReasonSaturated, ReasonExplored},
			Params: func() Params {
				return &StickyUntilSaturated{AffinityThreshold: 0.8, MaxTTFTPenalty: 18 * time.Second, PeakPrefillThroughput: 15928}
			},
		},
		{
			Name:    "kv-cost",
			Doc:     "the fewest KV blocks to prefill, less those that are cached, and in use",
			Source:  "article 5.4; NVIDIA Dynamo's KV router",
			Reasons: []selection.Reason{ReasonLowestCost, ReasonDrawn},
			Params: func() Params {
				return &KVCost{OverlapScoreCredit: 1, HostCacheHitWeight: 0.75, DiskCacheHitWeight: 0.25, PrefillLoadScale: 1}
			},
		},
		{
			Name:    "weighted-scorers",
			Doc:     "of those that the filters leave the highest weighted sum of scores, each of one thing alone",
			Source:  "llm-d's router and GIE, whose default profile this is",
			Reasons: []selection.Reason{ReasonScored, ReasonDrawn},
			Params: func() Params {
				return &WeightedScorers{
					QueueWeight: 2, KVCacheUtilizationWeight: 2, PrefixCacheWeight: 3,
					ActiveMaxBusyScore: 1, QueueThresholdTokens: 4 << 20, SessionTTL: 300 * time.Second,
					MaxTTFTPenalty: 18 * time.Second, PeakPrefillThroughput: 15928, Picker: pickMaxScore,
				}
			},
		},
		{
			Name:    loraAffinityName,
			Doc:     "where the call's LoRA adapter is nearest and the load not too high, by another rule",
			Source:  "article 6.3; the classes of GIE's and llm-d's lora-affinity-scorer",
			Reasons: []selection.Reason{ReasonBaseModel, ReasonActive, ReasonResident, ReasonEmptySlot, ReasonFreeSlot, ReasonAwaited, ReasonNoSlot, ReasonTooBusy},
			Params:  func() Params { return &LoRAAffinity{Then: "least-outstanding", Slack: 8, Slots: 1} },
		},
		{
			Name:    "predicted-ttft",
			Doc:     "the lowest predicted time to first token, priced for what the call does to others",
			Source:  "ours; article sections 5 and 6",
			Reasons: []selection.Reason{ReasonNearest, ReasonElsewhere},
			Params: func() Params {
				return &PredictedTTFT{Work: 1.5, Decode: 1, Interference: 0.5, Crowding: 1, Window: 30 * time.Second}
			},
		},
	}
}

// Lookup returns the rule of that name.
func Lookup(name string) (Rule, bool) {
	for _, rule := range Catalog() {
		if rule.Name == name {
			return rule, true
		}
	}
	return Rule{}, false
}
