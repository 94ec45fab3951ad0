package workload

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/internal/draw"
	"kvasir/internal/mono"
	"kvasir/internal/portable"
	"kvasir/internal/seed"
)

// Bounds of what a distribution draws.
const (
	maxLength = 1 << 22             // tokens, or whatever is counted
	maxDelay  = 30 * 24 * time.Hour // of a gap
)

// Lengths is a distribution of whole numbers: of tokens, turns, documents. Its text is one
// of
//
//	256                              always so many
//	uniform/MIN/MAX                  every number from MIN to MAX as often
//	normal/MEAN/CV[/MIN/MAX]         CV is the standard deviation over the mean
//	lognormal/MEAN/CV[/MIN/MAX]      of the lengths themselves, not of their logarithms
//	exponential/MEAN[/MIN/MAX]
//	quantiles/Q0/…/Qn                empirical: quantiles in even steps from the smallest to the
//	                                 largest value, straight lines between them
//
// where MEAN need not be whole. What falls outside MIN and MAX is set to the bound, so MEAN
// and CV are those before that.
// Without them the bounds are 1 and 4194304. The zero value is always 0.
type Lengths struct{ distribution }

// Delays is a distribution of times, with the text of Lengths where values are durations
// such as 1.5s. Without bounds they are 0 and 720h.
type Delays struct{ distribution }

// Fixed returns what is always n.
func Fixed(n int) Lengths {
	return Lengths{distribution{low: float64(n), high: float64(n)}}
}

// Around returns what is uniform within a share of n, rounded outwards: vLLM's
// --random-range-ratio.
func Around(n int, ratio float64) Lengths {
	spread := float64(float64(n) * ratio)
	if spread == 0 {
		return Fixed(n)
	}
	low := int(float64(n) - spread)
	high := int(float64(n) + spread)
	if float64(high) < float64(n)+spread {
		high++
	}
	return Lengths{distribution{kind: uniform, low: float64(low), high: float64(high)}}
}

// FixedDelay returns what is always d.
func FixedDelay(d time.Duration) Delays {
	return Delays{distribution{low: d.Seconds(), high: d.Seconds()}}
}

// ParseLengths returns the lengths that a text stands for.
func ParseLengths(text string) (l Lengths, err error) {
	if err := l.UnmarshalText([]byte(text)); err != nil {
		return l, fmt.Errorf("lengths are %q; allowed: %w", text, err)
	}
	return l, nil
}

// ParseDelays returns the delays that a text stands for.
func ParseDelays(text string) (d Delays, err error) {
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return d, fmt.Errorf("delays are %q; allowed: %w", text, err)
	}
	return d, nil
}

// Draw returns a length, from 0 to 4194304.
func (l Lengths) Draw(r *seed.Rand) int {
	if l.kind == uniform {
		return int(l.low) + r.Intn(int(l.high-l.low)+1)
	}
	return int(portable.Round(l.draw(r)))
}

// Bounds returns the least and the greatest length that can be drawn.
func (l Lengths) Bounds() (least, most int) { return int(l.low), int(l.high) }

// Draw returns a delay, from 0 to 30 days.
func (d Delays) Draw(r *seed.Rand) time.Duration { return mono.FromSeconds(d.draw(r)) }

// UnmarshalText reads the text that String writes. The error is what is allowed.
func (l *Lengths) UnmarshalText(text []byte) error { return l.read(string(text), lengthUnit) }

// UnmarshalText reads the text that String writes. The error is what is allowed.
func (d *Delays) UnmarshalText(text []byte) error { return d.read(string(text), delayUnit) }

// String returns the distribution's text.
func (l *Lengths) String() string { return l.text(lengthUnit) }

// String returns the distribution's text.
func (d *Delays) String() string { return d.text(delayUnit) }

// kind names a family of distributions.
type kind uint8

const (
	fixed kind = iota
	uniform
	normal
	lognormal
	exponential
	quantiles
)

var kindNames = []string{"fixed", "uniform", "normal", "lognormal", "exponential", "quantiles"}

// distribution is what Lengths and Delays share: numbers of tokens or of seconds.
type distribution struct {
	kind      kind
	mean, cv  float64
	low, high float64 // what is drawn lies between them
	bounded   bool    // by the text
	points    []float64
}

func (d *distribution) hasCV() bool { return d.kind == normal || d.kind == lognormal }

func (d *distribution) hasMean() bool { return d.hasCV() || d.kind == exponential }

func (d *distribution) draw(r *seed.Rand) float64 {
	var v float64
	switch d.kind {
	case fixed:
		return d.low
	case uniform:
		v = d.low + float64(r.Float64()*(d.high-d.low))
	case normal:
		v = d.mean + float64(float64(d.mean*d.cv)*draw.Normal(r))
	case lognormal:
		v = draw.LogNormal(r, d.mean, d.cv)
	case exponential:
		v = d.mean * draw.Exponential(r)
	case quantiles:
		at := r.Float64() * float64(len(d.points)-1)
		i := int(at)
		v = d.points[i] + float64((at-float64(i))*(d.points[i+1]-d.points[i]))
	}
	return min(max(v, d.low), d.high)
}

// unit is what a distribution's numbers are.
type unit struct {
	read     func(string) (float64, error)
	write    func(float64) string
	fraction bool    // of a mean; the others are whole
	high     float64 // what may be said at most, and the upper bound where none is said
	least    float64 // the lower bound where none is said
	allowed  error
}

const maxPoints = 1001 // of an empirical distribution
const maxCV = 1000.0   // beyond it next to all would be drawn at the bounds

var (
	lengthUnit = unit{
		read: func(s string) (float64, error) {
			n, err := strconv.Atoi(s)
			return float64(n), err
		},
		write:    func(v float64) string { return strconv.Itoa(int(v)) },
		fraction: true, high: maxLength, least: 1,
		allowed: allowedTexts("256", "a whole number, 0 to 4194304"),
	}
	delayUnit = unit{
		read: func(s string) (float64, error) {
			d, err := time.ParseDuration(s)
			return d.Seconds(), err
		},
		write:   func(v float64) string { return mono.FromSeconds(v).String() },
		high:    maxDelay.Seconds(),
		allowed: allowedTexts("1.5s", "a duration, 0s to 720h0m0s"),
	}
)

func allowedTexts(example, number string) error {
	return errors.New(example + ", uniform/MIN/MAX, normal/MEAN/CV, lognormal/MEAN/CV, exponential/MEAN, these three " +
		"with /MIN/MAX behind if wanted, or quantiles/Q0/…/Qn, where CV is 0 to 1000, the quantiles ascend, and the others are each " + number)
}

func number(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

// read sets the distribution, which it leaves alone where it returns an error.
func (d *distribution) read(text string, u unit) error {
	parts := strings.Split(text, "/")
	if len(parts) == 1 {
		parts = []string{kindNames[fixed], text}
	}
	next := distribution{kind: kind(slices.Index(kindNames, parts[0])), low: u.least, high: u.high}
	numbers := make([]float64, 0, len(parts))
	for i, part := range parts[1:] {
		read, most := u.read, u.high
		switch {
		case i == 0 && next.hasMean() && u.fraction:
			read = number
		case i == 1 && next.hasCV():
			read, most = number, maxCV
		}
		v, err := read(part)
		if err != nil || !(0 <= v && v <= most) {
			return u.allowed
		}
		numbers = append(numbers, v)
	}
	if !next.take(numbers) {
		return u.allowed
	}
	*d = next
	return nil
}

// take gives the distribution its parameters, and reports whether they are such.
func (d *distribution) take(numbers []float64) bool {
	before := 0 // parameters in front of the bounds
	if d.hasMean() {
		before++
	}
	if d.hasCV() {
		before++
	}
	switch d.kind {
	case fixed:
		if len(numbers) != 1 {
			return false
		}
		d.low, d.high = numbers[0], numbers[0]
		return true
	case quantiles:
		if len(numbers) < 2 || len(numbers) > maxPoints || !slices.IsSorted(numbers) {
			return false
		}
		d.low, d.high, d.points = numbers[0], numbers[len(numbers)-1], numbers
		return true
	case uniform, normal, lognormal, exponential:
	default:
		return false
	}
	switch {
	case len(numbers) == before+2:
		d.low, d.high, d.bounded = numbers[before], numbers[before+1], true
	case len(numbers) != before || d.kind == uniform:
		return false
	}
	if before > 0 {
		d.mean = numbers[0]
	}
	if before > 1 {
		d.cv = numbers[1]
	}
	return d.low <= d.high && (before == 0 || d.mean > 0)
}

func (d *distribution) text(u unit) string {
	parts := []string{kindNames[d.kind]}
	switch d.kind {
	case fixed:
		return u.write(d.low)
	case quantiles:
		for _, v := range d.points {
			parts = append(parts, u.write(v))
		}
		return strings.Join(parts, "/")
	}
	if d.hasMean() && u.fraction {
		parts = append(parts, strconv.FormatFloat(d.mean, 'f', -1, 64))
	} else if d.hasMean() {
		parts = append(parts, u.write(d.mean))
	}
	if d.hasCV() {
		parts = append(parts, strconv.FormatFloat(d.cv, 'f', -1, 64))
	}
	if d.bounded || d.kind == uniform {
		parts = append(parts, u.write(d.low), u.write(d.high))
	}
	return strings.Join(parts, "/")
}
