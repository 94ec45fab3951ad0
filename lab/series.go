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
const maxPoints = 600

// thinned returns a run's values, one a step, as a series of at most maxPoints: where it is longer,
// each point has the greatest value of the steps up to the next point.
func thinned(name string, values []float64) Series {
	width := (len(values) + maxPoints - 1) / maxPoints
	s := Series{Name: name}
	for at := 0; at < len(values); at += width {
		most := values[at]
		for _, v := range values[at:min(at+width, len(values))] {
			most = max(most, v)
		}
		s.X, s.Y = append(s.X, float64(at)), append(s.Y, most)
	}
	return s
}
