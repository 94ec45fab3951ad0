package health

import (
	"time"

	"kvasir/internal/mono"
)

// Breaker is one endpoint's state. The zero Breaker is in rotation. Its rules are its pool's,
// the same at each call; where they change, Recount. Not safe for concurrent use.
type Breaker struct {
	state     State
	cause     Cause
	failures  int       // consecutive
	ejections int       // in a row, none of whose probes succeeded
	until     mono.Time // while Ejected or Probing: when the next probe is due
	term      Term      // of the newest ejection
	left      int       // while Probing: further probes that may go now
	unhealthy bool      // the health path says so
	missed    int       // health requests in a row that failed
	tallies   []tally   // by rule
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
	return b.state == InRotation || (now >= b.until || b.state == Probing && b.left > 0) && !b.unhealthy
}

// ProbeDue returns when an endpoint that is out of rotation may be probed next; false for
// one that is in rotation.
func (b *Breaker) ProbeDue() (mono.Time, bool) {
	if b.state == Probing && b.left > 0 {
		return 0, true
	}
	return b.until, b.state != InRotation
}

// Dispatch takes the permit for a call that is sent to the endpoint now. It returns true
// when that call is a probe.
func (b *Breaker) Dispatch(c Config, now mono.Time) bool {
	switch {
	case b.state == InRotation:
		return false
	case b.state == Probing && now < b.until && b.left > 0:
		b.left--
		return true
	case b.state == Probing: // the probes before have no answer: the next but one comes later
		b.ejections++
	}
	b.state, b.until, b.left = Probing, now.Add(b.term.span(b.ejections)), max(c.Probes, 1)-1
	return true
}

// Succeed books content that arrived: the endpoint is in rotation, whatever it was. asked
// says that the call was sent to it since it is out, as a probe or because there was nobody
// else: without that, content says nothing against a rule that has tripped, since answers to
// calls of before go on. It reports whether anything changed for a picker.
func (b *Breaker) Succeed(rules []Rule, now mono.Time, asked bool) bool {
	if b.state != InRotation && b.cause == Tripped && !asked {
		return false
	}
	returned := b.state != InRotation
	if returned {
		clear(b.tallies)
	}
	b.room(rules)
	for i := range rules {
		b.tallies[i].add(&rules[i], now, false)
	}
	b.state, b.cause, b.failures, b.ejections, b.left = InRotation, NoCause, 0, 0, 0
	return returned
}

// Recount forgets what was counted: the rules are others from now on.
func (b *Breaker) Recount() { b.tallies = nil }

func (b *Breaker) room(rules []Rule) {
	if len(b.tallies) != len(rules) {
		b.tallies = make([]tally, len(rules))
	}
}

// Verdict is what a failure means for rotation.
type Verdict uint8

// The verdicts.
const (
	Stays              Verdict = iota
	Leaves                     // as many failures as a rule says, or a failed probe
	LeavesIfOthersStay         // most of the recent calls failed, or a rule that names statuses: it leaves if enough others stay
)

// Fail books a failure before content that is the endpoint's own, and says whether the
// endpoint should now leave rotation, and for how long; the caller, who knows whether others
// are left, then calls Eject or not. Failures of calls that were sent before an ejection say
// nothing new and are ignored.
func (b *Breaker) Fail(rules []Rule, now mono.Time, probe bool) (Verdict, Term) {
	if b.state != InRotation {
		if probe && b.state == Probing {
			return Leaves, Term{b.term.For, b.term.Most, -1}
		}
		return Stays, Term{}
	}
	b.failures++
	b.room(rules)
	verdict, term := Stays, Term{}
	for i := range rules {
		r := &rules[i]
		if r.Names() || !b.tallies[i].add(r, now, true) || verdict == Leaves {
			continue
		}
		if r.Failures > 0 {
			verdict, term = Leaves, r.term(-1)
		} else if verdict == Stays {
			verdict, term = LeavesIfOthersStay, r.term(-1)
		}
	}
	return verdict, term
}

// Answered books the status of an attempt that brought no content, whosever fault it was,
// for the rules that name statuses, and says what follows as Fail does. named is how long the
// endpoint asks to be left alone; negative: it does not say. An endpoint that is out already
// stays out longer if it asks for that.
func (b *Breaker) Answered(rules []Rule, now mono.Time, status int, named time.Duration, probe bool) (Verdict, Term) {
	verdict, term := Stays, Term{}
	for i := range rules {
		r := &rules[i]
		if !r.Names() {
			continue
		}
		counts, out := r.counts(status), false
		switch b.state {
		case InRotation:
			b.room(rules)
			out = b.tallies[i].add(r, now, counts)
		case Probing:
			out = counts && probe
		case Ejected:
			out = counts && b.cause == Tripped && r.RetryAfter && named >= 0
		}
		if t := r.term(named); out && (verdict == Stays || t.first() > term.first()) {
			verdict, term = LeavesIfOthersStay, t
		}
	}
	return verdict, term
}

// Eject takes the endpoint out of rotation. Each time in a row lasts twice as long as the
// one before, up to the bound; a time that the endpoint has named lasts as long as that. One
// that is out for longer stays out for longer.
func (b *Breaker) Eject(now mono.Time, why Cause, t Term) {
	until := now.Add(t.span(b.ejections))
	if t.Named >= 0 {
		until = now.Add(t.Named)
	}
	if b.state == Ejected {
		until = max(until, b.until)
	}
	if t.Named < 0 {
		b.ejections++
	}
	b.state, b.cause, b.term, b.until, b.left = Ejected, why, t, until, 0
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
