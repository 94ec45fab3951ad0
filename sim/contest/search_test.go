package contest

import (
	"math"
	"testing"
)

// Attainment falls along a line from 1 at a rate of 0 to 0 at twice the crossing of one half.
func line(crossing float64) func(float64) (float64, error) {
	return func(rate float64) (float64, error) { return max(0, 1-rate/crossing/2), nil }
}

func TestSearch_FindsTheCrossing(t *testing.T) {
	for _, guess := range []float64{0.01, 0.9, 1, 1.1, 50, 1e6} {
		tries := 0
		s := search{target: 0.5, tolerance: 0.05, step: 1.05, lowest: 1e-3, highest: 1e3}
		rate, err := s.find(guess, func(rate float64) (float64, error) {
			tries++
			return line(3)(rate)
		})
		if err != nil || math.Abs(rate-3) > 1e-9 {
			t.Errorf("from %v: %v, %v; want 3, for between two points the line is exact", guess, rate, err)
		}
		if tries > 25 {
			t.Errorf("from %v: %d tries", guess, tries)
		}
	}
}

func TestSearch_StaysBelowAPlateau(t *testing.T) {
	// What far misses is told as a constant: the crossing must still be within the tolerance.
	s := search{target: 0.9, tolerance: 0.02, step: 1.5, lowest: 1e-3, highest: 1e3}
	rate, err := s.find(1, func(rate float64) (float64, error) {
		if rate > 7 {
			return 0.7, nil
		}
		return 0.95, nil
	})
	if err != nil || rate > 7*1.02 || rate < 7/1.02 {
		t.Errorf("%v, %v; want about 7", rate, err)
	}
}

func TestSearch_SaysWhereThereIsNoCrossing(t *testing.T) {
	s := search{target: 0.9, tolerance: 0.02, step: 1.5, lowest: 1e-3, highest: 100}
	for want, attainment := range map[float64]float64{0: 0.5, 100: 0.95} {
		tries := 0
		rate, err := s.find(1, func(float64) (float64, error) { tries++; return attainment, nil })
		if err != nil || rate != want || tries > 20 {
			t.Errorf("attainment %v at every rate: %v after %d tries, %v; want %v", attainment, rate, tries, err, want)
		}
	}
}
