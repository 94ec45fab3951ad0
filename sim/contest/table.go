package contest

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"kvasir/sim"
)

// table is rows below a head; the first column has names, the others have figures.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// text writes it for a terminal.
func (t *table) text(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, strings.Join(t.head, "\t")+"\t")
	for _, r := range t.rows {
		fmt.Fprintln(out, strings.ReplaceAll(strings.Join(r, "\t"), "**", "")+"\t")
	}
	return out.Flush()
}

// markdown writes it for a page.
func (t *table) markdown(w io.Writer) {
	line := func(cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	rule := []string{"---"}
	for range t.head[1:] {
		rule = append(rule, "--:")
	}
	line(rule)
	for _, r := range t.rows {
		line(r)
	}
	fmt.Fprintln(w)
}

// number returns a figure for a table; - where nothing is known.
func number(form string, x sim.Number) string {
	if v := float64(x); math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return fmt.Sprintf(form, float64(x))
}

// with returns an estimate for a table.
func with(form string, e Estimate) string {
	mean := number(form, e.Mean)
	if half := number(form, e.Half); half != "-" {
		return mean + " ± " + half
	}
	return mean
}

func percent(form string, x sim.Number) string {
	if s := number(form, 100*x); s != "-" {
		return s + " %"
	}
	return "-"
}

// table returns what the cell says of all entrants.
func (r *Result) table() *table {
	t := &table{head: []string{
		"policy", "calls/s", "× trace", "of best peer", "of bound",
		"TTFT P50", "P95", "P99", "TPOT P95", "hit", "gap", "busiest",
	}}
	for _, e := range r.Entries {
		name := e.Policy
		if e.Ours {
			name = "**" + name + "**"
		}
		cells := []string{name, with("%.2f", e.Goodput), number("%.2f", e.Multiple), with("%.3f", e.Ratio), percent("%.0f", e.Share)}
		if l := e.Matched; l != nil {
			cells = append(cells, number("%.2f s", l.TTFTP50), number("%.2f s", l.TTFTP95), number("%.2f s", l.TTFTP99), number("%.1f ms", 1000*l.TPOTP95),
				percent("%.1f", l.Cached), number("%.0f", l.AssignmentGap), number("%.2f ×", l.CallImbalance))
		} else {
			cells = append(cells, "-", "-", "-", "-", "-", "-", "-")
		}
		t.add(cells...)
	}
	if float64(r.Bound.Mean) > 0 {
		t.add(Bound, with("%.2f", r.Bound), number("%.2f", r.Bound.Mean/r.Trace), "", "", "", "", "", "", "", "", "")
	}
	return t
}

// summary returns a line for each cell.
func summary(results []*Result) *table {
	t := &table{head: []string{"cell", "calls a run", "reuse", "best peer", "its calls/s", Ours, "of best peer", "of least-outstanding", "of bound"}}
	for _, r := range results {
		nothing := Estimate{sim.Number(nan), sim.Number(nan)}
		best, own, outstanding, share := nothing, nothing, nothing, sim.Number(nan)
		peer := Estimate{}
		if b := r.of(r.BestPeer); b != nil {
			best = b.Goodput
		}
		if o := r.ours(); o != nil {
			own, peer, share = o.Goodput, o.Ratio, o.Share
		} else {
			peer = nothing
		}
		if b := r.of(outstandingRule); b != nil {
			outstanding = b.Own
		}
		t.add(r.Cell, fmt.Sprint(r.Calls), percent("%.0f", r.Reuse), r.BestPeer, with("%.2f", best), with("%.2f", own), with("%.3f", peer), with("%.2f", outstanding), percent("%.0f", share))
	}
	return t
}

// tuned returns what tuned peers did, over all cells; nil where none was tuned.
func tuned(results []*Result) *table {
	t := &table{head: []string{"cell", "tuned peer", "calls/s", "of best peer untuned", Ours + " of it"}}
	for _, r := range results {
		for _, e := range r.Tuned {
			t.add(r.Cell, e.Policy, with("%.2f", e.Goodput), with("%.3f", e.Ratio), with("%.3f", e.Own))
		}
	}
	if len(t.rows) == 0 {
		return nil
	}
	return t
}

// orders returns the orders under other costs; nil where there are none.
func orders(results []*Result) *table {
	t := &table{head: []string{"cell", "costs", "order", "pairs that change places"}}
	for _, r := range results {
		for _, o := range r.Orders {
			t.add(r.Cell, o.Costs, strings.Join(o.Policies, " > "), strings.Join(o.Flips, "; "))
		}
	}
	if len(t.rows) == 0 {
		return nil
	}
	return t
}
