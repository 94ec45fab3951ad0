// Package plot is pure: line charts as SVG, and the numbers behind them as CSV. The same
// chart gives the same bytes on every platform.
//
// A chart is readable on light and on dark paper (it follows prefers-color-scheme, and
// where a viewer doesn't know that it is light), by those who see no colours (every series
// has a dash of its own), and by those who see no picture (title and description).
package plot

import (
	"errors"
	"fmt"
	"math"
)

// Chart is a line chart. Its zero axes are linear and fit the data.
type Chart struct {
	Title    string
	Subtitle string // what was measured, and under what; may be empty
	X, Y     Axis
	Series   []Series // at most MaxSeries
	Marks    []Mark
}

// MaxSeries is how many series have a look of their own: eight colours, each with eight
// dashes.
const MaxSeries = colours * dashes

// Axis is one axis of a chart.
type Axis struct {
	Label string // what is shown, such as "TTFT"
	Unit  string // of the values, such as "s"; empty: none
	Log   bool   // logarithmic: values that are not above 0 are not drawn

	// Min and Max are what the axis shows; where both are 0 they come from the data. A
	// linear axis then has 0 in it, and begins and ends with a tick.
	Min, Max float64
}

// Series is one line.
type Series struct {
	Name   string
	Points []Point // drawn in this order; a point with NaN or an infinity interrupts the line
	Steps  bool    // a value holds until the next point, as in a distribution function
}

// Point is a value, with half the width of its confidence interval; Half is 0 or NaN where
// none is known.
type Point struct{ X, Y, Half float64 }

// Mark is a line across the chart at a value that matters, such as an SLO.
type Mark struct {
	Vertical bool    // at a value of X; else of Y
	At       float64 // out of the axis' range: not drawn
	Label    string
}

// Validate reports every mistake of the chart: too many series, an axis that ends before it
// begins or is no number, a logarithmic one that begins at 0 or below.
func (c Chart) Validate() error {
	var errs []error
	if len(c.Series) > MaxSeries {
		errs = append(errs, fmt.Errorf("plot: Series has %d; allowed: at most %d", len(c.Series), MaxSeries))
	}
	errs = append(errs, c.X.validate("X"), c.Y.validate("Y"))
	return errors.Join(errs...)
}

func (a Axis) validate(name string) error {
	switch {
	case a.fits():
		return nil
	case !drawable(a.Min, false) || !drawable(a.Max, false) || !(a.Max-a.Min >= least):
		return fmt.Errorf("plot: %s.Min to %s.Max is %v to %v; allowed: two numbers up to %v, the first one smaller", name, name, a.Min, a.Max, greatest)
	case a.Log && !drawable(a.Min, true):
		return fmt.Errorf("plot: %s.Min is %v; allowed on a logarithmic axis: above 0", name, a.Min)
	}
	return nil
}

// fits reports whether the axis takes its range from the data.
func (a Axis) fits() bool { return a.Min == 0 && a.Max == 0 }

// name returns the label with its unit.
func (a Axis) name() string {
	if a.Unit == "" {
		return a.Label
	}
	return a.Label + " (" + a.Unit + ")"
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
