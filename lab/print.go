package lab

import (
	"strings"
	"unicode/utf8"
)

// Text prints the result for a terminal.
func (r *Result) Text() string {
	var b strings.Builder
	b.WriteString(r.Lab + ": " + r.Title + " (article " + r.Section + ")\n")
	b.WriteString("settings: " + r.settingsLine() + "\n")
	for i := range r.Tables {
		b.WriteString("\n" + r.Tables[i].Text())
	}
	switch {
	case r.changed:
		b.WriteString("\nThe settings are not the article's, so there is no verdict on its claims.\n")
	case len(r.Verdicts) > 0:
		b.WriteString("\nverdicts\n")
		for _, v := range r.Verdicts {
			b.WriteString(v.line() + "\n")
		}
	}
	return b.String()
}

func (r *Result) settingsLine() string {
	var parts []string
	for _, p := range r.params {
		parts = append(parts, p.Key+"="+p.text())
	}
	if r.Seeds > 0 {
		parts = append(parts, "seeds="+show(float64(r.Seeds)))
	}
	if r.Trace != "" {
		parts = append(parts, "trace="+r.Trace)
	}
	return strings.Join(parts, " ")
}

// line prints a verdict for a terminal.
func (v Verdict) line() string {
	s := "  " + string(v.Outcome) + strings.Repeat(" ", len(DoesNotHold)-len(v.Outcome)) + "  " + v.Claim + " (" + v.Section + ")\n"
	indent := strings.Repeat(" ", len(DoesNotHold)+4)
	if v.Article != "" {
		s += indent + "article " + v.Article + "; "
	} else {
		s += indent
	}
	s += "ours " + v.Ours
	if v.Cause != "" {
		s += "\n" + indent + v.Cause
	}
	return s
}

// Text prints the table for a terminal: words to the left, numbers to the right.
func (t *Table) Text() string {
	heads, rows := t.cells()
	widths := make([]int, len(heads))
	left := make([]bool, len(heads))
	for c := range heads {
		widths[c] = utf8.RuneCountInString(heads[c])
		left[c] = t.words(c)
		for _, row := range rows {
			widths[c] = max(widths[c], utf8.RuneCountInString(row[c]))
		}
	}
	var b strings.Builder
	b.WriteString(t.Title + "\n")
	for _, row := range append([][]string{heads}, rows...) {
		var line strings.Builder
		for c, cell := range row {
			fill := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell))
			line.WriteString("  ")
			if left[c] {
				line.WriteString(cell + fill)
			} else {
				line.WriteString(fill + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// Markdown prints the result for a document.
func (r *Result) Markdown() string {
	var b strings.Builder
	b.WriteString("Settings: " + r.settingsLine() + "\n")
	for i := range r.Tables {
		b.WriteString("\n**" + r.Tables[i].Title + "** (`" + r.Tables[i].Name + "`)\n\n" + r.Tables[i].Markdown())
	}
	if len(r.Verdicts) == 0 {
		return b.String()
	}
	t := Table{Columns: []Column{{Name: "claim"}, {Name: "article"}, {Name: "verdict"}, {Name: "its figures"}, {Name: "ours"}}}
	for _, v := range r.Verdicts {
		ours := v.Ours
		if v.Cause != "" {
			ours += ". " + v.Cause
		}
		t.Rows = append(t.Rows, []Cell{Text(v.Claim), Text(v.Section), Text(string(v.Outcome)), Text(v.Article), Text(ours)})
	}
	b.WriteString("\n" + t.Markdown())
	return b.String()
}

// Markdown prints the table for a document.
func (t *Table) Markdown() string {
	heads, rows := t.cells()
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, c := range cells {
			b.WriteString(" " + strings.ReplaceAll(c, "|", `\|`) + " |")
		}
		b.WriteString("\n")
	}
	line(heads)
	b.WriteString("|")
	for c := range heads {
		if t.words(c) {
			b.WriteString("---|")
		} else {
			b.WriteString("--:|")
		}
	}
	b.WriteString("\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

func (t *Table) cells() (heads []string, rows [][]string) {
	for _, c := range t.Columns {
		head := c.Name
		if c.Unit != "" {
			head += " (" + c.Unit + ")"
		}
		heads = append(heads, head)
	}
	for _, row := range t.Rows {
		var cells []string
		for _, c := range row {
			cells = append(cells, c.String())
		}
		rows = append(rows, cells)
	}
	return heads, rows
}

// words reports whether a column has no numbers.
func (t *Table) words(column int) bool {
	for _, row := range t.Rows {
		if !row[column].IsText() {
			return false
		}
	}
	return true
}
