package draw

import (
	"fmt"
	"math"
	"testing"

	"kvasir/internal/seed"
)

// TestZipf compares how often each number comes with the theory: chi-squared, at four
// standard deviations above its mean, over several exponents, 1 and its surroundings among
// them.
func TestZipf(t *testing.T) {
	for _, n := range []int{1, 2, 7, 100} {
		for _, exponent := range []float64{0, 1e-9, 0.3, 0.999999, 1, 1.000001, 1.2, 3} {
			weights, total := make([]float64, n), 0.0
			for k := range weights {
				weights[k] = math.Pow(float64(k+1), -exponent)
				total += weights[k]
			}
			const draws = 400000
			seen := make([]float64, n)
			r := seed.New(11, seed.Workload, uint64(n), math.Float64bits(exponent))
			for range draws {
				seen[Zipf(&r, n, exponent)]++
			}
			chi, cells := 0.0, 0
			restSeen, restWant := 0.0, 0.0
			for k, w := range weights {
				want := draws * w / total
				if want < 10 {
					restSeen, restWant = restSeen+seen[k], restWant+want
					continue
				}
				chi += (seen[k] - want) * (seen[k] - want) / want
				cells++
			}
			if restWant > 0 {
				chi += (restSeen - restWant) * (restSeen - restWant) / restWant
				cells++
			}
			if freedom := float64(cells - 1); chi > freedom+4*math.Sqrt(2*freedom)+8 {
				t.Errorf("n %d, exponent %v: chi-squared is %.1f with %v degrees of freedom", n, exponent, chi, freedom)
			}
		}
	}
}

func TestZipf_OfMany(t *testing.T) {
	for _, exponent := range []float64{0.5, 1, 50} {
		r := seed.New(1, seed.Workload, 0, 0)
		for range 10000 {
			if k := Zipf(&r, math.MaxInt32, exponent); k < 0 || k >= math.MaxInt32 {
				t.Fatalf("exponent %v drew %d", exponent, k)
			}
		}
	}
}

func BenchmarkZipf(b *testing.B) {
	for _, exponent := range []float64{0, 1, 1.2} {
		b.Run(fmt.Sprint(exponent), func(b *testing.B) {
			r := seed.New(1, seed.Workload, 0, 0)
			b.ReportAllocs()
			for b.Loop() {
				Zipf(&r, 1000, exponent)
			}
		})
	}
}
