package upstream

import (
	"bytes"
	"encoding/json"

	"kvasir/internal/mono"
	"kvasir/selection/signal"
	"kvasir/upstream/exposition"
)

// SGLang returns the dialect of SGLang (python/sglang/srt/observability/
// metrics_collector.py and entrypoints/v1_loads.py). Its metrics page is served with
// --enable-metrics only, its load pages always.
//
// On the metrics page every scheduler process may write series of its own (labels
// dp_rank, pp_rank and tp_rank). The processes of one data-parallel rank say the same,
// so of each rank the one with the lowest pp_rank and tp_rank counts. That isn't always
// a tp_rank of 0: with data-parallel attention the ranks are slices of one
// tensor-parallel group. With priority scheduling the gauges have a series for each
// priority too, and priority="" is their total. Counters of tokens are the HTTP
// process's, by other labels, and are summed. token_usage is a share from 0 to 1 in
// which pages that are only cached count as free. Where a page's size isn't told, the
// capacity is in tokens.
//
// The gauges are refreshed every 40 decode steps, the load pages always: /v1/loads by
// rank and with the input that waits for prefill, and before it was introduced /get_load
// with counts of calls.
//
// cache_salt and extra_key are joined with nothing between them to the key of the radix
// tree (entrypoints/openai/serving_base.py), so salts keep clients apart whatever extra_key
// they send only where all have the same length.
//
// Unless SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION is off, /health generates a token.
func SGLang() Dialect {
	return Dialect{
		Name: "sglang", HealthPath: "/health", MetricsPath: "/metrics", ReadLoad: readSGLang, CacheSalt: true,
		GoOn: `"continue_final_message":true,`, // a field of ChatCompletionRequest; it has no add_generation_prompt

		LoadPages: []LoadPage{
			{Path: "/v1/loads?include=core", Read: readSGLangLoads},
			{Path: "/get_load", Read: readSGLangGetLoad},
		},
	}
}

func sglangNumber(name []byte) (n number, spelling uint8) {
	name, ok := cutPrefix(name, "sglang")
	if !ok {
		return unwanted, 0
	}
	switch string(name) {
	case "num_running_reqs":
		return running, 0
	case "num_queue_reqs":
		return waiting, 0
	case "token_usage":
		return kvUsage, 0
	case "num_pages":
		return kvBlocks, 0
	case "max_total_num_tokens":
		return kvBlocks, 1
	case "page_size":
		return blockTokens, 0
	}
	name, spelling = cutTotal(name)
	switch string(name) {
	case "prompt_tokens":
		return prefixQueries, spelling
	case "cached_tokens":
		return prefixHits, spelling
	case "generation_tokens":
		return generated, spelling
	case "num_retracted_requests":
		return preemptions, spelling
	}
	return unwanted, 0
}

func readSGLang(page Page, at mono.Time) (signal.Load, Report) {
	var room [32]sample
	t := tally{samples: room[:0]}
	s := exposition.NewScanner(page.Body, func(name []byte) bool {
		n, _ := sglangNumber(name)
		return n != unwanted
	})
	for s.Scan() {
		n, spelling := sglangNumber(s.Name())
		if p, _ := s.Label("priority"); p != "" && !n.counter() {
			continue // a part of the total under priority=""
		}
		t.report.Samples++
		v := sample{number: n, spelling: spelling, rank: rankLabel(s, "dp_rank", noRank), value: s.Value()}
		v.shard = sglangShard(s)
		switch n {
		case kvUsage:
			t.add(v, 0, 1)
		case blockTokens:
			t.add(v, 1, countMax)
		default:
			t.add(v, 0, countMax)
		}
	}
	t.report.BadLines = s.Bad()
	l, r := t.load(at)
	sglangCapacity(&l, &t)
	return l, r
}

// sglangShard orders the processes of a rank: by pipeline stage, then within it.
func sglangShard(s *exposition.Scanner) int32 {
	const most = 1<<15 - 1
	return min(rankLabel(s, "pp_rank", 0), most)<<16 | min(rankLabel(s, "tp_rank", 0), most)
}

// sglangCapacity puts the size of the cache in pages, or where either the pages or their
// size aren't told in tokens.
func sglangCapacity(l *signal.Load, t *tally) {
	inPages := false
	for _, s := range t.samples {
		inPages = inPages || s.number == kvBlocks && s.spelling == 0
	}
	switch {
	case !l.KVBlocks.Known:
		l.BlockTokens = signal.Gauge{}
	case inPages && !l.BlockTokens.Known:
		l.KVBlocks = signal.Gauge{}
	case !inPages && l.BlockTokens.Known:
		l.KVBlocks.Value = float64(int64(l.KVBlocks.Value / l.BlockTokens.Value))
	case !inPages:
		l.BlockTokens = signal.Known(1, l.KVBlocks.At)
	}
}

// sglangRank is what /v1/loads says of a rank in its section core.
type sglangRank struct {
	Rank          jsonNumber `json:"dp_rank"`
	Running       jsonNumber `json:"num_running_reqs"`
	Waiting       jsonNumber `json:"num_waiting_reqs"`
	WaitingTokens jsonNumber `json:"num_waiting_uncached_tokens"`
	Usage         jsonNumber `json:"token_usage"`
	Capacity      jsonNumber `json:"max_total_num_tokens"`
}

func readSGLangLoads(page Page, at mono.Time) (signal.Load, Report) {
	var answer struct {
		Loads []sglangRank `json:"loads"`
	}
	if err := json.Unmarshal(page.Body, &answer); err != nil {
		return unreadable()
	}
	var t tally
	for i := range answer.Loads {
		r := &answer.Loads[i]
		rank := r.Rank.rank()
		t.addJSON(running, rank, r.Running, countMax)
		t.addJSON(waiting, rank, r.Waiting, countMax)
		t.addJSON(waitingTokens, rank, r.WaitingTokens, countMax)
		t.addJSON(kvUsage, rank, r.Usage, 1)
		t.addJSON(kvBlocks, rank, r.Capacity, countMax)
	}
	l, report := t.load(at)
	if l.KVBlocks.Known {
		l.BlockTokens = signal.Known(1, at)
	}
	return l, report
}

// readSGLangGetLoad reads /get_load, in which the calls that wait are part of num_reqs.
func readSGLangGetLoad(page Page, at mono.Time) (signal.Load, Report) {
	var ranks []struct {
		Rank    jsonNumber `json:"dp_rank"`
		Calls   jsonNumber `json:"num_reqs"`
		Waiting jsonNumber `json:"num_waiting_reqs"`
	}
	if err := json.Unmarshal(page.Body, &ranks); err != nil {
		return unreadable()
	}
	var t tally
	for i := range ranks {
		r := &ranks[i]
		rank := r.Rank.rank()
		t.addJSON(waiting, rank, r.Waiting, countMax)
		if r.Waiting.usable() {
			r.Calls.value -= r.Waiting.value
			t.addJSON(running, rank, r.Calls, countMax)
		}
	}
	return t.load(at)
}

// unreadable is what comes of a page that should be JSON and isn't.
func unreadable() (signal.Load, Report) {
	l := signal.Load{}
	return l, Report{BadLines: 1, Missing: missing(&l)}
}

// jsonNumber is a number that may be absent or null, or may be no number, which doesn't
// spoil the rest of the page.
type jsonNumber struct {
	value float64
	state jsonState
}

type jsonState uint8

const (
	jsonAbsent jsonState = iota
	jsonIsNumber
	jsonIsOther
)

// UnmarshalJSON never fails.
func (n *jsonNumber) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	n.state = jsonIsNumber
	if json.Unmarshal(text, &n.value) != nil {
		*n = jsonNumber{state: jsonIsOther}
	}
	return nil
}

func (n jsonNumber) usable() bool {
	return n.state == jsonIsNumber && n.value >= 0 && n.value <= countMax
}

// rank returns the number as a data-parallel rank.
func (n jsonNumber) rank() int32 {
	if n.state != jsonIsNumber || n.value < 0 || n.value > 1<<20 || n.value != float64(int32(n.value)) {
		return noRank
	}
	return int32(n.value)
}

// addJSON takes a number from 0 to most, unless it is absent.
func (t *tally) addJSON(n number, rank int32, v jsonNumber, most float64) {
	switch v.state {
	case jsonIsNumber:
		t.report.Samples++
		t.add(sample{number: n, rank: rank, value: v.value}, 0, most)
	case jsonIsOther:
		t.report.Samples++
		t.refuse(n, 0)
	}
}
