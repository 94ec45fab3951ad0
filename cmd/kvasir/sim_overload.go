package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"kvasir/sim"
)

// parseLoads reads --overload: multiples of the capacity, ascending.
func parseLoads(text string) ([]float64, error) {
	if text == "" {
		return nil, nil
	}
	var loads []float64
	for part := range strings.SplitSeq(text, ",") {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil || !(x >= 0.01 && x <= 10) || len(loads) > 0 && x <= loads[len(loads)-1] {
			return nil, fmt.Errorf("--overload: %q is not allowed; allowed: multiples of the capacity from 0.01 to 10, ascending, separated by commas, such as 0.8,1,2,3", part)
		}
		loads = append(loads, x)
	}
	return loads, nil
}

// overloadRow is what a policy does of use behind one defence, by load.
type overloadRow struct {
	Policy  string          `json:"policy"`
	Defence string          `json:"defence"`
	Loads   []overloadPoint `json:"loads"`
}

type overloadPoint struct {
	Load      float64    `json:"load"` // in capacities
	RateScale float64    `json:"rate_scale"`
	Good      sim.Number `json:"good_rps"` // calls a second that came and kept the SLO
	Half      sim.Number `json:"good_rps_ci95_half_width"`
	Results   sim.Row    `json:"results"`
}

// overloadReport runs every policy at each load, behind each defence.
func (s *simulator) overloadReport(ctx context.Context, out io.Writer, report *simReport) error {
	s.calm = true
	capacity, err := s.rateAt(ctx, s.scenario.Engines)
	s.calm = false
	if err != nil {
		return err
	}
	var rows []overloadRow
	for _, p := range s.policies {
		for _, d := range sim.Defences() {
			row := overloadRow{Policy: p.name, Defence: d.Name}
			s.defence = d.Apply
			for _, load := range s.overload {
				rate := capacity * load
				if s.work, err = s.simOptions.work.load(ctx, s.seed, s.seeds, rate); err != nil {
					return err
				}
				runs, err := s.point(ctx, p, rate, s.scenario.Engines)
				if err != nil {
					return err
				}
				point := overloadPoint{Load: load, RateScale: rate, Results: sim.NewRow(d.Name, runs)}
				point.Good = point.Results.Goodput
				if half := point.Results.Half; half != nil {
					point.Half = half.Goodput
				}
				row.Loads = append(row.Loads, point)
			}
			rows = append(rows, row)
		}
	}
	s.runs.end()
	if s.format == "json" {
		return printJSON(out, struct {
			Config   simConfig     `json:"config"`
			Capacity float64       `json:"capacity_rate_scale"`
			Overload []overloadRow `json:"overload"`
		}{report.Config, capacity, rows})
	}
	report.Config.write(out, report.Config.gateways())
	fmt.Fprintf(out, "capacity: rate scale %.4g (the highest at which least-outstanding keeps the SLO for %g %% of the calls, with clients that wait)\n%s\n\n", capacity, 100*s.attainment, clientsText(s.clients))
	return writeOverload(out, s.overload, rows)
}

// writeOverload writes good calls a second by load, and, at the highest, what is left of the best
// one, attempts, latency and what was given up. A share of nothing is a dash.
func writeOverload(out io.Writer, loads []float64, rows []overloadRow) error {
	fmt.Fprintln(out, "calls a second that keep the SLO, by load in capacities; each defence has all before it; the columns after the last load are at that load:")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "policy\tdefence\t")
	for _, l := range loads {
		fmt.Fprintf(t, "%g×\t", l)
	}
	fmt.Fprintln(t, "left of the peak\tattempts a call\tTTFT P99, s\tgiven up\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t", r.Policy, r.Defence)
		best := 0.0
		for _, p := range r.Loads {
			best = math.Max(best, float64(p.Good))
			fmt.Fprintf(t, "%.2f\t", float64(p.Good))
		}
		last := &r.Loads[len(r.Loads)-1]
		x := &last.Results
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", orDash("%.0f %%", 100*float64(last.Good)/best), orDash("%.2f", float64(x.Attempts/x.Calls)),
			orDash("%.2f", float64(x.TTFT.P99)), orDash("%.0f %%", 100*(1-float64(x.Succeeded/x.Calls))))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, d := range sim.Defences() {
		if slices.ContainsFunc(rows, func(r overloadRow) bool { return r.Defence == d.Name }) {
			fmt.Fprintf(out, "%s: %s\n", d.Name, d.Doc)
		}
	}
	return nil
}

// orDash writes a number, or a dash where there is none.
func orDash(form string, x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf(form, x)
}

// clientsText says how those behave who wait.
func clientsText(c sim.Clients) string {
	text := "clients wait for ever"
	if c.Patience > 0 {
		text = fmt.Sprintf("clients leave after %v without a first token", c.Patience)
	}
	if c.Retries > 0 {
		return text + fmt.Sprintf(", and try again up to %d times, as SDKs do", c.Retries)
	}
	return text + ", and try once"
}
