// Package telemetry has no layer and is live: what Kvasir tells of itself. Metrics
// counts calls into the kvasir_* series, State shows the machine's state at the moment
// of a scrape, and LogCall writes one line a call.
//
// Everything is bounded by configuration: a label's value is the name of a configured
// model, pool or endpoint, a constant of this package, or "unknown" and "none". Nothing
// that a client sends becomes a label (field case F74), and no prompt or answer text
// can enter: a Call has no field for it.
//
// docs/metrics.md is the table of all series, written from this package's catalogue.
package telemetry

import "time"

// Outcome is how a call, or one attempt, ended. A call has exactly one. The classes
// follow invariant 7 of the field cases: only EndpointFailure speaks against an
// endpoint; BackPressure, CallerFault and ClientGone are neutral to its health.
type Outcome uint8

// The outcomes. The zero Outcome is not one of them: it shows as "unclassified", which
// is a fault of whoever filled in the record.
const (
	Success         Outcome = 1 + iota // the whole answer was relayed
	EndpointFailure                    // refused, reset, 5xx, cut or stalled answer
	BackPressure                       // an endpoint said that it is full (429, 503 with Retry-After)
	CallerFault                        // the request itself is wrong (4xx)
	ClientGone                         // the client left before the answer's end
	Beaten                             // of an attempt: another one of its call was first
	Refused                            // the gateway answered by itself, for want of room or of an endpoint
	outcomes                           // how many there are, plus one
)

var outcomeNames = [outcomes]string{
	"unclassified", "success", "endpoint_failure", "back_pressure", "caller_fault", "client_gone", "beaten", "refused",
}

// String returns the outcome's name as labels and log lines show it.
func (o Outcome) String() string { return outcomeNames[o.valid()] }

func (o Outcome) valid() Outcome {
	if o >= outcomes {
		return 0
	}
	return o
}

// Refusal is why the gateway answered a call by itself, without an attempt.
type Refusal uint8

// The refusals. The zero Refusal means that the call was not refused.
const (
	NotRefused     Refusal = iota
	BadRequest             // unreadable, or lacks what routing needs
	UnknownRoute           // no such path or method
	UnknownModel           // no configured model or alias of that name
	BodyTooLarge           // over the bound of one body
	BuffersFull            // over the bound of all bodies in flight
	TooManyCalls           // over the bound of calls in flight
	NoEndpoint             // no pool of the model has an endpoint in rotation
	Draining               // shutting down
	Unauthorized           // no key, or one that is not known
	QueueFull              // as many calls wait for an endpoint as may
	QueueBytes             // their bodies are as large together as they may be
	QueueWait              // the wait would be too long
	QueueTimeout           // the wait was too long
	Shed                   // it gave way to calls of higher priority, or the pool is saturated
	DeadlineUnmet          // its first token would come after its own deadline
	DeadlinePassed         // its own deadline has passed
	RateLimited            // over what its tenant, its key or its model may use
	FanOutTimeout          // its conversation's calls took too long to let it go
	refusals               // how many there are
)

var refusalNames = [refusals]string{
	"", "bad_request", "unknown_route", "unknown_model", "body_too_large",
	"buffers_full", "too_many_calls", "no_endpoint", "draining", "unauthorized",
	"queue_full", "queue_bytes", "queue_wait", "queue_timeout", "shed", "deadline_unmet", "deadline_passed", "rate_limited", "fan_out_timeout",
}

// String returns the refusal's name as labels and log lines show it; empty for
// NotRefused.
func (r Refusal) String() string {
	if r >= refusals {
		return "unclassified"
	}
	return refusalNames[r]
}

// Oddity is something unusual in a stream that was passed on as it came.
type Oddity uint8

// The oddities.
const (
	DoneMissing   Oddity = iota // a clean end without [DONE] after a finish reason
	EventTooLarge               // an event over the reader's bound: relayed, not looked into
	oddities                    // how many there are
)

var oddityNames = [oddities]string{"done_missing", "event_too_large"}

// String returns the oddity's name as labels show it.
func (o Oddity) String() string {
	if o >= oddities {
		return "unclassified"
	}
	return oddityNames[o]
}

// Call is the record of one client's call that has ended: what LogCall writes and what
// Metrics.Call counts. It holds names and numbers, never text of a prompt or an answer.
type Call struct {
	ID       string // request id, as the client sees it in x-request-id
	Model    string // the configured model's name; empty where the client named none that exists
	Pool     string // pool of the last attempt; empty where there was none
	Endpoint string // endpoint of the last attempt; empty where there was none
	Policy   string // policy that picked it, kebab-case
	Peer     string // the address that the client's connection comes from, without its port
	Client   string // the client's configured name; empty where none is needed, or none was shown
	Tenant   string // who pays; empty: nobody that is known
	Class    string // what the call is like; empty: not known yet
	Route    string // the route's pattern, such as /v1/chat/completions; never the client's own path

	Outcome   Outcome
	Refusal   Refusal // NotRefused unless the gateway answered by itself
	Status    int     // HTTP status sent to the client; 0: none was
	Attempts  int     // upstream calls made; 0 for a refused call
	Tried     string  // the attempts before the last: endpoint and failure of each; empty: there were none
	Stream    bool    // the answer was streamed
	Retry     bool    // its client had sent it before
	Continued int     // parts of the answer after the first, each by another endpoint where the one before broke off
	Hedged    bool    // a second attempt ran beside another one

	Conversation uint64 // the hash of the conversation that the call belongs to; 0: not known

	InputTokens     int  // prompt tokens as estimated for routing
	UsageKnown      bool // the answer reported its usage: prompt and output tokens are true
	CachedKnown     bool // and it said how many were cached; else CachedTokens is 0
	PromptTokens    int  // prompt tokens, cached ones included
	CachedTokens    int  // of those, found in the engine's prefix cache
	OutputTokens    int  // tokens of the answer
	OutputEstimated int  // tokens of the answer as counted on its way, where UsageKnown is not set

	Pick time.Duration // time spent in the first attempt's pick, waiting for the lock included; 0: no pick
	Held time.Duration // time spent at the gateway until its turn in its conversation came, and until an endpoint had room, or a sibling had computed their common prefix; 0: none
	TTFT time.Duration // arrival to first content token of a streamed answer; 0: none was seen
	// Thought is the arrival to the first reasoning of the answer, where that was held back until
	// the first token that the user sees, whose time TTFT is then; 0: none was.
	Thought time.Duration
	// PredictedTTFT is what TTFT was expected to be when the last attempt was sent, by its
	// policy; 0: it predicts none.
	PredictedTTFT time.Duration
	Sent          time.Duration // arrival to the beginning of the last attempt
	E2E           time.Duration // arrival to the answer's last byte, or to the call's end

	DoneMissing bool // the stream ended cleanly without [DONE]
}

// TPOT returns the time per output token: the time after the first token, divided by
// the output tokens after the first (article section 2). It is unknown for a call
// that was not streamed or did not succeed, without usage, and below two tokens.
func (c *Call) TPOT() (time.Duration, bool) {
	if c.Outcome != Success || !c.Stream || !c.UsageKnown || c.OutputTokens < 2 || c.TTFT <= 0 || c.E2E < c.TTFT {
		return 0, false
	}
	return (c.E2E - c.TTFT) / time.Duration(c.OutputTokens-1), true
}

// Normalized returns the normalized latency: the end-to-end time divided by the output
// tokens (article section 2). It is unknown for a call that did not succeed, without
// usage, and without output.
func (c *Call) Normalized() (time.Duration, bool) {
	if c.Outcome != Success || !c.UsageKnown || c.OutputTokens < 1 {
		return 0, false
	}
	return c.E2E / time.Duration(c.OutputTokens), true
}
