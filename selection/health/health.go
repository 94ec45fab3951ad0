// Package health is layer 3 (endpoint selection), pure: whether an endpoint is in
// rotation, whether it wants to be left alone for a while, and how much of its share it
// may already have.
//
// Calls tell it how they fared. An endpoint that failed several of them in a row before
// any content, or most of the last ones, leaves rotation for a while; so does one that a
// pool's own Rule has tripped. When the time is over one call, or as many as Probes says, is
// let through as a probe: its first content brings the endpoint back, its failure sends it
// out again for twice as long, and after as long again without a verdict the next call is a
// probe too, so that one call which hangs does not keep out an endpoint that has recovered.
// Requests to the health path are weaker evidence: they can take an endpoint out, and show
// that one which was unreachable is there again, but only content from a real call brings
// one back (field case F34).
//
// Sources: Envoy's outlier detection (consecutive failures, ejection time that grows,
// max_ejection_percent) and slow start; the field cases' invariant 7.
package health

import (
	"time"

	"kvasir/internal/mono"
)

// Config says when an endpoint leaves rotation, for how long, and how it comes back.
type Config struct {
	Failures int           // consecutive failures before content that take it out; default 3
	Ratio    float64       // share of failed calls within Window that takes it out too; default 0.5; 0: never
	Window   time.Duration // default 10 s
	Volume   int           // fewest calls within Window for Ratio to count; default 10

	Ejection    time.Duration // how long it stays out before a probe; doubles with each failed one; default 5 s
	MaxEjection time.Duration // bound of that; default 1 min
	MaxEjected  float64       // share of a model's last pool that doubtful evidence may take out: a ratio, statuses, a stall, refusals; default 0.5
	Probes      int           // calls that may be on their way as probes at once; default 1

	Stall      time.Duration // without a sign of life while StallCalls wait for their first content; default 30 s; 0: never
	StallCalls int           // default 3

	Busy    time.Duration // how long one that has no room and names no time is left alone; default 1 s
	MaxBusy time.Duration // bound of the time that it names; default 1 min

	SlowStart      time.Duration // how long a new one takes to its full share; default 30 s; 0: none
	SlowStartFloor float64       // share at the start; default 0.1

	// Blackout is for how long the load is not believed that a new or restarted endpoint reports
	// of itself; default 10 s; 0: it is at once. It says that it has nothing to do, which is true
	// and no reason to send it everything (Envoy's client-side weighted round robin has a
	// blackout_period of 10 s).
	Blackout time.Duration
}

// Default returns the defaults.
func Default() Config {
	return Config{
		Failures: 3, Ratio: 0.5, Window: 10 * time.Second, Volume: 10,
		Ejection: 5 * time.Second, MaxEjection: time.Minute, MaxEjected: 0.5, Probes: 1,
		Stall: 30 * time.Second, StallCalls: 3,
		Busy: time.Second, MaxBusy: time.Minute,
		SlowStart: 30 * time.Second, SlowStartFloor: 0.1, Blackout: 10 * time.Second,
	}
}

// BusyFor returns how long an endpoint is left alone that answered with back-pressure for
// the nth time in a row and named a time, or none (negative). It is taken at its word the
// first time; one that names no time to speak of again and again, and has no room, would
// look idle otherwise.
func (c Config) BusyFor(named time.Duration, nth int) time.Duration {
	if named < 0 {
		return c.Busy
	}
	d := min(named, c.MaxBusy)
	if nth > 1 {
		d = max(d, min(c.Busy, c.Busy/8<<min(nth-2, 8)))
	}
	return d
}

// Warmth returns the part of its share, above 0 and at most 1, that an endpoint has which
// is new since the instant: it grows in a straight line from the floor to the whole
// (Envoy's slow start with aggression 1).
func (c Config) Warmth(since, now mono.Time) float64 {
	age := now.Sub(since)
	if age >= c.SlowStart {
		return 1
	}
	return max(float64(age)/float64(c.SlowStart), c.SlowStartFloor)
}

// State is an endpoint's place relative to rotation.
type State uint8

// The states.
const (
	InRotation State = iota
	Ejected          // gets no call until its time is over
	Probing          // as many calls as may are on their way as probes, or some of them
)

var stateNames = [...]string{"in_rotation", "ejected", "probing"}

// String returns the state's name in snake_case, as metrics and the admin API show it.
func (s State) String() string { return stateNames[s] }

// Cause is why an endpoint left rotation.
type Cause uint8

// The causes.
const (
	NoCause     Cause = iota
	Unreachable       // connections fail or break
	Unhealthy         // its health path says so, or does not answer
	Failing           // it answers, with failures
	Silent            // calls get no content from it
	Tripped           // a rule of its pool that names statuses
)

var causeNames = [...]string{"", "unreachable", "unhealthy", "failing", "silent", "tripped"}

// String returns the cause's name, as logs and the admin API show it.
func (c Cause) String() string { return causeNames[c] }
