package lab

import (
	"fmt"
	"strconv"
)

// Param is one setting of a lab: a number within bounds. The bounds keep a run's time and
// memory within what a page or a terminal can wait for.
type Param struct {
	Key     string  `json:"key"` // snake_case
	Doc     string  `json:"doc"` // meaning and unit
	Default float64 `json:"default"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Whole   bool    `json:"whole"` // only whole numbers are allowed

	count  *int // where the experiment has it; one of the two is set
	number *float64
}

// SettingError is a setting that a lab does not accept.
type SettingError struct{ Lab, Key, Value, Allowed string }

// Error returns lab, setting, value and what is allowed, in a line.
func (e *SettingError) Error() string {
	return fmt.Sprintf("%s: %s is %q; allowed: %s", e.Lab, e.Key, e.Value, e.Allowed)
}

// count is a setting that is a whole number; its default is what at holds.
func count(at *int, key, doc string, least, most int) Param {
	return Param{Key: key, Doc: doc, Default: float64(*at), Min: float64(least), Max: float64(most), Whole: true, count: at}
}

// number is a setting that is a number; its default is what at holds.
func number(at *float64, key, doc string, least, most float64) Param {
	return Param{Key: key, Doc: doc, Default: *at, Min: least, Max: most, number: at}
}

// Allowed says which values the setting takes.
func (p Param) Allowed() string {
	kind := "a number"
	if p.Whole {
		kind = "a whole number"
	}
	return kind + " from " + show(p.Min) + " to " + show(p.Max)
}

// value returns what the setting is.
func (p Param) value() float64 {
	if p.count != nil {
		return float64(*p.count)
	}
	return *p.number
}

func (p Param) jsonValue() any {
	if p.count != nil {
		return *p.count
	}
	return *p.number
}

// set gives the setting a value; it reports whether the value is allowed.
func (p Param) set(text string) bool {
	if p.count != nil {
		n, err := strconv.Atoi(text)
		if err != nil || float64(n) < p.Min || float64(n) > p.Max {
			return false
		}
		*p.count = n
		return true
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(p.Min <= x && x <= p.Max) {
		return false
	}
	*p.number = x
	return true
}

// show prints a setting's value as short as it is exact.
func show(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
