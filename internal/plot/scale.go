package plot

import (
	"math"
	"strconv"
	"strings"
)

// scale maps the values of an axis to 0 … 1.
type scale struct {
	log    bool
	lo, hi float64
	ticks  []tick
}

// tick is a place on an axis that has its value written beside it.
type tick struct {
	at   float64
	text string
}

// most is how many ticks an axis has at most, about.
const most = 8

// newScale fits the axis to the values.
func newScale(a Axis, values []float64) scale {
	s := scale{log: a.Log, lo: a.Min, hi: a.Max}
	if a.fits() {
		s.lo, s.hi = extent(a.Log, values)
	}
	if a.Log {
		s.ticks = decades(s.lo, s.hi)
		return s
	}
	step, exponent := round125((s.hi - s.lo) / most)
	unit := decimal(step, exponent)
	first, last := int64(math.Ceil(s.lo/unit-slack)), int64(math.Floor(s.hi/unit+slack))
	if a.fits() { // it begins and ends with a tick
		first, last = int64(math.Floor(s.lo/unit+slack)), int64(math.Ceil(s.hi/unit-slack))
		s.lo, s.hi = decimal(first*step, exponent), decimal(last*step, exponent)
	}
	for i := first; i <= last; i++ {
		at := decimal(i*step, exponent)
		s.ticks = append(s.ticks, tick{at, label(at, max(0, -exponent))})
	}
	return s
}

// slack is how far beyond an axis' end, in ticks, a tick may be by rounding.
const slack = 1e-9

// extent returns the range of the values that can be drawn, never empty.
func extent(log bool, values []float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if drawable(v, log) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	switch {
	case lo > hi: // nothing to show
		lo, hi = 1, 10
	case log && lo == hi:
		lo, hi = lo/2, hi*2
	}
	if !log {
		lo, hi = min(lo, 0), max(hi, 0)
		if hi-lo < least {
			lo, hi = 0, 1
		}
	}
	return lo, hi
}

// Beyond these the arithmetic of an axis would overflow.
const (
	greatest = 1e300
	least    = 1 / greatest
)

// drawable reports whether an axis can show v.
func drawable(v float64, log bool) bool {
	return math.Abs(v) <= greatest && !(log && v < least)
}

// at returns where v is: 0 is the axis' beginning, 1 its end. It reports false where v can't
// be shown at all.
func (s scale) at(v float64) (float64, bool) {
	if !drawable(v, s.log) {
		return 0, false
	}
	if s.log {
		return (log10(v) - log10(s.lo)) / (log10(s.hi) - log10(s.lo)), true
	}
	return (v - s.lo) / (s.hi - s.lo), true
}

// round125 returns the smallest of 1, 2 and 5 times a power of ten that is not below x > 0.
func round125(x float64) (step int64, exponent int) {
	// The decimal form has the exponent without a logarithm.
	mantissa, power, _ := strings.Cut(strconv.FormatFloat(x, 'e', -1, 64), "e")
	m, _ := strconv.ParseFloat(mantissa, 64)
	exponent, _ = strconv.Atoi(power)
	for _, step := range []int64{1, 2, 5} {
		if m <= float64(step) {
			return step, exponent
		}
	}
	return 1, exponent + 1
}

// decimal returns n·10^exponent, rounded once.
func decimal(n int64, exponent int) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatInt(n, 10)+"e"+strconv.Itoa(exponent), 64)
	return v
}

// decades returns the ticks of a logarithmic axis: powers of ten, with 2 and 5 between them
// where there is room, and only some of the powers where there is little.
func decades(lo, hi float64) []tick {
	_, first := round125(lo)
	_, last := round125(hi)
	first-- // round125 rounds up
	steps, every := []int64{1, 2, 5}, 1
	if last-first > 4 {
		steps, every = steps[:1], (last-first+most-1)/most
	}
	var ticks []tick
	for e := first; e <= last; e++ {
		if e%every != 0 {
			continue
		}
		for _, step := range steps {
			if v := decimal(step, e); lo <= v && v <= hi {
				ticks = append(ticks, tick{v, label(v, max(0, -e))})
			}
		}
	}
	return ticks
}

// label writes a value with so many decimals: from ten thousand on in thousands, and so on,
// and where that would be long in the scientific way.
func label(v float64, decimals int) string {
	if abs := math.Abs(v); abs >= 1e13 || decimals > 6 && abs > 0 {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	for _, unit := range []struct {
		from, of float64
		text     string
	}{{1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}} {
		if math.Abs(v) >= unit.from {
			return strconv.FormatFloat(v/unit.of, 'f', -1, 64) + unit.text
		}
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// log10 returns the decimal logarithm of a positive, finite number. Package math's differs
// between platforms in its last bit.
//
// With x = m·2^k and m near 1, ln m = 2·artanh(s) for s = (m-1)/(m+1), whose series
// s + s³/3 + s⁵/5 + … converges fast because |s| < 0.172.
func log10(x float64) float64 {
	m, k := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, k = 2*m, k-1
	}
	s := (m - 1) / (m + 1)
	z, sum := float64(s*s), 0.0
	for n := 21; n >= 1; n -= 2 {
		sum = 1/float64(n) + float64(z*sum)
	}
	return (float64(float64(k)*math.Ln2) + float64(2*s*sum)) / math.Ln10
}
