package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Param is one setting of a lab. The bounds keep a run's time and memory within what a page
// or a terminal can wait for.
type Param struct {
	Key     string    `json:"key"` // snake_case
	Doc     string    `json:"doc"` // meaning and unit
	Kind    ParamKind `json:"kind"`
	Default string    `json:"default"`           // as on the command line
	Min     float64   `json:"min"`               // of numbers
	Max     float64   `json:"max"`               // likewise
	Choices []string  `json:"choices,omitempty"` // of a choice

	at any // where the experiment has it: *int, *float64, *bool or *string, as Kind says
}

// ParamKind is the kind of values that a setting takes.
type ParamKind string

// The kinds of settings.
const (
	Whole  ParamKind = "whole"  // a whole number within bounds
	Real   ParamKind = "number" // a number within bounds
	Switch ParamKind = "switch" // true or false
	Choice ParamKind = "choice" // one of some words
)

// SettingError is a setting that a lab does not accept.
type SettingError struct{ Lab, Key, Value, Allowed string }

// Error returns lab, setting, value and what is allowed, in a line.
func (e *SettingError) Error() string {
	return fmt.Sprintf("%s: %s is %q; allowed: %s", e.Lab, e.Key, e.Value, e.Allowed)
}

// Each of these four is a setting whose default is what at holds.

func count(at *int, key, doc string, least, most int) Param {
	return param(Whole, at, key, doc, Param{Min: float64(least), Max: float64(most)})
}

func number(at *float64, key, doc string, least, most float64) Param {
	return param(Real, at, key, doc, Param{Min: least, Max: most})
}

func toggle(at *bool, key, doc string) Param { return param(Switch, at, key, doc, Param{}) }

func choice(at *string, key, doc string, choices []string) Param {
	return param(Choice, at, key, doc, Param{Choices: choices})
}

func param(kind ParamKind, at any, key, doc string, p Param) Param {
	p.Kind, p.at, p.Key, p.Doc = kind, at, key, doc
	p.Default = p.text()
	return p
}

// Allowed says which values the setting takes.
func (p Param) Allowed() string {
	switch p.Kind {
	case Whole:
		return "a whole number from " + show(p.Min) + " to " + show(p.Max)
	case Real:
		return "a number from " + show(p.Min) + " to " + show(p.Max)
	case Switch:
		return "true, false"
	default:
		return strings.Join(p.Choices, ", ")
	}
}

// text returns what the setting is, as on the command line.
func (p Param) text() string {
	switch at := p.at.(type) {
	case *int:
		return strconv.Itoa(*at)
	case *float64:
		return show(*at)
	case *bool:
		return strconv.FormatBool(*at)
	default:
		return *at.(*string)
	}
}

func (p Param) jsonValue() any {
	switch at := p.at.(type) {
	case *int:
		return *at
	case *float64:
		return *at
	case *bool:
		return *at
	default:
		return *at.(*string)
	}
}

// set gives the setting a value; it reports whether the value is allowed.
func (p Param) set(text string) bool {
	switch at := p.at.(type) {
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil || float64(n) < p.Min || float64(n) > p.Max {
			return false
		}
		*at = n
	case *float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(p.Min <= x && x <= p.Max) {
			return false
		}
		*at = x
	case *bool:
		if text != "true" && text != "false" {
			return false
		}
		*at = text == "true"
	case *string:
		if !slices.Contains(p.Choices, text) {
			return false
		}
		*at = text
	}
	return true
}

// show prints a number as short as it is exact.
func show(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
