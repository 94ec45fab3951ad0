package upstream

import (
	"os"
	"slices"
	"strings"
	"testing"

	"kvasir/internal/mono"
	"kvasir/selection/signal"
)

const at = mono.Time(42)

// want is a Load's values; nil is unknown.
type want struct {
	running, waiting, usage, blocks, tokens, queries, hits, started *float64
	generated, preemptions, waitingTokens                           *float64
}

func diff(t *testing.T, l signal.Load, w want) {
	t.Helper()
	for _, c := range []struct {
		name string
		got  signal.Gauge
		want *float64
	}{
		{"running", l.Running, w.running}, {"waiting", l.Waiting, w.waiting}, {"usage", l.KVUsage, w.usage},
		{"blocks", l.KVBlocks, w.blocks}, {"block tokens", l.BlockTokens, w.tokens},
		{"queries", l.PrefixQueries, w.queries}, {"hits", l.PrefixHits, w.hits}, {"started", l.Started, w.started},
		{"generated", l.Generated, w.generated}, {"preemptions", l.Preemptions, w.preemptions},
		{"waiting tokens", l.WaitingTokens, w.waitingTokens},
	} {
		switch {
		case c.want == nil && c.got != signal.Gauge{}:
			t.Errorf("%s: %+v, want unknown", c.name, c.got)
		case c.want != nil && c.got != signal.Known(*c.want, at):
			t.Errorf("%s: %+v, want %v at %d", c.name, c.got, *c.want, at)
		}
	}
}

func TestReadVLLM(t *testing.T) {
	for _, c := range []struct {
		name, page string
		want       want
		report     Report
	}{
		{name: "renamed gauge, new form",
			page:   "vllm:num_requests_running{engine=\"0\"} 3.0\nvllm:num_requests_waiting{engine=\"0\"} 2.0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.98\n",
			want:   want{running: new(3.0), waiting: new(2.0), usage: new(0.98)},
			report: Report{Samples: 3}},
		{name: "renamed gauge, old form",
			page:   "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc{model_name=\"m\"} 0.98\n",
			want:   want{running: new(0.0), waiting: new(0.0), usage: new(0.98)},
			report: Report{Samples: 3}},
		{name: "renamed gauge, both",
			page:   "vllm:gpu_cache_usage_perc 0.1\nvllm:kv_cache_usage_perc 0.9\nvllm:gpu_cache_usage_perc 0.1\n",
			want:   want{usage: new(0.9)},
			report: Report{Samples: 3, Missing: []string{"running", "waiting"}}},
		{name: "renamed gauge, the new one unusable",
			page:   "vllm:kv_cache_usage_perc NaN\nvllm:gpu_cache_usage_perc 0.4\n",
			want:   want{usage: new(0.4)},
			report: Report{Samples: 2, BadValues: 1, Missing: []string{"running", "waiting"}}},
		{name: "renamed gauge, neither",
			page:   "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nsglang:token_usage 0.5\n",
			want:   want{running: new(1.0), waiting: new(0.0)},
			report: Report{Samples: 2, Missing: []string{"kv_usage"}}},
		{name: "nothing of it",
			page:   "<!doctype html>\n<p>hello\n",
			report: Report{BadLines: 2, Missing: []string{"running", "waiting", "kv_usage"}}},
		{name: "several engines",
			page: `vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{model_name="m",engine="1"} 50.0
vllm:num_requests_running{engine="0"} 4
vllm:num_requests_running{engine="1"} 7
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:prefix_cache_queries_total{engine="0"} 1e+06
vllm:prefix_cache_queries_total{engine="1"} 5
vllm:prefix_cache_hits_total{engine="0"} 10
vllm:prefix_cache_hits_total{engine="1"} 20
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="512"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="500"} 1.0
`,
			want: want{running: new(11.0), waiting: new(50.0), usage: new(0.5), blocks: new(1010.0), tokens: new(16.0),
				queries: new(1000005.0), hits: new(30.0)},
			report: Report{Samples: 12}},
		{name: "impossible values beside good ones",
			page: `vllm:num_requests_waiting{engine="0"} 5
vllm:num_requests_waiting{engine="1"} NaN
vllm:num_requests_waiting{engine="2"} +Inf
vllm:num_requests_waiting{engine="3"} -1
vllm:num_requests_running{engine="0"} NaN
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 99
vllm:kv_cache_usage_perc{engine="2"} 1.01
process_start_time_seconds -Inf
vllm:num_requests_running{engine="1"} 1e300
`,
			want:   want{waiting: new(5.0), usage: new(0.5)},
			report: Report{Samples: 10, BadValues: 8, Missing: []string{"running"}}},
		{name: "malformed lines beside good ones",
			page: "vllm:num_requests_waiting{engine=\"0} 5\nvllm:num_requests_waiting{engine=\"1\"} 4\nvllm:num_requests_running one\n" +
				"vllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0\n",
			want:   want{running: new(2.0), waiting: new(4.0), usage: new(0.0)},
			report: Report{Samples: 3, BadLines: 2}},
		{name: "counters without _total, OpenMetrics",
			page: "# TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries{model_name=\"m\",engine=\"0\"} 7 # {trace_id=\"t\"} 1.0 1.5\n" +
				"vllm:prefix_cache_hits 3 1520879607.789\nvllm:prefix_cache_hits_created 1.7e9\nvllm:num_requests_running 1\nvllm:num_requests_waiting 0\n" +
				"vllm:kv_cache_usage_perc 1\n# EOF\nvllm:num_requests_running 9\n",
			want:   want{running: new(1.0), waiting: new(0.0), usage: new(1.0), queries: new(7.0), hits: new(3.0)},
			report: Report{Samples: 5}},
		{name: "counters of old versions, and precedence",
			page: "vllm:gpu_prefix_cache_queries_total 5\nvllm:gpu_prefix_cache_hits_total 4\nvllm:prefix_cache_hits 3\nvllm:prefix_cache_hits_total 2\n",
			want: want{queries: new(5.0), hits: new(2.0)},
			report: Report{Samples: 4,
				Missing: []string{"running", "waiting", "kv_usage"}}},
		{name: "cache configuration not known yet",
			page:   "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1.0\n",
			want:   want{tokens: new(16.0)},
			report: Report{Samples: 1, Missing: []string{"running", "waiting", "kv_usage"}}},
		{name: "cache configuration that can't be",
			page:   "vllm:cache_config_info{block_size=\"sixteen\",num_gpu_blocks=\"0\"} 1.0\nvllm:cache_config_info{engine=\"1\"} 1.0\n",
			report: Report{Samples: 2, BadValues: 1, Missing: []string{"running", "waiting", "kv_usage"}}},
		{name: "block sizes that differ",
			page:   "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1\"} 1.0\nvllm:cache_config_info{block_size=\"32\",num_gpu_blocks=\"2\"} 1.0\n",
			want:   want{blocks: new(1.0)},
			report: Report{Samples: 2, BadValues: 1, Missing: []string{"running", "waiting", "kv_usage"}}},
		{name: "the newest process start",
			page:   "process_start_time_seconds{pid=\"1\"} 1.796e+09\nprocess_start_time_seconds{pid=\"2\"} 1.7960029985741081e+09\nprocess_start_time_seconds{pid=\"3\"} 0\n",
			want:   want{started: new(1.7960029985741081e+09)},
			report: Report{Samples: 3, BadValues: 1, Missing: []string{"running", "waiting", "kv_usage"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			load, report := VLLM().ReadLoad(Page{Body: []byte(c.page)}, at)
			diff(t, load, c.want)
			if report.Samples != c.report.Samples || report.BadLines != c.report.BadLines ||
				report.BadValues != c.report.BadValues || !slices.Equal(report.Missing, c.report.Missing) {
				t.Errorf("report %+v, want %+v", report, c.report)
			}
			if clean := c.report.BadLines == 0 && c.report.BadValues == 0 && c.report.Missing == nil; report.Clean() != clean {
				t.Errorf("clean: %v of %+v", report.Clean(), report)
			}
		})
	}
}

// TestReadVLLM_WholePage reads a page as vLLM serves it, histograms and all, alone and
// within 5 MB of other series.
func TestReadVLLM_WholePage(t *testing.T) {
	page, err := os.ReadFile("testdata/vllm.txt")
	if err != nil {
		t.Fatal(err)
	}
	w := want{running: new(3.0), waiting: new(12.0), usage: new(0.4), blocks: new(511.0), tokens: new(16.0),
		queries: new(1.234567e+06), hits: new(700000.0), started: new(1.79600299e+09),
		generated: new(54321.0), preemptions: new(4.0)}
	load, report := VLLM().ReadLoad(Page{Body: page}, at)
	diff(t, load, w)
	if !report.Clean() {
		t.Errorf("report %+v", report)
	}
	filler := strings.Repeat("vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.5\",model_name=\"tiny\"} 1.0\n", 5<<20/85)
	load, _ = VLLM().ReadLoad(Page{Body: []byte(filler + string(page) + filler)}, at)
	diff(t, load, w)
}

func TestLookup(t *testing.T) {
	d, err := Lookup("vllm")
	if err != nil || d.Name != "vllm" || d.MetricsPath != "/metrics" || d.ReadLoad == nil || d.LoadPages != nil {
		t.Errorf("%+v, %v", d, err)
	}
	for _, name := range Names() {
		if d, err := Lookup(name); err != nil || d.Name != name || d.HealthPath != "/health" || d.ReadLoad == nil {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	_, err = Lookup("vlm")
	if err == nil || !strings.Contains(err.Error(), `"vlm"`) || !strings.Contains(err.Error(), "allowed: vllm, sglang, llamacpp") {
		t.Errorf("an unknown name: %v", err)
	}
}

func BenchmarkReadVLLM(b *testing.B) {
	page, err := os.ReadFile("testdata/vllm.txt")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if l, _ := VLLM().ReadLoad(Page{Body: page}, at); !l.Running.Known {
			b.Fatal("unknown")
		}
	}
}
