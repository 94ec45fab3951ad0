// Package portable is pure: elementary functions that give the same bits on every
// platform, so that a run's bytes do not depend on where it ran.
//
// They replace those of package math that have assembly on some platforms and so may
// differ there in the last bit. Every product that feeds a sum is converted explicitly,
// which forbids fusing the two (Go specification, "Floating-point operators"). Sqrt,
// Frexp, Floor and the bit conversions of package math are exact everywhere.
package portable

import "math"

// Adding shifter, 1.5·2^52, to a number below 2^51 rounds it to a whole one and leaves
// that in the lowest bits.
const shifter = 3 << 51

// Round returns the whole number nearest to x, of two the even one, where |x| < 2^51;
// NaN and infinities stay what they are.
func Round(x float64) float64 { return (float64(x) + shifter) - shifter }

const (
	log2E = 1.44269504088896338700e+00
	ln2Hi = 6.93147180369123816490e-01 // ln 2 with its last 32 bits zero: k·ln2Hi is exact
	ln2Lo = 1.90821492927058770002e-10 // ln 2 - ln2Hi
)

// Exp returns e^x to within a few units in the last place; 0 below -708, where the
// result would no longer be a normal number, and +Inf above 709.
//
// With x = (k/32)·ln 2 + r, where k is whole and |r| <= ln 2 / 64, e^x is 2^(k/32), from
// a table and the exponent's bits, times e^r, of whose series the terms up to r^5
// leave out less than 3·10^-15. The sum is arranged in pairs, which don't wait for each
// other.
func Exp(x float64) float64 {
	if !(-708 <= x && x <= 709) {
		switch {
		case x < 0:
			return 0
		case x > 0:
			return math.Inf(1)
		}
		return x // NaN
	}
	shifted := float64(x*(32*log2E)) + shifter
	k := int32(math.Float64bits(shifted))
	n := shifted - shifter
	r := (x - float64(n*(ln2Hi/32))) - float64(n*(ln2Lo/32))
	r2 := float64(r * r)
	s := (1.0/2 + float64(r*(1.0/6))) + float64(r2*(1.0/24+float64(r*(1.0/120))))
	s = r + float64(r2*s)
	y := exp32[k&31]
	y += float64(y * s)
	return y * math.Float64frombits(uint64(k>>5+1023)<<52)
}

// exp32 holds 2^(j/32), rounded to nearest.
var exp32 = [32]float64{
	0x1p+0, 0x1.059b0d3158574p+0, 0x1.0b5586cf9890fp+0, 0x1.11301d0125b51p+0,
	0x1.172b83c7d517bp+0, 0x1.1d4873168b9aap+0, 0x1.2387a6e756238p+0, 0x1.29e9df51fdee1p+0,
	0x1.306fe0a31b715p+0, 0x1.371a7373aa9cbp+0, 0x1.3dea64c123422p+0, 0x1.44e086061892dp+0,
	0x1.4bfdad5362a27p+0, 0x1.5342b569d4f82p+0, 0x1.5ab07dd485429p+0, 0x1.6247eb03a5585p+0,
	0x1.6a09e667f3bcdp+0, 0x1.71f75e8ec5f74p+0, 0x1.7a11473eb0187p+0, 0x1.82589994cce13p+0,
	0x1.8ace5422aa0dbp+0, 0x1.93737b0cdc5e5p+0, 0x1.9c49182a3f090p+0, 0x1.a5503b23e255dp+0,
	0x1.ae89f995ad3adp+0, 0x1.b7f76f2fb5e47p+0, 0x1.c199bdd85529cp+0, 0x1.cb720dcef9069p+0,
	0x1.d5818dcfba487p+0, 0x1.dfc97337b9b5fp+0, 0x1.ea4afa2a490dap+0, 0x1.f50765b6e4540p+0,
}

// Ln returns the natural logarithm of x, a positive, finite, normal number.
//
// With x = m·2^k and m near 1, ln m = 2·artanh(s) for s = (m-1)/(m+1), whose series
// s + s³/3 + s⁵/5 + ... converges fast because |s| < 0.172.
func Ln(x float64) float64 {
	m, k := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, k = 2*m, k-1
	}
	e := float64(k)
	return float64(e*ln2Hi) + (float64(e*ln2Lo) + artanh2((m-1)/(m+1)))
}

// Ln1p returns ln(1+x) for a finite x > -1, without losing the digits of a small x.
func Ln1p(x float64) float64 {
	if -0.29 < x && x < 0.41 { // |s| < 0.172, as in Ln
		return artanh2(x / (2 + x))
	}
	return Ln(1 + x)
}

// artanh2 returns 2·artanh(s) for |s| < 0.172.
func artanh2(s float64) float64 {
	z := float64(s * s)
	sum := 0.0
	for n := 21; n >= 1; n -= 2 {
		sum = 1/float64(n) + float64(z*sum)
	}
	return float64(2 * s * sum)
}

// Pow returns x^y for x >= 1 and y >= 0, exactly where y is 0 or 1.
func Pow(x, y float64) float64 {
	switch y {
	case 0:
		return 1
	case 1:
		return x
	}
	return Exp(float64(y * Ln(x)))
}
