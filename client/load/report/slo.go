package report

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SLO is what a call must meet to count as good: an upper bound for each quantity that it
// names, none for the others. ITL is not among them, because it has no value per call
// (article section 15).
type SLO []Bound

// Bound is the greatest value of a quantity that is good.
type Bound struct {
	Metric string        // ttft, tpot, e2el or ntpot
	Most   time.Duration // at least 0
}

// sloMetrics are the quantities that an SLO can name.
const sloMetrics = "ttft, tpot, e2el or ntpot"

// ParseSLO reads bounds as vLLM's --goodput has them, "ttft:2000": a quantity and a number of
// milliseconds. A duration such as 2s is read, too. It reports every mistake.
func ParseSLO(words []string) (SLO, error) {
	var slo SLO
	var errs []error
	bad := func(word, why string) {
		errs = append(errs, fmt.Errorf("%q %s; allowed: METRIC:MILLISECONDS with %s, such as ttft:2000 or ttft:2s", word, why, sloMetrics))
	}
	for _, word := range words {
		metric, value, ok := strings.Cut(word, ":")
		if !ok {
			bad(word, "has no colon")
			continue
		}
		switch metric {
		case "ttft", "tpot", "e2el", "ntpot":
		case "itl":
			bad(word, "names ITL, which has no value per call")
			continue
		default:
			bad(word, "names no quantity that has a value per call")
			continue
		}
		most, err := milliseconds(value)
		if err != nil {
			bad(word, err.Error())
			continue
		}
		for _, b := range slo {
			if b.Metric == metric {
				bad(word, "bounds "+metric+" again")
			}
		}
		slo = append(slo, Bound{metric, most})
	}
	return slo, errors.Join(errs...)
}

// milliseconds reads a number of milliseconds, or a duration with a unit.
func milliseconds(s string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		s += "ms"
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, errors.New("has no time of 0 or more")
	}
	return d, nil
}

// met reports whether a call that succeeded is good where all that ends at a later instant
// took so much longer as held says. An answer of one token has a TPOT of 0, as in vLLM.
func (slo SLO) met(s *Sample, held time.Duration) bool {
	for _, b := range slo {
		var v time.Duration
		switch b.Metric {
		case "ttft":
			v = s.TTFT() + held
		case "tpot":
			v, _ = s.TPOT()
		case "e2el":
			v = s.E2E() + held
		case "ntpot":
			v, _ = s.per(s.E2E() + held)
		}
		if v > b.Most {
			return false
		}
	}
	return true
}

// String returns the bounds as --goodput takes them.
func (slo SLO) String() string {
	words := make([]string, len(slo))
	for i, b := range slo {
		words[i] = b.Metric + ":" + b.Most.String()
	}
	return strings.Join(words, " ")
}
