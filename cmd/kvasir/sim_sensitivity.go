package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"kvasir/sim"
)

// ranking is the policies' order under one variation, the best first.
type ranking struct {
	Variation string    `json:"variation"`
	RateScale float64   `json:"rate_scale"`
	Order     []string  `json:"order"`
	Moves     int       `json:"pairs_swapped"` // pairs of policies whose order differs from the first ranking's
	Results   []sim.Row `json:"results"`
}

// sensitivityReport runs all policies under each variation, at the same share of each
// one's own capacity, and tells how the order by goodput (then mean TTFT) changes.
func (s *simulator) sensitivityReport(ctx context.Context, out io.Writer, report *simReport) error {
	var rankings []ranking
	for _, v := range append([]sim.Variation{{Name: "as the profile says"}}, sim.Variations()...) {
		engines := v.Of(s.scenario.Engines)
		rate, err := s.rateAt(ctx, engines)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		rate *= s.load
		rows, err := s.rows(ctx, s.policies, rate, engines)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		r := ranking{Variation: v.Name, RateScale: rate, Results: rows}
		byResult := slices.Clone(rows)
		slices.SortStableFunc(byResult, func(a, b sim.Row) int {
			return cmp.Or(cmp.Compare(b.Goodput, a.Goodput), cmp.Compare(a.TTFT.Mean, b.TTFT.Mean))
		})
		for _, row := range byResult {
			r.Order = append(r.Order, row.Policy)
		}
		if len(rankings) > 0 {
			r.Moves = swapped(rankings[0].Order, r.Order)
		}
		rankings = append(rankings, r)
	}
	s.runs.end()
	if s.format == "json" {
		return printJSON(out, struct {
			Config   simConfig `json:"config"`
			Rankings []ranking `json:"rankings"`
		}{report.Config, rankings})
	}
	report.Config.write(out, report.Config.gateways())
	fmt.Fprintf(out, "order by goodput at %g of each pool's own capacity (least-outstanding's goodput); pairs: whose order differs from the first line's\n\n", s.load)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "costs\trate scale\tpairs\torder")
	for _, r := range rankings {
		fmt.Fprintf(t, "%s\t%.3f\t%d\t", r.Variation, r.RateScale, r.Moves)
		for i, name := range r.Order {
			if i > 0 {
				fmt.Fprint(t, " > ")
			}
			fmt.Fprint(t, name)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// swapped counts the pairs that a has in another order than b: Kendall's distance.
func swapped(a, b []string) int {
	n := 0
	for i := range a {
		for j := i + 1; j < len(a); j++ {
			if slices.Index(b, a[i]) > slices.Index(b, a[j]) {
				n++
			}
		}
	}
	return n
}
