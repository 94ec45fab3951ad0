package contest

import (
	"errors"
	"math"

	"kvasir/internal/stats"
	"kvasir/sim"
)

// Search says how goodput is searched.
type Search struct {
	Seeds     []uint64
	Tolerance float64 // how narrow the bracket gets, as a share of the rate
	Near      float64 // a rate that goodput is known to be near; 0: not known
}

// Goodput is the highest rate at which an entrant keeps the SLO for Attainment of the calls,
// by seed; 0 where no rate does. Where even the highest rate does that a run can show, it is
// that one.
type Goodput struct {
	Entrant string
	Rates   []float64 // times the workload's own, as each seed draws it
	Calls   []float64 // calls that come a second at that rate
	Runs    int       // that it took
}

// Estimate is a mean over seeds and half the width of its 95 % confidence interval (Student's
// t); both NaN where nothing is known, Half where there is one seed.
type Estimate struct {
	Mean sim.Number `json:"mean"`
	Half sim.Number `json:"ci95_half_width"`
}

func estimate(values []float64) Estimate {
	m, h := stats.Interval(values)
	return Estimate{sim.Number(m), sim.Number(h)}
}

const (
	// A first search steps far, as nothing is known; those of further seeds begin where the
	// earlier ones ended, and mostly find the crossing a step or two away.
	farStep, nearStep = 1.5, 1.05

	// slowest is the share of Cell.Start below which a rate is not tried: what misses the SLO
	// there does so without load, and a slow run takes long.
	slowest = 1. / 16

	// hopeless is the share of missed calls with which a run is given up, times the one that is
	// allowed. What is far above goodput is slow to simulate and tells nothing.
	hopeless = 3
)

// Goodput searches the entrant's goodput in the cell, seed after seed.
func (c *Cell) Goodput(e Entrant, s Search) (*Goodput, error) {
	g := &Goodput{Entrant: e.Name}
	guess, step := c.Start, farStep
	if s.Near > 0 {
		guess, step = s.Near, nearStep
	}
	for _, seed := range s.Seeds {
		d, err := c.Draw(seed)
		if err != nil {
			return nil, err
		}
		find := search{
			target: Attainment, tolerance: s.Tolerance, step: step,
			lowest: c.Start * slowest, highest: c.Highest(d),
		}
		most := int64(math.Ceil(float64(d.Calls) * hopeless * (1 - Attainment)))
		rate, err := find.find(guess, func(rate float64) (float64, error) {
			g.Runs++
			r, err := c.run(e, d, seed, rate, most)
			if errors.Is(err, sim.ErrHopeless) {
				return 1 - hopeless*(1-Attainment), nil
			}
			if err != nil {
				return 0, err
			}
			return float64(r.Attainment), nil
		})
		if err != nil {
			return nil, err
		}
		g.Rates = append(g.Rates, rate)
		g.Calls = append(g.Calls, rate*d.Rate())
		if rate > 0 {
			m, _ := stats.Interval(g.Rates)
			guess, step = m, nearStep
		} else { // most likely none does with the next seed either: one run shows it
			guess, step = c.Start*slowest, farStep
		}
	}
	return g, nil
}

// mean returns the mean of the calls a second.
func (g *Goodput) mean() float64 {
	m, _ := stats.Interval(g.Calls)
	return m
}

// ratio returns by how much a is above b, seed by seed.
func ratio(a, b *Goodput) Estimate {
	ratios := make([]float64, len(a.Rates))
	for i := range ratios {
		if b.Rates[i] == 0 {
			return estimate(nil)
		}
		ratios[i] = a.Rates[i] / b.Rates[i]
	}
	return estimate(ratios)
}
