package arrival

import (
	"fmt"
	"iter"
	"time"
)

// Surge is a steady rate that is Factor times as high for a while: an overload that begins and
// ends at known instants, to see what comes of it afterwards (article section 9).
type Surge struct {
	Rate       float64       `spec:"rate" doc:"sessions a second before and after; it has no default"`
	Factor     float64       `spec:"factor" doc:"how many times that they are meanwhile"`
	From       time.Duration `spec:"from" doc:"when it begins"`
	For        time.Duration `spec:"for" doc:"how long it lasts"`
	Burstiness float64       `spec:"burstiness" doc:"shape of the gaps, whose CV is 1/√burstiness where the rate stays: 1 Poisson, below bursty, inf even"`
}

// Validate reports every field outside its range.
func (s Surge) Validate() error {
	factor := error(nil)
	if !(s.Factor > 0 && s.Factor <= 1e6) {
		factor = fmt.Errorf("factor is %v; allowed: above 0, at most 1e+06", s.Factor)
	}
	return join(rate("rate", s.Rate), factor, span("from", s.From), span("for", s.For), burstiness(s.Burstiness))
}

// Instants yields the process.
func (s Surge) Instants(root uint64) iter.Seq[time.Duration] {
	from, lasts := s.From.Seconds(), s.For.Seconds()
	high := float64(s.Rate * s.Factor)
	before := float64(s.Rate * from)       // expected until the surge
	within := before + float64(high*lasts) // and until its end
	return run(root, s.Burstiness, 0, func() clock {
		return func(n float64) float64 {
			switch {
			case n < before:
				return n / s.Rate
			case n < within:
				return from + (n-before)/high
			}
			return from + lasts + (n-within)/s.Rate
		}
	})
}
