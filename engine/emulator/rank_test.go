package emulator

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/engine"
)

// Data-parallel engines have series of their own; a client can choose one, else the one
// with the least to do is taken.
func TestRanks_ShareTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.Ranks, c.Engine.MaxSeqs = 3, 2
		f := start(t, c)
		send := func(i int, header ...string) {
			go func() { _, _ = f.stream(chatBody(fmt.Sprint("call ", i), slowStream), header...) }()
			time.Sleep(time.Millisecond)
		}
		for i := range 3 {
			send(i, "X-Data-Parallel-Rank", "1")
		}
		for i := range 5 {
			send(3 + i)
		}
		time.Sleep(100 * time.Millisecond)
		_, text := f.get("/metrics")
		got := series(t, text)
		for rank, want := range [][2]float64{{2, 1}, {2, 1}, {2, 0}} {
			own := fmt.Sprintf(`{engine="%d",model_name="tiny"}`, rank)
			if r, w := got["vllm:num_requests_running"+own], got["vllm:num_requests_waiting"+own]; r != want[0] || w != want[1] {
				t.Errorf("rank %d: %v running and %v waiting, want %v", rank, r, w, want)
			}
		}
		if s := f.server.Stats(); s.Running != 6 || s.Waiting != 2 || s.TotalBlocks != 3*c.Engine.NumBlocks {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Minute)
		s := f.server.Stats()
		if s.Finished[engine.Length] != 8 || s.GenerationTokens != 800 || s.FreeBlocks != s.TotalBlocks || s.KVUsage != 0 {
			t.Errorf("%+v", s)
		}
		_, text = f.get("/metrics")
		checkHistograms(t, series(t, text))
		if !strings.Contains(text, `engine="2",gpu_memory_utilization`) {
			t.Error("no cache_config_info of rank 2")
		}
	})
}

// A prefix is cached at the rank that computed it.
func TestRanks_HaveCachesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.Ranks = 2
		f := start(t, c)
		body := chatBody(strings.Repeat("words ", 40), `,"max_tokens":1`)
		for i, want := range []string{"0", "0", "64"} {
			rank := fmt.Sprint([]int{0, 1, 1}[i])
			if _, got := f.do("/v1/chat/completions", body, "X-Data-Parallel-Rank", rank); !strings.Contains(got, `"cached_tokens":`+want) {
				t.Errorf("call %d: %s", i, got)
			}
		}
	})
}

// A load report has every rank in TEXT and the last one in JSON.
func TestRanks_ReportTheirLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.Ranks, c.Engine.MaxSeqs = 2, 1
		f := start(t, c)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() { _, _ = f.stream(chatBody(fmt.Sprint(i), slowStream), "X-Data-Parallel-Rank", "1") })
		}
		time.Sleep(50 * time.Millisecond)
		for format, want := range map[string]string{
			"TEXT": "TEXT named_metrics.num_requests_waiting=0.0, named_metrics.num_requests_waiting=2.0, named_metrics.kv_cache_usage_perc=0.0, named_metrics.kv_cache_usage_perc=%s",
			"json": `JSON {"named_metrics": {"num_requests_waiting": 2.0, "kv_cache_usage_perc": %s}}`,
		} {
			r, err := f.post(t.Context(), "/v1/completions", short, "Endpoint-Load-Metrics-Format", format, "X-Data-Parallel-Rank", "0")
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			want = fmt.Sprintf(want, repr(f.server.perRank()[1].KVUsage))
			if got := r.Header.Get("endpoint-load-metrics"); got != want {
				t.Errorf("%s: %s, want %s", format, got, want)
			}
		}
		wg.Wait()
	})
}

// A conversation is cached whichever API it comes by, and each API counts what was found in
// its own way.
func TestServer_SharesTheCacheBetweenAPIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, testConfig(t))
		prompt := strings.Repeat("words ", 40)
		_, chat := f.do("/v1/chat/completions", chatBody(prompt, `,"max_tokens":1`))
		_, message := f.do("/v1/messages", fmt.Sprintf(`{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":%q}]}`, prompt))
		_, stream := f.do("/v1/messages", fmt.Sprintf(`{"model":"tiny","max_tokens":1,"stream":true,"messages":[{"role":"user","content":%q}]}`, prompt))
		_, response := f.do("/v1/responses", fmt.Sprintf(`{"input":%q,"max_output_tokens":1}`, prompt))
		for _, x := range [][2]string{
			{chat, `"usage":{"prompt_tokens":70,"total_tokens":71,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0,`},
			{message, `"usage":{"input_tokens":6,"output_tokens":1,"cache_read_input_tokens":64}`},
			{stream, `"usage":{"input_tokens":70,"output_tokens":0}`},
			{stream, `"usage":{"input_tokens":6,"output_tokens":1,"cache_read_input_tokens":64}`},
			{response, `"usage":{"input_tokens":70,"input_tokens_details":{"cached_tokens":64,`},
		} {
			if !strings.Contains(x[0], x[1]) {
				t.Errorf("%s\nhas no %s", x[0], x[1])
			}
		}
	})
}
