package upstream

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"kvasir/selection/signal"
)

// reader is a page's reader, with the ways in which its dialect writes a page.
type reader struct {
	name string
	read Reader
}

func readers() []reader {
	var all []reader
	for _, d := range catalog() {
		all = append(all, reader{d.Name, d.ReadLoad})
		for _, p := range d.LoadPages {
			all = append(all, reader{d.Name + " " + p.Path, p.Read})
		}
	}
	return all
}

func (r reader) page(text string) (signal.Load, Report) { return r.read(Page{Body: []byte(text)}, at) }

func named(t *testing.T, name string) reader {
	t.Helper()
	for _, r := range readers() {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("no reader %q", name)
	return reader{}
}

// Field case F43: a number under any of its names is read, and one that isn't there, or
// that another engine writes, is unknown and missing, not zero.
func TestF43_RenamedIsReadAndAbsentIsUnknown(t *testing.T) {
	for _, c := range []struct {
		reader, page string
		usage        *float64
		missing      string // of running, waiting and kv_usage
	}{
		{"vllm", "vllm:kv_cache_usage_perc 0.98\nvllm:num_requests_running 1\nvllm:num_requests_waiting 0\n", new(0.98), ""},
		{"vllm", "vllm:gpu_cache_usage_perc 0.98\nvllm:num_requests_running 1\nvllm:num_requests_waiting 0\n", new(0.98), ""},
		{"vllm", "vllm_kv_cache_usage_perc 0.98\nvllm_num_requests_running 1\nvllm_num_requests_waiting 0\n", new(0.98), ""},
		{"vllm", "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.1\n", new(0.5), "running waiting"},
		{"vllm", "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n", nil, "kv_usage"},
		{"vllm", "sglang:token_usage 0.98\nsglang:num_running_reqs 1\n", nil, "running waiting kv_usage"},
		{"vllm", "vllmkv_cache_usage_perc 0.98\nvllm:kv_cache_usage 0.98\nvllm:kv_cache_usage_perc_total 0.98\nxvllm:kv_cache_usage_perc 1\nvllm: 1\nvllm 1\n", nil, "running waiting kv_usage"},
		{"sglang", "sglang:token_usage{tp_rank=\"0\"} 0.98\nsglang:num_running_reqs 1\nsglang:num_queue_reqs 0\n", new(0.98), ""},
		{"sglang", "sglang_token_usage 0.98\nsglang_num_running_reqs 1\nsglang_num_queue_reqs 0\n", new(0.98), ""},
		{"sglang", "sglang:num_running_reqs 1\nsglang:num_queue_reqs 0\nsglang:full_token_usage 0.9\n", nil, "kv_usage"},
		{"sglang", "vllm:kv_cache_usage_perc 0.98\nvllm:num_requests_running 1\n", nil, "running waiting kv_usage"},
		{"sglang /v1/loads?include=core", `{"loads":[{"dp_rank":0,"num_running_reqs":1,"num_waiting_reqs":0,"token_usage":0.98}]}`, new(0.98), ""},
		{"sglang /v1/loads?include=core", `{"loads":[{"dp_rank":0,"num_running_reqs":1,"num_waiting_reqs":0,"token_usage":null}]}`, nil, "kv_usage"},
		{"sglang /v1/loads?include=core", `{"loads":[{}]}`, nil, "running waiting kv_usage"},
		{"sglang /v1/loads?include=core", `{"loads":[]}`, nil, "running waiting kv_usage"},
		{"sglang /v1/loads?include=core", `{"detail":"Not Found"}`, nil, "running waiting kv_usage"},
		{"sglang /get_load", `[{"dp_rank":0,"num_reqs":1,"num_waiting_reqs":0,"num_tokens":900}]`, nil, "kv_usage"},
		{"sglang /get_load", `[{"dp_rank":0,"num_reqs":1}]`, nil, "running waiting kv_usage"},
		{"llamacpp", "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n", nil, "kv_usage"},
		{"llamacpp", "llamacpp_requests_processing 1\nllamacpp:kv_cache_usage_ratio 0.9\n", nil, "waiting kv_usage"},
		{"llamacpp /slots", `[{"n_ctx":100,"is_processing":true,"n_prompt_tokens_cache":50,"n_prompt_tokens_processed":40,"next_token":[{"n_decoded":8}]}]`, new(0.98), "waiting"},
		{"llamacpp /slots", `[{"n_ctx":100,"is_processing":true,"n_prompt_tokens_cache":50,"n_prompt_tokens_processed":40,"next_token":{"n_decoded":8}}]`, new(0.98), "waiting"},
		{"llamacpp /slots", `[{"n_ctx":100,"is_processing":true,"n_prompt_tokens":98,"n_prompt_tokens_processed":98,"next_token":[{"n_decoded":0}]}]`, nil, "waiting kv_usage"},
		{"llamacpp /slots", `[{"n_ctx":100,"is_processing":true}]`, nil, "waiting kv_usage"},
		{"llamacpp /slots", `[]`, nil, "running waiting kv_usage"},
	} {
		load, report := named(t, c.reader).page(c.page)
		if got := strings.Join(report.Missing, " "); got != c.missing {
			t.Errorf("%s: %q misses %q, want %q", c.reader, c.page, got, c.missing)
		}
		if want := (signal.Gauge{}); c.usage == nil && load.KVUsage != want || c.usage != nil && load.KVUsage != signal.Known(*c.usage, at) {
			t.Errorf("%s: %q: usage %+v", c.reader, c.page, load.KVUsage)
		}
		if report.Clean() != (c.missing == "") {
			t.Errorf("%s: %q: report %+v", c.reader, c.page, report)
		}
	}
}

// Field case F44: several series at one address are summed, or averaged where they are
// shares, each rank is kept, and one impossible number spoils neither the others nor,
// for a counter, the sum.
func TestF44_RanksAreSummedAndKept(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name, reader, page                      string
		running, waiting, usage, max, generated *float64
		ranks                                   []signal.Rank
		bad                                     int
	}{
		{name: "vllm, labels in any order", reader: "vllm", page: `
vllm:num_requests_waiting{engine="0",model_name="a\"b{,}\\"} 0
vllm:num_requests_waiting{model_name="m",engine="1"} 50
vllm:num_requests_running{ engine = "0" } 4
vllm:num_requests_running{engine="1",} 7
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:generation_tokens_total{engine="0"} 100
vllm:generation_tokens_total{engine="1"} 23
`,
			running: new(11.0), waiting: new(50.0), usage: new(0.5), max: new(0.75), generated: new(123.0),
			ranks: []signal.Rank{
				{ID: 0, Running: 4, Waiting: 0, KVUsage: 0.25, Generated: 100},
				{ID: 1, Running: 7, Waiting: 50, KVUsage: 0.75, Generated: 23},
			}},
		{name: "vllm, impossible numbers", reader: "vllm", page: `
vllm:num_requests_waiting{engine="0"} 5
vllm:num_requests_waiting{engine="1"} NaN
vllm:num_requests_waiting{engine="2"} +Inf
vllm:num_requests_running{engine="2"} -1
vllm:num_requests_running{engine="3"} 2
vllm:kv_cache_usage_perc{engine="1"} 0.5
vllm:generation_tokens_total{engine="1"} NaN
vllm:generation_tokens_total{engine="2"} 7
`,
			running: new(2.0), waiting: new(5.0), usage: new(0.5), max: new(0.5), bad: 4,
			ranks: []signal.Rank{
				{ID: 0, Running: nan, Waiting: 5, KVUsage: nan, Generated: nan},
				{ID: 1, Running: nan, Waiting: nan, KVUsage: 0.5, Generated: nan},
				{ID: 2, Running: nan, Waiting: nan, KVUsage: nan, Generated: 7},
				{ID: 3, Running: 2, Waiting: nan, KVUsage: nan, Generated: nan},
			}},
		{name: "vllm, one engine has no ranks", reader: "vllm", page: "vllm:num_requests_waiting{engine=\"0\"} 10\n", waiting: new(10.0)},
		{name: "vllm, one engine of several", reader: "vllm", page: "vllm:num_requests_waiting{engine=\"3\"} 10\n", waiting: new(10.0),
			ranks: []signal.Rank{{ID: 3, Running: nan, Waiting: 10, KVUsage: nan, Generated: nan}}},
		{name: "vllm, an engine twice", reader: "vllm", page: `
vllm:kv_cache_usage_perc{engine="0"} 0.1
vllm:kv_cache_usage_perc{engine="1",pid="7"} 0.4
vllm:kv_cache_usage_perc{engine="1",pid="8"} 1
`, usage: new(0.5), max: new(0.7),
			ranks: []signal.Rank{
				{ID: 0, Running: nan, Waiting: nan, KVUsage: 0.1, Generated: nan},
				{ID: 1, Running: nan, Waiting: nan, KVUsage: 0.7, Generated: nan},
			}},
		{name: "vllm, an engine that is no number", reader: "vllm",
			page:    "vllm:num_requests_waiting{engine=\"a\"} 10\nvllm:num_requests_waiting{engine=\"b\"} 5\nvllm:num_requests_waiting{engine=\"-1\"} 1\n",
			waiting: new(16.0)},
		{name: "sglang, processes of a rank", reader: "sglang", page: `
sglang:num_queue_reqs{dp_rank="1",pp_rank="0",tp_rank="3"} 50
sglang:num_queue_reqs{dp_rank="0",pp_rank="0",tp_rank="1"} 8
sglang:num_queue_reqs{tp_rank="0",pp_rank="1",dp_rank="0"} 9
sglang:num_queue_reqs{dp_rank="0",pp_rank="0",tp_rank="0"} 1
sglang:num_queue_reqs{dp_rank="1",pp_rank="0",tp_rank="2"} NaN
sglang:token_usage{dp_rank="0",pp_rank="0",tp_rank="0"} 0.2
sglang:token_usage{dp_rank="1",pp_rank="0",tp_rank="2"} 0.6
sglang:generation_tokens_total{is_streaming="true"} 5
sglang:generation_tokens_total{is_streaming="false"} 6
`,
			waiting: new(51.0), usage: new(0.4), max: new(0.6), generated: new(11.0), bad: 1,
			ranks: []signal.Rank{
				{ID: 0, Running: nan, Waiting: 1, KVUsage: 0.2, Generated: nan},
				{ID: 1, Running: nan, Waiting: 50, KVUsage: 0.6, Generated: nan},
			}},
		{name: "sglang, stages of a pipeline", reader: "sglang", page: `
sglang:num_queue_reqs{dp_rank="0",pp_rank="1",tp_rank="0"} 9
sglang:num_queue_reqs{dp_rank="0",pp_rank="0",tp_rank="2"} 5
sglang:num_queue_reqs{dp_rank="0",pp_rank="0",tp_rank="3"} 6
`, waiting: new(5.0)},
		{name: "sglang, priorities are parts", reader: "sglang", page: `
sglang:num_running_reqs{priority="",tp_rank="0"} 5
sglang:num_running_reqs{priority="0",tp_rank="0"} 2
sglang:num_running_reqs{priority="None",tp_rank="0"} 3
sglang:generation_tokens_total{priority=""} 5
sglang:generation_tokens_total{priority="7"} 1
`, running: new(5.0), generated: new(6.0)},
		{name: "sglang, a counter lacks a part", reader: "sglang",
			page:    "sglang:generation_tokens_total{is_streaming=\"true\"} 5\nsglang:generation_tokens_total{is_streaming=\"false\"} NaN\nsglang:num_running_reqs 1\n",
			running: new(1.0), bad: 1},
		{name: "sglang, load page", reader: "sglang /v1/loads?include=core",
			page: `{"loads":[{"dp_rank":1,"num_running_reqs":7,"num_waiting_reqs":50,"token_usage":0.6},
				{"token_usage":0.2,"num_waiting_reqs":-1,"dp_rank":0,"num_running_reqs":"four","extra":{"a":[1]}}]}`,
			running: new(7.0), waiting: new(50.0), usage: new(0.4), max: new(0.6), bad: 2,
			ranks: []signal.Rank{
				{ID: 0, Running: nan, Waiting: nan, KVUsage: 0.2, Generated: nan},
				{ID: 1, Running: 7, Waiting: 50, KVUsage: 0.6, Generated: nan},
			}},
		{name: "sglang, old load page", reader: "sglang /get_load",
			page:    `[{"dp_rank":0,"num_reqs":3,"num_waiting_reqs":1},{"dp_rank":1,"num_reqs":2,"num_waiting_reqs":9}]`,
			running: new(2.0), waiting: new(10.0), bad: 1,
			ranks: []signal.Rank{
				{ID: 0, Running: 2, Waiting: 1, KVUsage: nan, Generated: nan},
				{ID: 1, Running: nan, Waiting: 9, KVUsage: nan, Generated: nan},
			}},
		{name: "llamacpp, slots", reader: "llamacpp /slots",
			page: `[{"n_ctx":100,"is_processing":true,"n_prompt_tokens_cache":0,"n_prompt_tokens_processed":40,"next_token":[{"n_decoded":10}]},
				{"n_ctx":100,"is_processing":false,"n_prompt_tokens_cache":90,"n_prompt_tokens_processed":9,"next_token":[{"n_decoded":1}]}]`,
			running: new(1.0), usage: new(0.25), max: new(0.25)},
		{name: "llamacpp, impossible numbers", reader: "llamacpp",
			page: "llamacpp:requests_processing NaN\nllamacpp:requests_deferred -1\nllamacpp:tokens_predicted_total 5\n", generated: new(5.0), bad: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, report := named(t, c.reader).page(c.page)
			for _, g := range []struct {
				name string
				got  signal.Gauge
				want *float64
			}{{"running", l.Running, c.running}, {"waiting", l.Waiting, c.waiting}, {"usage", l.KVUsage, c.usage},
				{"fullest", l.KVUsageMax(), c.max}, {"generated", l.Generated, c.generated}} {
				if g.want == nil && g.got.Known || g.want != nil && g.got != signal.Known(*g.want, at) {
					t.Errorf("%s: %+v", g.name, g.got)
				}
			}
			if report.BadValues != c.bad || report.BadLines != 0 {
				t.Errorf("report %+v", report)
			}
			if l.Ranks.Len() != len(c.ranks) {
				t.Fatalf("ranks %+v", l.Ranks.All())
			}
			for i, r := range l.Ranks.All() {
				w := c.ranks[i]
				if r.ID != w.ID || !same(r.Running, w.Running) || !same(r.Waiting, w.Waiting) || !same(r.KVUsage, w.KVUsage) ||
					!same(r.Generated, w.Generated) || l.Ranks.At != at {
					t.Errorf("rank %+v at %d, want %+v", r, l.Ranks.At, w)
				}
			}
		})
	}
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// Field case F46: a share is from 0 to 1. One from 0 to 100 is refused, not believed and
// not scaled.
func TestF46_ShareAboveOneIsRefused(t *testing.T) {
	for _, c := range []struct{ reader, page string }{
		{"vllm", "vllm:kv_cache_usage_perc %\nvllm:num_requests_running 1\n"},
		{"vllm", "vllm:gpu_cache_usage_perc %\nvllm:num_requests_running 1\n"},
		{"sglang", "sglang:token_usage %\nsglang:num_running_reqs 1\n"},
		{"sglang /v1/loads?include=core", `{"loads":[{"token_usage":%,"num_running_reqs":1}]}`},
	} {
		for text, ok := range map[string]bool{"0": true, "0.99": true, "1": true, "1.0000001": false, "99": false, "100": false, "-0.01": false} {
			l, report := named(t, c.reader).page(strings.Replace(c.page, "%", text, 1))
			if l.KVUsage.Known != ok || (report.BadValues == 0) != ok || l.KVUsage.Value > 1 || !l.Running.Known {
				t.Errorf("%s of %s: %+v, %+v", c.reader, text, l.KVUsage, report)
			}
		}
	}
	// A slot with more in it than it can hold is full.
	l, _ := named(t, "llamacpp /slots").page(
		`[{"n_ctx":100,"is_processing":true,"n_prompt_tokens_cache":50,"n_prompt_tokens_processed":50,"next_token":[{"n_decoded":900}]},{"n_ctx":100,"is_processing":false}]`)
	if l.KVUsage != signal.Known(0.5, at) {
		t.Errorf("a slot that overflowed: %+v", l.KVUsage)
	}
}

// Field case F46: of two sources for one number there is an order, whatever they say.
func TestF46_OfTwoSourcesTheBetterCounts(t *testing.T) {
	engine := signal.Load{Running: signal.Known(9, at), KVUsage: signal.Known(0.99, at), Started: signal.Known(5, at),
		KVBlocks: signal.Known(100, at), BlockTokens: signal.Known(16, at)}
	better := signal.Load{KVUsage: signal.Known(0.01, at), Waiting: signal.Known(3, at), KVBlocks: signal.Known(1600, at), BlockTokens: signal.Known(1, at)}
	l, report := Join(engine, Report{Samples: 2, BadValues: 1, Missing: []string{"waiting"}}, better, Report{Samples: 3, BadLines: 1, Missing: []string{"running"}})
	diff(t, l, want{running: new(9.0), waiting: new(3.0), usage: new(0.01), started: new(5.0), blocks: new(100.0), tokens: new(16.0)})
	if report.Samples != 5 || report.BadValues != 1 || report.BadLines != 1 || report.Missing != nil {
		t.Errorf("report %+v", report)
	}
	better.KVUsage = signal.Gauge{} // unknown is not 0
	engine.KVBlocks, engine.BlockTokens = signal.Gauge{}, signal.Gauge{}
	l, _ = Join(engine, Report{}, better, Report{})
	diff(t, l, want{running: new(9.0), waiting: new(3.0), usage: new(0.99), started: new(5.0), blocks: new(1600.0), tokens: new(1.0)})
}

// Field case F44: of more ranks than are kept all are in the sums, however a page has
// them ordered, and however many there are.
func TestF44_RanksAboveTheBoundAreInTheSums(t *testing.T) {
	const n = 5000
	var page strings.Builder
	for i := range n {
		for _, series := range []string{"num_requests_running", "num_requests_waiting"} {
			fmt.Fprintf(&page, "vllm:%s{engine=\"%d\"} 1\n", series, (i*7919+len(series))%n)
		}
	}
	l, report := VLLM().ReadLoad(Page{Body: []byte(page.String())}, at)
	diff(t, l, want{running: new(float64(n)), waiting: new(float64(n))})
	ranks := l.Ranks.All()
	if report.BadValues != 0 || len(ranks) != signal.MaxRanks {
		t.Fatalf("report %+v, %d ranks", report, len(ranks))
	}
	for i, r := range ranks {
		if r.ID != int32(i) || r.Running != 1 || r.Waiting != 1 {
			t.Errorf("rank %+v at %d", r, i)
		}
	}
}
