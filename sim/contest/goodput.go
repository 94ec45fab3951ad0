package contest

import (
	"errors"
	"math"

	"kvasir/internal/stats"
	"kvasir/sim"
)

// Search says how goodput is searched.
type Search struct {
	Seeds      []uint64
	Attainment float64 // share of the calls that must keep the SLO
	Tolerance  float64 // how narrow the bracket gets, as a share of the rate
}

// Goodput is the highest rate at which an entrant keeps the SLO, by seed; 0 where no rate
// does.
type Goodput struct {
	Entrant string
	Rates   []float64 // times the workload's own
	Runs    int       // that it took to find them
}

// Mean returns the mean and half its 95 % confidence interval over seeds.
func (g *Goodput) Mean() (mean, half float64) { return stats.Interval(g.Rates) }

const (
	// A first search steps far, as nothing is known; those of further seeds begin where the
	// earlier ones ended, and mostly find the crossing a step away.
	farStep, nearStep = 1.5, 1.04

	lowestRate = 1e-3

	// hopeless is the share of missed calls with which a run is given up, times that which is
	// allowed. What is far above goodput is slow to simulate and tells nothing.
	hopeless = 3
)

// Goodput searches the entrant's goodput in the cell, seed after seed.
func (c *Cell) Goodput(e Entrant, s Search) (*Goodput, error) {
	g := &Goodput{Entrant: e.Name}
	guess, step := c.Start, farStep
	if guess == 0 {
		guess = 1
	}
	for _, seed := range s.Seeds {
		d, err := c.Draw(seed)
		if err != nil {
			return nil, err
		}
		find := search{
			target: s.Attainment, tolerance: s.Tolerance, step: step,
			lowest: lowestRate, highest: d.Length.Seconds() / shortest.Seconds(),
		}
		most := int64(math.Ceil(float64(d.Calls) * min(hopeless*(1-s.Attainment), 1)))
		rate, err := find.find(guess, func(rate float64) (float64, error) {
			g.Runs++
			r, err := c.run(e, d, seed, rate, most)
			if errors.Is(err, sim.ErrHopeless) {
				return 1 - hopeless*(1-s.Attainment), nil
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
		if rate > 0 {
			guess, step = mean(g.Rates), nearStep
		}
	}
	return g, nil
}

func mean(values []float64) float64 {
	m, _ := stats.Interval(values)
	return m
}

// Ratio returns by how much a is above b, seed by seed: the mean of the ratios and half its
// 95 % confidence interval. NaN where b is 0 for a seed.
func Ratio(a, b *Goodput) (mean, half float64) {
	ratios := make([]float64, len(a.Rates))
	for i := range ratios {
		if b.Rates[i] == 0 {
			return nan, nan
		}
		ratios[i] = a.Rates[i] / b.Rates[i]
	}
	return stats.Interval(ratios)
}
