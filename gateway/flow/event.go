package flow

import (
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/signal"
)

// Ticket names a call that the machine holds. It comes with the call's first Dispatch
// and goes into every report about the call.
type Ticket struct {
	Call  selection.CallID
	index int32 // of the machine's record
}

// Index is the place of the machine's record of the call: of the calls that it holds no two
// have the same, and those that are free are used again.
func (t Ticket) Index() int { return int(t.index) }

// Usage is what an answer said that it cost.
type Usage = selection.Usage

type eventKind uint8

// The kinds of events. Reports of one instant fold in this order.
const (
	reportSignal eventKind = iota
	reportHealth
	reportAlive
	reportProgress
	reportFirst
	reportClaim
	reportDone
	reportLeft
	reportPeer

	arrival
	wakeUp
)

// Event is something that happened. Build one with the functions below.
type Event struct {
	kind    eventKind
	ticket  Ticket
	attempt int

	request *selection.Request // arrival

	slot       selection.Slot // reportSignal, reportHealth, reportAlive, reportPeer
	generation uint32
	load       signal.Load
	took       time.Duration
	healthy    bool

	outcome attempt.Outcome // reportDone
	usage   Usage
	word    *Word // reportPeer
	wait    time.Duration
	tokens  int // reportProgress
	status  int
	resumes bool
}

// Arrive says that a client's call must be placed. The machine copies what it keeps of
// q, so the caller may reuse it once Step has returned.
func Arrive(q *selection.Request) Event { return Event{kind: arrival, request: q} }

// Wake says that an instant asked for by a WakeAt action has come.
func Wake() Event { return Event{kind: wakeUp} }

// FirstToken reports an attempt's first content: the call is committed to it.
func FirstToken(t Ticket, attempt int) Event {
	return Event{kind: reportFirst, ticket: t, attempt: attempt}
}

// Claim reports that an attempt's answer can't be held back any longer, though no content of it
// has come: no other attempt may follow, nor run beside it.
func Claim(t Ticket, attempt int) Event {
	return Event{kind: reportClaim, ticket: t, attempt: attempt}
}

// Done reports that an attempt's upstream has ended.
func Done(t Ticket, n int, o attempt.Outcome, u Usage) Event {
	return Event{kind: reportDone, ticket: t, attempt: n, outcome: o, usage: u, wait: attempt.NoWait}
}

// Pushed reports that an attempt's upstream has ended with back-pressure, and for how long
// it asks to be left alone; attempt.NoWait where it names no time.
func Pushed(t Ticket, n int, o attempt.Outcome, wait time.Duration) Event {
	return Event{kind: reportDone, ticket: t, attempt: n, outcome: o, wait: wait}
}

// Answered adds to Done or Pushed the HTTP status that the attempt was answered with, for the
// rules that name statuses. Without it the outcome's own counts (attempt.Outcome.Status).
func (e Event) Answered(status int) Event {
	e.status = status
	return e
}

// Resumes adds to a Done that the client has content of the answer, and may have the rest of it
// from elsewhere: the driver can prompt another endpoint with what was said. A Dispatch or a
// GiveUp follows, as after a failure before the first content. Not after a call's hedge was sent.
func (e Event) Resumes() Event {
	e.resumes = true
	return e
}

// Left reports that the client is gone, whatever its call was doing; an attempt that was
// running has been aborted.
func Left(t Ticket) Event { return Event{kind: reportLeft, ticket: t} }

// Signal reports what an endpoint said of itself. The load was true took before the
// report, at the earliest. A report for an endpoint that has left is ignored.
func Signal(slot selection.Slot, generation uint32, load signal.Load, took time.Duration) Event {
	return Event{kind: reportSignal, slot: slot, generation: generation, load: load, took: took}
}

// Health reports whether an endpoint's health path answered well. A report for an endpoint
// that has left is ignored.
func Health(slot selection.Slot, generation uint32, ok bool) Event {
	return Event{kind: reportHealth, slot: slot, generation: generation, healthy: ok}
}

// AliveEvery is how often, at most, a driver need report that an endpoint is alive.
const AliveEvery = time.Second

// Alive reports that an endpoint has sent more of an answer: one that streams works, whoever
// waits there. A report for an endpoint that has left is ignored.
func Alive(slot selection.Slot, generation uint32) Event {
	return Event{kind: reportAlive, slot: slot, generation: generation}
}

// Progress reports how many tokens of its answer an attempt has brought so far. A driver need
// report it no more often than AliveEvery, and only for attempts whose Dispatch asks for it.
func Progress(t Ticket, attempt, tokens int) Event {
	return Event{kind: reportProgress, ticket: t, attempt: attempt, tokens: tokens}
}

// ActionKind says what a driver must do.
type ActionKind uint8

// The actions.
const (
	// Dispatch: send the call to the endpoint.
	Dispatch ActionKind = iota
	// Refuse: the call was not accepted; Reason says why. The machine does not know it.
	Refuse
	// Hold: the call waits at the gateway until an endpoint has room. A Dispatch or a GiveUp
	// follows, unless its client leaves.
	Hold
	// GiveUp: no further attempt follows a failed one; answer with what it left. Or the call
	// was held and gets none at all. The machine has forgotten the call.
	GiveUp
	// Recall: abort the call's attempt, unless its first content has come, and report it as
	// done with attempt.Recalled: its endpoint leaves, or says nothing any more.
	Recall
	// Won: of the call's two attempts this one goes on. Pass its answer on; abort the other one,
	// whatever it has brought, and report it as done with attempt.Beaten.
	Won
	// Ejected: an endpoint has left rotation; Cause says why. For the driver's log; nothing
	// else is to do.
	Ejected
	// Returned: an endpoint is in rotation again. For the driver's log, likewise.
	Returned
	// Restarted: an endpoint was found to have restarted, and what was believed of its
	// cache and its load is forgotten. For the driver's log, likewise.
	Restarted
	// TrustChanged: what is believed of an endpoint's prefix cache is relied on more or less
	// than before, as Trust says. For the driver's log, likewise.
	TrustChanged
	// Freed: an endpoint that has left answers no call any more; its slot may go to
	// another one.
	Freed
	// Tell: the peers are to hear what Machine.Words returns.
	Tell
	// WakeAt: deliver a Wake event at the instant At, or as soon after it as possible. A
	// later WakeAt replaces an earlier one.
	WakeAt
)

// Reason says why a call was refused or given up.
type Reason uint8

// The reasons.
const (
	NoReason       Reason = iota
	NoEndpoint            // no pool has an endpoint in rotation
	TooManyCalls          // the model's bound on calls in flight is reached
	AttemptsSpent         // the call had all its attempts
	BudgetSpent           // the retry budget of the pool, or that of all models, is spent
	NoAlternative         // no endpoint is left that the call has not tried
	FailsElsewhere        // two endpoints answered it with a failure of their own: it is the call's
	QueueFull             // as many calls wait for the pool as may
	QueueBytes            // their bodies are as large together as they may be
	QueueWait             // the wait would be longer than calls may wait
	QueueTimeout          // it was
	Shed                  // it gave way to calls of higher priority, or the pool is saturated
	DeadlineUnmet         // its first token would come after its own deadline
	DeadlinePassed        // its own deadline has passed

	reasons
)

var reasonNames = [reasons]string{
	"", "no_endpoint", "too_many_calls", "attempts_spent", "retry_budget_spent", "no_alternative", "fails_elsewhere",
	"queue_full", "queue_bytes", "queue_wait", "queue_timeout", "shed", "deadline_unmet", "deadline_passed",
}

// String returns the reason's name in snake_case, as metrics and logs show it.
func (r Reason) String() string { return reasonNames[r] }

// RetryAfter is what a refused client is told, in whole seconds, where those before it are
// predicted to wait so long: a second at least, and no more than a minute, since what lies
// further ahead can't be predicted.
func RetryAfter(wait time.Duration) time.Duration {
	wait = min(max(wait, time.Second), time.Minute)
	return (wait + time.Second - 1) / time.Second * time.Second
}

// Final reports whether another try by the client now would be of no use, after so many
// attempts: the call has had what can be had. SDKs heed x-should-retry: false, which says so,
// and retries do not multiply (article section 9.1).
func (r Reason) Final(attempts int) bool {
	switch r {
	case AttemptsSpent, BudgetSpent, FailsElsewhere:
		return true
	case DeadlineUnmet, DeadlinePassed: // who waits for it knows what else to do, and has no time
		return true
	}
	return r == NoAlternative && attempts > 1
}

// Action is something that the driver must do.
type Action struct {
	Kind       ActionKind
	Reason     Reason
	Ticket     Ticket
	Attempt    int           // 0 is the first
	Hedge      bool          // Dispatch: beside the call's other attempt, which runs on
	Pool       int           // index into Config.Pools
	Wait       time.Duration // Dispatch, GiveUp: how long the call has been held; Refuse for a queue's bound: how long those before it are predicted to wait, 0 where that is not known
	Again      time.Duration // GiveUp of a call that was shed: how long those that went before it are predicted to wait, likewise
	Progress   bool          // Dispatch: the answer's progress is to be reported
	Slot       selection.Slot
	Generation uint32
	Cause      health.Cause        // Ejected
	Trust      signal.Trust        // TrustChanged
	Compared   signal.Tokens       // TrustChanged: what led to it
	Predicted  time.Duration       // Dispatch: time to first token from now on, as the policy predicts it; 0: it does not
	At         mono.Time           // WakeAt
	Decision   *selection.Decision // Dispatch, where the request or the configuration asked
}
