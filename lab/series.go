package lab

import "kvasir/internal/stats"

// meansAt returns a series of means over seeds at the given places of the x axis, with their
// intervals where there is more than one seed.
func meansAt(name string, x []float64, runs [][]float64) Series {
	s := Series{Name: name, X: x}
	for _, values := range runs {
		mean, half := stats.Interval(values)
		s.Y = append(s.Y, mean)
		if len(values) > 1 {
			s.Half = append(s.Half, half)
		}
	}
	return s
}

// dot adds a point of two means over seeds to a series, with its name.
func (s *Series) dot(name string, x, y []float64) {
	one := meansAt("", []float64{average(x)}, [][]float64{y})
	s.X, s.Y, s.Half, s.Names = append(s.X, one.X...), append(s.Y, one.Y...), append(s.Half, one.Half...), append(s.Names, name)
}

// bars returns a series of means over seeds, one a name of the x axis.
func bars(name string, runs ...[]float64) Series { return meansAt(name, places(len(runs)), runs) }

// places returns 0, 1, 2 …, where the bars of a plot stand.
func places(n int) Numbers {
	x := make(Numbers, n)
	for i := range x {
		x[i] = float64(i)
	}
	return x
}

// maxPoints bounds the points of a series that goes through a run.
const maxPoints = 1200

// thinner holds a run's values, one a step, in at most maxPoints: where there are more, each point has
// the greatest value of the steps up to the next point.
type thinner struct {
	values []float64
	width  int // steps a point
	steps  int // so far
}

// add takes the next step's value.
func (t *thinner) add(v float64) {
	t.width = max(t.width, 1)
	if t.steps%t.width > 0 {
		last := &t.values[len(t.values)-1]
		*last = max(*last, v)
		t.steps++
		return
	}
	if len(t.values) == maxPoints { // pairs become points: the last one is whole
		for i := range maxPoints / 2 {
			t.values[i] = max(t.values[2*i], t.values[2*i+1])
		}
		t.values, t.width = t.values[:maxPoints/2], 2*t.width
	}
	t.values = append(t.values, v)
	t.steps++
}

// series returns the points.
func (t *thinner) series(name string) Series {
	s := Series{Name: name, Y: t.values}
	for i := range t.values {
		s.X = append(s.X, float64(i*t.width))
	}
	return s
}
