package lab

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"kvasir/internal/stats"
)

// Table is a named table of a result.
type Table struct {
	Name    string   `json:"name"` // kebab-case, unique within the result
	Title   string   `json:"title"`
	Columns []Column `json:"columns"`
	Rows    [][]Cell `json:"rows"` // each as long as Columns
}

// Column is the head of a column.
type Column struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
}

// MarshalJSON gives the table with text, the cells as they are printed for people, beside rows.
func (t Table) MarshalJSON() ([]byte, error) {
	type fields Table
	_, text := t.cells()
	return json.Marshal(struct {
		fields
		Text [][]string `json:"text"`
	}{fields(t), text})
}

// Cell is a value of a table: a text, or a number, or a number's mean over seeds. The zero
// Cell is empty: the article or the run says nothing there.
type Cell struct {
	text   string
	value  float64
	half   float64 // half of the mean's 95 % interval; 0: not a mean, or every seed gave the same
	digits int     // behind the decimal point, where printed for people
	kind   cellKind
}

type cellKind uint8

const (
	emptyCell cellKind = iota
	textCell
	numberCell
	meanCell
)

// Text is a cell with words.
func Text(s string) Cell { return Cell{kind: textCell, text: s} }

// Number is a cell with a number, printed with so many digits behind the point.
func Number(x float64, digits int) Cell { return Cell{kind: numberCell, value: x, digits: digits} }

// Mean is a cell with the mean over seeds and its 95 % interval. It keeps no reference.
func Mean(values []float64, digits int) Cell {
	if len(values) == 1 {
		return Number(values[0], digits)
	}
	mean, half := stats.Interval(values)
	return Cell{kind: meanCell, value: mean, half: half, digits: digits}
}

// interval is a cell with a mean and half its 95 % interval, of figures that are known; half 0:
// there is none.
func interval(mean, half float64, digits int) Cell {
	if half == 0 {
		return Number(mean, digits)
	}
	return Cell{kind: meanCell, value: mean, half: half, digits: digits}
}

// Value returns the cell's number, or its mean; NaN where it has none.
func (c Cell) Value() float64 {
	if c.kind == numberCell || c.kind == meanCell {
		return c.value
	}
	return math.NaN()
}

// IsText reports whether the cell has words, or nothing.
func (c Cell) IsText() bool { return c.kind == textCell || c.kind == emptyCell }

// String prints the cell for people: groups of thousands, the decimals that mean something,
// and ± half the interval.
func (c Cell) String() string {
	switch c.kind {
	case textCell:
		return c.text
	case numberCell:
		return decimal(c.value, c.digits)
	case meanCell:
		return decimal(c.value, c.digits) + " ± " + decimal(c.half, c.digits)
	}
	return ""
}

// MarshalJSON gives a string, a number, {"mean", "half_width"}, or null for nothing and for
// what no JSON number can say.
func (c Cell) MarshalJSON() ([]byte, error) {
	switch {
	case c.kind == textCell:
		return json.Marshal(c.text)
	case c.kind == emptyCell || math.IsNaN(c.value) || math.IsInf(c.value, 0):
		return []byte("null"), nil
	case c.kind == meanCell:
		return json.Marshal(struct {
			Mean float64 `json:"mean"`
			Half float64 `json:"half_width"`
		}{c.value, c.half})
	}
	return json.Marshal(c.value)
}

// decimal prints a number with so many digits behind the point and commas between groups
// of thousands.
func decimal(x float64, digits int) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case math.IsInf(x, 1):
		return "∞"
	case math.IsInf(x, -1):
		return "-∞"
	}
	s := strconv.FormatFloat(x, 'f', digits, 64)
	sign := ""
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		s = rest
		if strings.Trim(s, "0.") != "" { // not a rounded nothing
			sign = "-"
		}
	}
	whole, fraction, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + whole + fraction
}
