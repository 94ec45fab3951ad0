package report

import (
	"math"
	"time"

	"kvasir/internal/stats"
)

// Distribution is a distribution of times in bounded memory: quantiles to within 0.8 %,
// count, mean, deviation, least and greatest exact. The zero Distribution is empty.
type Distribution struct {
	histogram stats.Histogram
	mean, m2  float64 // in nanoseconds; m2 is the sum of the squared distances from the mean
}

// Add counts a time once; one below 0 counts as 0.
func (d *Distribution) Add(t time.Duration) {
	t = max(t, 0)
	d.histogram.Add(int64(t))
	// Welford's sum stays exact where the sum of squares would cancel.
	delta := float64(t) - d.mean
	d.mean += delta / float64(d.Count())
	d.m2 += float64(delta * (float64(t) - d.mean))
}

// Merge adds what o has counted.
func (d *Distribution) Merge(o *Distribution) {
	if o.Count() == 0 {
		return
	}
	n, m := float64(d.Count()), float64(o.Count())
	delta := o.mean - d.mean
	d.mean += float64(delta * (m / (n + m)))
	d.m2 += o.m2 + float64(float64(delta*delta)*(n*m/(n+m)))
	d.histogram.Merge(&o.histogram)
}

// Count returns how many times were counted.
func (d *Distribution) Count() int64 { return d.histogram.Count() }

// Mean, Std (of the population), Quantile and Max are in seconds, and NaN where nothing was
// counted.
func (d *Distribution) Mean() float64 { return d.seconds(d.mean) }

// Std returns the population's standard deviation.
func (d *Distribution) Std() float64 { return d.seconds(math.Sqrt(d.m2 / float64(d.Count()))) }

// Quantile returns the value of rank ⌈q·n⌉.
func (d *Distribution) Quantile(q float64) float64 {
	return d.seconds(float64(d.histogram.Quantile(q)))
}

// Max returns the greatest value.
func (d *Distribution) Max() float64 { return d.seconds(float64(d.histogram.Max())) }

func (d *Distribution) seconds(nanoseconds float64) float64 {
	if d.Count() == 0 {
		return math.NaN()
	}
	return nanoseconds / 1e9
}
