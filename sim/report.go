package sim

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"kvasir/gateway/attempt"
)

// Row is one line of a result: a policy over one or several seeds.
type Row struct {
	Policy string `json:"policy"`
	Seeds  int    `json:"seeds"`
	Summary
	// Half has half the widths of the numbers' 95 % confidence intervals over seeds; null
	// where there is one seed.
	Half *Summary `json:"ci95_half_width,omitempty"`
}

// NewRow returns the row of a policy's runs.
func NewRow(policy string, runs []Summary) Row {
	mean, half := Mean(runs)
	r := Row{Policy: policy, Seeds: len(runs), Summary: mean}
	if len(runs) > 1 {
		r.Half = &half
	}
	return r
}

// column is one number of a Row, for tables and CSV.
type column struct {
	name  string // in CSV
	head  string // in tables; empty: in CSV alone
	of    func(*Summary) Number
	scale float64 // of the table's number
	form  string
	sure  bool // the table has its confidence interval, too
}

func quantileColumns(name, head string, scale float64, form string, of func(*Summary) *Quantiles, shown ...string) []column {
	var out []column
	for _, q := range []struct {
		name string
		of   func(*Quantiles) Number
	}{
		{"mean", func(q *Quantiles) Number { return q.Mean }},
		{"p50", func(q *Quantiles) Number { return q.P50 }},
		{"p90", func(q *Quantiles) Number { return q.P90 }},
		{"p95", func(q *Quantiles) Number { return q.P95 }},
		{"p99", func(q *Quantiles) Number { return q.P99 }},
		{"max", func(q *Quantiles) Number { return q.Max }},
	} {
		c := column{name: name + "_" + q.name, scale: scale, form: form, of: func(s *Summary) Number { return q.of(of(s)) }}
		if slices.Contains(shown, q.name) {
			unit := "s"
			if scale != 1 {
				unit = "ms"
			}
			c.head = head + " " + strings.ToUpper(q.name) + "," + unit
			c.sure = name == "ttft_s" && q.name == "p95"
		}
		out = append(out, c)
	}
	return out
}

func one(name, head, form string, scale float64, of func(*Summary) Number) []column {
	return []column{{name: name, head: head, of: of, scale: scale, form: form}}
}

func sure(name, head, form string, scale float64, of func(*Summary) Number) []column {
	c := one(name, head, form, scale, of)
	c[0].sure = true
	return c
}

var columns = slices.Concat(
	one("calls", "calls", "%.0f", 1, func(s *Summary) Number { return s.Calls }),
	one("succeeded", "", "%.0f", 1, func(s *Summary) Number { return s.Succeeded }),
	quantileColumns("ttft_s", "TTFT", 1, "%.3f", func(s *Summary) *Quantiles { return &s.TTFT }, "p50", "p95", "p99"),
	quantileColumns("tpot_s", "TPOT", 1e3, "%.1f", func(s *Summary) *Quantiles { return &s.TPOT }, "p95"),
	quantileColumns("itl_s", "ITL", 1e3, "%.1f", func(s *Summary) *Quantiles { return &s.ITL }, "p99"),
	quantileColumns("e2e_s", "E2E", 1, "%.2f", func(s *Summary) *Quantiles { return &s.E2E }, "p95"),
	quantileColumns("held_s", "", 1, "%.3f", func(s *Summary) *Quantiles { return &s.Held }),
	quantileColumns("normalized_latency_s", "", 1, "%.4f", func(s *Summary) *Quantiles { return &s.Normalized }),
	quantileColumns("session_completion_s", "session", 1, "%.1f", func(s *Summary) *Quantiles { return &s.Session }, "p95"),
	one("failed_sessions", "", "%.0f", 1, func(s *Summary) Number { return s.FailedSessions }),
	one("skipped_calls", "", "%.0f", 1, func(s *Summary) Number { return s.Skipped }),
	sure("slo_attainment", "SLO,%", "%.1f", 100, func(s *Summary) Number { return s.Attainment }),
	one("goodput_rps", "goodput,1/s", "%.2f", 1, func(s *Summary) Number { return s.Goodput }),
	one("calls_rps", "", "%.3f", 1, func(s *Summary) Number { return s.Rate }),
	one("output_tokens_per_s", "tokens,1/s", "%.0f", 1, func(s *Summary) Number { return s.OutputRate }),
	one("cached_token_ratio", "cached,%", "%.1f", 100, func(s *Summary) Number { return s.CachedRatio }),
	one("assignment_gap", "gap", "%.0f", 1, func(s *Summary) Number { return s.AssignmentGap }),
	one("call_imbalance", "", "%.2f", 1, func(s *Summary) Number { return s.CallImbalance }),
	one("work_imbalance", "work", "%.2f", 1, func(s *Summary) Number { return s.WorkImbalance }),
	one("queue_peak", "queue", "%.0f", 1, func(s *Summary) Number { return s.QueuePeak }),
	one("kv_utilization", "KV,%", "%.1f", 100, func(s *Summary) Number { return s.KVUtilization }),
	one("preemptions", "preempt", "%.0f", 1, func(s *Summary) Number { return s.Preemptions }),
	one("retries", "retries", "%.0f", 1, func(s *Summary) Number { return s.Retries }),
	one("hedges", "", "%.0f", 1, func(s *Summary) Number { return s.Hedges }),
	one("wasted_prefill_ratio", "", "%.4f", 1, func(s *Summary) Number { return s.Wasted }),
)

// refusedByEngine explains the one outcome that is the workload's own fault.
var refusedByEngine = map[string]string{
	attempt.CallerFault.String(): ": the engine refused them, because prompt and answer exceed the model's length or all KV blocks",
}

// WriteTable writes the rows for people, with ± where there are several seeds, and below them
// the classes of a workload that has several, and what became of calls that did not end well.
// The first column is headed first and has the rows' Policy.
func WriteTable(w io.Writer, first string, rows []Row) error {
	seeds := slices.ContainsFunc(rows, func(r Row) bool { return r.Half != nil })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head, units := []string{first}, []string{""}
	for _, c := range columns {
		if c.head == "" {
			continue
		}
		name, unit, _ := strings.Cut(c.head, ",")
		head, units = append(head, name), append(units, unit)
		if seeds && c.sure {
			head, units = append(head, "±"), append(units, unit)
		}
	}
	fmt.Fprintln(t, strings.Join(head, "\t")+"\t")
	fmt.Fprintln(t, strings.Join(units, "\t")+"\t")
	for i := range rows {
		line := []string{rows[i].Policy}
		for _, c := range columns {
			if c.head == "" {
				continue
			}
			line = append(line, c.cell(&rows[i].Summary))
			if seeds && c.sure {
				cell := "-"
				if rows[i].Half != nil {
					cell = c.cell(rows[i].Half)
				}
				line = append(line, cell)
			}
		}
		fmt.Fprintln(t, strings.Join(line, "\t")+"\t")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := writeParts(w, rows, "class", func(s *Summary) map[string]Summary { return s.Classes }); err != nil {
		return err
	}
	if err := writeParts(w, rows, "tenant", func(s *Summary) map[string]Summary { return s.Tenants }); err != nil {
		return err
	}
	return writeLosses(w, rows)
}

// writeLosses says what became of calls that did not end well, of policies that fared alike
// in one line.
func writeLosses(w io.Writer, rows []Row) error {
	var texts []string
	policies := map[string][]string{}
	add := func(i int, format string, values ...any) {
		text := fmt.Sprintf(format, values...)
		if policies[text] == nil {
			texts = append(texts, text)
		}
		policies[text] = append(policies[text], rows[i].Policy)
	}
	for i := range rows {
		if n := rows[i].Skipped; n > 0 {
			add(i, "%.6g calls were not sent, because one that they wait for failed", float64(n))
		}
		if n := rows[i].Hedges; n > 0 {
			add(i, "%.6g calls were hedged, %.1f %% of all; what the slower attempts computed of prompts is %.1f %% of what answers took", float64(n), 100*float64(n)/float64(rows[i].Calls), 100*float64(rows[i].Wasted))
		}
		for _, why := range slices.Sorted(maps.Keys(rows[i].Unfinished)) {
			add(i, "%.6g calls ended with %s%s", float64(rows[i].Unfinished[why]), why, refusedByEngine[why])
		}
	}
	for _, text := range texts {
		who := strings.Join(policies[text], ", ")
		if len(policies[text]) == len(rows) && len(rows) > 1 {
			who = "every policy"
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", who, text); err != nil {
			return err
		}
	}
	return nil
}

// cell returns the number for a table.
func (c *column) cell(s *Summary) string {
	v := float64(c.of(s)) * c.scale
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf(c.form, v)
}

// partColumns are the columns that a table of classes or tenants has.
var partColumns = []string{"calls", "ttft_s_p50", "ttft_s_p95", "tpot_s_p95", "e2e_s_p95", "session_completion_s_p95", "slo_attainment", "cached_token_ratio"}

// writeParts writes a table of the rows' classes or tenants, if a row has any. A part without
// a name is shown as a dash.
func writeParts(w io.Writer, rows []Row, kind string, parts func(*Summary) map[string]Summary) error {
	if !slices.ContainsFunc(rows, func(r Row) bool { return len(parts(&r.Summary)) > 0 }) {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head, units := []string{"policy", kind}, []string{"", ""}
	for _, c := range columns {
		if slices.Contains(partColumns, c.name) {
			name, unit, _ := strings.Cut(c.head, ",")
			head, units = append(head, name), append(units, unit)
		}
	}
	fmt.Fprintln(t, strings.Join(head, "\t")+"\t")
	fmt.Fprintln(t, strings.Join(units, "\t")+"\t")
	for i := range rows {
		all := parts(&rows[i].Summary)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			of := all[name]
			line := []string{rows[i].Policy, cmp.Or(name, "-")}
			for _, c := range columns {
				if slices.Contains(partColumns, c.name) {
					line = append(line, c.cell(&of))
				}
			}
			fmt.Fprintln(t, strings.Join(line, "\t")+"\t")
		}
	}
	return t.Flush()
}

// WriteCSV writes the rows with all numbers, in seconds and shares; empty where unknown.
func WriteCSV(w io.Writer, rows []Row) error {
	c := csv.NewWriter(w)
	head := []string{"policy", "seeds"}
	for _, c := range columns {
		head = append(head, c.name)
	}
	_ = c.Write(head) // Error tells
	for i := range rows {
		line := []string{rows[i].Policy, strconv.Itoa(rows[i].Seeds)}
		for _, c := range columns {
			cell := ""
			if v := float64(c.of(&rows[i].Summary)); v-v == 0 {
				cell = strconv.FormatFloat(v, 'g', 6, 64)
			}
			line = append(line, cell)
		}
		_ = c.Write(line) // likewise
	}
	c.Flush()
	return c.Error()
}
