// Package report collects what a run found and prints it: tables of counts, and every
// broken promise with the call's id, what was expected and what was seen.
package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// keptViolations bounds how many violations of one rule are kept for printing; all are
// counted.
const keptViolations = 20

// Violation is one broken promise.
type Violation struct {
	Rule string // number of the invariant, or a word
	Call string // the call's id; empty where it concerns none
	Want string
	Got  string
}

// Rules counts, by rule, how often it was looked at and how often it was broken. It is
// safe for concurrent use.
type Rules struct {
	mu     sync.Mutex
	order  []string
	text   map[string]string
	looked map[string]int
	broken map[string]int
	kept   []Violation
}

// NewRules returns a collector of the rules, each "id text".
func NewRules(rules ...string) *Rules {
	r := &Rules{text: map[string]string{}, looked: map[string]int{}, broken: map[string]int{}}
	for _, rule := range rules {
		id, text, _ := strings.Cut(rule, " ")
		r.order = append(r.order, id)
		r.text[id] = text
	}
	return r
}

// Check books that a rule was looked at, and that it was broken where ok is false. It
// returns ok.
func (r *Rules) Check(ok bool, rule, call, want, got string, args ...any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looked[rule]++
	if ok {
		return true
	}
	r.broken[rule]++
	if r.broken[rule] <= keptViolations {
		r.kept = append(r.kept, Violation{rule, call, want, fmt.Sprintf(got, args...)})
	}
	return false
}

// Broken returns how many violations there were in all.
func (r *Rules) Broken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, k := range r.broken {
		n += k
	}
	return n
}

// Print writes the table of rules, and the violations.
func (r *Rules) Print(w io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := NewTable("rule", "", "checks", "violations")
	for _, id := range r.order {
		t.Row(id, r.text[id], r.looked[id], r.broken[id])
	}
	for _, id := range slices.Sorted(maps.Keys(r.looked)) {
		if !slices.Contains(r.order, id) {
			t.Row(id, "", r.looked[id], r.broken[id])
		}
	}
	t.Print(w)
	for _, v := range r.kept {
		fmt.Fprintf(w, "VIOLATION rule %s, call %s\n  expected: %s\n  got:      %s\n", v.Rule, orNone(v.Call), v.Want, v.Got)
	}
	for _, id := range slices.Sorted(maps.Keys(r.broken)) {
		if n := r.broken[id]; n > keptViolations {
			fmt.Fprintf(w, "… and %d more of rule %s\n", n-keptViolations, id)
		}
	}
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Table is rows of columns; numbers are printed as they are.
type Table struct{ rows [][]string }

// NewTable returns a table with the headings.
func NewTable(headings ...string) *Table { return &Table{rows: [][]string{headings}} }

// Row adds a row.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

// Print writes the table.
func (t *Table) Print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, row := range t.rows {
		fmt.Fprintln(tw, "  "+strings.Join(row, "\t"))
		if i == 0 {
			line := make([]string, len(row))
			for j, h := range row {
				line[j] = strings.Repeat("-", max(len(h), 2))
			}
			fmt.Fprintln(tw, "  "+strings.Join(line, "\t"))
		}
	}
	tw.Flush()
	fmt.Fprintln(w)
}

// Counts are counters by name, safe for concurrent use.
type Counts struct {
	mu sync.Mutex
	n  map[string]int
}

// Add adds n to a counter.
func (c *Counts) Add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name] += n
}

// Get returns a counter.
func (c *Counts) Get(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// All returns a copy.
func (c *Counts) All() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// Print writes the counters whose names are "row|column" as a table with the names' first
// parts as rows and the columns given.
func (c *Counts) Print(w io.Writer, what string, columns ...string) {
	all := c.All()
	rows := map[string]bool{}
	for name := range all {
		row, _, _ := strings.Cut(name, "|")
		rows[row] = true
	}
	t := NewTable(append([]string{what}, columns...)...)
	total := make([]any, len(columns)+1)
	total[0] = "all"
	sums := make([]int, len(columns))
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		cells := []any{row}
		for i, col := range columns {
			n := all[row+"|"+col]
			sums[i] += n
			cells = append(cells, n)
		}
		t.Row(cells...)
	}
	for i, n := range sums {
		total[i+1] = n
	}
	t.Row(total...)
	t.Print(w)
}
