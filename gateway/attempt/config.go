package attempt

import (
	"time"

	"kvasir/internal/seed"
)

// Config bounds the attempts after the first.
type Config struct {
	Attempts   int           // further attempts a call may have; default 2, 0 turns retries off
	Ratio      float64       // retries that each success adds to the budget of its pool and to that of all models; default 0.1
	Floor      float64       // retries a second that a pool is allowed beside the ratio; default 10
	TotalFloor float64       // likewise all models together; default 50
	Backoff    time.Duration // most before the first retry; doubles with each; default 25 ms
	MaxBackoff time.Duration // bound of the doubling; default 250 ms
	MaxWait    time.Duration // longest Retry-After waited for where nobody else can answer; default 2 s
}

// MaxAttempts is the most further attempts that a call has, whatever they are for: a hard
// ceiling that no setting passes (field case F21).
const MaxAttempts = 5

// Ceiling returns the most further attempts of one call, however they come about: retry,
// recall, failover to another pool, hedge.
func (c Config) Ceiling() int { return max(min(c.Attempts, MaxAttempts), 0) }

// Total returns the budget's part of the configuration for all models together.
func (c Config) Total() Config { return Config{Ratio: c.Ratio, Floor: c.TotalFloor} }

// Default returns the defaults.
func Default() Config {
	return Config{
		Attempts:   2,
		Ratio:      0.1,
		Floor:      10,
		TotalFloor: 50,
		Backoff:    25 * time.Millisecond,
		MaxBackoff: 250 * time.Millisecond,
		MaxWait:    2 * time.Second,
	}
}

// Delay returns how long to wait before retry number n (1 is the first): any time up to the
// doubled backoff, to a whole nanosecond, each as likely (full jitter). Calls that failed
// together come back spread evenly over the whole of it. Where a part of the wait is
// certain (equal jitter) they come back twice as dense and after a gap, and the mean wait
// is longer for nothing.
//
// Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
func (c Config) Delay(n int, r *seed.Rand) time.Duration {
	d := c.Backoff
	for i := 1; i < n && d < c.MaxBackoff; i++ {
		d *= 2
	}
	return time.Duration(r.Intn(int(min(d, c.MaxBackoff)) + 1))
}
