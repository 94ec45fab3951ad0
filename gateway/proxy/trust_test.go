package proxy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/internal/testkit/scripted"
	"kvasir/selection/signal"
)

// longCall is a streamed call whose prompt is a few thousand tokens long.
var longCall = fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":%q}]}`, strings.Repeat("all the words there are ", 800))

// tells answers with a usage that says how much of a long prompt was cached.
func tells(cached *int) scripted.Script {
	return func(c *scripted.Call) {
		usage := fmt.Sprintf(`data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":4000,"completion_tokens":3,"total_tokens":4003,"prompt_tokens_details":{"cached_tokens":%d}}}`+"\n\n", *cached)
		c.Stream(roleEvent, textEvent("a"), finishEvent, usage, doneEvent)
	}
}

// TestTrust_IsShownWhereverItChanges has an engine that reports that nothing is cached, and
// then that everything is. Log, metrics, /v1/pools and explanations must follow.
func TestTrust_IsShownWhereverItChanges(t *testing.T) {
	cached := 0
	s := pooled(tells(&cached))
	s.policy = "cache-aware"
	r := newRig(t, s)
	defer r.close()

	trust := func() (string, float64) {
		e := r.gateway.Pools()[0].Pools[0].Endpoints[0]
		if e.PrefixTrust == nil || e.PrefixPredicted == nil || *e.PrefixReported > *e.PrefixPredicted {
			t.Fatalf("/v1/pools says %+v", e)
		}
		return *e.PrefixTrust, r.metric("kvasir_prefix_trust", "endpoint=e1")
	}
	if state, n := trust(); state != "approximate" || n != 1 {
		t.Fatalf("at the beginning %s, %v", state, n)
	}
	calls := 0
	until := func(want string) {
		t.Helper()
		for state, _ := trust(); state != want; state, _ = trust() {
			if calls++; calls > 6*signal.TrustWindow {
				t.Fatalf("still %s after %d calls", state, calls)
			}
			r.post(chatPath, longCall)
			r.settle()
		}
		r.post(chatPath, streamed) // what a look at the state brought to light is told with the next call
	}
	until("load-only")
	if _, n := trust(); n != 0 {
		t.Errorf("kvasir_prefix_trust is %v", n)
	}
	predicted, reported := r.metric("kvasir_prefix_predicted_tokens_total", "endpoint=e1"), r.metric("kvasir_prefix_reported_tokens_total", "endpoint=e1")
	if predicted == 0 || reported != 0 {
		t.Errorf("%v tokens predicted, %v reported", predicted, reported)
	}
	warned := r.records.about("endpoint caches less than predicted")
	if len(warned) != 1 || warned[0].string("prefix_trust") != "load-only" || warned[0].int("reported_tokens") != 0 || warned[0].int("predicted_tokens") == 0 {
		t.Fatalf("the log says %v", warned)
	}
	for _, cause := range []string{"prefix caching is off", "block size", "tokenizer", "cache salt", "KV capacity", "other routers"} {
		if !strings.Contains(warned[0].string("likely_causes"), cause) {
			t.Errorf("the log does not name %q: %v", cause, warned[0])
		}
	}
	cached = 4000
	until("approximate")
	if r.metric("kvasir_prefix_reported_tokens_total", "endpoint=e1") == 0 || !slices.Contains(r.records.said(), "endpoint caches what is predicted") {
		t.Errorf("after its return: %v", r.records.said())
	}
}

// TestTTFT_IsLoggedBesideWhatWasPredicted has an engine that takes 20 ms for each call. Once the
// policy has learned that, records and the histogram show how well it predicts.
func TestTTFT_IsLoggedBesideWhatWasPredicted(t *testing.T) {
	s := pooled(func(c *scripted.Call) {
		time.Sleep(20 * time.Millisecond)
		c.Stream(roleEvent, textEvent("a"), finishEvent, usageEvent, doneEvent)
	})
	s.policy = "predicted-ttft"
	r := newRig(t, s)
	defer r.close()
	for range 40 {
		r.post(chatPath, streamed)
		r.settle()
	}
	all := r.records.all()
	if all[0].has("predicted_ttft_seconds") {
		t.Errorf("predicted before anything was learned: %v", all[0])
	}
	last := all[len(all)-1]
	predicted, actual := last.get("predicted_ttft_seconds").Float64(), last.get("ttft_seconds").Float64()
	if !last.has("predicted_ttft_seconds") || predicted < actual/3 || predicted > 3*actual {
		t.Errorf("predicted %v, took %v", predicted, actual)
	}
	observed := 0
	for _, c := range all {
		if c.has("predicted_ttft_seconds") {
			observed++
		}
	}
	n := uint64(0)
	for _, f := range r.gather() {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kvasir_ttft_prediction_ratio" {
				n += m.GetHistogram().GetSampleCount()
			}
		}
	}
	if int(n) != observed || observed == 0 {
		t.Errorf("%d ratios of %d predictions", n, observed)
	}

	r.post(chatPath, unstreamed)
	r.settle()
	if all = r.records.all(); all[len(all)-1].has("predicted_ttft_seconds") {
		t.Error("a call that is not streamed has no time to first token, and none predicted")
	}
}

// TestExplain_OfPredictedTTFT_AddsUp asks for the parts of a decision.
func TestExplain_OfPredictedTTFT_AddsUp(t *testing.T) {
	script := func(c *scripted.Call) { c.Stream(roleEvent, textEvent("a"), finishEvent, usageEvent, doneEvent) }
	s := pooled(script, script)
	s.policy = "predicted-ttft"
	r := newRig(t, s)
	defer r.close()
	text := r.post(chatPath, streamed, "X-Kvasir-Explain: 1").header.Get("X-Kvasir-Explain")
	var d struct {
		Candidates []struct {
			Score   float64            `json:"score"`
			Trust   string             `json:"prefix_trust"`
			Parts   map[string]float64 `json:"parts"`
			Signals []struct {
				Source string             `json:"source"`
				Age    float64            `json:"age_seconds"`
				Values map[string]float64 `json:"values"`
			} `json:"signals"`
		} `json:"candidates"`
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil || len(d.Candidates) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, k := range d.Candidates {
		sum, parts := 0.0, 0
		for name, v := range k.Parts {
			if strings.HasSuffix(name, "_cost") {
				sum += v
				parts++
			}
		}
		if parts != 4 || sum < 0.999*k.Score || sum > 1.001*k.Score || k.Score <= 0 {
			t.Errorf("%d costs add up to %v of %v: %s", parts, sum, k.Score, text)
		}
		if k.Trust != "approximate" || len(k.Signals) != 1 || k.Signals[0].Source != "dispatches" || len(k.Signals[0].Values) == 0 {
			t.Errorf("%s", text)
		}
	}
}

// TestOpaqueCalls_LeaveNoBeliefs has calls of whose prompts an engine computes a part, or all
// whatever it has cached.
func TestOpaqueCalls_LeaveNoBeliefs(t *testing.T) {
	cached := 0
	s := pooled(tells(&cached))
	s.policy = "cache-aware"
	r := newRig(t, s)
	defer r.close()
	overlap := func(body string) int {
		t.Helper()
		return r.overlap(t, body)
	}
	opaque := strings.Replace(longCall, "{", `{"prompt_logprobs":0,`, 1)
	if n := overlap(opaque) + overlap(opaque) + overlap(longCall); n != 0 {
		t.Errorf("an opaque call left %d blocks", n)
	}
	if n := overlap(opaque); n != 0 {
		t.Errorf("an opaque call is placed by %d blocks", n)
	}
	if n := overlap(longCall); n < 50 {
		t.Errorf("after an opaque call without cached tokens %d blocks are believed", n)
	}
}
