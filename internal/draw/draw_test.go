package draw

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"kvasir/internal/seed"
	"kvasir/internal/stats"
)

// sample draws n numbers of one seed.
func sample(n int, root uint64, draw func(r *seed.Rand) float64) []float64 {
	r := seed.New(root, seed.Workload, 0, 0)
	values := make([]float64, n)
	for i := range values {
		values[i] = draw(&r)
	}
	return values
}

// TestMoments compares means and coefficients of variation over 40 seeds with the theory.
func TestMoments(t *testing.T) {
	type law struct {
		name     string
		draw     func(r *seed.Rand) float64
		mean, cv float64
	}
	laws := []law{{"exponential", Exponential, 1, 1}}
	for _, shape := range []float64{0.1, 0.5, 1, 1.5, 4, 100} {
		laws = append(laws, law{fmt.Sprintf("gamma %v", shape), func(r *seed.Rand) float64 { return Gamma(r, shape) }, shape, 1 / math.Sqrt(shape)})
	}
	for _, cv := range []float64{0, 0.3, 1} {
		laws = append(laws, law{fmt.Sprintf("lognormal %v", cv), func(r *seed.Rand) float64 { return LogNormal(r, 700, cv) }, 700, cv})
	}
	for _, l := range laws {
		var means, squares []float64
		for root := range uint64(40) {
			values := sample(5000, root, l.draw)
			mean, square := 0.0, 0.0
			for _, v := range values {
				mean += v / 5000
				square += v * v / 5000
			}
			means, squares = append(means, mean), append(squares, square)
		}
		within(t, l.name+": mean", means, l.mean)
		within(t, l.name+": mean square", squares, l.mean*l.mean*(1+l.cv*l.cv))
	}
}

// within fails unless want lies within twice the 95 % confidence interval of the seeds'
// results: about four standard errors.
func within(t *testing.T, what string, results []float64, want float64) {
	t.Helper()
	mean, half := stats.Interval(results)
	if math.Abs(mean-want) > max(2*half, 1e-9*want) {
		t.Errorf("%s is %v ± %v, want %v", what, mean, half, want)
	}
}

// TestDistributions compares whole distributions with the theory: Kolmogorov and Smirnov's
// test at p = 0.001.
func TestDistributions(t *testing.T) {
	normal := func(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }
	for _, l := range []struct {
		name       string
		draw       func(r *seed.Rand) float64
		cumulative func(x float64) float64
	}{
		{"exponential", Exponential, func(x float64) float64 { return 1 - math.Exp(-x) }},
		{"normal", Normal, normal},
		{"gamma 1", func(r *seed.Rand) float64 { return Gamma(r, 1) }, func(x float64) float64 { return 1 - math.Exp(-x) }},
		{"gamma 2", func(r *seed.Rand) float64 { return Gamma(r, 2) }, func(x float64) float64 { return 1 - (1+x)*math.Exp(-x) }},
		{"gamma 1/2", func(r *seed.Rand) float64 { return Gamma(r, 0.5) }, func(x float64) float64 { return math.Erf(math.Sqrt(x)) }},
		{"lognormal", func(r *seed.Rand) float64 { return LogNormal(r, 1, 1) }, func(x float64) float64 {
			return normal((math.Log(x) + math.Ln2/2) / math.Sqrt(math.Ln2))
		}},
	} {
		const n = 20000
		values := sample(n, 3, l.draw)
		slices.Sort(values)
		far := 0.0
		for i, v := range values {
			p := l.cumulative(v)
			far = max(far, math.Abs(p-float64(i)/n), math.Abs(p-float64(i+1)/n))
		}
		if bound := 1.95 / math.Sqrt(n); far > bound {
			t.Errorf("%s departs by %.4f, allowed %.4f", l.name, far, bound)
		}
	}
}

func TestGamma_OfATinyShapeIsNeitherNaNNorNegative(t *testing.T) {
	for _, v := range sample(2000, 1, func(r *seed.Rand) float64 { return Gamma(r, 0.001) }) {
		if !(v >= 0) || math.IsInf(v, 0) {
			t.Fatalf("drew %v", v)
		}
	}
}

// TestPinned pins the numbers: a simulation must give the same bytes tomorrow.
func TestPinned(t *testing.T) {
	r := seed.New(42, seed.Workload, 1, 2)
	got := [4]uint64{
		math.Float64bits(Exponential(&r)), math.Float64bits(Normal(&r)),
		math.Float64bits(Gamma(&r, 0.7)), math.Float64bits(LogNormal(&r, 100, 0.5)),
	}
	if want := [4]uint64{0x3ff42ca4bc0dabef, 0xc000288c14767458, 0x3fc24a7bdefeebf6, 0x4060b2dd515c9aaa}; got != want {
		t.Errorf("drew %#x", got)
	}
}

func BenchmarkGamma(b *testing.B) {
	for _, shape := range []float64{0.5, 1, 4} {
		b.Run(fmt.Sprint(shape), func(b *testing.B) {
			r := seed.New(1, seed.Workload, 0, 0)
			b.ReportAllocs()
			for b.Loop() {
				Gamma(&r, shape)
			}
		})
	}
}
