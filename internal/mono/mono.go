// Package mono is the core's only notion of time: an instant on the clock of
// whoever drives the core. The gateway counts real nanoseconds since it started,
// the simulator counts virtual ones; pure code cannot tell them apart.
package mono

import "time"

// Time is an instant: nanoseconds since the driver's epoch. The zero Time is the
// epoch itself. Instants of different drivers must not be compared.
type Time int64

// Never is an instant after every other one.
const Never Time = 1<<63 - 1

// Add returns the instant d after t.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns the time that passed from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Duration returns the time that passed from the epoch to t.
func (t Time) Duration() time.Duration { return time.Duration(t) }

// FromSeconds turns a computed number of seconds into a duration, rounded half away
// from zero to a whole nanosecond. It is the one place where a float becomes time,
// so that a simulation gives the same bytes on every platform.
func FromSeconds(s float64) time.Duration {
	ns := float64(s * 1e9) // not fused with the sum below
	if ns < 0 {
		return -time.Duration(-ns + 0.5)
	}
	return time.Duration(ns + 0.5)
}
