package draw

import (
	"math"

	"kvasir/internal/portable"
	"kvasir/internal/seed"
)

// Zipf returns a number in [0, n) (n ≥ 1): k as often as 1/(k+1)^exponent says (exponent
// ≥ 0; at 0 all are equally likely). It needs no table: rejection-inversion of the area
// under x^-exponent, Hörmann and Derflinger 1996.
func Zipf(r *seed.Rand, n int, exponent float64) int {
	if exponent == 0 || n == 1 {
		return r.Intn(n)
	}
	z := hyperbola{exponent}
	first, last := z.area(1.5)-1, z.area(float64(n)+0.5)
	// Where k is so little above x, it is below the curve.
	below := 2 - z.inverse(z.area(2.5)-z.height(2))
	for {
		area := last + float64(r.Float64()*(first-last))
		x := z.inverse(area)
		k := min(max(math.Floor(x+0.5), 1), float64(n))
		if k-x <= below || area >= z.area(k+0.5)-z.height(k) {
			return int(k) - 1
		}
	}
}

// hyperbola is x^-exponent.
type hyperbola struct{ exponent float64 }

func (z hyperbola) height(x float64) float64 {
	return portable.Exp(-float64(z.exponent * portable.Ln(x)))
}

// area is that between 1 and x: (x^(1-exponent) - 1) / (1-exponent), ln x at exponent 1.
func (z hyperbola) area(x float64) float64 {
	l := portable.Ln(x)
	return float64(l * growth(float64((1-z.exponent)*l)))
}

// inverse returns the x whose area is given.
func (z hyperbola) inverse(area float64) float64 {
	y := max(float64(area*(1-z.exponent)), -1+1e-15) // rounding may take it below
	if math.Abs(y) < 1e-4 {
		return portable.Exp(float64(area * (1 - float64(y*(0.5-float64(y*(1.0/3-y/4)))))))
	}
	return portable.Exp(portable.Ln1p(y) / (1 - z.exponent))
}

// growth returns (e^x - 1) / x, 1 at 0.
func growth(x float64) float64 {
	if math.Abs(x) < 1e-2 {
		return 1 + float64(x/2*(1+float64(x/3*(1+float64(x/4*(1+float64(x/5*(1+x/6))))))))
	}
	return (portable.Exp(x) - 1) / x
}
