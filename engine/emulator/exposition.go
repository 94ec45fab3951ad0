package emulator

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"kvasir/engine"
)

// scrape serves /metrics in the text format, as prometheus_client writes it. Its values are
// those of the last step that ended at or before the instant of the scrape.
func (s *Server) scrape(w http.ResponseWriter, r *http.Request) {
	stats, m, ok := s.observe(r.Context())
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	x := newExposition(s.Model())
	x.engine(stats, &m)
	x.latencies(&m)
	x.config(&s.cfg)
	x.family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
	x.sample("process_start_time_seconds", "", float64(s.born.UnixNano())/1e9)
	w.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(x.buf)))
	_, _ = w.Write(x.buf)
}

// exposition writes metric families into buf.
type exposition struct {
	buf []byte
	own string // the labels that all series of the engine have
}

func newExposition(model string) *exposition {
	return &exposition{buf: make([]byte, 0, 32<<10), own: `engine="0",model_name="` + labelValue(model) + `"`}
}

// engine writes what the engine counts.
func (x *exposition) engine(s engine.Stats, m *metrics) {
	x.gauge("num_requests_running", "Number of requests in model execution batches.", float64(s.Running))
	x.gauge("num_requests_waiting", "Number of requests waiting to be processed.", float64(s.Waiting))
	x.labelled("num_requests_waiting_by_reason", "gauge", "Number of requests waiting to be processed, by reason.", "reason",
		value{"capacity", float64(s.Waiting)}, value{"deferred", 0})
	x.labelled("engine_sleep_state", "gauge", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake.",
		"sleep_state", value{"awake", 1}, value{"weights_offloaded", 0}, value{"discard_all", 0})
	x.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", s.KVUsage)
	x.counter("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", s.PrefixQueries)
	x.counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", s.PrefixHits)
	x.counter("num_preemptions", "Cumulative number of preemption from the engine.", s.Preemptions)
	x.counter("prompt_tokens", "Number of prefill tokens processed.", s.PromptTokens)
	x.labelled("prompt_tokens_by_source", "counter", "Number of prompt tokens by source.", "source",
		value{"local_compute", float64(s.PromptTokens - m.cachedTokens)},
		value{"local_cache_hit", float64(m.cachedTokens)}, value{"external_kv_transfer", 0})
	x.counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", m.cachedTokens)
	x.counter("generation_tokens", "Number of generation tokens processed.", s.GenerationTokens)
	x.labelled("request_success", "counter", "Count of successfully processed requests.", "finished_reason",
		value{"stop", float64(s.Finished[engine.Stop])}, value{"length", float64(s.Finished[engine.Length])},
		value{"abort", float64(s.Finished[engine.Abort])}, value{"error", 0}, value{"repetition", 0})
}

// latencies writes the histograms.
func (x *exposition) latencies(m *metrics) {
	x.histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", &m.ttft)
	x.histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &m.itl)
	x.histogram("request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", &m.tpot)
	x.histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &m.e2e)
	x.histogram("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", &m.decode)
	x.histogram("request_prompt_tokens", "Number of prefill tokens processed.", &m.promptTokens)
	x.histogram("request_generation_tokens", "Number of generation tokens processed.", &m.generationTokens)
	x.histogram("request_params_max_tokens", "Histogram of the max_tokens request parameter.", &m.maxTokens)
	x.histogram("request_params_n", "Histogram of the n request parameter.", &m.choices)
}

// config writes vllm:cache_config_info, whose labels are the cache's configuration.
func (x *exposition) config(c *Config) {
	name := "vllm:cache_config_info"
	x.family(name, "gauge", "Information of the LLMEngine CacheConfig")
	caching := "False"
	if c.Engine.PrefixCaching {
		caching = "True"
	}
	// vLLM's number includes the one block that stands for no block.
	x.sample(name, fmt.Sprintf(`block_size="%d",cache_dtype="auto",enable_prefix_caching="%s",engine="0",num_gpu_blocks="%d",`+
		`num_gpu_blocks_override="None",sliding_window="None"`, c.Engine.BlockTokens, caching, c.Engine.NumBlocks+1), 1)
}

func (x *exposition) gauge(name, help string, v float64) {
	x.family("vllm:"+name, "gauge", help)
	x.sample("vllm:"+name, x.own, v)
}

func (x *exposition) counter(name, help string, v int64) {
	name = "vllm:" + name + "_total"
	x.family(name, "counter", help)
	x.sample(name, x.own, float64(v))
}

// value is a sample whose label has the given value.
type value struct {
	label string
	v     float64
}

func (x *exposition) labelled(name, kind, help, label string, values ...value) {
	name = "vllm:" + name
	if kind == "counter" {
		name += "_total"
	}
	x.family(name, kind, help)
	for _, v := range values {
		x.sample(name, x.with(label, v.label), v.v)
	}
}

func (x *exposition) histogram(name, help string, h *histogram) {
	name = "vllm:" + name
	x.family(name, "histogram", help)
	bucket, total := name+"_bucket", uint64(0)
	for i, bound := range h.bounds {
		total += h.counts[i]
		x.sample(bucket, x.with("le", number(bound)), float64(total))
	}
	total += h.counts[len(h.bounds)]
	x.sample(bucket, x.with("le", "+Inf"), float64(total))
	x.sample(name+"_count", x.own, float64(total))
	x.sample(name+"_sum", x.own, h.sum)
}

func (x *exposition) family(name, kind, help string) {
	x.buf = fmt.Appendf(x.buf, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (x *exposition) sample(name, labels string, v float64) {
	x.buf = append(x.buf, name...)
	if labels != "" {
		x.buf = append(append(append(x.buf, '{'), labels...), '}')
	}
	x.buf = append(append(append(x.buf, ' '), number(v)...), '\n')
}

// with returns the engine's labels and one more, in alphabetical order.
func (x *exposition) with(name, value string) string {
	label := name + `="` + value + `"`
	head, tail, _ := strings.Cut(x.own, ",")
	if name < "model_name" {
		return head + "," + label + "," + tail
	}
	return x.own + "," + label
}

// labelValue escapes a label's value.
func labelValue(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(s)
}

// number formats a value as prometheus_client's floatToGoString does: Python's repr, but
// from a million on in Go's exponent form. Reading it gives the very same float64.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	case v != 0 && (math.Abs(v) < 1e-4 || math.Abs(v) >= 1e16):
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	dot := strings.IndexByte(s, '.')
	if dot < 0 {
		dot = len(s)
		s += ".0"
	}
	if v <= 0 || dot <= 6 {
		return s
	}
	mantissa := strings.TrimRight(s[:1]+"."+s[1:dot]+s[dot+1:], "0.")
	return fmt.Sprintf("%se+%02d", mantissa, dot-1)
}
