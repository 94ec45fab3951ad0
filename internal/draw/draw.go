// Package draw is pure: random numbers by distribution, from the streams of internal/seed.
// The same stream gives the same bits on every platform.
package draw

import (
	"math"

	"kvasir/internal/portable"
	"kvasir/internal/seed"
)

// Exponential returns a number of the exponential distribution with mean 1.
func Exponential(r *seed.Rand) float64 {
	return -portable.Ln(1 - r.Float64()) // of a number in (0, 1]
}

// Normal returns a number of the standard normal distribution: the polar method of
// Marsaglia and Bray, 1964. Its twin is not kept, so that a stream has no hidden state.
func Normal(r *seed.Rand) float64 {
	for {
		u, v := 2*r.Float64()-1, 2*r.Float64()-1
		s := float64(u*u) + float64(v*v)
		if 0 < s && s < 1 {
			return float64(u * math.Sqrt(-2*portable.Ln(s)/s))
		}
	}
}

// Gamma returns a number of the gamma distribution with the shape given (> 0) and scale 1:
// its mean is shape, its coefficient of variation 1/√shape. Marsaglia and Tsang, 2000,
// section 4; below shape 1 by the relation of their section 6. It never is negative, and
// is 0 where a small shape would take it below the smallest normal number.
func Gamma(r *seed.Rand, shape float64) float64 {
	if shape < 1 {
		u := 1 - r.Float64()
		return float64(Gamma(r, shape+1) * portable.Exp(portable.Ln(u)/shape))
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(float64(9*d))
	for {
		x := Normal(r)
		v := 1 + float64(c*x)
		if v <= 0 {
			continue
		}
		v = float64(float64(v*v) * v)
		x2 := float64(x * x)
		u := 1 - r.Float64()
		if u < 1-float64(0.0331*float64(x2*x2)) {
			return float64(d * v)
		}
		if portable.Ln(u) < float64(0.5*x2)+float64(d*(1-v+portable.Ln(v))) {
			return float64(d * v)
		}
	}
}

// LogNormal returns a number of the lognormal distribution with the mean (> 0) and the
// coefficient of variation (≥ 0) given, both of the numbers themselves, not of their
// logarithms.
func LogNormal(r *seed.Rand, mean, cv float64) float64 {
	variance := portable.Ln1p(float64(cv * cv)) // of the logarithm
	return float64(mean * portable.Exp(float64(math.Sqrt(variance)*Normal(r))-variance/2))
}
