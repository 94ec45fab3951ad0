package health

import (
	"slices"
	"time"

	"kvasir/internal/mono"
)

// Rule is one rule of a pool's circuit breaker: what takes an endpoint out of rotation, and
// for how long.
//
// A rule without Statuses counts failures that are the endpoint's own, as its caller has
// judged them: back-pressure and callers' faults never are. A rule with Statuses counts the
// answers that have one of them, whosever fault; with 429 and RetryAfter it makes a pool of
// provisioned throughput spill to the next one for as long as it is told to (article
// sections 9.3, 12.2 and 14.4: Azure API Management's backends have one such rule each, here
// a pool may have several, and each endpoint is counted by itself).
type Rule struct {
	Failures int           // so many trip it: in a row, or within Interval where there is one; 0: no number does
	Ratio    float64       // share of the calls within Interval that trips it; 0: none does
	Volume   int           // fewest calls within Interval for Ratio to count
	Interval time.Duration // what is looked back on; 0: Failures in a row, however long they take
	Statuses []Statuses    // whose answers count; none: failures that are the endpoint's own

	Trip       time.Duration // out of rotation for so long, then half open; doubles with each probe that fails
	MaxTrip    time.Duration // bound of the doubling
	RetryAfter bool          // an endpoint that names a time stays out for so long, in place of Trip
	MaxAfter   time.Duration // bound of that
}

// Statuses are HTTP statuses from one to another, both included.
type Statuses struct{ From, To int }

// Names reports whether the rule goes by statuses.
func (r *Rule) Names() bool { return len(r.Statuses) > 0 }

// counts reports whether the rule counts answers of the status.
func (r *Rule) counts(status int) bool {
	return slices.ContainsFunc(r.Statuses, func(s Statuses) bool { return s.From <= status && status <= s.To })
}

// term returns how long what the rule has tripped stays out, where the endpoint has named a
// time or none (negative).
func (r *Rule) term(named time.Duration) Term {
	t := Term{For: r.Trip, Most: r.MaxTrip, Named: -1}
	if r.RetryAfter && named >= 0 {
		t.Named = min(named, r.MaxAfter)
	}
	return t
}

// Equal reports whether two rules are the same.
func (r *Rule) Equal(o *Rule) bool {
	return r.Failures == o.Failures && r.Ratio == o.Ratio && r.Volume == o.Volume && r.Interval == o.Interval &&
		r.Trip == o.Trip && r.MaxTrip == o.MaxTrip && r.RetryAfter == o.RetryAfter && r.MaxAfter == o.MaxAfter &&
		slices.Equal(r.Statuses, o.Statuses)
}

// Rules returns the rules of a pool that has rules of its own, or none: those, and the
// configuration's two (so many failures in a row, or a share of the calls of a window) unless
// one of its own counts failures without statuses and so takes their place. A pool that only
// says what 429 means keeps its protection against endpoints that are gone.
func (c Config) Rules(own []Rule) []Rule {
	if slices.ContainsFunc(own, func(r Rule) bool { return !r.Names() }) {
		return own
	}
	rules := []Rule{{Failures: c.Failures, Trip: c.Ejection, MaxTrip: c.MaxEjection}}
	if c.Ratio > 0 {
		rules = append(rules, Rule{Ratio: c.Ratio, Volume: c.Volume, Interval: c.Window, Trip: c.Ejection, MaxTrip: c.MaxEjection})
	}
	return append(rules, own...)
}

// Term is how long an endpoint stays out of rotation.
type Term struct {
	For   time.Duration // the first time; twice as long each time that a probe has failed
	Most  time.Duration // bound of that, where it is more than For
	Named time.Duration // the endpoint's own word, which counts instead; negative: it gave none
}

// Term returns the configuration's own: that of what no rule has taken out.
func (c Config) Term() Term { return Term{For: c.Ejection, Most: c.MaxEjection, Named: -1} }

// first returns how long it lasts the first time.
func (t Term) first() time.Duration {
	if t.Named >= 0 {
		return t.Named
	}
	return t.For
}

// span returns how long it lasts after so many in a row.
func (t Term) span(before int) time.Duration {
	d := t.For
	for range min(before, 32) {
		if d >= t.Most {
			break
		}
		d *= 2
	}
	return max(min(d, t.Most), t.For)
}

// tally is what a breaker has counted for one rule.
type tally struct {
	row    int // failures since a call that was none
	recent window
}

// add counts a call and reports whether the rule trips.
func (t *tally) add(r *Rule, now mono.Time, failed bool) bool {
	t.row++
	if !failed {
		t.row = 0
	}
	if r.Interval > 0 {
		t.recent.add(r.Interval, now, failed)
	}
	if !failed {
		return false
	}
	if r.Interval == 0 {
		return r.Failures > 0 && t.row >= r.Failures
	}
	calls, failures := t.recent.counted()
	return r.Failures > 0 && failures >= int64(r.Failures) ||
		r.Ratio > 0 && calls >= int64(r.Volume) && float64(failures) >= float64(r.Ratio*float64(calls))
}
