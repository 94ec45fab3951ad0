package plot

import (
	"encoding/csv"
	"io"
	"strconv"
)

// CSV writes the chart's points as they are, one a line: series, x, y and half, under a
// header that names the axes with their units. A value that is no number is empty.
func (c Chart) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"series", c.X.name(), c.Y.name(), "half of the 95 % interval"}}
	for _, s := range c.Series {
		for _, p := range s.Points {
			rows = append(rows, []string{s.Name, number(p.X), number(p.Y), number(p.Half)})
		}
	}
	return out.WriteAll(rows)
}

// number returns the shortest text that reads back as v.
func number(v float64) string {
	if !finite(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
