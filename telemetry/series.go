package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// series describes one metric family: what docs/metrics.md shows and what the registry
// is told. A type per kind keeps the constructors apart.
type series struct {
	name    string
	kind    string // counter, gauge or histogram
	unit    string
	help    string
	labels  []string
	buckets []float64 // histograms only, upper borders in the unit
}

// Label sets. Their sizes are bounded: models, pools and endpoints by configuration,
// the others by this package's constants.
var (
	byModel    = []string{"model"}
	byPool     = []string{"model", "pool"}
	byEndpoint = []string{"model", "pool", "endpoint"}
	byTenant   = []string{"tenant"}
)

// Histogram borders in seconds. Each set holds every border that vLLM has for the same
// quantity, so that the gateway's histogram and the engine's can be subtracted, and
// adds finer ones below for small models.
var (
	ttftBuckets  = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	itlBuckets   = []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	e2eBuckets   = []float64{.01, .03, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	ratioBuckets = []float64{.1, .2, .33, .5, .67, .75, .85, .95, 1.05, 1.15, 1.33, 1.5, 2, 3, 5, 10}
	pickBuckets  = []float64{100e-9, 200e-9, 500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 1e-3, 10e-3}
)

// The counted series: they grow as calls go by.
var (
	callsTotal = series{name: "kvasir_calls_total", kind: "counter", unit: "calls", labels: append(slices.Clone(byPool), "outcome"),
		help: "Client calls that ended, by pool of the last attempt (none: no attempt was made) and outcome."}
	attemptsTotal = series{name: "kvasir_attempts_total", kind: "counter", unit: "attempts", labels: append(slices.Clone(byEndpoint), "outcome"),
		help: "Upstream attempts that ended, by endpoint and outcome."}
	failuresTotal = series{name: "kvasir_attempt_failures_total", kind: "counter", unit: "attempts", labels: append(slices.Clone(byPool), "kind"),
		help: "Upstream attempts that ended without success, by kind: connect_failed, connect_timeout, exhausted, broken, stale_connection, header_timeout, first_token_timeout, stalled, overdue, forfeited, recalled, bad_gateway, failed, stream_error, denied, missing, unusable, busy, limited, caller_fault, client_gone, beaten."}
	ejectionsTotal = series{name: "kvasir_ejections_total", kind: "counter", unit: "ejections", labels: byEndpoint,
		help: "Times that the endpoint has left rotation."}
	restartsTotal = series{name: "kvasir_endpoint_restarts_total", kind: "counter", unit: "restarts", labels: byEndpoint,
		help: "Times that the endpoint was found to have restarted; what was believed of its cache is forgotten then."}
	scrapesTotal = series{name: "kvasir_scrapes_total", kind: "counter", unit: "scrapes", labels: append(slices.Clone(byEndpoint), "result"),
		help: "Scrapes of the endpoint's metrics. read: as expected; incomplete: with numbers missing or impossible; failed: no page."}
	heartbeatsTotal = series{name: "kvasir_heartbeats_total", kind: "counter", unit: "comments",
		help: "Comments sent to streaming clients that had waited for client.heartbeat."}
	reloadsTotal = series{name: "kvasir_config_reloads_total", kind: "counter", unit: "reloads", labels: []string{"result"},
		help: "Configurations read after the first one. applied: in service; refused: invalid, and the one before stays."}
	reloadedSeconds = series{name: "kvasir_config_applied_timestamp_seconds", kind: "gauge", unit: "seconds",
		help: "Unix time at which the configuration in service was applied."}
	buildInfo = series{name: "kvasir_build_info", kind: "gauge", unit: "boolean", labels: []string{"version"},
		help: "1, labelled with the source that the gateway was built from."}
	reloadSuccessful = series{name: "kvasir_config_reload_successful", kind: "gauge", unit: "boolean",
		help: "0 while the configuration that was read last was refused, and the one before is in service."}
	retriesTotal = series{name: "kvasir_retries_total", kind: "counter", unit: "attempts", labels: byPool,
		help: "Upstream attempts that ended and were not their call's first, by the attempt's own pool. A hedge is none."}
	continuationsTotal = series{name: "kvasir_continuations_total", kind: "counter", unit: "breaks", labels: append(slices.Clone(byPool), "outcome"),
		help: "Streamed answers that broke off at an endpoint of the pool and were to go on elsewhere (models.X.continue), by what became of them. continued: another endpoint went on; failed: none did, and the stream ended with an error; client_gone: the client left before."}
	repeatedTotal = series{name: "kvasir_incoming_retries_total", kind: "counter", unit: "calls", labels: []string{"sign"},
		help: "Calls that their clients had sent before, by the sign that tells. retry_count: the SDK's x-stainless-retry-count; idempotency_key: the client has used the key lately."}
	refusalsTotal = series{name: "kvasir_refusals_total", kind: "counter", unit: "calls", labels: []string{"reason"},
		help: "Calls that the gateway answered by itself without an attempt, by reason."}
	limitRefusalsTotal = series{name: "kvasir_limit_refusals_total", kind: "counter", unit: "calls", labels: []string{"scope", "limit"},
		help: "Calls that a limit has refused. scope: whose it is (tenant, key, model, tenant_model, conversation); limit: which (concurrency, rpm, tpm; waiting: too many of a conversation, or one for too long)."}
	tokensTotal = series{name: "kvasir_tokens_total", kind: "counter", unit: "tokens", labels: append(slices.Clone(byPool), "kind"),
		help: "Tokens of successful calls. input, output, cached: as the answer's usage reports them (cached is part of input); input_estimated: the prompt's estimate where no usage was reported, its output is not counted."}
	odditiesTotal = series{name: "kvasir_stream_oddities_total", kind: "counter", unit: "events", labels: []string{"kind"},
		help: "Unusual things in streams that were passed on as they came. done_missing: a clean end without [DONE]; event_too_large: an event over the reader's bound, not looked into."}

	ttftSeconds = series{name: "kvasir_time_to_first_token_seconds", kind: "histogram", unit: "seconds", labels: byPool, buckets: ttftBuckets,
		help: "Time to first token: a streamed call's arrival to its first content token. Observed when the token comes."}
	ttftPrediction = series{name: "kvasir_ttft_prediction_ratio", kind: "histogram", unit: "ratio", labels: byPool, buckets: ratioBuckets,
		help: "Predicted divided by actual time to first token of streamed calls, both from the dispatch of the attempt that answered. Only where the policy predicts it. Above 1: it came sooner."}
	itlSeconds = series{name: "kvasir_inter_token_latency_seconds", kind: "histogram", unit: "seconds", labels: byPool, buckets: itlBuckets,
		help: "Inter-token latency: every gap between consecutive streamed content events, pooled across calls. An event can carry several tokens; each is one gap."}
	tpotSeconds = series{name: "kvasir_time_per_output_token_seconds", kind: "histogram", unit: "seconds", labels: byPool, buckets: itlBuckets,
		help: "Time per output token: per successful streamed call with usage, the time after the first token divided by the output tokens after the first."}
	e2eSeconds = series{name: "kvasir_e2e_latency_seconds", kind: "histogram", unit: "seconds", labels: byPool, buckets: e2eBuckets,
		help: "End-to-end latency: a successful call's arrival to its answer's end."}
	normalizedSeconds = series{name: "kvasir_normalized_latency_seconds", kind: "histogram", unit: "seconds", labels: byPool, buckets: itlBuckets,
		help: "Normalized latency: end-to-end latency of a successful call with usage, divided by its output tokens."}
	pickSeconds = series{name: "kvasir_pick_duration_seconds", kind: "histogram", unit: "seconds", labels: byPool, buckets: pickBuckets,
		help: "Time to choose and charge an endpoint, waiting for the machine's lock included."}
	queueWaitSeconds = series{name: "kvasir_queue_wait_seconds", kind: "histogram", unit: "seconds", labels: byPool, buckets: ttftBuckets,
		help: "Time that a call was held at the gateway until an endpoint had room for it, or a sibling had computed their common prefix. Calls that were not held are not in it."}
)

// The state series: read from a Snapshot when they are scraped. An endpoint's own
// reports have no sample while they are unknown.
var (
	callsInFlight = series{name: "kvasir_calls_in_flight", kind: "gauge", unit: "calls",
		help: "Client calls accepted and not ended."}
	bufferedBytes = series{name: "kvasir_buffered_bytes", kind: "gauge", unit: "bytes",
		help: "Request bodies held in memory, all calls in flight together."}
	inFlight = series{name: "kvasir_in_flight", kind: "gauge", unit: "calls", labels: byEndpoint,
		help: "Calls charged to the endpoint by this gateway: dispatched and not ended upstream."}
	inRotation = series{name: "kvasir_endpoint_in_rotation", kind: "gauge", unit: "boolean", labels: byEndpoint,
		help: "1 while the endpoint takes calls; 0 while it is ejected or probed."}
	probing = series{name: "kvasir_endpoint_probing", kind: "gauge", unit: "boolean", labels: byEndpoint,
		help: "1 while an ejected endpoint is given calls as probes, as many as health.probes says."}
	draining = series{name: "kvasir_endpoint_draining", kind: "gauge", unit: "boolean", labels: byEndpoint,
		help: "1 while the endpoint gets no new calls because it drains, or leaves."}
	healthy = series{name: "kvasir_endpoint_healthy", kind: "gauge", unit: "boolean", labels: byEndpoint,
		help: "0 while the endpoint's health path fails; 1 also where it is not asked."}
	busySeconds = series{name: "kvasir_endpoint_busy_seconds", kind: "gauge", unit: "seconds", labels: byEndpoint,
		help: "How much longer the endpoint is left alone because it answered with back-pressure."}
	share = series{name: "kvasir_endpoint_share", kind: "gauge", unit: "ratio", labels: byEndpoint,
		help: "Part of its share of calls that the endpoint may have: 1, less while it is new."}
	queueCalls = series{name: "kvasir_queue_calls", kind: "gauge", unit: "calls", labels: byPool,
		help: "Calls held at the gateway until an endpoint of the pool has room. No sample for a pool without a queue."}
	queueBytes = series{name: "kvasir_queue_bytes", kind: "gauge", unit: "bytes", labels: byPool,
		help: "Bodies of the calls held. No sample for a pool without a queue."}
	queueTokens = series{name: "kvasir_queue_tokens", kind: "gauge", unit: "tokens", labels: byPool,
		help: "Prefill that the calls held bring: estimated prompt tokens that no endpoint of the pool is believed to have cached. No sample for a pool without a queue."}
	queuePredicted = series{name: "kvasir_queue_predicted_wait_seconds", kind: "gauge", unit: "seconds", labels: byPool,
		help: "Predicted time until the calls held now will have gone. 0 also while no endpoint's speed is known. No sample for a pool without a queue."}
	poolSaturation = series{name: "kvasir_pool_saturation", kind: "gauge", unit: "ratio", labels: append(slices.Clone(byPool), "axis"),
		help: "How saturated the pool is, by axis, 1 being where calls below priority 0 stay out. waiting: work that is not begun; kv_usage: KV blocks in use; preemptions: calls put back for want of them; ttft: predicted time to first token against the SLO; each a mean over endpoints. overall: the mean over endpoints of each one's worst axis. No sample where nothing is known."}
	demandCalls = series{name: "kvasir_pool_demand_calls_per_second", kind: "gauge", unit: "calls/s", labels: byPool,
		help: "Calls that came for the pool over the last minute, refused and shed ones included. Of a model's first pool all of the model's calls, of a further one those that came to it."}
	demandTokens = series{name: "kvasir_pool_demand_tokens_per_second", kind: "gauge", unit: "tokens/s", labels: byPool,
		help: "Prefill that these calls brought: estimated prompt tokens that are not believed to be cached in the pool."}
	demandVariation = series{name: "kvasir_pool_demand_variation", kind: "gauge", unit: "ratio", labels: byPool,
		help: "Squared coefficient of variation of that prefill over the calls: 0 where all bring the same, above 1 with heavy tails. No sample while no call comes."}
	waitingCalls = series{name: "kvasir_pool_waiting_calls", kind: "gauge", unit: "calls", labels: append(slices.Clone(byPool), "at"),
		help: "Calls that wait. at: gateway, in the pool's queue; engine, as its endpoints in rotation last reported, no sample while none has."}
	waitingTokens = series{name: "kvasir_pool_waiting_tokens", kind: "gauge", unit: "tokens", labels: append(slices.Clone(byPool), "at"),
		help: "Prefill that waits. at: gateway, in the pool's queue; engine, sent to endpoints in rotation and without a first token, by this gateway's book."}
	predictedWait = series{name: "kvasir_pool_predicted_wait_seconds", kind: "gauge", unit: "seconds", labels: byPool,
		help: "Predicted time until a call that comes now would be begun, at the mean endpoint. No sample while no endpoint's speed is known."}
	endpointWait = series{name: "kvasir_pool_endpoint_wait_seconds", kind: "gauge", unit: "seconds", labels: append(slices.Clone(byPool), "of"),
		help: "Predicted time until an endpoint in rotation would begin what is sent to it now. of: mean, worst. No sample while no endpoint's speed is known."}
	endpointCalls = series{name: "kvasir_pool_endpoint_outstanding", kind: "gauge", unit: "calls", labels: append(slices.Clone(byPool), "of"),
		help: "Calls that an endpoint in rotation has. of: mean, worst. No sample while none is in rotation."}
	kneeUtilization = series{name: "kvasir_pool_knee_utilization", kind: "gauge", unit: "ratio", labels: byPool,
		help: "Utilization by prefill up to which first tokens keep the model's SLO, by the Pollaczek-Khinchine formula. No sample without slo.ttft, or while the endpoints' speed is not known, or where the mean prefill takes longer than the SLO."}
	replicasDesired = series{name: "kvasir_pool_replicas_desired", kind: "gauge", unit: "endpoints", labels: byPool,
		help: "Endpoints that keep the SLO of nine calls in ten, for what came over the last minute: for their prefill up to the knee, or for the KV cache of the calls in flight. 1 while no call comes. No sample where the knee has none."}
	replicasInRotation = series{name: "kvasir_pool_replicas_in_rotation", kind: "gauge", unit: "endpoints", labels: byPool,
		help: "Endpoints of the pool that take calls and do not drain."}
	flightCalls = series{name: "kvasir_single_flight_calls", kind: "gauge", unit: "calls", labels: byPool,
		help: "Calls that wait for another one of the pool which computes a prefix that they share. No sample for a pool without single-flight."}
	hedgesTotal = series{name: "kvasir_hedges_total", kind: "counter", unit: "attempts", labels: append(slices.Clone(byPool), "outcome"),
		help: "Second attempts beside late first ones that have come to something. won: their content was first; lost: the first attempt's was, or the client left; failed: they ended without content. No sample for a pool whose calls are not hedged."}
	hedgeWasted = series{name: "kvasir_hedge_wasted_prompt_tokens_total", kind: "counter", unit: "tokens", labels: byPool,
		help: "Estimated prompt tokens of attempts that another one of their call has beaten, whichever was sent first: at most so much prefill was paid for and not used. No client is charged for it. No sample for a pool whose calls are not hedged."}
	hedgeAfter = series{name: "kvasir_hedge_after_seconds", kind: "gauge", unit: "seconds", labels: byPool,
		help: "How long a streamed call may be without content until it is hedged. No sample while too few first tokens were seen to know."}
	discoveryAge = series{name: "kvasir_discovery_age_seconds", kind: "gauge", unit: "seconds", labels: byPool,
		help: "Time since the pool's discovery last succeeded. No sample for a pool without discovery."}
	signalAge = series{name: "kvasir_signal_age_seconds", kind: "gauge", unit: "seconds", labels: byEndpoint,
		help: "Age of the endpoint's newest load report. No sample while there is none."}
	endpointRunning = series{name: "kvasir_endpoint_running", kind: "gauge", unit: "calls", labels: byEndpoint,
		help: "Calls in the engine's batch, as it last reported. No sample while unknown."}
	endpointWaiting = series{name: "kvasir_endpoint_waiting", kind: "gauge", unit: "calls", labels: byEndpoint,
		help: "Calls queued in the engine, as it last reported. No sample while unknown."}
	endpointKVUsage = series{name: "kvasir_endpoint_kv_usage", kind: "gauge", unit: "ratio", labels: byEndpoint,
		help: "Share of the engine's KV blocks in use, 0 to 1, as it last reported. No sample while unknown."}
	endpointLimit = series{name: "kvasir_endpoint_limit", kind: "gauge", unit: "calls", labels: byEndpoint,
		help: "Calls that this gateway may have in flight at the endpoint, as found from how late its first tokens are. No sample for a pool without queue.limit."}
	prefixTrust = series{name: "kvasir_prefix_trust", kind: "gauge", unit: "state", labels: byEndpoint,
		help: "How far beliefs about the endpoint's prefix cache are relied on. 2: exact, the engine tells; 1: approximate, by dispatches; 0: load-only, they have proved wrong. No sample where the pool's policy does not go by prefixes, as in the following."}
	prefixPredicted = series{name: "kvasir_prefix_predicted_tokens_total", kind: "counter", unit: "tokens", labels: byEndpoint,
		help: "Prompt tokens that the endpoint was believed to have cached when a call was sent, of calls whose answer reports how many were."}
	prefixReported = series{name: "kvasir_prefix_reported_tokens_total", kind: "counter", unit: "tokens", labels: byEndpoint,
		help: "Of these tokens, those that the answers report as cached."}
	tenantCalls = series{name: "kvasir_tenant_calls", kind: "gauge", unit: "calls", labels: []string{"tenant", "state"},
		help: "Calls of a configured tenant. running: let in; waiting: behind others of their conversation. No sample without tenants."}
	tenantRemaining = series{name: "kvasir_tenant_limit_remaining", kind: "gauge", unit: "the limit's", labels: []string{"tenant", "limit"},
		help: "What is left of a tenant's caps now: calls of concurrency, requests of rpm, tokens of tpm. No sample without such a cap."}
	tenantRequests = series{name: "kvasir_tenant_requests_total", kind: "counter", unit: "calls", labels: byTenant,
		help: "Calls of a configured tenant that were sent and have ended. No sample without tenants."}
	tenantRefused = series{name: "kvasir_tenant_refused_total", kind: "counter", unit: "calls", labels: byTenant,
		help: "Calls of a configured tenant that a limit has refused, its own or another one that they are under. No sample without tenants."}
	tenantTokens = series{name: "kvasir_tenant_tokens_total", kind: "counter", unit: "tokens", labels: []string{"tenant", "kind"},
		help: "Tokens that a configured tenant was charged for, unweighed. input, output, cached (a part of input); where an answer reports no usage its prompt's estimate and the contents that came. No sample without tenants."}
	tenantEstimated = series{name: "kvasir_tenant_estimated_calls_total", kind: "counter", unit: "calls", labels: byTenant,
		help: "Calls of a configured tenant whose tokens were counted because their answers reported none. No sample without tenants."}
	indexBytes = series{name: "kvasir_prefix_index_bytes", kind: "gauge", unit: "bytes", labels: byModel,
		help: "Memory held by the model's prefix index."}
	indexBlocks = series{name: "kvasir_prefix_index_blocks", kind: "gauge", unit: "blocks", labels: byModel,
		help: "Blocks known to the model's prefix index, each counted once however many endpoints hold it."}
)

// catalog lists every series in the order of docs/metrics.md.
var catalog = slices.Concat(counted, stated)

// counted are the series that the registry keeps.
var counted = []*series{
	&callsTotal, &attemptsTotal, &failuresTotal, &retriesTotal, &continuationsTotal, &ejectionsTotal, &restartsTotal, &scrapesTotal,
	&heartbeatsTotal, &reloadsTotal, &reloadedSeconds, &reloadSuccessful, &buildInfo,
	&repeatedTotal, &refusalsTotal, &limitRefusalsTotal, &tokensTotal, &odditiesTotal,
	&ttftSeconds, &ttftPrediction, &itlSeconds, &tpotSeconds, &e2eSeconds, &normalizedSeconds, &pickSeconds, &queueWaitSeconds,
}

// stated are the series that are read from a Snapshot.
var stated = []*series{
	&callsInFlight, &bufferedBytes, &inFlight, &inRotation, &probing, &draining, &healthy, &busySeconds, &share, &hedgesTotal, &hedgeWasted, &hedgeAfter, &queueCalls, &queueBytes, &queueTokens, &queuePredicted, &poolSaturation,
	&demandCalls, &demandTokens, &demandVariation, &waitingCalls, &waitingTokens, &predictedWait, &endpointWait, &endpointCalls, &kneeUtilization, &replicasDesired, &replicasInRotation, &flightCalls, &discoveryAge, &signalAge,
	&endpointRunning, &endpointWaiting, &endpointKVUsage, &endpointLimit, &prefixTrust, &prefixPredicted, &prefixReported, &tenantCalls, &tenantRemaining, &tenantRequests, &tenantRefused, &tenantTokens, &tenantEstimated, &indexBytes, &indexBlocks,
}

func (s *series) counter(reg prometheus.Registerer) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: s.name, Help: s.help}, s.labels)
	reg.MustRegister(v)
	return v
}

func (s *series) gauge(reg prometheus.Registerer) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: s.name, Help: s.help}, s.labels)
	reg.MustRegister(v)
	return v
}

func (s *series) histogram(reg prometheus.Registerer) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: s.name, Help: s.help, Buckets: s.buckets}, s.labels)
	reg.MustRegister(v)
	return v
}

func (s *series) desc() *prometheus.Desc {
	return prometheus.NewDesc(s.name, s.help, s.labels, nil)
}
