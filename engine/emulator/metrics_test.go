package emulator

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"kvasir/engine"
	"kvasir/engine/tokenizer"
	"kvasir/internal/mono"
)

// series reads the text format: value by name and labels.
func series(t testing.TB, text string) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	family, kind := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			family, _, _ = strings.Cut(rest, " ")
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			if kind, ok = strings.CutPrefix(rest, family+" "); !ok {
				t.Fatalf("%q does not follow its HELP", line)
			}
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		name, _, _ := strings.Cut(line[:at], "{")
		if name != family && !(kind == "histogram" && slices.Contains([]string{"_bucket", "_count", "_sum"}, strings.TrimPrefix(name, family))) {
			t.Fatalf("%q is in family %s", line, family)
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := got[line[:at]]; twice {
			t.Fatalf("%q comes twice", line[:at])
		}
		got[line[:at]] = v
	}
	return got
}

func TestMetrics_AreThereBeforeTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		_, text := f.get("/metrics")
		golden(t, "metrics_idle.txt", text)
		r, err := f.client.Get("http://" + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if got := r.Header.Get("Content-Type"); got != "text/plain; version=1.0.0; charset=utf-8" {
			t.Error(got)
		}
	})
}

// The bytes are those that prometheus_client itself writes (testdata/write_prometheus_client.py).
func TestExposition_WritesPrometheusClientsBytes(t *testing.T) {
	views := make([]view, 2)
	for i := range views {
		views[i].metrics.init(100)
		views[i].asleep = 2
	}
	a, b := &views[0], &views[1]
	a.stats.Running, a.stats.KVUsage, a.stats.PrefixQueries, a.stats.Preemptions = 3, 0.30000000000000004, 1234567, 2
	a.stats.PromptTokens, a.metrics.cachedTokens, a.stats.Finished[engine.Stop] = 999999, 16, 5
	b.stats.Waiting, b.stats.PrefixHits, b.stats.GenerationTokens, b.stats.Finished[engine.Abort] = 7, 1000000, 123456789012, 1
	for _, v := range []float64{0.001, 0.3, 0.30000001, 3000} {
		a.metrics.ttft.observe(v)
	}
	for _, v := range []float64{1, 9, 20000} {
		b.metrics.iterationTokens.observe(v)
	}
	x := &exposition{model: labelValue("a\"b\\c\nd"), ranks: views, created: number(1796002998.5741081)}
	x.scheduler()
	x.counters()
	x.lengths()
	x.latencies()
	want, err := os.ReadFile("testdata/prometheus_client.txt")
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(string(x.buf), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(wanted)) {
		if got[i] != wanted[i] {
			t.Fatalf("line %d: %s\nwant %s", i+1, got[i], wanted[i])
		}
	}
	if len(got) != len(wanted) {
		t.Errorf("%d lines, want %d", len(got), len(wanted))
	}
	x.buf, x.created = nil, ""
	x.counters()
	x.lengths()
	if strings.Contains(string(x.buf), "_created") {
		t.Error("hidden families are shown")
	}
}

func TestMetrics_AreTheEnginesStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.Engine.MaxSeqs = 2
		f := start(t, c)
		const own = `{engine="0",model_name="tiny"}`
		for i := range 3 {
			go func() {
				_, _ = f.stream(chatBody(strings.Repeat("a prompt that is shared ", 20)+fmt.Sprint(i), `,"max_tokens":100,"ignore_eos":true,"stream":true`))
			}()
		}
		time.Sleep(300 * time.Millisecond)
		_, text := f.get("/metrics")
		got, s := series(t, text), f.server.Stats()
		for name, want := range map[string]float64{
			"vllm:num_requests_running" + own: 2,
			"vllm:num_requests_waiting" + own: 1,
			`vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"}`: 1,
			"vllm:kv_cache_usage_perc" + own:               s.KVUsage,
			"vllm:prompt_tokens_total" + own:               float64(s.PromptTokens),
			"vllm:generation_tokens_total" + own:           float64(s.GenerationTokens),
			"vllm:time_to_first_token_seconds_count" + own: 2,
			"vllm:e2e_request_latency_seconds_count" + own: 0,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v, want %v", name, v, want)
			}
		}
		if s.KVUsage == 0 || s.GenerationTokens == 0 {
			t.Fatalf("%+v", s)
		}
		time.Sleep(time.Minute)
		_, text = f.get("/metrics")
		got, s = series(t, text), f.server.Stats()
		for name, want := range map[string]float64{
			"vllm:num_requests_running" + own:                                                         0,
			"vllm:prefix_cache_queries_total" + own:                                                   float64(s.PrefixQueries),
			"vllm:prefix_cache_hits_total" + own:                                                      float64(s.PrefixHits),
			"vllm:prompt_tokens_cached_total" + own:                                                   float64(s.PrefixHits),
			`vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_compute"}`: float64(s.PromptTokens - s.PrefixHits),
			`vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}`:       3,
			"vllm:generation_tokens_total" + own:                                                      300,
			"vllm:time_to_first_token_seconds_count" + own:                                            3,
			"vllm:inter_token_latency_seconds_count" + own:                                            297,
			"vllm:request_time_per_output_token_seconds_count" + own:                                  3,
			"vllm:request_generation_tokens_sum" + own:                                                300,
			`vllm:request_generation_tokens_bucket{engine="0",le="100.0",model_name="tiny"}`:          3,
			`vllm:request_generation_tokens_bucket{engine="0",le="50.0",model_name="tiny"}`:           0,
			`vllm:request_params_max_tokens_bucket{engine="0",le="100.0",model_name="tiny"}`:          3,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v, want %v", name, v, want)
			}
		}
		if s.PrefixHits == 0 {
			t.Error("no prompt shared anything")
		}
		checkHistograms(t, got)
	})
}

// checkHistograms: buckets never fall, and the last one is the count.
func checkHistograms(t *testing.T, got map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		base, ok := strings.CutSuffix(name, `_count{engine="0",model_name="tiny"}`)
		if !ok {
			continue
		}
		var values []float64
		bound := func(series string) float64 {
			_, rest, _ := strings.Cut(series, `le="`)
			text, _, _ := strings.Cut(rest, `"`)
			v, _ := strconv.ParseFloat(text, 64)
			return v
		}
		buckets := slices.DeleteFunc(slices.Collect(maps.Keys(got)), func(s string) bool { return !strings.HasPrefix(s, base+`_bucket{engine="0",`) })
		slices.SortFunc(buckets, func(a, b string) int { return int(math.Copysign(1, bound(a)-bound(b))) })
		for _, b := range buckets {
			values = append(values, got[b])
		}
		if len(values) < 5 || !slices.IsSorted(values) || values[len(values)-1] != got[name] {
			t.Errorf("%s: buckets %v, count %v", base, values, got[name])
		}
	}
}

// A scrape at t shows the step that ends at t, and nothing that arrived since.
func TestMetrics_AreThoseOfTheLastStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		go func() { _, _ = f.stream(chatBody("x", `,"max_tokens":500,"ignore_eos":true,"stream":true`)) }()
		time.Sleep(100 * time.Millisecond)
		before := f.server.Stats()
		go func() { _, _ = f.stream(chatBody("y", `,"max_tokens":500,"ignore_eos":true,"stream":true`)) }()
		synctest.Wait()
		_, text := f.get("/metrics")
		if got := series(t, text); got[`vllm:num_requests_running{engine="0",model_name="tiny"}`] != 1 || f.server.Stats() != before {
			t.Error("a call that arrived after the last step is in the metrics")
		}
		time.Sleep(time.Minute)
	})
}

// A command that is taken late, when steps have ended that Run has not heard of, comes after
// them: it sees what they gave.
func TestTake_EndsTheStepsThatEndByThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(testConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		s.clock.epoch = time.Now()
		if err := s.ranks[0].engine.Submit(0, engine.Request{ID: 1, PromptTokens: 100, OutputTokens: 50}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			time.Sleep(20 * time.Millisecond)
			s.take(func(now mono.Time) {
				if next, ok := s.ranks[0].engine.Next(); !ok || next <= now {
					t.Fatalf("at %v a step that ends at %v has not been ended", now.Duration(), next.Duration())
				}
			})
		}
		if got := s.Stats(); got.Steps < 10 || got != s.ranks[0].engine.Stats() {
			t.Errorf("%+v", got)
		}
	})
}

func TestNumber_RoundTripsAndLooksLikePython(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 3: "3.0", 0.3: "0.3", 1234567: "1.234567e+06", 1e6: "1e+06", 999999: "999999.0", 2560: "2560.0", 0.001: "0.001",
		1e-5: "1e-05", 1.5e300: "1.5e+300", 1796002998.5741081: "1.7960029985741081e+09", math.Inf(1): "+Inf", math.Inf(-1): "-Inf", -2.5: "-2.5",
		20000000: "2e+07", 1e15: "1e+15",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
	if number(math.NaN()) != "NaN" {
		t.Error(number(math.NaN()))
	}
	rapid.Check(t, func(t *rapid.T) {
		v := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		if rapid.Bool().Draw(t, "small") {
			v = rapid.Float64Range(-1e8, 1e8).Draw(t, "v")
		}
		got, err := strconv.ParseFloat(number(v), 64)
		if err != nil || got != v && !(math.IsNaN(got) && math.IsNaN(v)) {
			t.Fatalf("%v is written %s and read %v", v, number(v), got)
		}
	})
}

func TestExposition_EscapesTheModelsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.Models = []string{"a\"b\\c\nd"}
		f := start(t, c)
		if _, text := f.get("/metrics"); !strings.Contains(text, `vllm:num_requests_running{engine="0",model_name="a\"b\\c\nd"} 0.0`) {
			t.Error(text)
		}
	})
}

// One event of a stream, which carries one token.
func BenchmarkEvents_Token(b *testing.B) {
	s, err := New(testConfig(b))
	if err != nil {
		b.Fatal(err)
	}
	for route, body := range map[tokenizer.Route]string{
		tokenizer.Chat:      chatBody("x", `,"max_tokens":8000,"ignore_eos":true,"stream":true`),
		tokenizer.Responses: `{"input":"x","max_output_tokens":8000,"ignore_eos":true,"stream":true}`,
		tokenizer.Messages:  `{"model":"tiny","max_tokens":8000,"stream":true,"messages":[{"role":"user","content":"x"}]}`,
	} {
		b.Run(route.Path()[len("/v1/"):], func(b *testing.B) {
			read, err := tokenizer.Read(route, []byte(body), s.limits)
			if err != nil {
				b.Fatal(err)
			}
			g := newGrammar(s.newReply(newCall(read, s.life.Load(), 1), "x-", "id"))
			buf := g.buffer()
			last := read.Items[0].Answer.TextTokens() - 1
			items := []progress{{started: true}}
			b.ReportAllocs()
			for b.Loop() {
				if items[0].tokens++; items[0].tokens == last {
					b.StopTimer()
					g = newGrammar(s.newReply(newCall(read, s.life.Load(), 1), "x-", "id"))
					buf = g.buffer()
					items[0].tokens = 1
					b.StartTimer()
				}
				*buf = (*buf)[:0]
				g.progress(items)
			}
		})
	}
}

func BenchmarkExposition(b *testing.B) {
	views := make([]view, 1)
	views[0].metrics.init(131072)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		x := &exposition{buf: buf[:0], model: "tiny", ranks: views, created: "1.7e+09"}
		x.scheduler()
		x.counters()
		x.lengths()
		x.latencies()
		buf = x.buf
	}
}
