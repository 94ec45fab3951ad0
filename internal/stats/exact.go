package stats

import (
	"math"
	"slices"
)

// Summary is what is printed of a distribution.
type Summary struct {
	Count              int64
	Mean, Std          float64 // Std: of the population
	P50, P90, P95, P99 float64
	Min, Max           float64
}

// Summarize sorts the values in place and returns their summary, by nearest rank; all NaN
// where there are none.
func Summarize(values []float64) Summary {
	nan := math.NaN()
	s := Summary{Count: int64(len(values)), Mean: nan, Std: nan, P50: nan, P90: nan, P95: nan, P99: nan, Min: nan, Max: nan}
	if len(values) == 0 {
		return s
	}
	slices.Sort(values)
	s.Mean, s.Std = moments(values)
	s.P50, s.P90, s.P95, s.P99 = Quantile(values, 0.5), Quantile(values, 0.9), Quantile(values, 0.95), Quantile(values, 0.99)
	s.Min, s.Max = values[0], values[len(values)-1]
	return s
}

// Quantile returns the value of rank ⌈q·n⌉ of sorted values; NaN where there are none.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(min(max(q, 0), 1) * float64(len(sorted))))
	return sorted[max(rank-1, 0)]
}

// moments returns the mean and the population's standard deviation.
func moments(values []float64) (mean, std float64) {
	for _, v := range values {
		mean += v
	}
	mean /= float64(len(values))
	for _, v := range values {
		std += float64((v - mean) * (v - mean))
	}
	return mean, math.Sqrt(std / float64(len(values)))
}

// Interval returns the mean of a few independent runs' results and half the width of its
// 95 % confidence interval (Student's t). With one value nothing is known of the spread:
// half is NaN.
func Interval(values []float64) (mean, half float64) {
	n := len(values)
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	mean, std := moments(values)
	if n == 1 {
		return mean, math.NaN()
	}
	sample := std * math.Sqrt(float64(n)/float64(n-1))
	return mean, student(n-1) * sample / math.Sqrt(float64(n))
}

// student returns the 97.5 % quantile of Student's t for so many degrees of freedom; above
// the table the normal distribution's is close enough (1.96 against 2.04 at 31).
func student(freedom int) float64 {
	table := [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
		2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
		2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	return 1.96
}
