package emulator

import (
	"net/http"
	"strconv"
	"time"

	"kvasir/engine"
)

// scrape serves /metrics. Its values are those of the last step that ended at or before the
// instant of the scrape. The families of the web framework (http_*) and the process's other
// numbers are left out: there is no such process.
func (s *Server) scrape(w http.ResponseWriter, r *http.Request) {
	views, ok := s.observe(r.Context())
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	born := seconds(s.life.Load().born)
	x := &exposition{buf: make([]byte, 0, 64<<10), model: labelValue(s.Model()), ranks: views}
	if !s.cfg.HideCreated {
		x.created = number(born)
	}
	x.process(born)
	x.scheduler()
	x.counters()
	x.lengths()
	x.latencies()
	x.loraRequests(&s.cfg)
	x.cacheConfig(&s.cfg)
	w.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(x.buf)))
	_, _ = w.Write(x.buf)
}

// seconds returns Unix time as a process measures it.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

func (x *exposition) process(born float64) {
	x.family("python_info", "gauge", "Python platform information")
	x.name("python_info").labels([][2]string{{"implementation", "CPython"}, {"major", "3"}, {"minor", "12"}, {"patchlevel", "0"}, {"version", "3.12.0"}}).value(1)
	const start = "process_start_time_seconds"
	x.family(start, "gauge", "Start time of the process since unix epoch in seconds.")
	x.name(start).value(born)
}

// The families come in the order in which vLLM registers them
// (vllm/v1/metrics/loggers.py, PrometheusStatLogger).

func (x *exposition) scheduler() {
	waiting := func(v *view) float64 { return float64(v.stats.Waiting) }
	x.gauge("vllm:num_requests_running", "Number of requests in model execution batches.",
		func(v *view) float64 { return float64(v.stats.Running) })
	x.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", waiting)
	x.gaugeBy("vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason. "+
		"Reason labels: 'capacity' = waiting for scheduling capacity; "+
		"'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "+
		"Sum of all reasons equals vllm:num_requests_waiting.",
		"reason", child{"capacity", func(v *view) float64 { return float64(v.stats.Waiting - v.stats.Deferred) }},
		child{"deferred", func(v *view) float64 { return float64(v.stats.Deferred) }})
	level := func(n int) func(*view) float64 {
		return func(v *view) float64 {
			if v.asleep == n {
				return 1
			}
			return 0
		}
	}
	x.gaugeBy("vllm:engine_sleep_state", "Engine sleep state; awake = 0 means engine is sleeping; "+
		"awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
		"sleep_state", child{"awake", level(0)}, child{"weights_offloaded", level(1)}, child{"discard_all", level(2)})
	x.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.",
		func(v *view) float64 { return v.stats.KVUsage })
}

// none is the value of what this engine has not: KV connectors, a cache of media.
func none(*view) float64 { return 0 }

func (x *exposition) counters() {
	prompts := func(v *view) float64 { return float64(v.stats.PromptTokens) }
	cached := func(v *view) float64 { return float64(v.metrics.cachedTokens) }
	finished := func(why engine.FinishReason) child {
		return child{why.String(), func(v *view) float64 { return float64(v.stats.Finished[why]) }}
	}
	x.counter("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.",
		func(v *view) float64 { return float64(v.stats.PrefixQueries) })
	x.counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.",
		func(v *view) float64 { return float64(v.stats.PrefixHits) })
	x.counter("vllm:external_prefix_cache_queries", "External prefix cache queries from KV connector cross-instance cache sharing, "+
		"in terms of number of queried tokens.", none)
	x.counter("vllm:external_prefix_cache_hits", "External prefix cache hits from KV connector cross-instance cache sharing, "+
		"in terms of number of cached tokens.", none)
	x.counter("vllm:mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", none)
	x.counter("vllm:mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", none)
	x.counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.",
		func(v *view) float64 { return float64(v.stats.Preemptions) })
	x.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", prompts)
	x.counterBy("vllm:prompt_tokens_by_source", "Number of prompt tokens by source.", "source",
		child{"local_compute", func(v *view) float64 { return prompts(v) - cached(v) }},
		child{"local_cache_hit", cached}, child{"external_kv_transfer", none})
	x.counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).", cached)
	x.counter("vllm:generation_tokens", "Number of generation tokens processed.",
		func(v *view) float64 { return float64(v.stats.GenerationTokens) })
	x.counterBy("vllm:request_success", "Count of successfully processed requests.", "finished_reason",
		finished(engine.Stop), finished(engine.Length), finished(engine.Abort), child{"error", none}, child{"repetition", none})
}

func (x *exposition) lengths() {
	x.histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.",
		func(m *metrics) *histogram { return &m.promptTokens })
	x.histogram("vllm:request_generation_tokens", "Number of generation tokens processed.",
		func(m *metrics) *histogram { return &m.generationTokens })
	x.histogram("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.",
		func(m *metrics) *histogram { return &m.iterationTokens })
	x.histogram("vllm:request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.",
		func(m *metrics) *histogram { return &m.mostTokens })
	x.histogram("vllm:request_params_n", "Histogram of the n request parameter.",
		func(m *metrics) *histogram { return &m.choices })
	x.histogram("vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.",
		func(m *metrics) *histogram { return &m.maxTokens })
}

func (x *exposition) latencies() {
	x.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.",
		func(m *metrics) *histogram { return &m.ttft })
	x.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.",
		func(m *metrics) *histogram { return &m.itl })
	x.histogram("vllm:request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.",
		func(m *metrics) *histogram { return &m.tpot })
	x.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.",
		func(m *metrics) *histogram { return &m.e2e })
	x.histogram("vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.",
		func(m *metrics) *histogram { return &m.queue })
	x.histogram("vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.",
		func(m *metrics) *histogram { return &m.inference })
	x.histogram("vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.",
		func(m *metrics) *histogram { return &m.prefill })
	x.histogram("vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.",
		func(m *metrics) *histogram { return &m.decode })
	x.histogram("vllm:request_prefill_kv_computed_tokens",
		"Histogram of new KV tokens computed during prefill (excluding cached tokens).",
		func(m *metrics) *histogram { return &m.kvTokens })
}

// cacheConfig writes vllm:cache_config_info, whose labels are the fields of the cache's
// configuration as Python prints them (vllm/config/cache.py).
func (x *exposition) cacheConfig(c *Config) {
	const name = "vllm:cache_config_info"
	x.family(name, "gauge", "Information of the LLMEngine CacheConfig")
	e := &c.Engine
	caching := "False"
	if e.PrefixCaching {
		caching = "True"
	}
	tokens := e.NumBlocks * e.BlockTokens
	for rank := range x.ranks {
		labels := [][2]string{
			{"engine", strconv.Itoa(rank)},
			{"block_size", strconv.Itoa(e.BlockTokens)},
			{"enable_prefix_caching", caching},
			{"num_gpu_blocks", strconv.Itoa(e.NumBlocks + 1)}, // with the one that stands for no block
			{"kv_cache_size_tokens", strconv.Itoa(tokens)},
			{"kv_cache_max_concurrency", repr(float64(tokens) / float64(e.MaxModelLen))},
		}
		for _, l := range [][]string{
			{"None", "prefix_match_unit", "num_gpu_blocks_override", "sliding_window", "prefix_cache_retention_interval",
				"mamba_page_size_padded", "skip_page_size_padded", "mamba_block_size", "num_cpu_blocks",
				"kv_cache_memory_bytes", "kv_offloading_size"},
			{"False", "user_specified_block_size", "user_specified_mamba_block_size", "is_attention_free", "use_replayssm",
				"use_kda_recoverssm", "kv_sharing_fast_prefill"},
			{"auto", "cache_dtype", "mamba_cache_dtype", "mamba_ssm_cache_dtype"},
			{"none", "mamba_cache_mode"}, {"sha256", "prefix_caching_hash_algo"}, {"native", "kv_offloading_backend"},
			{"0.92", "gpu_memory_utilization"}, {"16", "replayssm_buffer_len"}, {"[]", "kv_cache_dtype_skip_layers"},
			{"True", "_block_size_resolved"},
		} {
			for _, field := range l[1:] {
				labels = append(labels, [2]string{field, l[0]})
			}
		}
		x.name(name).labels(labels).value(1)
	}
}
