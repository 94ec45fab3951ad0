package web_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"
	"time"

	"kvasir/gateway/proxy"
	"kvasir/selection"
	"kvasir/telemetry"
	"kvasir/web"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestLive_Example writes every event once, filled, for who writes a page.
func TestLive_Example(t *testing.T) {
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetIndent("", " ")
	if err := e.Encode(exampleEvents()); err != nil {
		t.Fatal(err)
	}
	const file = "testdata/live.json"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s is not what the types give; go test ./web -run Example -update rewrites it", file)
	}
}

type exampleEvent struct {
	Event string `json:"event"`
	Data  any    `json:"data"`
}

func exampleEvents() []exampleEvent {
	const at = 1767225600.25
	when := time.UnixMilli(at * 1000)
	recent := web.LivePoint{PerSecond: 12.4, Goodput: new(0.968), TTFTP95: new(0.412)}
	calls := web.LiveCalls{
		Seconds: 60, Calls: 731, PerSecond: 12.18, OutputPerSecond: new(1874.5), Refusals: 4, Failures: 2, CallerFaults: 1, ClientsGone: 3, Retries: 9,
		Goodput:     &web.LiveGoodput{Judged: 728, Within: 705, Share: new(0.9684), PerSecond: 11.75},
		TTFT:        web.LiveQuantiles{N: 725, P50: new(0.121), P95: new(0.412), P99: new(0.733)},
		TPOT:        web.LiveQuantiles{N: 722, P50: new(0.0149), P95: new(0.0231), P99: new(0.0304)},
		CachedShare: new(0.612),
	}
	idle := web.LiveCalls{Seconds: 60, Goodput: &web.LiveGoodput{}}
	shadow := &proxy.ShadowTally{
		Policy: "least-outstanding", Seconds: 93.5, ShadowCount: proxy.ShadowCount{Picks: 1210, Agreed: 806, Overlap: -402176, Outstanding: -611},
		Reasons: []proxy.ShadowReason{{Reason: "fewest", ShadowCount: proxy.ShadowCount{Picks: 1210, Agreed: 806, Overlap: -402176, Outstanding: -611}}},
	}
	endpoints := []web.LiveEndpoint{
		{EndpointView: proxy.EndpointView{
			Endpoint: "engine-1", URL: "http://10.0.0.11:8000", Origin: "static", State: "in_rotation", Healthy: true, Weight: 1, Share: 1,
			InFlight: 5, Dispatched: 702, Running: new(4.0), Waiting: new(1.0), KVUsage: new(0.62), SignalAge: new(0.41), PrefixHitRate: new(0.58), CachedShare: new(0.61),
			PrefixTrust: new("approximate"), PrefixPredicted: new(int64(812440)), PrefixReported: new(int64(804112)),
		}, Window: calls},
		{EndpointView: proxy.EndpointView{
			Endpoint: "engine-2", URL: "http://10.0.0.12:8000", Origin: "admin", State: "in_rotation", Healthy: true, Draining: true, Weight: 2, Share: 0.35,
			BusySeconds: 1.5, InFlight: 1, Dispatched: 31, Restarts: 1, Running: new(1.0), Waiting: new(0.0), KVUsage: new(0.08), SignalAge: new(0.93),
		}, Window: idle},
		{EndpointView: proxy.EndpointView{
			Endpoint: "engine-3", URL: "http://10.0.0.13:8000", Origin: "dns", State: "ejected", Cause: "unhealthy", Failures: 3, Weight: 1, Share: 1, Dispatched: 640,
		}, Window: idle},
	}
	state := web.LiveState{
		At: at, MayChange: true, Watchers: 1, InFlight: 6, Buffered: 48123, Unrouted: 2,
		Policies: []string{"least-outstanding", "predicted-ttft"},
		Models: []web.LiveModel{{
			ModelView:  proxy.ModelView{Model: "llama-3.1-8b", Aliases: []string{"default"}, InFlight: 9, BetweenTwo: 1, IndexBytes: 1 << 20, IndexBlocks: 8231, SLO: &proxy.SLOView{TTFT: new(2.0), TPOT: new(0.05)}},
			Window:     calls,
			Recent:     recent,
			Prediction: web.LivePrediction{N: 725, MedianError: new(0.09), P95Error: new(0.41), Predicted: web.Numbers{0.1, 0.34, 0.08}, Actual: web.Numbers{0.112, 0.31, 0.0795}},
			Pools: []web.LivePool{{
				PoolView: proxy.PoolView{
					Pool: "gpus", Policy: "predicted-ttft", Following: new(1),
					Queue:      &proxy.QueueView{Calls: 2, Bytes: 8120, Tokens: 4031, Oldest: 0.31, Wait: 0.52},
					Saturation: &proxy.SaturationView{Level: 0.41, Leads: "kv_usage", Axes: map[string]float64{"waiting": 0.1, "kv_usage": 0.39, "preemptions": 0, "ttft": 0.22}},
					Demand:     &proxy.DemandView{Calls: 12.1, Tokens: 4031, InRotation: 2},
					Shadow:     shadow,
				},
				Endpoints: endpoints,
			}},
		}},
	}
	unknown := math.NaN()
	history := web.LiveHistory{
		At: at, Step: 1, Recent: web.LiveRecent, Points: 3,
		Models: []web.LiveHistoryModel{{
			Model: "llama-3.1-8b", PerSecond: web.Numbers{11.9, 12.1, 12.4}, Goodput: web.Numbers{unknown, 0.97, 0.968}, TTFTP95: web.Numbers{unknown, 0.405, 0.412},
			Pools: []web.LiveHistoryPool{{Pool: "gpus", Queue: web.Numbers{0, 1, 2}, Endpoints: []web.LiveHistoryEndpoint{
				{Endpoint: "engine-1", InFlight: web.Numbers{4, 6, 5}, Waiting: web.Numbers{0, 1, 1}},
				{Endpoint: "engine-2", InFlight: web.Numbers{2, 1, 1}, Waiting: web.Numbers{0, 0, 0}},
				{Endpoint: "engine-3", InFlight: web.Numbers{unknown, 0, 0}, Waiting: web.Numbers{unknown, unknown, unknown}},
			}}},
		}},
	}
	d := &selection.Decision{
		Call: 4711, Pool: "gpus", Policy: "predicted-ttft", Reason: "nearest", Chosen: 0, Predicted: 340 * time.Millisecond, Conversation: 0x1f3a5b7c9d0e2f41,
		Candidates: []selection.Candidate{
			{Endpoint: "engine-1", Score: -0.34, Overlap: 16, OverlapTokens: 1024, Outstanding: 5, SignalAge: 410 * time.Millisecond, Trust: "approximate",
				Parts:   []selection.Part{{Name: "wait_seconds", Value: 0.21}, {Name: "own_prefill_seconds", Value: 0.13}},
				Signals: []selection.Reading{{Name: "running", Value: 4, Source: selection.FromReport, Age: 410 * time.Millisecond}, {Name: "pending", Value: 1, Source: selection.FromDispatches}}},
			{Endpoint: "engine-2", Score: -0.51, Overlap: 0, OverlapTokens: 0, Outstanding: 1, SignalAge: 930 * time.Millisecond, Trust: "approximate",
				Parts: []selection.Part{{Name: "wait_seconds", Value: 0}, {Name: "own_prefill_seconds", Value: 0.51}}},
			{Endpoint: "engine-4", Score: math.NaN(), SignalAge: -1, Outstanding: 3, Trust: "load-only"},
		},
	}
	d.Shadow = &selection.Shadow{
		Policy: "least-outstanding", Reason: "fewest", Chosen: 1, Scores: []float64{5, 1, 3}, OverlapTokens: []int{1024, 0, 0},
	}
	shown := proxy.Decided{ID: "kv-5f2c19aa-4711", Model: "llama-3.1-8b", At: when, InputTokens: 1180, Decision: d}
	ended := proxy.NewOutcomeView(4711, when.Add(2140*time.Millisecond), &telemetry.Call{
		ID: "kv-5f2c19aa-4711", Model: "llama-3.1-8b", Pool: "gpus", Endpoint: "engine-1", Outcome: telemetry.Success, Status: 200, Attempts: 1, Stream: true,
		TTFT: 312 * time.Millisecond, PredictedTTFT: 341 * time.Millisecond, E2E: 2140 * time.Millisecond,
		UsageKnown: true, CachedKnown: true, PromptTokens: 1192, CachedTokens: 1024, OutputTokens: 128,
	})
	return []exampleEvent{{"history", history}, {"state", state}, {"decision", shown.View()}, {"outcome", ended}}
}
