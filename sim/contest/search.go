package contest

import "math"

// search is the search for the highest rate at which the share of calls that keep the SLO is
// target at least. It brackets that rate from a guess, first in small steps and then in
// growing ones, halves the bracket until it is narrower than tolerance times the rate, and
// takes the line between its ends for the rest. Attainment of a finite run is not quite
// monotonic: what is found is one crossing of the target.
type search struct {
	target    float64
	tolerance float64
	step      float64 // how far the first step goes, as a factor above 1
	lowest    float64 // rates below say that there is none
	highest   float64 // rates above are not tried
}

// point is a rate that was tried.
type point struct {
	rate, attainment float64
}

// mostTries bounds a search.
const mostTries = 40

// find returns the rate; 0 where none keeps the target, and highest where all do. try returns
// the attainment at a rate; where that is far below the target, it may return any number that
// is.
func (s *search) find(guess float64, try func(rate float64) (attainment float64, err error)) (float64, error) {
	var low, high point // below and above the crossing; high.rate 0: not known
	factor := s.step
	at := min(guess, s.highest)
	for range mostTries {
		a, err := try(at)
		if err != nil {
			return 0, err
		}
		if a >= s.target {
			low = point{at, a}
		} else {
			high = point{at, a}
		}
		switch {
		case high.rate == 0 && low.rate >= s.highest:
			return s.highest, nil
		case high.rate == 0:
			at = min(low.rate*factor, s.highest)
			factor *= factor
		case low.rate == 0:
			at = high.rate / factor
			factor *= factor
			if at < s.lowest {
				return 0, nil
			}
		case high.rate <= low.rate*(1+s.tolerance):
			return crossing(low, high, s.target), nil
		default:
			at = math.Sqrt(low.rate * high.rate)
		}
		factor = min(factor, mostFactor)
	}
	return low.rate, nil
}

// mostFactor bounds how far a step goes.
const mostFactor = 2

// crossing returns where the line between two points has the target.
func crossing(low, high point, target float64) float64 {
	share := (low.attainment - target) / (low.attainment - high.attainment)
	return low.rate + float64((high.rate-low.rate)*share)
}
