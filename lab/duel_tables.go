package lab

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"kvasir/selection"
)

// measure is a column of the table of policies.
type measure struct {
	Column
	digits int
	of     func(*duelRun) float64
}

// measures are the columns.
func measures() []measure {
	return []measure{
		{Column{Name: "TTFT P50", Unit: "s"}, 3, func(r *duelRun) float64 { return float64(r.summary.TTFT.P50) }},
		{Column{Name: "TTFT P95", Unit: "s"}, 2, func(r *duelRun) float64 { return float64(r.summary.TTFT.P95) }},
		{Column{Name: "TTFT P99", Unit: "s"}, 2, func(r *duelRun) float64 { return float64(r.summary.TTFT.P99) }},
		{Column{Name: "TPOT P95", Unit: "ms"}, 1, func(r *duelRun) float64 { return 1e3 * float64(r.summary.TPOT.P95) }},
		{Column{Name: "within SLO", Unit: "%"}, 1, func(r *duelRun) float64 { return 100 * float64(r.summary.Attainment) }},
		{Column{Name: "cached", Unit: "%"}, 1, func(r *duelRun) float64 { return 100 * float64(r.summary.CachedRatio) }},
		{Column{Name: "assignment gap", Unit: "calls"}, 0, func(r *duelRun) float64 { return float64(r.summary.AssignmentGap) }},
		{Column{Name: "output", Unit: "tokens/s"}, 0, (*duelRun).throughput},
	}
}

// throughput returns the answers' tokens by second, until the last answer is whole.
func (r *duelRun) throughput() float64 {
	return float64(r.output) / r.last.Seconds()
}

// values returns a measure of the runs, by seed.
func (m *measure) values(runs []duelRun) []float64 {
	var all []float64
	for i := range runs {
		all = append(all, m.of(&runs[i]))
	}
	return all
}

func (d *duel) policies(all *duelRuns) Table {
	t := Table{Name: "policies", Title: "both policies on the same calls", Columns: []Column{{Name: "policy"}}}
	left, right, difference := []Cell{Text(d.left)}, []Cell{Text(d.right)}, []Cell{Text("difference")}
	for _, m := range measures() {
		t.Columns = append(t.Columns, m.Column)
		a, b := m.values(all.left), m.values(all.right)
		between, _ := pairs(b, a)
		left, right = append(left, Mean(a, m.digits)), append(right, Mean(b, m.digits))
		difference = append(difference, Mean(between, m.digits))
	}
	t.Rows = [][]Cell{left, right, difference}
	return t
}

// shadows says how often the policy in the shadow would have chosen otherwise, whichever of the
// two that is.
func (d *duel) shadows(all *duelRuns) Table {
	t := Table{Name: "shadow", Title: "what the other policy would have chosen, and what that trades where it differs, over all seeds", Columns: []Column{
		{Name: "places the calls"}, {Name: "in the shadow"}, {Name: "its reason"}, {Name: "picks"}, {Name: "otherwise", Unit: "%"},
		{Name: "cached there", Unit: "tokens a pick more"}, {Name: "under way there", Unit: "calls a pick more"},
	}}
	for _, side := range []struct {
		by, shadow string
		runs       []duelRun
	}{{d.left, d.right, all.left}, {d.right, d.left, all.right}} {
		reasons := reasonsOf(side.shadow)
		total := reasonCount{reason: "all"}
		for i := range side.runs {
			for k, r := range side.runs[i].shadow {
				reasons[k].plus(r.shadowCount)
				total.plus(r.shadowCount)
			}
		}
		for _, r := range append([]reasonCount{total}, reasons...) {
			if r.picks == 0 {
				continue
			}
			row := []Cell{Text(side.by), Text(side.shadow), Text(r.reason), Number(float64(r.picks), 0), Number(100*float64(r.differs)/float64(r.picks), 1), {}, {}}
			if n := float64(r.differs); n > 0 {
				row[5], row[6] = Number(float64(r.overlap)/n, 0), Number(float64(r.outstanding)/n, 2)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// traceTable says what was played.
func (d *duel) traceTable(s *script) Table {
	name := d.trace
	if d.given != nil {
		name = d.given.Name
	}
	left := ""
	if s.cut {
		left = "cut: it has more calls"
	}
	if s.long > 0 {
		left = strings.TrimPrefix(left+fmt.Sprintf("; %d calls left out that are longer than the model's context, have an answer of more than %s tokens, or come after such a one", s.long, decimal(longestAnswer, 0)), "; ")
	}
	sessions := 0
	for range s.Sessions {
		sessions++
	}
	return Table{Name: "trace", Title: "what was played", Columns: []Column{
		{Name: "trace"}, {Name: "sessions"}, {Name: "calls"}, {Name: "prompt", Unit: "tokens"}, {Name: "sessions a second"}, {Name: "not played"},
	}, Rows: [][]Cell{{
		Text(name), Number(float64(sessions), 0), Number(float64(s.calls), 0), Number(float64(s.tokens)/float64(s.calls), 0),
		sessionRate(sessions, s.last, d.rate), Text(left),
	}}}
}

// sessionRate is a cell with how many sessions come a second; empty where that is not known.
func sessionRate(sessions int, last time.Duration, rate float64) Cell {
	if last <= 0 {
		return Cell{}
	}
	return Number(float64(sessions)/last.Seconds()*rate, 2)
}

// shownCalls is how many calls the tables have.
const shownCalls = 8

// farthest returns the calls that both policies answered whole and whose TTFT differ most.
func farthest(all []duelPair) []duelPair {
	var some []duelPair
	for _, p := range all {
		if p.left.ok && p.right.ok && p.left.ttft() != p.right.ttft() {
			some = append(some, p)
		}
	}
	apart := func(p *duelPair) time.Duration { return (p.left.ttft() - p.right.ttft()).Abs() }
	slices.SortStableFunc(some, func(a, b duelPair) int { return cmp.Compare(apart(&b), apart(&a)) })
	return some[:min(len(some), shownCalls)]
}

// callTables has the calls that fare most differently, and why each policy chose as it did.
// There are none where no call fares differently.
func (d *duel) callTables(all []duelPair) []Table {
	calls := Table{Name: "calls", Title: "the calls whose TTFT differ most", Columns: []Column{
		{Name: "call"}, {Name: "comes at", Unit: "s"}, {Name: "prompt", Unit: "tokens"}, {Name: "answer", Unit: "tokens"},
		{Name: d.left + ": replica"}, {Name: "cached", Unit: "tokens"}, {Name: "TTFT", Unit: "s"},
		{Name: d.right + ": replica"}, {Name: "cached", Unit: "tokens"}, {Name: "TTFT", Unit: "s"}, {Name: "faster by", Unit: "s"},
	}}
	why := Table{Name: "why", Title: "the same calls explained, as " + d.left + " places them with " + d.right + " in its shadow", Columns: []Column{
		{Name: "call"}, {Name: "what they choose, and why"},
	}}
	parts := Table{Name: "parts", Title: "what their scores are made of; the lowest one is chosen", Columns: []Column{
		{Name: "call"}, {Name: "policy"}, {Name: "replica"}, {Name: "chosen"}, {Name: "under way", Unit: "calls"}, {Name: "score"}, {Name: "parts"},
	}}
	for _, p := range farthest(all) {
		l, r := p.left, p.right
		number := Number(float64(p.number), 0)
		row := []Cell{number, Number(l.at.Seconds(), 1), Number(float64(l.prompt), 0), Number(float64(l.output), 0)}
		for _, c := range []*duelCall{l, r} {
			row = append(row, Number(float64(c.replica+1), 0), Number(float64(c.cached), 0), Number(c.ttft().Seconds(), 2))
		}
		calls.Rows = append(calls.Rows, append(row, Number((l.ttft()-r.ttft()).Seconds(), 2)))
		why.Rows = append(why.Rows, []Cell{number, Text(d.explain(l.decision, l.prompt))})
		parts.Rows = append(parts.Rows, partRows(number, l.decision)...)
	}
	if len(calls.Rows) == 0 {
		return nil
	}
	calls.Columns[10].Name = d.right + " is faster by"
	return []Table{calls, why, parts}
}

// partRows are the scores that both policies gave to the endpoints that one of them chose.
func partRows(call Cell, d *selection.Decision) [][]Cell {
	chosen := []int{d.Chosen}
	if d.Shadow.Chosen != d.Chosen {
		chosen = append(chosen, d.Shadow.Chosen)
	}
	var rows [][]Cell
	for _, i := range chosen {
		k := &d.Candidates[i]
		of := func(policy string, score float64, choice int, parts []selection.Part) {
			by := ""
			if choice == i {
				by = "yes"
			}
			cell := Text("not looked at")
			if !math.IsNaN(score) {
				cell = Number(score, 4)
			}
			rows = append(rows, []Cell{call, Text(policy), Number(float64(replicaOf(k.Endpoint)+1), 0), Text(by), Number(float64(k.Outstanding), 0), cell, Text(partsText(parts))})
		}
		of(d.Policy, k.Score, d.Chosen, k.Parts)
		var parts []selection.Part
		if d.Shadow.Parts != nil {
			parts = d.Shadow.Parts[i]
		}
		of(d.Shadow.Policy, d.Shadow.Scores[i], d.Shadow.Chosen, parts)
	}
	return rows
}
