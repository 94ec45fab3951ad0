package web

import (
	"kvasir/gateway/proxy"
	"kvasir/lab"
)

// GET /v1/live streams server-sent events, each with one JSON object as its data:
//
//   - history, once at the start: a LiveHistory of the last minutes.
//   - state, at once, then each second, and when an endpoint leaves rotation or is back: a
//     LiveState.
//   - decision: a proxy.DecisionView, of at most LiveDecisions picks a second.
//   - outcome: a proxy.OutcomeView, of a call whose decision was shown.
//
// What is unknown is null, never 0. Names and numbers only: no text of prompts or answers
// is in any of them.

// The bounds of the stream.
const (
	LiveWatchers  = 16  // that are served at a time
	LiveDecisions = 10  // picks shown in a second
	LivePoints    = 300 // of the history, one a second
	LiveWindow    = 60  // seconds that a state's windows look back
	LiveRecent    = 10  // seconds that a point of the history looks back
	LivePairs     = 200 // newest predictions of a model that a state shows
)

// LiveState is the event state: everything that is known now.
type LiveState struct {
	Dropped   int64       `json:"dropped_events"` // that this watcher was too slow for, since it came
	At        float64     `json:"at_unix_seconds"`
	MayChange bool        `json:"may_change"` // an admin token is configured, so something can be changed with it
	Watchers  int         `json:"watchers"`
	InFlight  int         `json:"calls_in_flight"`
	Buffered  int64       `json:"buffered_bytes"`  // of request bodies
	Unrouted  int         `json:"unrouted_calls"`  // of the window: refused before their model was known
	Policies  []string    `json:"shadow_policies"` // that POST /v1/shadow takes
	Models    []LiveModel `json:"models"`
}

// LiveModel is a model's part of a state: what /v1/pools says, and what came of its calls.
type LiveModel struct {
	proxy.ModelView
	Window     LiveCalls      `json:"window"`
	Recent     LivePoint      `json:"recent"` // the newest point of the history
	Prediction LivePrediction `json:"prediction"`
	Missed     int            `json:"missed_calls"` // of the last second: too many ended for the window to count them
	Pools      []LivePool     `json:"pools"`
}

// LivePool is a pool's part of a state.
type LivePool struct {
	proxy.PoolView
	Endpoints []LiveEndpoint `json:"endpoints"`
}

// LiveEndpoint is an endpoint's part of a state. A call belongs to the endpoint of its last
// attempt.
type LiveEndpoint struct {
	proxy.EndpointView
	Window LiveCalls `json:"window"`
}

// LiveCalls says what became of the calls that have ended within a window.
type LiveCalls struct {
	Seconds         float64       `json:"seconds"` // that the window covers: fewer after a start, or where more calls end than are kept
	Calls           int           `json:"calls"`
	PerSecond       float64       `json:"calls_per_second"`
	OutputPerSecond *float64      `json:"output_tokens_per_second"` // of answers that report their usage; null: none has
	Refusals        int           `json:"refusals"`                 // by the gateway itself
	Failures        int           `json:"failures"`                 // of endpoints, back-pressure included, that no other attempt has made good
	CallerFaults    int           `json:"caller_faults"`
	ClientsGone     int           `json:"clients_gone"`
	Retries         int           `json:"retries"`             // attempts beyond the calls' first
	Goodput         *LiveGoodput  `json:"goodput"`             // null: no SLO is configured
	TTFT            LiveQuantiles `json:"ttft_seconds"`        // of streamed answers, from the call's arrival
	TPOT            LiveQuantiles `json:"tpot_seconds"`        // of streamed answers that report their usage
	CachedShare     *float64      `json:"cached_prompt_share"` // of prompt tokens, where the answers say so
}

// LiveGoodput is how many calls met the model's SLO (article section 2). Judged are the
// calls that could: neither those whose clients have left or were at fault, nor answers whose
// time to first token nobody saw. What was refused, or failed, has not met it.
type LiveGoodput struct {
	Judged    int      `json:"judged_calls"`
	Within    int      `json:"within_slo_calls"`
	Share     *float64 `json:"share"` // null: none was judged
	PerSecond float64  `json:"per_second"`
}

// LiveQuantiles are quantiles of n values by nearest rank, to within 0.8 %; null where n is 0.
type LiveQuantiles struct {
	N   int      `json:"n"`
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
	P99 *float64 `json:"p99"`
}

// LivePrediction compares the time to first token that the policy predicted when it sent a
// call with what it then was, both from the dispatch. The error is |predicted - actual| as a
// share of the actual.
type LivePrediction struct {
	N           int      `json:"n"`
	MedianError *float64 `json:"median_relative_error"`
	P95Error    *float64 `json:"p95_relative_error"`
	Predicted   Numbers  `json:"predicted_seconds"` // the newest LivePairs, oldest first
	Actual      Numbers  `json:"actual_seconds"`    // parallel to it
}

// LivePoint is what a point of the history holds of a model's calls that ended within
// LiveRecent seconds.
type LivePoint struct {
	PerSecond float64  `json:"calls_per_second"`
	Goodput   *float64 `json:"goodput_share"`    // null: no SLO, or no call judged
	TTFTP95   *float64 `json:"ttft_p95_seconds"` // null: no streamed answer
}

// LiveHistory is the event history: a point a second, oldest first. The newest is at At; all
// lists are as long as Points says. It is kept while nobody watches, too.
type LiveHistory struct {
	At     float64            `json:"at_unix_seconds"`
	Step   int                `json:"step_seconds"`
	Recent int                `json:"recent_seconds"`
	Points int                `json:"points"`
	Models []LiveHistoryModel `json:"models"`
}

// LiveHistoryModel is a model's part of the history, in LivePoint's terms.
type LiveHistoryModel struct {
	Model     string            `json:"model"`
	PerSecond Numbers           `json:"calls_per_second"`
	Goodput   Numbers           `json:"goodput_share"`
	TTFTP95   Numbers           `json:"ttft_p95_seconds"`
	Pools     []LiveHistoryPool `json:"pools"`
}

// LiveHistoryPool is a pool's part of the history.
type LiveHistoryPool struct {
	Pool      string                `json:"pool"`
	Queue     Numbers               `json:"queue_calls"` // null where the pool has no queue
	Endpoints []LiveHistoryEndpoint `json:"endpoints"`
}

// LiveHistoryEndpoint is an endpoint's part of the history. It goes with the endpoint.
type LiveHistoryEndpoint struct {
	Endpoint string  `json:"endpoint"`
	InFlight Numbers `json:"in_flight"` // this gateway's calls
	Waiting  Numbers `json:"waiting"`   // as the endpoint reports it
}

// Numbers is a list of numbers to six digits, in which NaN is unknown: null.
type Numbers = lab.Numbers
