// Package report is layer 1 (clients), pure: what the calls of a load run add up to, and
// how it is shown: a table, JSON with the keys of vLLM's benchmark, CSV and charts.
//
// Latencies are counted twice: from when the call should have been sent, which is what a
// user of the workload feels, and from when it was, which is what other tools print.
// Where the two part, the generator or its bound on concurrency has held calls back, and
// the second kind leaves that out (coordinated omission).
package report

import (
	"time"

	"kvasir/api"
)

// Sample is what was measured of one call. Instants are since the run's start.
type Sample struct {
	Session, Call int    // of the workload, from 0
	Class         string // of the session

	Intended time.Duration // when the workload has it sent
	Ready    time.Duration // when the generator came to it: later by its lag
	Sent     time.Duration // when its request was handed to a connection: later by the wait for a slot
	End      time.Duration // when the answer's end was read

	Outputs  Outputs       // streamed outputs that brought content
	Visible  time.Duration // when the first content came that is more than reasoning; 0: none did
	Usage    api.Usage     // as the answer reports it
	Prompt   int           // tokens of the prompt, by the workload
	Endpoint string        // which one answered, where the gateway says so
	Spans    []Span        // what the answer's header says of where time went

	BadEvents int // of the stream that are no JSON object in UTF-8; they are no outputs

	Failure Failure // empty: answered whole
	Detail  string  // of the failure, for messages
	Text    string  // of the answer, where details are kept
}

// Span is a part of a call's time that somebody on its way has measured.
type Span struct {
	Name string
	Time time.Duration
}

// Failure is a kind of failed call: one of those below, or "http_" and a status.
type Failure string

// Why a call has failed.
const (
	ConnectFailed Failure = "connect_failed" // no connection, or none in time
	Broken        Failure = "broken"         // the connection ended before the answer did
	StreamError   Failure = "stream_error"   // an error event in the stream
	NoStream      Failure = "no_stream"      // an answer that is not a stream of events
	Empty         Failure = "empty"          // a whole answer without content
	Overdue       Failure = "overdue"        // longer than the bound on a call
	Exhausted     Failure = "exhausted"      // the generator's machine has no descriptor or port left
)

// These are no failures: the run's end has cut the call off, or has come before it was sent.
const (
	Unfinished Failure = "unfinished"
	Unsent     Failure = "unsent"
)

// TTFT returns the time to the first content from the actual send.
func (s *Sample) TTFT() time.Duration { return s.Outputs.First - s.Sent }

// E2E returns the time to the answer's end from the actual send.
func (s *Sample) E2E() time.Duration { return s.End - s.Sent }

// held returns for how long the call was held back after it should have been sent: what
// latencies from the intended send have in addition.
func (s *Sample) held() time.Duration { return s.Sent - s.Intended }

// Tokens returns how many tokens the answer has: those that its usage reports, else as many
// as streamed outputs, and whether it was reported.
func (s *Sample) Tokens() (n int, reported bool) {
	if s.Usage.Output != api.Unknown {
		return s.Usage.Output, true
	}
	return s.Outputs.N, false
}

// TPOT returns the time per output token after the first one, (E2E − TTFT) / (n − 1). It
// reports false where there is none: an answer of a single token.
func (s *Sample) TPOT() (time.Duration, bool) {
	n, _ := s.Tokens()
	if n < 2 {
		return 0, false
	}
	return (s.E2E() - s.TTFT()) / time.Duration(n-1), true
}

// per divides a time by the answer's tokens; false where it has none.
func (s *Sample) per(t time.Duration) (time.Duration, bool) {
	n, _ := s.Tokens()
	if n < 1 {
		return 0, false
	}
	return t / time.Duration(n), true
}

// SessionSample is what was measured of a session: a conversation, an agent's work.
type SessionSample struct {
	Class         string
	Intended, End time.Duration // its At, and the end of its last call
	Calls         int           // sent
	Skipped       int           // not sent, because one that they follow has failed
	Failed        bool          // some call has failed, or the run's end has cut it off
}
