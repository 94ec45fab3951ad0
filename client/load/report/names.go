package report

// definition says what a quantity is and what other tools call it. Two names have two
// meanings among them: "inter-token latency" is a mean per request to some and a gap between
// outputs to others, and "time per output token" has the first token in it or not.
type definition struct {
	key, formula string
	from         string      // what it is counted from, where that is told apart
	names        [][2]string // tool and its name
}

var definitions = [...]definition{
	{"ttft", "first content − send: a role, an empty block or a ping is not content", both, [][2]string{
		{"vllm", "ttft"}, {"sglang", "ttft"}, {"inference-perf", "time_to_first_token"}, {"aiperf", "time_to_first_token"}, {"guidellm", "time_to_first_token_ms"},
	}},
	{"tpot", "(e2el − ttft) / (output tokens − 1), one value a call of two tokens or more", "", [][2]string{
		{"vllm", "tpot"}, {"sglang", "tpot"}, {"inference-perf", "time_per_output_token"}, {"aiperf", "inter_token_latency"}, {"guidellm", "inter_token_latency_ms"}, {"aiconfigurator", "tpot"},
	}},
	{"itl", "gap between consecutive streamed outputs with content, pooled over calls: an output may carry several tokens", "", [][2]string{
		{"vllm", "itl"}, {"sglang", "itl"}, {"inference-perf", "inter_token_latency"}, {"aiperf", "inter_chunk_latency"},
	}},
	{"e2el", "end of the answer − send", both, [][2]string{
		{"vllm", "e2el"}, {"sglang", "e2e_latency"}, {"inference-perf", "request_latency"}, {"aiperf", "request_latency"}, {"guidellm", "request_latency"},
	}},
	{"ntpot", "e2el / output tokens, the first one included (normalized latency)", both, [][2]string{
		{"inference-perf", "normalized_time_per_output_token"}, {"guidellm", "time_per_output_token_ms"}, {"aiconfigurator", "inclusive-tpot"},
	}},
}

const both = "keys without a prefix count from the actual send, as vLLM's do; intended_… from when the call should have been sent"

// definitionsObject is the JSON of the definitions.
func definitionsObject() *object {
	all := &object{}
	for _, d := range definitions {
		one := &object{}
		one.add("formula", d.formula)
		if d.from != "" {
			one.add("from", d.from)
		}
		names := &object{}
		for _, n := range d.names {
			names.add(n[0], n[1])
		}
		one.add("called", names)
		all.add(d.key, one)
	}
	return all
}
