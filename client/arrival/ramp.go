package arrival

import (
	"fmt"
	"iter"
	"math"
	"time"

	"kvasir/internal/mono"
	"kvasir/internal/portable"
)

// How a ramp climbs.
const (
	Linear      = "linear"
	Exponential = "exponential"
)

// Ramp is a rate that goes from Start to End within Over and stays there, to find the knee
// with (article section 15). With T for Over, arrivals expected until t ≤ T are
//
//	linear        Λ(t) = Start·t + (End − Start)·t²/(2T)
//	exponential   Λ(t) = Start·T/g · (e^(g·t/T) − 1)    g = ln(End/Start)
//
// and the instants come from their inverses, so a ramp is exact at every arrival. vLLM's
// --ramp-up-strategy has the same names for something else: its rate depends on the
// number of the call and not on the time, so its linear ramp is, in time, exponential.
type Ramp struct {
	Start      float64       `spec:"start" doc:"sessions a second at the start; a linear ramp may start at 0; it has no default"`
	End        float64       `spec:"end" doc:"sessions a second at the end and from then on; it may be below the start; it has no default"`
	Over       time.Duration `spec:"over" doc:"how long the ramp takes"`
	Strategy   string        `spec:"strategy" doc:"linear or exponential"`
	Burstiness float64       `spec:"burstiness" doc:"shape of the gaps, whose CV is 1/√burstiness where the rate stays: 1 Poisson, below bursty, inf even"`
}

// Validate reports every field outside its range.
func (r Ramp) Validate() error {
	var start, strategy error
	if r.Start != 0 || r.Strategy == Exponential {
		start = rate("start", r.Start)
	}
	if r.Strategy != Linear && r.Strategy != Exponential {
		strategy = fmt.Errorf("strategy is %q; allowed: %s or %s", r.Strategy, Linear, Exponential)
	}
	return join(start, rate("end", r.End), span("over", r.Over), strategy, burstiness(r.Burstiness))
}

// Lasting returns the ramp with an Over in which n arrivals are expected: the ramp for a
// run of n calls.
func (r Ramp) Lasting(n int) Ramp {
	r.Over = mono.FromSeconds(min(float64(n)/r.mean(), horizon))
	return r
}

// mean returns the average rate of the ramp itself.
func (r Ramp) mean() float64 {
	if g := r.growth(); r.Strategy == Exponential && g != 0 {
		return (r.End - r.Start) / g
	}
	return (r.Start + r.End) / 2
}

// growth returns ln(End/Start).
func (r Ramp) growth() float64 { return portable.Ln1p((r.End - r.Start) / r.Start) }

// Instants yields the process.
func (r Ramp) Instants(root uint64) iter.Seq[time.Duration] {
	over := r.Over.Seconds()
	expected := float64(r.mean() * over) // until the ramp's end
	climb := r.linear(over)
	if r.Strategy == Exponential {
		climb = r.exponential(over)
	}
	return run(root, r.Burstiness, 0, func() clock {
		return func(n float64) float64 {
			if n >= expected {
				return over + (n-expected)/r.End
			}
			return climb(n)
		}
	})
}

// linear solves Λ(t) = n in the form that does not cancel where the rate hardly changes.
func (r Ramp) linear(over float64) clock {
	slope := (r.End - r.Start) / over
	return func(n float64) float64 {
		return 2 * n / (r.Start + math.Sqrt(max(float64(r.Start*r.Start)+float64(2*slope*n), 0)))
	}
}

func (r Ramp) exponential(over float64) clock {
	g := r.growth()
	if g == 0 {
		return flat(r.Start)()
	}
	return func(n float64) float64 {
		return float64(over / g * portable.Ln1p(n*g/(r.Start*over)))
	}
}
