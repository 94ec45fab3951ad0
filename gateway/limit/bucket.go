package limit

import (
	"time"

	"kvasir/internal/mono"
)

// A bucket counts in units so small that its refill is a whole number of them every
// microsecond: a rate of r tokens a minute is r units a microsecond.
const (
	unit      = int64(time.Minute / time.Microsecond) // of one token or request
	milliUnit = unit / 1000                           // of a thousandth, which weights go to
)

// maxDebt is as far as a level goes down. Nobody gets there who is not lied to by his
// endpoints: it is what the highest rate brings in 53 days.
const maxDebt = int64(1) << 62

// maxRetry is the longest time that a bucket names.
const maxRetry = 24 * time.Hour

// bucket is a token bucket: it holds at most full, gains rate a microsecond, and what is
// used is taken out. Its level is below zero while more was used than was reserved. The
// zero bucket bounds nothing.
type bucket struct {
	rate  int64 // units a microsecond; 0: no bound
	full  int64 // units
	level int64 // units, at the instant at
	at    mono.Time
}

// configure changes rate and size. What was used stays used.
func (b *bucket) configure(now mono.Time, rate int, burst time.Duration) {
	if rate == 0 {
		*b = bucket{}
		return
	}
	r := int64(rate)
	full := max(r*int64(burst/time.Microsecond), unit) // at least one fits in
	if b.rate == 0 {
		*b = bucket{rate: r, full: full, level: full, at: now}
		return
	}
	b.advance(now)
	b.level += full - b.full
	b.rate, b.full = r, full
}

// advance lets the time since the last look go by. It goes in whole microseconds; the rest
// is left for the next look.
func (b *bucket) advance(now mono.Time) {
	passed := int64(now.Sub(b.at) / time.Microsecond)
	if passed <= 0 || b.rate == 0 {
		return
	}
	b.at = b.at.Add(time.Duration(passed) * time.Microsecond)
	if passed >= ceil(b.full-b.level, b.rate) {
		b.level = b.full
		return
	}
	b.level += passed * b.rate
}

// reserve returns what is taken out for a call that costs so much: no more than the bucket
// can hold, so that a full one lets any call in (field case F57).
func (b *bucket) reserve(cost int64) int64 { return min(cost, b.full) }

// take changes the level: by what is used, or negative by what is given back.
func (b *bucket) take(units int64) {
	if b.rate > 0 {
		b.level = max(min(b.level-units, b.full), -maxDebt)
	}
}

// until returns how long it is until the level is so high; 0: it is now. The bucket has
// advanced to now.
func (b *bucket) until(now mono.Time, level int64) time.Duration {
	if b.rate == 0 || b.level >= level {
		return 0
	}
	us := ceil(level-b.level, b.rate)
	if us >= int64(maxRetry/time.Microsecond) {
		return maxRetry
	}
	return b.at.Add(time.Duration(us) * time.Microsecond).Sub(now)
}

// meter shows the bucket, which has advanced to now.
func (b *bucket) meter(now mono.Time) Meter {
	if b.rate == 0 {
		return Meter{}
	}
	return Meter{Limit: int(b.rate), Remaining: int(max(b.level, 0) / unit), Reset: b.until(now, b.full)}
}

// ceil returns n/d rounded up; n may be negative, d is above 0.
func ceil(n, d int64) int64 {
	q := n / d
	if n%d > 0 {
		q++
	}
	return q
}
