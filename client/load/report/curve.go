package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"kvasir/internal/plot"
)

// Table writes the sweep's steps, one a line, and the knee.
func (s *Sweep) Table(w io.Writer) error {
	var t strings.Builder
	fmt.Fprintf(&t, "%10s %10s %10s %10s %9s %12s %12s %12s %11s  %s\n", "req/s", "sent", "answered", "goodput", "good", "P50 TTFT ms", "P99 TTFT ms", "P99 TPOT ms", "P99 lag ms", "")
	for _, step := range s.Steps() {
		good, attained := "-", "-"
		if len(step.SLO) > 0 {
			good, attained = number(step.Goodput()), share(step.Attainment())
		}
		note := "holds"
		if !step.Holds {
			note = "does not hold: " + strings.Join(step.Why, "; ")
		} else if len(step.Saturated) > 0 {
			note += ", although: " + strings.Join(step.Saturated, "; ")
		}
		fmt.Fprintf(&t, "%10.2f %10s %10s %10s %9s %12s %12s %12s %11s  %s\n", step.Rate, number(step.SendRate()), number(step.Throughput()), good, attained,
			number(step.TTFT.Intended.Quantile(0.5)*1e3), number(step.TTFT.Intended.Quantile(0.99)*1e3), number(step.TPOT.Quantile(0.99)*1e3), number(step.Lag.Quantile(0.99)*1e3), note)
	}
	if rate, ok := s.Unmeasured(); ok {
		fmt.Fprintf(&t, "ENDED at %.2f req/s, at which the generator fell behind %d times (lag at its 99th percentile: %s): nothing is known of this rate\n  what helps: %s\n", rate, mostLate, milli(s.lag), againstLag)
	}
	if knee, ok := s.Knee(); ok {
		fmt.Fprintf(&t, "knee: %.2f req/s\n", knee)
	} else {
		why := "no rate held"
		if len(s.steps) == 0 {
			why = "no rate was measured"
		}
		fmt.Fprintf(&t, "knee: %s\n", why)
	}
	_, err := io.WriteString(w, t.String())
	return err
}

// CSV writes the sweep's curve, one rate a line.
func (s *Sweep) CSV(w io.Writer) error {
	rows := [][]string{{"rate_rps", "holds", "saturated", "valid", "send_rate_rps", "throughput_rps", "goodput_rps", "attainment",
		"p50_ttft_ms", "p95_ttft_ms", "p99_ttft_ms", "max_ttft_ms", "p50_tpot_ms", "p95_tpot_ms", "p99_tpot_ms", "p99_e2el_ms", "p99_lag_ms", "completed", "failed", "does_not_hold_because"}}
	for _, r := range s.Steps() {
		row := []string{
			strconv.FormatFloat(r.Rate, 'g', -1, 64), strconv.FormatBool(r.Holds), strconv.FormatBool(len(r.Saturated) > 0), strconv.FormatBool(len(r.Invalid()) == 0),
			cell(r.SendRate()), cell(r.Throughput()),
		}
		if len(r.SLO) > 0 {
			row = append(row, cell(r.Goodput()), cell(r.Attainment()))
		} else {
			row = append(row, "", "")
		}
		ttft, tpot := &r.TTFT.Intended, &r.TPOT
		for _, v := range []float64{ttft.Quantile(0.5), ttft.Quantile(0.95), ttft.Quantile(0.99), ttft.Max(), tpot.Quantile(0.5), tpot.Quantile(0.95), tpot.Quantile(0.99), r.E2E.Intended.Quantile(0.99), r.Lag.Quantile(0.99)} {
			row = append(row, cell(v*1e3))
		}
		rows = append(rows, append(row, strconv.Itoa(r.Completed), strconv.Itoa(r.Failed), strings.Join(r.Why, "; ")))
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// Curve returns what came of each rate: the calls that were answered, and with an SLO those
// that were good.
func (s *Sweep) Curve() plot.Chart {
	c := plot.Chart{Title: "What comes of a rate", X: plot.Axis{Label: "rate offered", Unit: "req/s"}, Y: plot.Axis{Label: "calls", Unit: "1/s"}}
	offered, answered, good := plot.Series{Name: "offered"}, plot.Series{Name: "answered"}, plot.Series{Name: "good"}
	slo := false
	for _, step := range s.Steps() {
		offered.Points = append(offered.Points, plot.Point{X: step.Rate, Y: step.Rate})
		answered.Points = append(answered.Points, plot.Point{X: step.Rate, Y: step.Throughput()})
		good.Points = append(good.Points, plot.Point{X: step.Rate, Y: step.Goodput()})
		slo = slo || len(step.SLO) > 0
		c.Subtitle = fmt.Sprintf("%s, %d calls a rate", step.Workload, step.Prompts)
		if slo {
			c.Subtitle += ", good: " + step.SLO.String()
		}
	}
	c.Series = []plot.Series{offered, answered}
	if slo {
		c.Series = append(c.Series, good)
	}
	c.Marks = s.kneeMark()
	return c
}

// Waits returns the time to first token by rate.
func (s *Sweep) Waits() plot.Chart {
	c := plot.Chart{Title: "Time to first token by rate", Subtitle: "from the intended send", X: plot.Axis{Label: "rate offered", Unit: "req/s"}, Y: plot.Axis{Label: "TTFT", Unit: "s", Log: true}}
	for _, q := range []struct {
		name string
		q    float64
	}{{"P50", 0.5}, {"P95", 0.95}, {"P99", 0.99}} {
		series := plot.Series{Name: q.name}
		for _, step := range s.Steps() {
			series.Points = append(series.Points, plot.Point{X: step.Rate, Y: step.TTFT.Intended.Quantile(q.q)})
		}
		c.Series = append(c.Series, series)
	}
	c.Marks = s.kneeMark()
	return c
}

func (s *Sweep) kneeMark() []plot.Mark {
	if knee, ok := s.Knee(); ok {
		return []plot.Mark{{Vertical: true, At: knee, Label: "knee"}}
	}
	return nil
}
