package arrival

import (
	"iter"
	"math"
	"time"

	"kvasir/internal/portable"
)

// Diurnal is a rate that swings like a day: at time t it is
//
//	Rate · (1 + Amplitude · sin(2π·(t/Period + Phase)))
//
// With u = t/Period, arrivals expected until t are
//
//	Λ(t) = Rate · Period · (u + Amplitude/(2π) · (cos(2π·Phase) − cos(2π·(u + Phase))))
type Diurnal struct {
	Rate       float64       `spec:"rate" doc:"sessions a second on average; it has no default"`
	Amplitude  float64       `spec:"amplitude" doc:"how far the rate swings, as a share of its average: 0 to 1"`
	Period     time.Duration `spec:"period" doc:"from one peak to the next"`
	Phase      float64       `spec:"phase" doc:"the share of a period that has passed at the start, 0 to 1: 0 average and rising, 0.25 peak, 0.75 trough"`
	Burstiness float64       `spec:"burstiness" doc:"shape of the gaps, whose CV is 1/√burstiness where the rate stays: 1 Poisson, below bursty, inf even"`
}

// Validate reports every field outside its range.
func (d Diurnal) Validate() error {
	return join(rate("rate", d.Rate), share("amplitude", d.Amplitude), span("period", d.Period),
		share("phase", d.Phase), burstiness(d.Burstiness))
}

// Instants yields the process.
func (d Diurnal) Instants(root uint64) iter.Seq[time.Duration] {
	period := d.Period.Seconds()
	expected := d.Rate * period // a period
	return run(root, d.Burstiness, 0, func() clock {
		return func(n float64) float64 {
			periods := n / expected
			whole := math.Floor(periods)
			return float64(period*whole) + float64(period*d.when(periods-whole))
		}
	})
}

// when returns the time, in periods, until which so many periods' arrivals are expected,
// both from 0 to 1: by Newton's steps, halving a bracket around the root instead where a
// step leaves it.
func (d Diurnal) when(target float64) float64 {
	swing := d.Amplitude / (2 * math.Pi)
	begin := portable.CosTurn(d.Phase)
	low, high, u := 0.0, 1.0, target
	for range 100 {
		excess := u + float64(swing*(begin-portable.CosTurn(u+d.Phase))) - target
		step := excess / (1 + float64(d.Amplitude*portable.SinTurn(u+d.Phase)))
		if math.Abs(step) < 1e-15 {
			return u - step
		}
		if excess > 0 {
			high = u
		} else {
			low = u
		}
		if u -= step; !(low < u && u < high) { // or NaN, where the rate is zero
			u = (low + high) / 2
		}
	}
	return u
}
