// Package health is layer 3 (endpoint selection), pure: whether an endpoint is in
// rotation. It is passive: calls tell it how they fared, nothing probes in parallel.
//
// An endpoint that failed several calls in a row before any content leaves rotation for
// a while. When the time is over one call, and no more, is let through as a probe: its
// first content brings the endpoint back, its failure sends it out again, and after as
// long again without a verdict the next call is a probe too, so that one call which hangs
// does not keep out an endpoint that has recovered.
package health

import (
	"time"

	"kvasir/internal/mono"
)

// Config says when an endpoint leaves rotation and for how long.
type Config struct {
	Failures int           // consecutive failures before content; default 3
	Ejection time.Duration // how long it stays out before a probe; default 5 s
}

// Default returns the defaults.
func Default() Config { return Config{Failures: 3, Ejection: 5 * time.Second} }

// State is an endpoint's place relative to rotation.
type State uint8

// The states.
const (
	InRotation State = iota
	Ejected          // gets no call until its time is over
	Probing          // one call is on its way as a probe
)

var stateNames = [...]string{"in_rotation", "ejected", "probing"}

// String returns the state's name in snake_case, as metrics and the admin API show it.
func (s State) String() string { return stateNames[s] }

// Breaker is one endpoint's state. The zero Breaker is in rotation. Not safe for
// concurrent use.
type Breaker struct {
	state    State
	failures int
	until    mono.Time // while Ejected or Probing: when the next probe is due
}

// State returns the state as of the last report.
func (b *Breaker) State() State { return b.state }

// Failures returns the consecutive failures counted so far.
func (b *Breaker) Failures() int { return b.failures }

// Permits reports whether the endpoint may be picked now.
func (b *Breaker) Permits(now mono.Time) bool {
	return b.state == InRotation || now >= b.until
}

// ProbeDue returns when an endpoint that is out of rotation may be probed next; false for
// one that is in rotation.
func (b *Breaker) ProbeDue() (mono.Time, bool) { return b.until, b.state != InRotation }

// Dispatch takes the permit for a call that is sent to the endpoint now. It returns true
// when that call is a probe.
func (b *Breaker) Dispatch(c Config, now mono.Time) bool {
	if b.state == InRotation {
		return false
	}
	b.state, b.until = Probing, now.Add(c.Ejection)
	return true
}

// Succeed books content that arrived: the endpoint is in rotation, whatever it was. It
// reports whether that changed anything for a picker.
func (b *Breaker) Succeed() bool {
	returned := b.state != InRotation
	*b = Breaker{}
	return returned
}

// Fail books a failure before content and reports whether the endpoint should now leave
// rotation; the caller, who knows whether it is the last one, then calls Eject or not.
// Failures of calls that were sent before an ejection say nothing new and are ignored.
func (b *Breaker) Fail(c Config, probe bool) bool {
	if b.state != InRotation {
		return probe && b.state == Probing
	}
	b.failures++
	return b.failures >= c.Failures
}

// Eject takes the endpoint out of rotation.
func (b *Breaker) Eject(c Config, now mono.Time) {
	b.state, b.until = Ejected, now.Add(c.Ejection)
}

// ProbeLost books a probe that ended without a verdict (its client left, or the call
// itself was at fault): the next call may probe at once.
func (b *Breaker) ProbeLost(now mono.Time) {
	if b.state == Probing {
		b.state, b.until = Ejected, now
	}
}
