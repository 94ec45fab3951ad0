// Package attempt is layer 2 (gateway), pure: what may still be tried for a call. It
// names how an attempt can end, which of those ends may be followed by another attempt
// before the commitment point, how long to wait, and how many retries all calls
// together may spend.
//
// Source: article sections 9.1, 9.2 and 9.4; Finagle's retry budget; the field cases'
// invariants 5 to 7.
package attempt

// Outcome is how one upstream attempt ended.
type Outcome uint8

// The outcomes. Each belongs to one Class.
const (
	// Success: the answer ended as its protocol says.
	Success Outcome = iota
	// ConnectFailed: no connection could be made (refused, unreachable, name not found,
	// TLS failure).
	ConnectFailed
	// ConnectTimeout: no connection could be made in time.
	ConnectTimeout
	// Exhausted: no connection could be made because this process has no descriptor or port
	// left. The endpoint has nothing to do with it.
	Exhausted
	// Broken: the connection ended before the answer did.
	Broken
	// StaleConnection: an idle connection that was being reused turned out to be closed,
	// before any byte of an answer. It says nothing about the endpoint's health.
	StaleConnection
	// HeaderTimeout: a connection was made, and no response header came in time.
	HeaderTimeout
	// FirstTokenTimeout: the header came, and no content in time.
	FirstTokenTimeout
	// Stalled: content came, and then none for too long, or not even a byte.
	Stalled
	// Overdue: the call took longer than calls may, whoever is to blame.
	Overdue
	// Forfeited: an endpoint's failure before content, but after bytes of its answer were
	// passed on, so that no other attempt may follow.
	Forfeited
	// Recalled: the machine took the attempt back, since its endpoint leaves or has
	// stalled under others.
	Recalled
	// BadGateway: status 502 or 504.
	BadGateway
	// Failed: another 5xx status.
	Failed
	// StreamError: an error object inside a stream that began with status 200.
	StreamError
	// Denied: status 401 or 403. The client's credentials never reach an endpoint, so
	// what it does not accept is the gateway's own.
	Denied
	// Missing: status 404 or 405: the endpoint has not got the model, or the route.
	Missing
	// Unusable: an answer that must not reach the client: a redirect, or a stream where
	// none was asked for.
	Unusable
	// Busy: status 503 or 529; the endpoint lives and has no room.
	Busy
	// Limited: status 429.
	Limited
	// CallerFault: another 4xx status, or an error object with such a code.
	CallerFault
	// ClientGone: the client left; the attempt was aborted.
	ClientGone
	// Beaten: another attempt of the same call was first; this one was aborted.
	Beaten

	outcomes
)

// Class groups outcomes by who is to blame. Only EndpointFailure may take an endpoint
// out of rotation; BackPressure and CallerFault never bring one back.
type Class uint8

// The classes.
const (
	ClassSuccess Class = iota
	ClassEndpointFailure
	ClassBackPressure
	ClassCallerFault
	ClassClientGone
	ClassBeaten // nobody: another attempt was first
)

// Evidence is what an outcome before the first content says against its endpoint.
type Evidence uint8

const (
	// NoEvidence: nothing.
	NoEvidence Evidence = iota
	// Doubtful: the call may be to blame as well as the endpoint. It counts once another
	// endpoint has answered the same call (field case F30).
	Doubtful
	// Probable: it counts, unless the same call failed at another endpoint before: such a
	// call may be what breaks engines.
	Probable
	// Certain: it counts.
	Certain
)

// traits is what follows from an outcome.
type traits struct {
	name      string
	class     Class
	evidence  Evidence
	retryable bool
}

var table = [outcomes]traits{
	Success:           {"success", ClassSuccess, NoEvidence, false},
	ConnectFailed:     {"connect_failed", ClassEndpointFailure, Certain, true},
	ConnectTimeout:    {"connect_timeout", ClassEndpointFailure, Certain, true},
	Exhausted:         {"exhausted", ClassBackPressure, NoEvidence, true},
	Broken:            {"broken", ClassEndpointFailure, Doubtful, true},
	StaleConnection:   {"stale_connection", ClassEndpointFailure, NoEvidence, true},
	HeaderTimeout:     {"header_timeout", ClassEndpointFailure, Probable, true},
	FirstTokenTimeout: {"first_token_timeout", ClassEndpointFailure, Probable, true},
	Stalled:           {"stalled", ClassEndpointFailure, Probable, true},
	Overdue:           {"overdue", ClassEndpointFailure, NoEvidence, false},
	Forfeited:         {"forfeited", ClassEndpointFailure, NoEvidence, false},
	Recalled:          {"recalled", ClassEndpointFailure, NoEvidence, true},
	BadGateway:        {"bad_gateway", ClassEndpointFailure, Doubtful, true},
	Failed:            {"failed", ClassEndpointFailure, Doubtful, true},
	StreamError:       {"stream_error", ClassEndpointFailure, Doubtful, true},
	Denied:            {"denied", ClassEndpointFailure, Doubtful, true},
	Missing:           {"missing", ClassCallerFault, Doubtful, true},
	Unusable:          {"unusable", ClassEndpointFailure, Doubtful, true},
	Busy:              {"busy", ClassBackPressure, NoEvidence, true},
	Limited:           {"limited", ClassBackPressure, NoEvidence, true},
	CallerFault:       {"caller_fault", ClassCallerFault, NoEvidence, false},
	ClientGone:        {"client_gone", ClassClientGone, NoEvidence, false},
	Beaten:            {"beaten", ClassBeaten, NoEvidence, false},
}

var classNames = [...]string{
	"success", "endpoint_failure", "back_pressure", "caller_fault", "client_gone", "beaten",
}

// Failures returns the names of all outcomes but Success.
func Failures() []string {
	var names []string
	for o := Success + 1; o < outcomes; o++ {
		names = append(names, o.String())
	}
	return names
}

// Class returns the outcome's class.
func (o Outcome) Class() Class { return table[o].class }

// String returns the outcome's name in snake_case, as metrics and logs show it.
func (o Outcome) String() string { return table[o].name }

// String returns the class's name in snake_case, as metrics and logs show it.
func (c Class) String() string { return classNames[c] }

// Pushed reports whether an endpoint asks with it to be left alone for a while.
func (o Outcome) Pushed() bool { return o == Busy || o == Limited }

// Retryable reports whether another attempt may follow this outcome, provided that
// nothing of the answer's content has reached the client.
func (o Outcome) Retryable() bool { return table[o].retryable }

// Status returns the HTTP status that the outcome stands for, of several the plainest; 0:
// there is none, since nothing was answered.
func (o Outcome) Status() int {
	switch o {
	case Success:
		return 200
	case CallerFault:
		return 400
	case Denied:
		return 401
	case Missing:
		return 404
	case Limited:
		return 429
	case Failed, StreamError:
		return 500
	case BadGateway:
		return 502
	case Busy:
		return 503
	}
	return 0
}

// Evidence returns what the outcome says against its endpoint.
func (o Outcome) Evidence() Evidence { return table[o].evidence }

// Dead reports whether the outcome means that nobody is there to answer, so that an
// endpoint out of rotation is no worse a guess.
func (o Outcome) Dead() bool { return o == Broken || table[o].evidence >= Probable }

// FromStatus returns the outcome that an HTTP status means for an attempt that ended
// with it.
func FromStatus(status int) Outcome {
	switch {
	case status == 503, status == 529: // 529: Anthropic's "overloaded"
		return Busy
	case status == 502, status == 504:
		return BadGateway
	case status >= 500:
		return Failed
	case status == 429:
		return Limited
	case status == 401, status == 403:
		return Denied
	case status == 404, status == 405:
		return Missing
	case status >= 400:
		return CallerFault
	case status >= 300, status < 200:
		return Unusable
	default:
		return Success
	}
}
