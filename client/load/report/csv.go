package report

import (
	"encoding/csv"
	"io"
	"strconv"
)

// CSV writes the quantities that the run shows, one a line and of two kinds two, in
// milliseconds.
func (r *Result) CSV(w io.Writer) error {
	header := []string{"metric", "counted_from", "count", "mean_ms", "std_ms"}
	for _, p := range r.Percentiles {
		header = append(header, percentile(p)+"_ms")
	}
	rows := [][]string{append(header, "max_ms")}
	row := func(key, from string, d *Distribution) {
		line := []string{key, from, strconv.FormatInt(d.Count(), 10), cell(d.Mean() * 1e3), cell(d.Std() * 1e3)}
		for _, p := range r.Percentiles {
			line = append(line, cell(d.Quantile(p/100)*1e3))
		}
		rows = append(rows, append(line, cell(d.Max()*1e3)))
	}
	for _, m := range r.shown() {
		if m.intended != nil {
			row(m.key, "intended send", m.intended)
			row(m.key, "actual send", m.actual)
		} else {
			row(m.key, "first content", m.actual)
		}
	}
	row("schedule_lag", "intended send", &r.Lag)
	row("concurrency_wait", "generator ready", &r.Held)
	row("session_completion", "intended start", &r.Completion)
	return csv.NewWriter(w).WriteAll(rows)
}

// cell writes a number, nothing where there is none.
func cell(v float64) string {
	if finite(v) == nil {
		return ""
	}
	return strconv.FormatFloat(v, 'f', 6, 64)
}
