package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"

	"kvasir/internal/plot"
	"kvasir/sim"
)

// drawGoodput draws every policy's curve: SLO attainment by rate.
func (s *simulator) drawGoodput(w io.Writer, curves []goodputCurve) error {
	c := plot.Chart{
		Title:    "SLO attainment by load",
		Subtitle: fmt.Sprintf("%s; %s; mean of %d seeds", s.work.name, sloText(s.scenario.SLO), s.seeds),
		X:        plot.Axis{Label: "calls that come", Unit: "1/s"},
		Y:        plot.Axis{Label: "calls that keep the SLO", Unit: "%", Max: 100},
		Marks:    []plot.Mark{{At: 100 * s.attainment, Label: fmt.Sprintf("%g %%", 100*s.attainment)}},
	}
	for _, g := range curves {
		line := plot.Series{Name: g.Policy}
		for _, p := range g.Points {
			line.Points = append(line.Points, plot.Point{X: float64(p.CallsRPS), Y: 100 * float64(p.Attainment), Half: 100 * float64(p.Half)})
		}
		c.Series = append(c.Series, line)
	}
	return c.SVG(w)
}

// writeGoodputCSV writes every point of every curve, a line each.
func writeGoodputCSV(w io.Writer, curves []goodputCurve) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"policy", "rate_scale", "calls_rps", "slo_attainment", "slo_attainment_ci95_half_width", "goodput_rps", "ttft_p95_s", "cached_token_ratio"}) // Error tells
	for _, g := range curves {
		for _, p := range g.Points {
			line := []string{g.Policy}
			for _, x := range []sim.Number{sim.Number(p.RateScale), p.CallsRPS, p.Attainment, p.Half, p.Goodput, p.TTFTP95, p.Cached} {
				line = append(line, plainNumber(x))
			}
			_ = out.Write(line) // likewise
		}
	}
	out.Flush()
	return out.Error()
}

// plainNumber is a number for a file: empty where it is none.
func plainNumber(x sim.Number) string {
	if v := float64(x); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', 6, 64)
	}
	return ""
}

// writeGoodputTable writes each policy's best rate.
func writeGoodputTable(w io.Writer, curves []goodputCurve, attainment float64) error {
	fmt.Fprintf(w, "the highest rate found at which %g %% of the calls keep the SLO:\n\n", 100*attainment)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\trate scale\tcalls/s\tgoodput/s\t± (95 %)\tof the bound\tcached %\truns\t")
	bound := math.NaN()
	for _, g := range curves {
		if g.Policy == pooled {
			bound = float64(g.CallsRPS)
		}
	}
	for _, g := range curves {
		cached := math.NaN()
		for _, p := range g.Points {
			if p.RateScale == float64(g.RateScale) {
				cached = 100 * float64(p.Cached)
			}
		}
		mark := ""
		if g.Open {
			mark = " or more"
		}
		cell := func(form string, x float64) string {
			if math.IsNaN(x) {
				return "-"
			}
			return fmt.Sprintf(form, x)
		}
		fmt.Fprintf(t, "%s\t%s%s\t%s\t%s\t%s\t%s\t%s\t%d\t\n", g.Policy, cell("%.3f", float64(g.RateScale)), mark, cell("%.3f", float64(g.CallsRPS)),
			cell("%.3f", float64(g.Goodput)), cell("%.3f", float64(g.Half)), cell("%.0f %%", 100*float64(g.CallsRPS)/bound), cell("%.1f", cached), len(g.Points))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, g := range curves {
		if g.RateScale == g.RateScale { // a number
			continue
		}
		p := g.Points[0]
		fmt.Fprintf(w, "%s: no rate does; at %.3g times the workload's, %.1f %% do\n", g.Policy, p.RateScale, 100*float64(p.Attainment))
	}
	fmt.Fprintln(w, "\n± is over seeds, which draw anew what policies draw, times within bins, generated workloads, and --sample;\nit does not say how other traffic would fare.")
	if !math.IsNaN(bound) {
		fmt.Fprintln(w, pooled+": one engine as fast as all of them together, with all of their KV blocks.")
	}
	return nil
}
