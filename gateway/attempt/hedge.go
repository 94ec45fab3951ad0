package attempt

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// HedgeConfig says when a second attempt of a call runs beside its first. The zero HedgeConfig
// hedges nothing.
//
// Source: article section 9.2; Dean and Barroso, The Tail at Scale (CACM 56(2), 2013): a second
// request once the first has been out for longer than the 95th percentile adds 5 % of requests.
type HedgeConfig struct {
	// Ratio is the most hedges by accepted calls, over 10 seconds; 0 turns hedging off. The
	// default where it is turned on is 0.05.
	Ratio float64
	// After is how long a call's attempt may be without content before it is hedged; 0: as long
	// as Quantile says.
	After time.Duration
	// Quantile, where After is 0, is that of the pool's own times to first token, over the
	// newest of them; the default is 0.95.
	Quantile float64
	// Whole is the same as After for answers that come whole, of which nothing shows whether
	// their prefill is over; 0: those are not hedged.
	Whole time.Duration
}

// DefaultHedge returns the settings of a model that hedges and says nothing more.
func DefaultHedge() HedgeConfig { return HedgeConfig{Ratio: 0.05, Quantile: 0.95} }

// Bounds of what may be configured.
const (
	LeastHedgeAfter    = time.Millisecond
	LongestHedgeAfter  = 10 * time.Minute
	LeastHedgeQuantile = 0.5
	MostHedgeRatio     = 1.0
)

// SetAfter reads when calls are hedged: a percentile of the pool's times to first token, p50 to
// p99.9, or a duration.
func (c *HedgeConfig) SetAfter(text string) error {
	if p, ok := strings.CutPrefix(text, "p"); ok && strings.Trim(p, "0123456789.") == "" {
		if x, err := strconv.ParseFloat(p, 64); err == nil && x >= 100*LeastHedgeQuantile && x <= 99.9 {
			c.After, c.Quantile = 0, x/100
			return nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d >= LeastHedgeAfter && d <= LongestHedgeAfter {
		c.After = d
		return nil
	}
	return errors.New("allowed: p50 to p99.9, a percentile of the pool's times to first token, or 1ms to 10m")
}

// On reports whether there are hedges.
func (c HedgeConfig) On() bool { return c.Ratio > 0 }

// Budget returns what bounds the hedges: a ratio of the calls and no floor, since a hedge is
// never needed.
func (c HedgeConfig) Budget() *Budget { return NewBudget(Config{Ratio: c.Ratio}) }
