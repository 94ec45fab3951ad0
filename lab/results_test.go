package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kvasir/sim/contest"
)

func runResults(t *testing.T, seeds int, settings ...Setting) *Result {
	t.Helper()
	r, err := resultsLab().Run(Options{Settings: settings, Seeds: seeds})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// column returns a table's figures by the first cell of each row.
func columnOf(t *Table, at int) map[string]float64 {
	all := map[string]float64{}
	for _, row := range t.Rows {
		all[row[0].String()] = row[at].Value()
	}
	return all
}

// TestResults_CurvesCrossWhereGoodputIs: at the rates below a policy's goodput it keeps the SLO
// for 90 % of the calls, and above it for less; what is near may be either.
func TestResults_CurvesCrossWhereGoodputIs(t *testing.T) {
	x := resultsLab().settings().(*results)
	c := x.cell()
	for _, e := range x.entrants()[:3] {
		g, err := c.Goodput(e, contest.Search{Seeds: []uint64{1}, Tolerance: 0.06})
		if err != nil {
			t.Fatal(err)
		}
		for factor, keeps := range map[float64]bool{0.6: true, 0.8: true, 1.3: false, 1.6: false} {
			runs, err := c.At(e, []uint64{1}, []float64{factor * g.Rates[0]})
			if err != nil {
				t.Fatal(err)
			}
			if got := float64(runs[0].Attainment); (got >= contest.Attainment) != keeps {
				t.Errorf("%s: at %v of its goodput it keeps the SLO for %v of the calls", e.Name, factor, got)
			}
		}
	}
	r := runResults(t, 1)
	goodput, curve := tableOf(t, r, "goodput"), tableOf(t, r, "curve")
	if len(goodput.Rows) != 6 || len(curve.Rows) != 6 || goodput.Rows[0][2].Value() != 100 {
		t.Fatalf("%v", goodput.Rows)
	}
	for i, row := range curve.Rows {
		if row[0].String() != goodput.Rows[i][0].String() || i > 0 && goodput.Rows[i][1].Value() > goodput.Rows[i-1][1].Value() {
			t.Errorf("row %d: %v, %v", i, row, goodput.Rows[i])
		}
		if row[1].Value() < 90 || row[curvePoints].Value() > 60 {
			t.Errorf("the curve of %s goes from %v to %v", row[0], row[1], row[curvePoints])
		}
		for k := range curvePoints {
			if r.Plots[0].Series[i].Y[k] != row[k+1].Value() {
				t.Errorf("the plot has %v, the table %v", r.Plots[0].Series[i].Y[k], row[k+1])
			}
		}
	}
}

// TestResults_KeepsOneDraw, that of the latest seed, and draws the same again.
func TestResults_KeepsOneDraw(t *testing.T) {
	x := resultsLab().settings().(*results)
	c := x.cell()
	one, again := x.draw(c, 1), x.draw(c, 1)
	other, anew := x.draw(c, 2), x.draw(c, 1)
	if one != again || one == anew || one == other {
		t.Errorf("draws of seeds 1, 1, 2, 1 are at %p, %p, %p, %p", one, again, other, anew)
	}
	if one.Calls != anew.Calls || one.Length != anew.Length || one.Reuse() != anew.Reuse() || one.Length == other.Length && one.Calls == other.Calls {
		t.Errorf("drawn anew it has %d calls in %v, before %d in %v", anew.Calls, anew.Length, one.Calls, one.Length)
	}
}

// TestResults_MoreIsMore: a wider SLO, more replicas and more KV each give more goodput.
func TestResults_MoreIsMore(t *testing.T) {
	base := columnOf(tableOf(t, runResults(t, 1, Setting{"replicas", "2"}), "goodput"), 1)
	for _, s := range [][]Setting{
		{{"replicas", "2"}, {"ttft", "8"}, {"tpot", "400"}}, {{"replicas", "4"}}, {{"replicas", "2"}, {"kv", "large"}},
	} {
		more := columnOf(tableOf(t, runResults(t, 1, s...), "goodput"), 1)
		for name, x := range base {
			if more[name] <= x {
				t.Errorf("%v: %s has %v, before %v", s, name, more[name], x)
			}
		}
	}
}

// TestResults_AllPoliciesAndWorkloads are played.
func TestResults_AllPoliciesAndWorkloads(t *testing.T) {
	for _, settings := range [][]Setting{
		{{"policies", "all"}, {"replicas", "2"}}, {{"workload", "agents"}, {"replicas", "2"}}, {{"workload", "fan-out"}, {"replicas", "2"}},
	} {
		r := runResults(t, 1, settings...)
		goodput := columnOf(tableOf(t, r, "goodput"), 1)
		want := 6
		if settings[0].Value == "all" {
			want = len(contest.Peers()) + 1
		}
		if len(goodput) != want || goodput[contest.Ours] <= goodput["round-robin"] {
			t.Errorf("%v: %v", settings, goodput)
		}
	}
}

// TestResults_PublishedAreTheFigures of the whole contest, which a test of sim/contest compares
// with docs/results.md.
func TestResults_PublishedAreTheFigures(t *testing.T) {
	f := publishedFigures()
	all := publishedTable(f)
	if len(all.Rows) != 18 || len(f.Cells) != 18 {
		t.Fatalf("%d rows, %d cells", len(all.Rows), len(f.Cells))
	}
	for i, c := range f.Cells {
		row := all.Rows[i]
		peers := 0
		for _, e := range c.Entries {
			switch {
			case e.Policy == contest.Ours:
				if row[3].Value() != e.Goodput.Mean || row[4].Value() != e.BestPeer.Mean {
					t.Errorf("%s: %v", c.Cell, row)
				}
				continue
			case e.Policy == "least-outstanding" && row[5].Value() != e.Goodput.Mean:
				t.Errorf("%s: %v", c.Cell, row)
			}
			if peers++; peers == 1 && (row[1].String() != e.Policy || row[2].Value() != e.Goodput.Mean) {
				t.Errorf("%s: %v is no %v", c.Cell, row, e)
			}
		}
		if row[0].String() != c.Cell || (c.Bound == nil) != row[6].IsText() {
			t.Errorf("%s: %v", c.Cell, row)
		}
	}
	for _, workload := range []string{conversationTrace, agentsTrace, fanOutWorkload} {
		for _, kv := range []string{smallKV, largeKV} {
			x := &results{workload: workload, kv: kv}
			table := x.publishedCells(f)
			at := slices.IndexFunc(f.Cells, func(c contest.CellFigures) bool { return c.Cell == workload+"-"+kv+"-32" })
			if len(table.Columns) != 7 || len(table.Rows) != 15 || table.Columns[4].Name != "32 replicas" {
				t.Fatalf("%s: %d columns, %d rows", workload, len(table.Columns), len(table.Rows))
			}
			got := columnOf(&table, 4)
			for _, e := range f.Cells[at].Entries {
				if got[e.Policy] != e.Goodput.Mean {
					t.Errorf("%s, %s: %v, want %v", workload, e.Policy, got[e.Policy], e.Goodput.Mean)
				}
			}
		}
	}
}

func TestResults_OnATraceOfOnesOwn(t *testing.T) {
	const head, line = "TIMESTAMP,ContextTokens,GeneratedTokens\n", "2023-11-16 18:%02d:%02d.5000000,%d,20\n"
	var b strings.Builder
	b.WriteString(head)
	for i := range 200 {
		fmt.Fprintf(&b, line, i/20, i%20*3, 2000)
	}
	r, err := resultsLab().Run(Options{Settings: []Setting{{"replicas", "2"}}, Seeds: 1, Trace: &Trace{Name: "own.csv", Data: []byte(b.String())}})
	if err != nil {
		t.Fatal(err)
	}
	goodput := tableOf(t, r, "goodput")
	if !strings.Contains(goodput.Title, "1,000 calls a run, reuse 0 %") || len(r.Verdicts) != 0 || goodput.Rows[0][1].Value() <= 0 {
		t.Errorf("%s: %v", goodput.Title, goodput.Rows)
	}
	r, err = resultsLab().Run(Options{Settings: []Setting{{"ttft", "60"}, {"tpot", "1000"}}, Seeds: 1, Trace: &Trace{Name: "own.csv", Data: []byte(strings.ReplaceAll(b.String(), ",2000,", ",20,"))}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range tableOf(t, r, "goodput").Rows {
		if !strings.HasPrefix(row[3].String(), "at least that") || row[1].Value() < 10 {
			t.Errorf("there are not enough calls for the rate, and it says %v", row)
		}
	}
	for text, want := range map[string]string{
		head + fmt.Sprintf(line, 1, 1, 9): "it has 1 sessions",
		head + "x":                        "the line has 1 fields",
	} {
		if _, err := resultsLab().Run(Options{Seeds: 1, Trace: &Trace{Name: "own.csv", Data: []byte(text)}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
