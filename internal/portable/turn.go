package portable

import "math"

// SinTurn returns sin(2πx), for |x| < 2^51, to within a few units in 10^-16; at whole
// quarters of a turn exactly.
func SinTurn(x float64) float64 {
	// A whole number of quarters is taken away, which is exact, so at most an eighth of a
	// turn is left on either side.
	quarters := Round(4 * x)
	rest := x - float64(quarters/4)
	switch int64(quarters) & 3 {
	case 0:
		return sinRest(rest)
	case 1:
		return cosRest(rest)
	case 2:
		return -sinRest(rest)
	default:
		return -cosRest(rest)
	}
}

// CosTurn returns cos(2πx), as SinTurn does.
func CosTurn(x float64) float64 {
	quarters := Round(4 * x)
	rest := x - float64(quarters/4)
	switch int64(quarters) & 3 {
	case 0:
		return cosRest(rest)
	case 1:
		return -sinRest(rest)
	case 2:
		return -cosRest(rest)
	default:
		return sinRest(rest)
	}
}

// sinRest and cosRest sum the Taylor series at most an eighth of a turn, π/4, away from
// zero: what the terms up to the 17th power leave out is below 10^-17.
func sinRest(turns float64) float64 {
	a := float64(2 * math.Pi * turns)
	return float64(a * series(float64(a*a), 17))
}

func cosRest(turns float64) float64 {
	a := float64(2 * math.Pi * turns)
	return series(float64(a*a), 16)
}

// series returns 1 - z/(n·(n-1)) · (1 - z/((n-2)·(n-3)) · …) with the largest n innermost:
// for odd n the series of sin a / a, for even n that of cos a, where z = a².
func series(z float64, last int) float64 {
	sum := 1.0
	for n := last; n >= 2; n -= 2 {
		sum = 1 - float64(z*sum)/float64(n*(n-1))
	}
	return sum
}
