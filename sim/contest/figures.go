package contest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Figures are what a page of results says of every cell, as it prints them: what another page
// shows of a contest that takes an hour.
type Figures struct {
	Cells []CellFigures `json:"cells"`
}

// CellFigures are a cell's.
type CellFigures struct {
	Cell    string          `json:"cell"`
	Pool    string          `json:"pool"`
	Entries []EntryFigures  `json:"entries"`                     // the best first
	Bound   *GoodputFigures `json:"bound_calls_per_s,omitempty"` // nil: there is none
}

// EntryFigures are a policy's in a cell. What the page does not say is nil.
type EntryFigures struct {
	Policy   string          `json:"policy"`
	Goodput  GoodputFigures  `json:"goodput_calls_per_s"`
	BestPeer *GoodputFigures `json:"to_best_peer,omitempty"`
	TTFTP95  *float64        `json:"ttft_p95_s,omitempty"` // at the matched rate, as those below
	TPOTP95  *float64        `json:"tpot_p95_ms,omitempty"`
	Cached   *float64        `json:"cached_percent,omitempty"`
	Gap      *float64        `json:"assignment_gap,omitempty"`
}

// GoodputFigures are a mean and half its 95 % interval, 0 where the page gives none.
type GoodputFigures struct {
	Mean float64 `json:"mean"`
	Half float64 `json:"half,omitempty"`
}

// figureColumns is the head of a cell's table, which Result.table writes.
const figureColumns = 12

// ReadFigures reads a page that Report.Markdown has written. The error names the line.
func ReadFigures(r io.Reader) (*Figures, error) {
	f := &Figures{}
	var heading, pool string
	var cell *CellFigures
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		line := s.Text()
		name, isHeading := strings.CutPrefix(line, "## ")
		cells := tableCells(line)
		switch {
		case isHeading:
			heading, pool, cell = name, "", nil
		case len(cells) == figureColumns && cells[0] == "policy":
			if slices.ContainsFunc(f.Cells, func(c CellFigures) bool { return c.Cell == heading }) {
				return nil, fmt.Errorf("line %d: cell %q has two tables", n, heading)
			}
			f.Cells = append(f.Cells, CellFigures{Cell: heading, Pool: poolOf(pool)})
			cell = &f.Cells[len(f.Cells)-1]
		case cell == nil && strings.Contains(line, poolEnds):
			pool, _, _ = strings.Cut(line, poolEnds)
		case cell == nil || len(cells) > 0 && cells[0] == "---":
		case len(cells) == 0:
			cell = nil
		default:
			if err := cell.add(cells); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if len(f.Cells) == 0 {
		return nil, fmt.Errorf("there is no cell's table in it: a page that kvasir results --format md has written is wanted")
	}
	return f, nil
}

// poolEnds is what follows the pool's words in the sentence before a cell's table, behind which
// the number of calls stands.
const poolEnds = " calls a run, reuse "

// poolOf takes the number of calls off.
func poolOf(text string) string {
	if i := strings.LastIndex(text, ". "); i >= 0 {
		return text[:i]
	}
	return text
}

// tableCells returns what a line of a table has; nil where it is none.
func tableCells(line string) []string {
	line, begins := strings.CutPrefix(line, "|")
	line, ends := strings.CutSuffix(line, "|")
	if !begins || !ends {
		return nil
	}
	cells := strings.Split(line, "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// add takes a line of the table.
func (c *CellFigures) add(cells []string) error {
	if len(cells) != figureColumns {
		return fmt.Errorf("a row of %d columns; want %d", len(cells), figureColumns)
	}
	goodput, err := estimateFigure(cells[1])
	switch {
	case err != nil:
		return err
	case goodput == nil:
		return fmt.Errorf("%s has no goodput", cells[0])
	case cells[0] == Bound:
		c.Bound = goodput
		return nil
	}
	e := EntryFigures{Policy: strings.Trim(cells[0], "*"), Goodput: *goodput}
	if e.BestPeer, err = estimateFigure(cells[3]); err != nil {
		return err
	}
	for _, x := range []struct {
		at   **float64
		text string
		unit string
	}{{&e.TTFTP95, cells[6], " s"}, {&e.TPOTP95, cells[8], " ms"}, {&e.Cached, cells[9], " %"}, {&e.Gap, cells[10], ""}} {
		if *x.at, err = oneFigure(x.text, x.unit); err != nil {
			return err
		}
	}
	c.Entries = append(c.Entries, e)
	return nil
}

// estimateFigure reads a mean, with half its interval where there is one; nil for a dash.
func estimateFigure(text string) (*GoodputFigures, error) {
	mean, half, both := strings.Cut(text, " ± ")
	m, err := oneFigure(mean, "")
	if err != nil || m == nil {
		return nil, err
	}
	g := &GoodputFigures{Mean: *m}
	if both {
		h, err := oneFigure(half, "")
		if err != nil {
			return nil, err
		}
		if h == nil {
			return nil, fmt.Errorf("%q is no figure", text)
		}
		g.Half = *h
	}
	return g, nil
}

// oneFigure reads a number with its unit; nil for a dash.
func oneFigure(text, unit string) (*float64, error) {
	if text == "-" {
		return nil, nil
	}
	digits, ok := strings.CutSuffix(text, unit)
	x, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || x-x != 0 {
		return nil, fmt.Errorf("%q is no figure; want a number%s, or -", text, unit)
	}
	return &x, nil
}
