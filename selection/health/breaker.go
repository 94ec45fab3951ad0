package health

import (
	"time"

	"kvasir/internal/mono"
)

// Breaker is one endpoint's state. The zero Breaker is in rotation. Not safe for
// concurrent use.
type Breaker struct {
	state     State
	cause     Cause
	failures  int       // consecutive
	ejections int       // in a row, none of whose probes succeeded
	until     mono.Time // while Ejected or Probing: when the next probe is due
	unhealthy bool      // the health path says so
	missed    int       // health requests in a row that failed
	recent    window
}

// State returns the state as of the last report.
func (b *Breaker) State() State { return b.state }

// Cause returns why the endpoint is out of rotation.
func (b *Breaker) Cause() Cause { return b.cause }

// Failures returns the consecutive failures counted so far.
func (b *Breaker) Failures() int { return b.failures }

// Healthy reports whether requests to the health path say nothing against the endpoint.
func (b *Breaker) Healthy() bool { return !b.unhealthy }

// Permits reports whether the endpoint may be picked now.
func (b *Breaker) Permits(now mono.Time) bool {
	return b.state == InRotation || now >= b.until && !b.unhealthy
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
	if b.state == Probing { // the probe before has no answer: the next but one comes later
		b.ejections++
	}
	b.state, b.until = Probing, now.Add(b.span(c))
	return true
}

// Succeed books content that arrived: the endpoint is in rotation, whatever it was. It
// reports whether that changed anything for a picker.
func (b *Breaker) Succeed(c Config, now mono.Time) bool {
	returned := b.state != InRotation
	if returned {
		b.recent = window{}
	}
	b.recent.add(c, now, false)
	b.state, b.cause, b.failures, b.ejections = InRotation, NoCause, 0, 0
	return returned
}

// Verdict is what a failure means for rotation.
type Verdict uint8

// The verdicts.
const (
	Stays              Verdict = iota
	Leaves                     // several failures in a row, or a failed probe
	LeavesIfOthersStay         // most of the recent calls failed: it leaves if enough others stay
)

// Fail books a failure before content and says whether the endpoint should now leave
// rotation; the caller, who knows whether others are left, then calls Eject or not.
// Failures of calls that were sent before an ejection say nothing new and are ignored.
func (b *Breaker) Fail(c Config, now mono.Time, probe bool) Verdict {
	if b.state != InRotation {
		if probe && b.state == Probing {
			return Leaves
		}
		return Stays
	}
	b.failures++
	b.recent.add(c, now, true)
	switch {
	case b.failures >= c.Failures:
		return Leaves
	case b.recent.failing(c):
		return LeavesIfOthersStay
	default:
		return Stays
	}
}

// Eject takes the endpoint out of rotation. Each time in a row lasts twice as long as the
// one before, up to the bound.
func (b *Breaker) Eject(c Config, now mono.Time, why Cause) {
	d := b.span(c)
	b.ejections++
	b.state, b.cause = Ejected, why
	b.until = now.Add(d)
}

// span returns how long the endpoint stays out from now on.
func (b *Breaker) span(c Config) time.Duration {
	d := c.Ejection
	for range min(b.ejections, 32) {
		if d >= c.MaxEjection {
			break
		}
		d *= 2
	}
	return max(min(d, c.MaxEjection), c.Ejection)
}

// ProbeLost books a probe that ended without a verdict (its client left, or the call
// itself was at fault): the next call may probe at once.
func (b *Breaker) ProbeLost(now mono.Time) {
	if b.state == Probing {
		b.state, b.until = Ejected, now
	}
}

// Asked books the answer to a request to the health path. most is how many in a row must
// fail before they count. It reports whether the endpoint should leave rotation now,
// which is the caller's to do, as for Fail.
func (b *Breaker) Asked(now mono.Time, ok bool, most int) bool {
	if !ok {
		b.missed++
		if b.missed < most {
			return false
		}
		b.unhealthy = true
		return b.state == InRotation
	}
	b.missed, b.unhealthy = 0, false
	// It is there again. Whether it works a real call must show; what failed for another
	// reason than absence sits its time out.
	if b.state == Ejected && (b.cause == Unreachable || b.cause == Unhealthy) {
		b.until = min(b.until, now)
	}
	return false
}
