package upstream

import (
	"math"
	"strings"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection/signal"
	"kvasir/upstream/exposition"
)

// VLLM returns the dialect of vLLM's V1 engine (vllm/v1/metrics/loggers.py).
//
// A page has a series of each name for every engine behind the address (label engine,
// the data-parallel rank). Counts are summed over them. The share of KV blocks in use
// is their mean, each engine counting the same, for the ranks of one deployment have
// equal caches. Where a name was changed, the newer name is believed as soon as it has
// one usable value: kv_cache_usage_perc was gpu_cache_usage_perc, and the counters of
// the prefix cache began with gpu_ too. Counters stand with _total in Prometheus'
// formats and may stand without it in OpenMetrics.
//
// Of num_gpu_blocks each engine keeps one empty (the null block), which no call can use
// and which the share in use does not count; it is left out here too.
//
// The share is from 0 to 1, whatever "perc" suggests: "1 means 100 percent usage".
//
// lora_requests_info is there where the engine serves LoRA adapters. Its value is the Unix
// time at which its labels were true, and labels of the past stay on the page: the newest
// ones count. Names are separated by commas. Data-parallel ranks share the series, so it
// tells of the rank that took a step last.
//
// cache_salt is a non-empty string; newer versions bound it, none below 128 characters. It
// is hashed with the prompt's first block. What knows no such field ignores it.
//
// A chat with continue_final_message is rendered without the last message's end; it is refused
// together with add_generation_prompt, which is on by default (ChatCompletionRequest in
// vllm/entrypoints/openai).
//
// /health is 200 while the engine lives, asleep or saturated too, and 503 when it is
// dead. /load isn't read: without a flag that few set it says 0.
func VLLM() Dialect {
	return Dialect{Name: "vllm", HealthPath: "/health", MetricsPath: "/metrics", ReadLoad: readVLLM, CacheSalt: true,
		GoOn: `"continue_final_message":true,"add_generation_prompt":false,`}
}

// The information series, whose labels tell what no value does.
const (
	vllmCacheConfig = numbers + iota // kvBlocks and blockTokens
	vllmLoRA                         // adapters
)

func vllmNumber(name []byte) (n number, spelling uint8) {
	if string(name) == "process_start_time_seconds" {
		return started, 0
	}
	name, ok := cutPrefix(name, "vllm")
	if !ok {
		return unwanted, 0
	}
	switch string(name) {
	case "num_requests_running":
		return running, 0
	case "num_requests_waiting":
		return waiting, 0
	case "kv_cache_usage_perc":
		return kvUsage, 0
	case "gpu_cache_usage_perc":
		return kvUsage, 1
	case "cache_config_info":
		return vllmCacheConfig, 0
	case "lora_requests_info":
		return vllmLoRA, 0
	}
	name, spelling = cutTotal(name)
	switch string(name) {
	case "prefix_cache_queries":
		return prefixQueries, spelling
	case "gpu_prefix_cache_queries":
		return prefixQueries, 2 + spelling
	case "prefix_cache_hits":
		return prefixHits, spelling
	case "gpu_prefix_cache_hits":
		return prefixHits, 2 + spelling
	case "generation_tokens":
		return generated, spelling
	case "num_preemptions":
		return preemptions, spelling
	}
	return unwanted, 0
}

func readVLLM(page Page, at mono.Time) (signal.Load, Report) {
	var room [32]sample
	t := tally{samples: room[:0]}
	s := exposition.NewScanner(page.Body, func(name []byte) bool {
		n, _ := vllmNumber(name)
		return n != unwanted
	})
	for s.Scan() {
		t.report.Samples++
		n, spelling := vllmNumber(s.Name())
		v := sample{number: n, spelling: spelling, rank: rankLabel(s, "engine", noRank), value: s.Value()}
		switch n {
		case vllmCacheConfig:
			t.cacheConfig(s, v.rank)
		case vllmLoRA:
			t.loraRequests(s)
		case kvUsage:
			t.add(v, 0, 1)
		case started:
			t.add(v, 1, countMax)
		default:
			t.add(v, 0, countMax)
		}
	}
	t.report.BadLines = s.Bad()
	return t.load(at)
}

// cacheConfig reads the cache's geometry out of the labels of an engine's information
// series, whose values are as Python prints them.
func (t *tally) cacheConfig(s *exposition.Scanner, rank int32) {
	blocks, told, ok := label(s, "num_gpu_blocks", 1)
	if told && ok {
		t.add(sample{number: kvBlocks, rank: rank, value: float64(blocks) - 1}, 0, math.MaxInt32)
	}
	size, sized, okSize := label(s, "block_size", 1)
	if sized && okSize {
		t.add(sample{number: blockTokens, rank: rank, value: float64(size)}, 1, math.MaxInt32)
	}
	if !ok || !okSize {
		t.report.BadValues++
	}
}

// loraRequests reads the adapters in use out of the labels of a sample, unless one that is
// newer was read before.
func (t *tally) loraRequests(s *exposition.Scanner) {
	slots, told, ok := label(s, "max_lora", 1)
	if at := s.Value(); !told || !ok || !(at >= 1 && at <= countMax) {
		t.report.BadValues++
		return
	} else if at <= t.adapters.at {
		return
	} else {
		t.adapters.at = at
	}
	running, _ := s.Label("running_lora_adapters")
	waiting, _ := s.Label("waiting_lora_adapters")
	t.adapters.slots = int(slots)
	t.adapters.running, t.adapters.waiting = adapterNames(running), adapterNames(waiting)
}

// adapterNames returns the adapters of a list of names, separated by commas.
func adapterNames(list string) []kvblock.Hash {
	var adapters []kvblock.Hash
	for name := range strings.SplitSeq(list, ",") {
		if name != "" {
			adapters = append(adapters, signal.Adapter(name))
		}
	}
	return adapters
}
