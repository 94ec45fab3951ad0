package sim

import (
	"fmt"
	"slices"
)

// Point is one rate of a goodput curve.
type Point struct {
	Rate       float64 // how many times as fast as the workload says sessions came
	Summary    Summary // the means over seeds
	Half       Summary // of their 95 % confidence intervals
	Attainment float64 // Summary's
}

// Curve is what Goodput has tried, by rate.
type Curve struct {
	Points []Point
	// Best is the highest rate found whose attainment is the target's at least; nil where
	// even the lowest rate misses it.
	Best *Point
	// Open: the highest rate that was tried keeps the target still.
	Open bool
}

// hopeless is what two halvings of the rate gain at least where a third one is tried.
const hopeless = 0.001

// Goodput finds the highest rate at which the share of calls that keep the SLO is target at
// least: it doubles from one rate until the target is missed (or halves until it is kept),
// at most 12 times, and then halves the interval until it is narrower than tolerance times
// the rate. try runs a rate; its result must not depend on the rates tried before. The
// attainment of a finite run is not quite monotonic: what is returned is one rate that
// keeps the target with a higher one near it that does not.
func Goodput(try func(rate float64) (Point, error), start, target, tolerance float64) (*Curve, error) {
	switch {
	case !(start > 0):
		return nil, fmt.Errorf("first rate is %v; allowed: above 0", start)
	case !(target > 0 && target <= 1):
		return nil, fmt.Errorf("attainment is %v; allowed: above 0, at most 1", target)
	case !(tolerance > 0):
		return nil, fmt.Errorf("tolerance is %v; allowed: above 0", tolerance)
	}
	c := &Curve{}
	keeps := func(rate float64) (bool, error) {
		p, err := try(rate)
		if err != nil {
			return false, err
		}
		p.Rate = rate
		c.Points = append(c.Points, p)
		return p.Attainment >= target, nil
	}
	low, high := 0.0, 0.0
	rate := start
	for tried := range 12 {
		ok, err := keeps(rate)
		if err != nil {
			return nil, err
		}
		if ok {
			low = rate
			rate *= 2
		} else {
			high = rate
			rate /= 2
			if n := len(c.Points); tried >= 3 && c.Points[n-1].Attainment > target/2 && c.Points[n-1].Attainment-c.Points[n-3].Attainment < hopeless {
				break // what misses the SLO does so without load
			}
		}
		if low > 0 && high > 0 {
			break
		}
	}
	for low > 0 && high > 0 && high-low > tolerance*low {
		middle := (low + high) / 2
		ok, err := keeps(middle)
		if err != nil {
			return nil, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	slices.SortFunc(c.Points, func(a, b Point) int {
		switch {
		case a.Rate < b.Rate:
			return -1
		case a.Rate > b.Rate:
			return 1
		}
		return 0
	})
	for i := range c.Points {
		if c.Points[i].Rate == low && low > 0 {
			c.Best = &c.Points[i]
		}
	}
	c.Open = high == 0
	return c, nil
}
