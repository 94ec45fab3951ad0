package sim

import (
	"errors"
	"math"
	"slices"
	"testing"
)

func TestGoodput_FindsTheRateWhereAttainmentFalls(t *testing.T) {
	for _, edge := range []float64{0.013, 0.5, 1, 3.7, 900} {
		tried := 0
		c, err := Goodput(func(rate float64) (Point, error) {
			tried++
			return Point{Attainment: min(1, 0.9*edge/rate)}, nil
		}, 1, 0.9, 0.01)
		if err != nil {
			t.Fatal(err)
		}
		if c.Best == nil || c.Best.Rate > edge || c.Best.Rate < edge/1.02 || c.Open {
			t.Errorf("edge %g: best is %+v", edge, c.Best)
		}
		if !slices.IsSortedFunc(c.Points, func(a, b Point) int { return int(math.Copysign(1, a.Rate-b.Rate)) }) || len(c.Points) != tried {
			t.Errorf("edge %g: %d points of %d in disorder", edge, len(c.Points), tried)
		}
	}
}

func TestGoodput_SaysWhereThereIsNoEdge(t *testing.T) {
	always := func(a float64) func(float64) (Point, error) {
		return func(float64) (Point, error) { return Point{Attainment: a}, nil }
	}
	if c, err := Goodput(always(1), 1, 0.9, 0.01); err != nil || !c.Open || c.Best == nil || c.Best.Rate != 2048 {
		t.Errorf("kept everywhere: %+v, %v", c, err)
	}
	if c, err := Goodput(always(0), 1, 0.9, 0.01); err != nil || c.Open || c.Best != nil || len(c.Points) != 12 {
		t.Errorf("kept nowhere: %+v, %v", c, err)
	}
	if c, err := Goodput(always(0.8), 1, 0.9, 0.01); err != nil || c.Best != nil || len(c.Points) != 4 {
		t.Errorf("missed at any load: %d points, %v", len(c.Points), err)
	}
	nan := func(float64) (Point, error) { return Point{Attainment: math.NaN()}, nil }
	if c, err := Goodput(nan, 1, 0.9, 0.01); err != nil || c.Best != nil {
		t.Errorf("no calls: %+v, %v", c, err)
	}
	broken := errors.New("broken")
	if _, err := Goodput(func(float64) (Point, error) { return Point{}, broken }, 1, 0.9, 0.01); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	for _, x := range [][3]float64{{0, 0.9, 0.1}, {1, 0, 0.1}, {1, 1.1, 0.1}, {1, 0.9, 0}} {
		if _, err := Goodput(always(1), x[0], x[1], x[2]); err == nil {
			t.Errorf("%v was taken", x)
		}
	}
}
