package arrival

import (
	"errors"
	"fmt"
	"time"
)

// The range of a rate, in sessions a second. Above it instants would no longer be a
// nanosecond apart; below it a session comes less than once in 30 years.
const (
	minRate = 1e-9
	maxRate = 1e9
)

func join(errs ...error) error { return errors.Join(errs...) }

func rate(key string, v float64) error {
	if !(minRate <= v && v <= maxRate) {
		return fmt.Errorf("%s is %v; allowed: %v to %v sessions a second", key, v, float64(minRate), float64(maxRate))
	}
	return nil
}

func burstiness(v float64) error {
	if !(v >= 0.001) {
		return fmt.Errorf("burstiness is %v; allowed: 0.001 or more, or inf", v)
	}
	return nil
}

func share(key string, v float64) error {
	if !(0 <= v && v <= 1) {
		return fmt.Errorf("%s is %v; allowed: 0 to 1", key, v)
	}
	return nil
}

func span(key string, d time.Duration) error {
	if d < time.Microsecond || d > maxSpan {
		return fmt.Errorf("%s is %v; allowed: 1µs to %v", key, d, maxSpan)
	}
	return nil
}

const maxSpan = 10 * 366 * 24 * time.Hour

// maxExactly bounds how many gaps are drawn before the first session comes.
const maxExactly = 10_000_000

func exactly(n int) error {
	if n < 0 || n > maxExactly {
		return fmt.Errorf("exactly is %d; allowed: 0 to %d", n, maxExactly)
	}
	return nil
}
