package telemetry

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var twoModels = []ModelPools{
	{Model: "llama", Pools: []PoolEndpoints{{Pool: "gpus", Endpoints: []string{"a", "b"}}, {Pool: "overflow", Endpoints: []string{"c"}}}},
	{Model: "embedder", Pools: []PoolEndpoints{{Pool: "cpu", Endpoints: []string{"d"}}}},
}

func newMetrics(t testing.TB) (*prometheus.Registry, *Metrics) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m := New(reg, "broken", "busy")
	m.Configure(twoModels)
	return reg, m
}

// samples returns every sample of the registry's counters and gauges, and of its
// histograms the counts, by name{label="value",…} with labels in order of their names.
func samples(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			got[fmt.Sprintf("%s{%s}", f.GetName(), strings.Join(labels, ","))] = v
		}
	}
	return got
}

func want(t *testing.T, got map[string]float64, name string, v float64) {
	t.Helper()
	if have, ok := got[name]; !ok || have != v {
		t.Errorf("%s = %v (present: %v), want %v", name, have, ok, v)
	}
}

// page scrapes reg over HTTP as a server would. It also parses what came.
func page(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	srv := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := testutil.ScrapeAndCompare(srv.URL, strings.NewReader(""), "kvasir_absent"); err != nil {
		t.Errorf("the page does not parse: %v", err)
	}
	return string(body)
}

func TestSeriesExistFromTheStart(t *testing.T) {
	reg, _ := newMetrics(t)
	got := samples(t, reg)
	for _, m := range twoModels {
		for o := Success; o < outcomes; o++ {
			want(t, got, fmt.Sprintf("kvasir_calls_total{model=%q,outcome=%q,pool=%q}", m.Model, o, noPool), 0)
		}
		for _, p := range m.Pools {
			for o := Success; o < outcomes; o++ {
				want(t, got, fmt.Sprintf("kvasir_calls_total{model=%q,outcome=%q,pool=%q}", m.Model, o, p.Pool), 0)
			}
			for _, e := range p.Endpoints {
				for o := Success; o <= Beaten; o++ {
					want(t, got, fmt.Sprintf("kvasir_attempts_total{endpoint=%q,model=%q,outcome=%q,pool=%q}", e, m.Model, o, p.Pool), 0)
				}
			}
			for _, s := range []string{"time_to_first_token", "inter_token_latency", "time_per_output_token", "e2e_latency", "normalized_latency", "pick_duration"} {
				want(t, got, fmt.Sprintf("kvasir_%s_seconds{model=%q,pool=%q}", s, m.Model, p.Pool), 0)
			}
		}
	}
	want(t, got, `kvasir_calls_total{model="unknown",outcome="caller_fault",pool="none"}`, 0)
	for r := NotRefused + 1; r < refusals; r++ {
		want(t, got, fmt.Sprintf("kvasir_refusals_total{reason=%q}", r), 0)
	}
	for name := range got {
		if strings.Contains(name, "unclassified") || strings.Contains(name, `""`) {
			t.Errorf("%s: a series that never counts anything", name)
		}
	}
}

func TestCallIsCountedOnceInEachSeries(t *testing.T) {
	reg, m := newMetrics(t)
	p := m.Pool("llama", "gpus")
	p.PickTime(300 * time.Nanosecond)
	p.Attempt("a", 0, EndpointFailure, "")
	p.PickTime(200 * time.Nanosecond)
	p.TTFT(200 * time.Millisecond)
	p.ITL(10 * time.Millisecond)
	p.ITL(12 * time.Millisecond)
	p.Attempt("b", 1, Success, "")
	m.Call(&Call{
		Model: "llama", Pool: "gpus", Endpoint: "b", Outcome: Success, Attempts: 2, Stream: true,
		InputTokens: 90, UsageKnown: true, CachedKnown: true, PromptTokens: 100, CachedTokens: 64, OutputTokens: 3,
		TTFT: 200 * time.Millisecond, E2E: 222 * time.Millisecond, DoneMissing: true,
	})
	zero := samples(t, func() *prometheus.Registry { r, _ := newMetrics(t); return r }())
	changed := map[string]float64{}
	for name, v := range samples(t, reg) {
		if v != zero[name] {
			changed[name] = v
		}
	}
	wanted := map[string]float64{
		`kvasir_calls_total{model="llama",outcome="success",pool="gpus"}`:                          1,
		`kvasir_attempts_total{endpoint="a",model="llama",outcome="endpoint_failure",pool="gpus"}`: 1,
		`kvasir_attempts_total{endpoint="b",model="llama",outcome="success",pool="gpus"}`:          1,
		`kvasir_retries_total{model="llama",pool="gpus"}`:                                          1,
		`kvasir_tokens_total{kind="input",model="llama",pool="gpus"}`:                              100,
		`kvasir_tokens_total{kind="output",model="llama",pool="gpus"}`:                             3,
		`kvasir_tokens_total{kind="cached",model="llama",pool="gpus"}`:                             64,
		`kvasir_stream_oddities_total{kind="done_missing"}`:                                        1,
		`kvasir_time_to_first_token_seconds{model="llama",pool="gpus"}`:                            1,
		`kvasir_inter_token_latency_seconds{model="llama",pool="gpus"}`:                            2,
		`kvasir_time_per_output_token_seconds{model="llama",pool="gpus"}`:                          1,
		`kvasir_e2e_latency_seconds{model="llama",pool="gpus"}`:                                    1,
		`kvasir_normalized_latency_seconds{model="llama",pool="gpus"}`:                             1,
		`kvasir_pick_duration_seconds{model="llama",pool="gpus"}`:                                  2,
	}
	for name, v := range wanted {
		want(t, changed, name, v)
		delete(changed, name)
	}
	for name, v := range changed {
		t.Errorf("%s = %v: nobody counted that", name, v)
	}
}

func TestCallsThatDidNotSucceed(t *testing.T) {
	reg, m := newMetrics(t)
	m.Call(&Call{Model: "llama", Outcome: Refused, Refusal: NoEndpoint, E2E: time.Millisecond})
	m.Call(&Call{Outcome: CallerFault, Refusal: UnknownModel})
	m.Call(&Call{Model: "llama", Pool: "gpus", Outcome: ClientGone, Stream: true, UsageKnown: true, OutputTokens: 9, TTFT: time.Second, E2E: 2 * time.Second})
	m.Call(&Call{Model: "llama", Pool: "gpus"})
	got := samples(t, reg)
	want(t, got, `kvasir_calls_total{model="llama",outcome="refused",pool="none"}`, 1)
	want(t, got, `kvasir_calls_total{model="unknown",outcome="caller_fault",pool="none"}`, 1)
	want(t, got, `kvasir_calls_total{model="llama",outcome="client_gone",pool="gpus"}`, 1)
	want(t, got, `kvasir_calls_total{model="llama",outcome="unclassified",pool="gpus"}`, 1)
	want(t, got, `kvasir_refusals_total{reason="no_endpoint"}`, 1)
	want(t, got, `kvasir_refusals_total{reason="unknown_model"}`, 1)
	for _, s := range []string{"time_per_output_token", "e2e_latency", "normalized_latency"} {
		want(t, got, fmt.Sprintf(`kvasir_%s_seconds{model="llama",pool="gpus"}`, s), 0)
	}
	want(t, got, `kvasir_tokens_total{kind="output",model="llama",pool="gpus"}`, 0)
}

func TestTokensWithoutUsageAreEstimatedApart(t *testing.T) {
	reg, m := newMetrics(t)
	m.Call(&Call{Model: "llama", Pool: "gpus", Outcome: Success, Stream: true, InputTokens: 41, OutputTokens: 7, TTFT: time.Second, E2E: 2 * time.Second})
	m.Call(&Call{Model: "llama", Pool: "gpus", Outcome: Success, UsageKnown: true, PromptTokens: -5, OutputTokens: -1, E2E: time.Second})
	got := samples(t, reg)
	want(t, got, `kvasir_tokens_total{kind="input_estimated",model="llama",pool="gpus"}`, 41)
	for _, kind := range []string{"input", "output", "cached"} {
		want(t, got, fmt.Sprintf(`kvasir_tokens_total{kind=%q,model="llama",pool="gpus"}`, kind), 0)
	}
	want(t, got, `kvasir_time_per_output_token_seconds{model="llama",pool="gpus"}`, 0)
	want(t, got, `kvasir_normalized_latency_seconds{model="llama",pool="gpus"}`, 0)
}

// Field case F74: 50,000 calls with random names, outcomes out of range and bytes that
// are no text add a bounded number of series and keep the page small.
func TestRandomNamesMakeNoSeries(t *testing.T) {
	reg, m := newMetrics(t)
	r := rand.New(rand.NewPCG(1, 2))
	name := func() string {
		b := make([]byte, 16+r.IntN(60))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	}
	some := func(known string) string {
		if r.IntN(2) == 0 {
			return known
		}
		return name()
	}
	before := samples(t, reg)
	for range 50_000 {
		model, pool := some("llama"), some("gpus")
		p := m.Pool(model, pool)
		p.TTFT(time.Duration(r.Int64()))
		p.Attempt(some("a"), r.IntN(3), Outcome(r.Uint32()), "")
		m.Oddity(Oddity(r.Uint32()))
		m.Call(&Call{
			ID: name(), Model: model, Pool: pool, Endpoint: name(), Policy: name(), Route: name(),
			Outcome: Outcome(r.Uint32()), Refusal: Refusal(r.Uint32()), Status: r.Int(),
		})
	}
	// What may appear: "refused" and "unclassified" attempts at a known endpoint, every
	// outcome at an unknown one, and "unclassified" calls; each in (llama, gpus) and in
	// (unknown, none), the calls in (llama, none) as well.
	after, allowed := samples(t, reg), 2+2*int(outcomes)+3
	if len(after) > len(before)+allowed {
		maps.DeleteFunc(after, func(name string, _ float64) bool { _, ok := before[name]; return ok })
		t.Errorf("more than %d new series beside %d: %v", allowed, len(before), after)
	}
	if size := len(page(t, reg)); size > 1<<20 {
		t.Errorf("page of %d bytes, want below 1 MiB", size)
	}
}

func TestConfiguredNamesNeedNotBeText(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := New(reg, "broken", "busy")
	m.Configure([]ModelPools{{Model: "a\xffb", Pools: []PoolEndpoints{{Pool: "p\xfe", Endpoints: []string{"\xfd"}}}}})
	m.Pool("a\xffb", "p\xfe").Attempt("\xfd", 0, Success, "")
	want(t, samples(t, reg), "kvasir_attempts_total{endpoint=\"\uFFFD\",model=\"a\uFFFDb\",outcome=\"success\",pool=\"p\uFFFD\"}", 1)
	page(t, reg)
}

func TestNamesFollowPrometheusHabits(t *testing.T) {
	reg, _ := newMetrics(t)
	reg.MustRegister(State(func() Snapshot { return fullSnapshot() }))
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	_, m := newMetrics(t)
	p := m.Pool("llama", "gpus")
	c := &Call{Model: "llama", Pool: "gpus", Outcome: Success, Stream: true, UsageKnown: true, PromptTokens: 5, OutputTokens: 5, TTFT: time.Second, E2E: 2 * time.Second}
	for name, f := range map[string]func(){
		"TTFT":     func() { p.TTFT(time.Millisecond) },
		"ITL":      func() { p.ITL(time.Millisecond) },
		"PickTime": func() { p.PickTime(time.Microsecond) },
		"Attempt":  func() { p.Attempt("a", 1, Success, "") },
		"Pool":     func() { m.Pool("llama", "gpus") },
		"Call":     func() { m.Call(c) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func TestCountingIsSafeForConcurrentUse(t *testing.T) {
	reg, m := newMetrics(t)
	const workers, each = 8, 500
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				p := m.Pool("llama", "gpus")
				p.ITL(time.Millisecond)
				p.Attempt("elsewhere", 1, Refused, "")
				m.Call(&Call{Model: "llama", Pool: "gpus", Outcome: Success})
			}
		})
	}
	wg.Wait()
	got := samples(t, reg)
	want(t, got, `kvasir_calls_total{model="llama",outcome="success",pool="gpus"}`, workers*each)
	want(t, got, `kvasir_inter_token_latency_seconds{model="llama",pool="gpus"}`, workers*each)
	want(t, got, `kvasir_attempts_total{endpoint="unknown",model="llama",outcome="refused",pool="gpus"}`, workers*each)
}

func BenchmarkITL(b *testing.B) {
	_, m := newMetrics(b)
	p := m.Pool("llama", "gpus")
	b.ReportAllocs()
	for b.Loop() {
		p.ITL(13 * time.Millisecond)
	}
}

func BenchmarkCall(b *testing.B) {
	_, m := newMetrics(b)
	c := &Call{Model: "llama", Pool: "gpus", Outcome: Success, Stream: true, UsageKnown: true, PromptTokens: 5, OutputTokens: 5, TTFT: time.Second, E2E: 2 * time.Second}
	b.ReportAllocs()
	for b.Loop() {
		m.Call(c)
	}
}
