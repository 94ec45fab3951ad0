// Package attempt is layer 2 (gateway), pure: what may still be tried for a call. It
// names how an attempt can end, which of those ends may be followed by another attempt
// before the commitment point, how long to wait, and how many retries all calls
// together may spend.
//
// Source: article sections 9.2 and 9.4; Finagle's retry budget; the field cases'
// invariants 5 to 7.
package attempt

// Outcome is how one upstream attempt ended.
type Outcome uint8

// The outcomes. Each belongs to one Class.
const (
	// Success: the answer ended as its protocol says.
	Success Outcome = iota
	// ConnectFailed: no connection could be made (refused, unreachable, name not found,
	// TLS failure, connect timeout).
	ConnectFailed
	// Broken: the connection ended before the answer did.
	Broken
	// StaleConnection: an idle connection that was being reused turned out to be closed,
	// before any byte of an answer. It says nothing about the endpoint's health.
	StaleConnection
	// BadGateway: status 502 or 504.
	BadGateway
	// Failed: another 5xx status. The same request may well fail everywhere, so it is
	// not tried again.
	Failed
	// StreamError: an error object inside a stream that began with status 200.
	StreamError
	// Busy: status 503; the endpoint lives and has no room.
	Busy
	// Limited: status 429.
	Limited
	// CallerFault: another 4xx status, or an error object with such a code.
	CallerFault
	// ClientGone: the client left; the attempt was aborted.
	ClientGone

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
)

var classes = [outcomes]Class{
	Success:         ClassSuccess,
	ConnectFailed:   ClassEndpointFailure,
	Broken:          ClassEndpointFailure,
	StaleConnection: ClassEndpointFailure,
	BadGateway:      ClassEndpointFailure,
	Failed:          ClassEndpointFailure,
	StreamError:     ClassEndpointFailure,
	Busy:            ClassBackPressure,
	Limited:         ClassBackPressure,
	CallerFault:     ClassCallerFault,
	ClientGone:      ClassClientGone,
}

var outcomeNames = [outcomes]string{
	"success", "connect_failed", "broken", "stale_connection", "bad_gateway", "failed",
	"stream_error", "busy", "limited", "caller_fault", "client_gone",
}

var classNames = [...]string{
	"success", "endpoint_failure", "back_pressure", "caller_fault", "client_gone",
}

// Class returns the outcome's class.
func (o Outcome) Class() Class { return classes[o] }

// String returns the outcome's name in snake_case, as metrics and logs show it.
func (o Outcome) String() string { return outcomeNames[o] }

// String returns the class's name in snake_case, as metrics and logs show it.
func (c Class) String() string { return classNames[c] }

// Retryable reports whether another attempt may follow this outcome, provided that
// nothing of the answer's content has reached the client.
func (o Outcome) Retryable() bool {
	switch o {
	case ConnectFailed, Broken, StaleConnection, BadGateway, StreamError, Busy:
		return true
	default:
		return false
	}
}

// CountsAgainst reports whether the outcome, before the first content, is one of the
// consecutive failures that take an endpoint out of rotation.
func (o Outcome) CountsAgainst() bool { return o == ConnectFailed || o == Broken }

// FromStatus returns the outcome that an HTTP status means for an attempt that ended
// with it.
func FromStatus(status int) Outcome {
	switch {
	case status == 503:
		return Busy
	case status == 502, status == 504:
		return BadGateway
	case status >= 500:
		return Failed
	case status == 429:
		return Limited
	case status >= 400:
		return CallerFault
	default:
		return Success
	}
}
