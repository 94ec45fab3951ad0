package upstream

import (
	"slices"
	"testing"

	"kvasir/internal/kvblock"
	"kvasir/selection/signal"
)

// The newest labels count, whatever their order on the page; what cannot be is counted and
// leaves the adapters unknown.
func TestReadVLLM_Adapters(t *testing.T) {
	hashes := func(names ...string) (all []kvblock.Hash) {
		for _, n := range names {
			all = append(all, signal.Adapter(n))
		}
		slices.Sort(all)
		return all
	}
	for _, c := range []struct {
		name, page       string
		slots            int // 0: unknown
		running, waiting []kvblock.Hash
		bad              int
	}{
		{"none", "vllm:num_requests_running 1\n", 0, nil, nil, 0},
		{"as vLLM has it", `vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,chat",waiting_lora_adapters="sql,chat"} 1.7960000005e+09` + "\n",
			4, hashes("sql", "chat"), hashes("sql", "chat"), 0},
		{"the newest, which is idle", `vllm:lora_requests_info{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""} 5` + "\n" +
			`vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 7` + "\n" +
			`vllm:lora_requests_info{max_lora="4",running_lora_adapters="b",waiting_lora_adapters="c"} 6` + "\n", 4, nil, nil, 0},
		{"a name with quotes", `vllm:lora_requests_info{max_lora="1",running_lora_adapters="a\"b",waiting_lora_adapters="c,,d"} 5` + "\n", 1, hashes(`a"b`), hashes("c", "d"), 0},
		{"underscores for colons", `vllm_lora_requests_info{max_lora="2",running_lora_adapters="a",waiting_lora_adapters="b"} 5` + "\n", 2, hashes("a"), hashes("b"), 0},
		{"no slots", `vllm:lora_requests_info{max_lora="0",running_lora_adapters="a",waiting_lora_adapters="b"} 5` + "\n", 0, nil, nil, 1},
		{"slots that are no number", `vllm:lora_requests_info{max_lora="x"} 5` + "\n", 0, nil, nil, 1},
		{"slots that are not told", `vllm:lora_requests_info{running_lora_adapters="a"} 5` + "\n", 0, nil, nil, 1},
		{"no time", `vllm:lora_requests_info{max_lora="2",running_lora_adapters="a",waiting_lora_adapters="b"} NaN` + "\n", 0, nil, nil, 1},
		{"a bad one beside a good one", `vllm:lora_requests_info{max_lora="2",running_lora_adapters="a",waiting_lora_adapters="b"} 0` + "\n" +
			`vllm:lora_requests_info{max_lora="2",running_lora_adapters="c",waiting_lora_adapters=""} 5` + "\n", 2, hashes("c"), nil, 1},
	} {
		load, report := named(t, "vllm").page(c.page)
		a := load.Adapters
		if a.Known() != (c.slots > 0) || a.Slots() != c.slots || !slices.Equal(a.Running().Named(), c.running) || !slices.Equal(a.Waiting().Named(), c.waiting) {
			t.Errorf("%s: %v, %d slots, running %x, waiting %x", c.name, a.Known(), a.Slots(), a.Running().Named(), a.Waiting().Named())
		}
		if a.Known() && a.At != at {
			t.Errorf("%s: true at %d, want %d", c.name, a.At, at)
		}
		if report.BadValues != c.bad {
			t.Errorf("%s: %d bad values, want %d", c.name, report.BadValues, c.bad)
		}
	}
}
