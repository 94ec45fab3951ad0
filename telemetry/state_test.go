package telemetry

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func known(v float64) Value { return Value{V: v, Known: true} }

// fullSnapshot shows every state series.
func fullSnapshot() Snapshot {
	return Snapshot{CallsInFlight: 5, BufferedBytes: 4096, Tenants: []TenantState{
		{Tenant: "acme", Running: 3, Waiting: 2, Concurrency: known(5), Requests: known(7), Tokens: known(900), Sent: 40, Refused: 6, Input: 1000, Cached: 300, Output: 200, Estimated: 1},
		{Tenant: "free"},
	}, Models: []ModelState{{
		Model: "llama", IndexBytes: 1 << 20, IndexBlocks: 300,
		Discovery:  []DiscoveryState{{Pool: "gpus", Age: 1.5}},
		Flights:    []FlightState{{Pool: "gpus", Calls: 3}},
		Saturation: []SaturationState{{Pool: "gpus", Axis: "overall", Level: 0.5}},
		Demand: []DemandState{
			{Pool: "gpus", Calls: 12, Tokens: 3400, Variation: known(1.5), Held: 5, HeldTokens: 70, Waiting: known(2), Unstarted: 80, Wait: known(0.5),
				MeanWait: known(0.25), WorstWait: known(0.75), MeanCalls: known(1.3), MostCalls: known(3), Knee: known(0.9), Desired: known(4), InRotation: 1},
			{Pool: "idle"},
		},
		Queues: []QueueState{{Pool: "gpus", Calls: 5, Bytes: 600, Tokens: 70, Wait: 0.125}},
		Hedges: []HedgeState{{Pool: "gpus", Won: 3, Lost: 2, Failed: 1, Wasted: 500, After: known(0.4)}},
		Endpoints: []EndpointState{
			{Pool: "gpus", Endpoint: "a", Outstanding: 3, Rotation: InRotation, Healthy: true, Share: 0.5, BusyFor: 2, SignalAge: known(0.25), Running: known(2), Waiting: known(0), KVUsage: known(0.75), Limit: known(40),
				PrefixTrust: known(1), PrefixPredicted: known(900), PrefixReported: known(800)},
			{Pool: "gpus", Endpoint: "b", Outstanding: 1, Rotation: Probing},
			{Pool: "gpus", Endpoint: "c", Rotation: Ejected, Draining: true},
		},
	}}}
}

func TestStateShowsTheSnapshot(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(State(fullSnapshot))
	got := samples(t, reg)
	at := func(e string) string { return `{endpoint="` + e + `",model="llama",pool="gpus"}` }
	for name, v := range map[string]float64{
		"kvasir_calls_in_flight{}":                           5,
		`kvasir_tenant_calls{state="running",tenant="acme"}`: 3, `kvasir_tenant_calls{state="waiting",tenant="acme"}`: 2,
		`kvasir_tenant_calls{state="running",tenant="free"}`: 0, `kvasir_tenant_calls{state="waiting",tenant="free"}`: 0,
		`kvasir_tenant_limit_remaining{limit="concurrency",tenant="acme"}`: 5, `kvasir_tenant_limit_remaining{limit="rpm",tenant="acme"}`: 7,
		`kvasir_tenant_limit_remaining{limit="tpm",tenant="acme"}`: 900,
		`kvasir_tenant_requests_total{tenant="acme"}`:              40, `kvasir_tenant_requests_total{tenant="free"}`: 0,
		`kvasir_tenant_refused_total{tenant="acme"}`: 6, `kvasir_tenant_refused_total{tenant="free"}`: 0,
		`kvasir_tenant_tokens_total{kind="input",tenant="acme"}`: 1000, `kvasir_tenant_tokens_total{kind="cached",tenant="acme"}`: 300,
		`kvasir_tenant_tokens_total{kind="output",tenant="acme"}`: 200, `kvasir_tenant_tokens_total{kind="input",tenant="free"}`: 0,
		`kvasir_tenant_tokens_total{kind="cached",tenant="free"}`: 0, `kvasir_tenant_tokens_total{kind="output",tenant="free"}`: 0,
		`kvasir_tenant_estimated_calls_total{tenant="acme"}`: 1, `kvasir_tenant_estimated_calls_total{tenant="free"}`: 0,
		"kvasir_buffered_bytes{}":                                 4096,
		`kvasir_prefix_index_bytes{model="llama"}`:                1 << 20,
		`kvasir_prefix_index_blocks{model="llama"}`:               300,
		"kvasir_in_flight" + at("a"):                              3,
		"kvasir_in_flight" + at("b"):                              1,
		"kvasir_in_flight" + at("c"):                              0,
		"kvasir_endpoint_in_rotation" + at("a"):                   1,
		"kvasir_endpoint_in_rotation" + at("b"):                   0,
		"kvasir_endpoint_in_rotation" + at("c"):                   0,
		"kvasir_endpoint_probing" + at("a"):                       0,
		"kvasir_endpoint_probing" + at("b"):                       1,
		"kvasir_endpoint_probing" + at("c"):                       0,
		"kvasir_signal_age_seconds" + at("a"):                     0.25,
		"kvasir_endpoint_draining" + at("a"):                      0,
		"kvasir_endpoint_draining" + at("c"):                      1,
		"kvasir_endpoint_healthy" + at("a"):                       1,
		"kvasir_endpoint_healthy" + at("c"):                       0,
		"kvasir_endpoint_share" + at("a"):                         0.5,
		"kvasir_endpoint_busy_seconds" + at("a"):                  2,
		`kvasir_discovery_age_seconds{model="llama",pool="gpus"}`: 1.5,

		`kvasir_pool_demand_calls_per_second{model="llama",pool="gpus"}`:          12,
		`kvasir_pool_demand_tokens_per_second{model="llama",pool="gpus"}`:         3400,
		`kvasir_pool_demand_variation{model="llama",pool="gpus"}`:                 1.5,
		`kvasir_pool_waiting_calls{at="gateway",model="llama",pool="gpus"}`:       5,
		`kvasir_pool_waiting_calls{at="engine",model="llama",pool="gpus"}`:        2,
		`kvasir_pool_waiting_tokens{at="gateway",model="llama",pool="gpus"}`:      70,
		`kvasir_pool_waiting_tokens{at="engine",model="llama",pool="gpus"}`:       80,
		`kvasir_pool_predicted_wait_seconds{model="llama",pool="gpus"}`:           0.5,
		`kvasir_pool_endpoint_wait_seconds{model="llama",of="mean",pool="gpus"}`:  0.25,
		`kvasir_pool_endpoint_wait_seconds{model="llama",of="worst",pool="gpus"}`: 0.75,
		`kvasir_pool_endpoint_outstanding{model="llama",of="mean",pool="gpus"}`:   1.3,
		`kvasir_pool_endpoint_outstanding{model="llama",of="worst",pool="gpus"}`:  3,
		`kvasir_pool_knee_utilization{model="llama",pool="gpus"}`:                 0.9,
		`kvasir_pool_replicas_desired{model="llama",pool="gpus"}`:                 4,
		`kvasir_pool_replicas_in_rotation{model="llama",pool="gpus"}`:             1,
		`kvasir_pool_demand_calls_per_second{model="llama",pool="idle"}`:          0, // from the start, and nothing that is not known
		`kvasir_pool_demand_tokens_per_second{model="llama",pool="idle"}`:         0,
		`kvasir_pool_waiting_calls{at="gateway",model="llama",pool="idle"}`:       0,
		`kvasir_pool_waiting_tokens{at="gateway",model="llama",pool="idle"}`:      0,
		`kvasir_pool_waiting_tokens{at="engine",model="llama",pool="idle"}`:       0,
		`kvasir_pool_replicas_in_rotation{model="llama",pool="idle"}`:             0,

		`kvasir_single_flight_calls{model="llama",pool="gpus"}`:              3,
		`kvasir_pool_saturation{axis="overall",model="llama",pool="gpus"}`:   0.5,
		`kvasir_queue_calls{model="llama",pool="gpus"}`:                      5,
		`kvasir_queue_bytes{model="llama",pool="gpus"}`:                      600,
		`kvasir_queue_tokens{model="llama",pool="gpus"}`:                     70,
		`kvasir_queue_predicted_wait_seconds{model="llama",pool="gpus"}`:     0.125,
		"kvasir_endpoint_running" + at("a"):                                  2,
		"kvasir_endpoint_waiting" + at("a"):                                  0,
		"kvasir_endpoint_kv_usage" + at("a"):                                 0.75,
		"kvasir_endpoint_limit" + at("a"):                                    40,
		"kvasir_prefix_trust" + at("a"):                                      1,
		"kvasir_prefix_predicted_tokens_total" + at("a"):                     900,
		"kvasir_prefix_reported_tokens_total" + at("a"):                      800,
		`kvasir_hedges_total{model="llama",outcome="won",pool="gpus"}`:       3,
		`kvasir_hedges_total{model="llama",outcome="lost",pool="gpus"}`:      2,
		`kvasir_hedges_total{model="llama",outcome="failed",pool="gpus"}`:    1,
		`kvasir_hedge_wasted_prompt_tokens_total{model="llama",pool="gpus"}`: 500,
		`kvasir_hedge_after_seconds{model="llama",pool="gpus"}`:              0.4,
	} {
		want(t, got, name, v)
		delete(got, name)
	}
	for _, e := range []string{"a", "b", "c"} { // these are known of every endpoint
		for _, name := range []string{"draining", "healthy", "share", "busy_seconds"} {
			delete(got, "kvasir_endpoint_"+name+at(e))
		}
	}
	for name, v := range got {
		t.Errorf("%s = %v: what is unknown must have no sample", name, v)
	}
}

func TestStateIsReadOnceAScrape(t *testing.T) {
	var reads atomic.Int64
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(State(func() Snapshot { reads.Add(1); return fullSnapshot() }))
	if n := reads.Load(); n != 0 {
		t.Fatalf("registering read the state %d times", n)
	}
	const scrapes = 20
	var wg sync.WaitGroup
	for range scrapes {
		wg.Go(func() {
			if _, err := reg.Gather(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := reads.Load(); n != scrapes {
		t.Errorf("%d scrapes read the state %d times", scrapes, n)
	}
}

func TestStatePageParses(t *testing.T) {
	reg, _ := newMetrics(t)
	reg.MustRegister(State(fullSnapshot))
	if p := page(t, reg); !strings.Contains(p, "kvasir_endpoint_kv_usage{") {
		t.Error("page lacks the state")
	}
}
