package attempt

import (
	"time"

	"kvasir/internal/seed"
)

// Config bounds the attempts after the first.
type Config struct {
	Attempts   int           // further attempts a call may have; default 2, 0 turns retries off
	Ratio      float64       // retries that each accepted call adds to the budget; default 0.1
	Floor      float64       // retries a second allowed beside the ratio; default 10
	Backoff    time.Duration // before the first retry; doubles with each; default 25 ms
	MaxBackoff time.Duration // bound of the doubling; default 250 ms
	MaxWait    time.Duration // longest Retry-After waited for where nobody else can answer; default 2 s
}

// MaxAttempts is the most further attempts that a Config may allow: a hard ceiling that
// no setting passes (field case F21).
const MaxAttempts = 5

// Default returns the defaults.
func Default() Config {
	return Config{
		Attempts:   2,
		Ratio:      0.1,
		Floor:      10,
		Backoff:    25 * time.Millisecond,
		MaxBackoff: 250 * time.Millisecond,
		MaxWait:    2 * time.Second,
	}
}

// Delay returns how long to wait before retry number n (1 is the first): half of the
// doubled backoff for certain and the other half at random, to a whole nanosecond, so
// that calls which failed together come back apart.
func (c Config) Delay(n int, r *seed.Rand) time.Duration {
	d := c.Backoff
	for i := 1; i < n && d < c.MaxBackoff; i++ {
		d *= 2
	}
	d = min(d, c.MaxBackoff)
	half := int(d / 2)
	return time.Duration(half + r.Intn(half+1))
}
