package emulator

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/engine/tokenizer"
	"kvasir/internal/mono"
)

// The parts of a request's time, as the histograms have them: it waits for the place that
// another one has, is computed, and goes on.
func TestMetrics_MeasureTheParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.Engine.MaxSeqs = 1
		f := start(t, c)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				_, _ = f.do("/v1/chat/completions", chatBody(fmt.Sprint("call ", i), `,"max_tokens":200,"ignore_eos":true`))
			})
		}
		wg.Wait()
		_, text := f.get("/metrics")
		got := series(t, text)
		sum := func(name string) float64 { return got["vllm:"+name+`_sum{engine="0",model_name="tiny"}`] }
		count := func(name string) float64 { return got["vllm:"+name+`_count{engine="0",model_name="tiny"}`] }
		for _, name := range []string{"queue", "inference", "prefill", "decode"} {
			if n := count("request_" + name + "_time_seconds"); n != 3 {
				t.Errorf("%s: %v requests", name, n)
			}
		}
		near := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-9 {
				t.Errorf("%s is %v, want %v", what, got, want)
			}
		}
		inference := sum("request_inference_time_seconds")
		near("prefill and decode", sum("request_prefill_time_seconds")+sum("request_decode_time_seconds"), inference)
		// The second waits for the first, the third for both; the few milliseconds before the
		// engine hears of them are not part of it.
		if queue := sum("request_queue_time_seconds"); queue < 0.95*inference || queue > inference {
			t.Errorf("%v s of waiting for %v s of work", queue, inference)
		}
		if e2e := sum("e2e_request_latency_seconds"); e2e < inference || e2e < sum("request_queue_time_seconds")+inference {
			t.Errorf("%v s in all", e2e)
		}
		near("time per output token", sum("request_time_per_output_token_seconds"), sum("request_decode_time_seconds")/199)
		near("iteration tokens", sum("iteration_tokens_total"), 600+got[`vllm:prompt_tokens_total{engine="0",model_name="tiny"}`])
		if n := count("iteration_tokens_total"); n != float64(f.server.Stats().Steps) {
			t.Errorf("%v steps measured, %d made", n, f.server.Stats().Steps)
		}
		near("computed", sum("request_prefill_kv_computed_tokens"), got[`vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_compute"}`])
	})
}

// A request waits for the step that runs, which is not queueing, and is computed but for
// what is cached.
func TestMetrics_OfARequestThatFindsAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		prompt := strings.Repeat("words ", 40)
		if status, body := f.do("/v1/chat/completions", chatBody(prompt, `,"max_tokens":1`)); status != 200 {
			t.Fatal(body)
		}
		go func() { _, _ = f.stream(chatBody("long", slowStream)) }()
		time.Sleep(50 * time.Millisecond)
		if status, body := f.do("/v1/chat/completions", chatBody(prompt, `,"max_tokens":1`)); status != 200 {
			t.Fatal(body)
		}
		time.Sleep(time.Minute)
		_, text := f.get("/metrics")
		got := series(t, text)
		const own = `{engine="0",model_name="tiny"}`
		if v := got["vllm:request_queue_time_seconds_sum"+own]; v != 0 {
			t.Errorf("%v s in the queue", v)
		}
		if prompts, computed := got["vllm:request_prompt_tokens_sum"+own], got["vllm:request_prefill_kv_computed_tokens_sum"+own]; prompts-computed != 64 {
			t.Errorf("of %v prompt tokens %v were computed", prompts, computed)
		}
	})
}

// Steps that end while Run sleeps are handed out together and measured one by one.
func TestMetrics_MeasureEachStepOfALateAdvance(t *testing.T) {
	s, err := New(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	read, err := tokenizer.Read(tokenizer.Completions, []byte(`{"prompt":"x","max_tokens":5,"ignore_eos":true}`), s.limits)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.admit(0, newCall(read, s.life.Load(), 1)); err != nil {
		t.Fatal(err)
	}
	s.advance(mono.Time(time.Minute))
	h := &s.ranks[0].metrics.iterationTokens
	if n := h.counts[0] + h.counts[1]; n != 5 || h.sum != float64(read.PromptTokens+5) {
		t.Errorf("%d steps of %v tokens", n, h.sum)
	}
	// A call of a life that has ended is not taken.
	if err := s.admit(mono.Time(time.Minute), newCall(read, newLife(time.Now()), 2)); err != errGone {
		t.Errorf("%v", err)
	}
}

// The choices of a prompt are one request to a client: n and the longest of them count once.
func TestMetrics_CountChoicesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		if status, body := f.do("/v1/completions", `{"prompt":["a","b"],"n":3,"max_tokens":400}`); status != 200 {
			t.Fatal(body)
		}
		_, text := f.get("/metrics")
		got := series(t, text)
		for name, want := range map[string]float64{
			"request_params_n_count": 2, "request_params_n_sum": 6, "request_max_num_generation_tokens_count": 2,
			"request_generation_tokens_count": 6, "e2e_request_latency_seconds_count": 6,
		} {
			if v := got["vllm:"+name+`{engine="0",model_name="tiny"}`]; v != want {
				t.Errorf("%s is %v, want %v", name, v, want)
			}
		}
		most, all := got[`vllm:request_max_num_generation_tokens_sum{engine="0",model_name="tiny"}`], got[`vllm:request_generation_tokens_sum{engine="0",model_name="tiny"}`]
		if most >= all || 3*most < all {
			t.Errorf("the longest have %v tokens, all %v", most, all)
		}
	})
}
