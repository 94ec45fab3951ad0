package report

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Sweep chooses the rates of a sweep to the knee: the highest rate that holds. With an SLO a
// rate holds where at least Attainment of the calls are good; without one, where the
// endpoint keeps up (Result.Saturated).
//
// A run in which the generator fell behind tells nothing of the endpoint. It is repeated up
// to twice; where it falls behind again the sweep ends.
//
// A list of rates is gone through upwards, and ends after the first rate at which the
// endpoint does not keep up: what comes behind it would only measure its queue. Without a
// list rates double from Start until one does not hold (or halve until one does), and then
// the border is looked for between the last two, by geometric means.
type Sweep struct {
	Rates      []float64 // ascending; nil: they are looked for
	Start      float64   // the first rate where they are looked for, above 0
	Attainment float64   // share of good calls, above 0 and at most 1

	steps     []Step
	low, high float64 // highest rate that holds, lowest above it that does not; 0: none yet
	late      int     // runs so far, one after the other, in which the generator fell behind
	again     float64 // their rate
	lag       float64 // of the last one, seconds
}

// The bounds of a search.
const (
	mostDoublings = 24
	mostRate      = 1e6 // a second, as of arrivals
	bisections    = 4
	mostHalvings  = 6
	mostLate      = 3
)

// Step is one rate of a sweep.
type Step struct {
	Rate      float64
	Saturated []string // also where the rate holds by its SLO
	*Verdict
	*Result
}

// Verdict is what a sweep says of a run.
type Verdict struct {
	Holds bool
	Why   []string // it does not hold, each reason with the bound that it breaks
}

// Validate reports every mistake of the sweep's fields.
func (s *Sweep) Validate() error {
	var errs []error
	for i, r := range s.Rates {
		if !(r > 0 && r <= mostRate) {
			errs = append(errs, fmt.Errorf("rate %v; allowed: numbers above 0, at most %v", r, float64(mostRate)))
		} else if i > 0 && r <= s.Rates[i-1] {
			errs = append(errs, fmt.Errorf("rate %v after %v; allowed: ascending rates", r, s.Rates[i-1]))
		}
	}
	if s.Rates == nil && !(s.Start > 0 && s.Start <= mostRate) {
		errs = append(errs, fmt.Errorf("first rate %v; allowed: a number above 0, at most %v", s.Start, float64(mostRate)))
	}
	if !(s.Attainment > 0 && s.Attainment <= 1) {
		errs = append(errs, fmt.Errorf("attainment %v; allowed: above 0, at most 1", s.Attainment))
	}
	return errors.Join(errs...)
}

// Next returns the next rate to run; false at the sweep's end.
func (s *Sweep) Next() (float64, bool) {
	n := len(s.steps)
	switch {
	case s.late == mostLate:
		return 0, false
	case s.late > 0:
		return s.again, true
	case s.Rates != nil:
		if n == len(s.Rates) || n > 0 && len(s.steps[n-1].Saturated) > 0 {
			return 0, false
		}
		return s.Rates[n], true
	case n == 0:
		return s.Start, true
	case s.high == 0:
		return s.low * 2, n < mostDoublings && s.low*2 <= mostRate
	case s.low == 0:
		return s.high / 2, n <= mostHalvings
	}
	return math.Sqrt(s.low * s.high), s.between() < bisections
}

// between returns how many steps lie between the first two rates of which one held and one
// did not: those of the search for the border.
func (s *Sweep) between() int {
	n := 0
	for i := 2; i < len(s.steps); i++ {
		lo, hi := math.Inf(1), 0.0
		for _, before := range s.steps[:i] {
			lo, hi = min(lo, before.Rate), max(hi, before.Rate)
		}
		if r := s.steps[i].Rate; lo < r && r < hi {
			n++
		}
	}
	return n
}

// Unmeasured returns the rate at which the sweep has ended because the generator fell
// behind; false where it has not.
func (s *Sweep) Unmeasured() (float64, bool) { return s.again, s.late == mostLate }

// Add takes in the result of the rate that Next gave, and sets its Verdict.
func (s *Sweep) Add(rate float64, r *Result) {
	saturated := r.Saturated()
	r.Verdict = &Verdict{Why: r.Invalid()}
	switch a := r.Attainment(); {
	case len(r.SLO) == 0:
		r.Verdict.Why = append(r.Verdict.Why, saturated...)
	case a < s.Attainment:
		r.Verdict.Why = append(r.Verdict.Why, fmt.Sprintf("%s of the calls are good, under the bound of %s", percent(math.Floor(a*1e4)/1e4), percent(s.Attainment)))
		r.Verdict.Why = append(r.Verdict.Why, saturated...) // which is perhaps what they wait for
	}
	if r.Stopped != "" {
		r.Verdict.Why = append(r.Verdict.Why, "it ended early: "+r.Stopped)
	}
	r.Verdict.Holds = len(r.Verdict.Why) == 0
	if r.late() {
		s.late, s.again, s.lag = s.late+1, rate, r.Lag.Quantile(0.99)
		return
	}
	s.late = 0
	step := Step{Rate: rate, Saturated: saturated, Verdict: r.Verdict, Result: r}
	s.steps = append(s.steps, step)
	if step.Holds {
		s.low = max(s.low, rate)
	} else if s.high == 0 || rate < s.high {
		s.high = rate
	}
}

// Steps returns the rates that were run, ascending.
func (s *Sweep) Steps() []Step {
	steps := slices.Clone(s.steps)
	slices.SortStableFunc(steps, func(a, b Step) int {
		if a.Rate < b.Rate {
			return -1
		}
		return 1
	})
	return steps
}

// Knee returns the highest rate that held and below which no other failed to; false where
// none did.
func (s *Sweep) Knee() (float64, bool) {
	knee, ok := 0.0, false
	for _, step := range s.Steps() {
		if !step.Holds {
			break
		}
		knee, ok = step.Rate, true
	}
	return knee, ok
}
