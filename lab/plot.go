package lab

import (
	"math"
	"strconv"
)

// Plot is a chart of a result: a page draws it, the terminal leaves it out. Its numbers are
// those of the tables, or finer ones of the same runs.
type Plot struct {
	Name   string   `json:"name"` // kebab-case, unique within the result
	Title  string   `json:"title"`
	Kind   PlotKind `json:"kind"`
	X      Axis     `json:"x"`
	Y      Axis     `json:"y"`
	Series []Series `json:"series"`
	Marks  []Mark   `json:"marks,omitempty"`
	Says   string   `json:"says"` // what is to be seen in it, in a sentence, for who does not see it
}

// PlotKind says how a plot's numbers are drawn.
type PlotKind string

// The kinds of plots.
const (
	Lines PlotKind = "lines" // through the points of each series
	Steps PlotKind = "steps" // each value lasts until the next one
	Bars  PlotKind = "bars"  // at X 0, 1, 2 …, whose names are X.Names; series side by side
	Dots  PlotKind = "dots"  // a point each
)

// Axis says what an axis shows.
type Axis struct {
	Label string   `json:"label"`
	Unit  string   `json:"unit,omitempty"`
	Log   bool     `json:"log,omitempty"`   // logarithmic; every value is above 0
	Names []string `json:"names,omitempty"` // of 0, 1, 2 …, where the axis has names instead of numbers; on Y from below
	Most  float64  `json:"most,omitempty"`  // the axis ends there, what is above is cut; 0: where the numbers end
}

// Series is what belongs together in a plot. X and Y are equally long.
type Series struct {
	Name string  `json:"name"`
	X    Numbers `json:"x"`
	Y    Numbers `json:"y"`
	Half Numbers `json:"half,omitempty"` // half of each Y's 95 % interval, where Y are means over seeds

	Names []string `json:"names,omitempty"` // of the points of Dots, drawn beside them
}

// Mark is a line across the plot at one value of an axis.
type Mark struct {
	Axis  string  `json:"axis"` // x or y
	At    float64 `json:"at"`
	Label string  `json:"label"`
}

// Numbers are drawn, not read: JSON has six digits of each, and null for what is no number.
type Numbers []float64

// MarshalJSON implements json.Marshaler.
func (n Numbers) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2+8*len(n))
	b = append(b, '[')
	for i, x := range n {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, x, 'g', 6, 64)
		}
	}
	return append(b, ']'), nil
}
