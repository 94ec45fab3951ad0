package contest

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"kvasir/sim"
)

// TestFigures_OfTheCommittedPage: what the lab results shows is what docs/results.md prints.
func TestFigures_OfTheCommittedPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/results.md")
	if err != nil {
		t.Fatal(err)
	}
	f, err := ReadFigures(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile("../../lab/results.json")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(f); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), kept) {
		t.Error("lab/results.json is not what docs/results.md says: kvasir results --figures docs/results.md --out lab/results.json writes it")
	}
	if len(f.Cells) != 18 {
		t.Fatalf("%d cells", len(f.Cells))
	}
	// Each cell's line of "Every cell", which is another table, has the same figures.
	for _, c := range f.Cells {
		var line string
		for l := range strings.Lines(string(page)) {
			if strings.HasPrefix(l, "| "+c.Cell+" | ") {
				line = l
				break
			}
		}
		cells := tableCells(strings.TrimSuffix(line, "\n"))
		if len(cells) != 9 || c.Pool == "" || len(c.Entries) != 15 {
			t.Fatalf("%s: %d entries, pool %q, line %q", c.Cell, len(c.Entries), c.Pool, line)
		}
		for _, e := range c.Entries {
			switch e.Policy {
			case Ours:
				if g, err := estimateFigure(cells[5]); err != nil || *g != e.Goodput {
					t.Errorf("%s: %+v, the page's line has %s", c.Cell, e, cells[5])
				}
				if g, err := estimateFigure(cells[6]); err != nil || *g != *e.BestPeer {
					t.Errorf("%s: %+v, the page's line has %s", c.Cell, e.BestPeer, cells[6])
				}
			case cells[3]:
				if g, err := estimateFigure(cells[4]); err != nil || *g != e.Goodput {
					t.Errorf("%s: %+v, the page's line has %s", c.Cell, e, cells[4])
				}
			}
		}
	}
}

// TestFigures_AreThoseOfTheReport: what a report prints is read as it was.
func TestFigures_AreThoseOfTheReport(t *testing.T) {
	number := func(x float64) sim.Number { return sim.Number(x) }
	r := &Report{Results: []*Result{
		{Cell: "a-small-8", Pool: "8 × x. Half of them slow", BestPeer: "lmetric", Bound: Estimate{20, 1}, Entries: []Entry{
			{Policy: Ours, Ours: true, Goodput: Estimate{14.444, 0.761}, Ratio: Estimate{1.0071, number(nan)}, Matched: &Latencies{TTFTP95: 1.234, TPOTP95: 0.0289, Cached: 0.2351, AssignmentGap: 2275}},
			{Policy: "lmetric", Goodput: Estimate{0, number(nan)}, Ratio: Estimate{number(nan), number(nan)}},
		}},
		{Cell: "b", Pool: "two", Bound: Estimate{number(nan), number(nan)}, Entries: []Entry{{Policy: "random", Goodput: Estimate{1, 0}}}},
	}}
	var page bytes.Buffer
	if err := r.Markdown(&page); err != nil {
		t.Fatal(err)
	}
	f, err := ReadFigures(&page)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(f)
	want := `{"cells":[{"cell":"a-small-8","pool":"8 × x. Half of them slow","entries":[` +
		`{"policy":"predicted-ttft","goodput_calls_per_s":{"mean":14.44,"half":0.76},"to_best_peer":{"mean":1.007},"ttft_p95_s":1.23,"tpot_p95_ms":28.9,"cached_percent":23.5,"assignment_gap":2275},` +
		`{"policy":"lmetric","goodput_calls_per_s":{"mean":0}}],"bound_calls_per_s":{"mean":20,"half":1}},` +
		`{"cell":"b","pool":"two","entries":[{"policy":"random","goodput_calls_per_s":{"mean":1},"to_best_peer":{"mean":0}}]}]}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFigures_OfWhatIsNoPage_SayWhere(t *testing.T) {
	const head = "## a\n\nx. 5 calls a run, reuse 3 %.\n\n| policy | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 |\n| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n"
	for text, want := range map[string]string{
		"":                       "no cell's table",
		"# Results\n| a | b |\n": "no cell's table",
		head + "| a | 1 |\n":     "line 7: a row of 2 columns",
		head + "| a | x | - | - | - | - | - | - | - | - | - | - |\n":     `line 7: "x" is no figure`,
		head + "| a | - | - | - | - | - | - | - | - | - | - | - |\n":     "line 7: a has no goodput",
		head + "| a | 1 ± - | - | - | - | - | - | - | - | - | - | - |\n": `line 7: "1 ± -" is no figure`,
		head + "| a | 1 | - | - | - | - | 3 | - | - | - | - | - |\n":     `line 7: "3" is no figure; want a number s, or -`,
		head + "| a | NaN | - | - | - | - | - | - | - | - | - | - |\n":   `"NaN" is no figure`,
		head + "\n" + head: `cell "a" has two tables`,
	} {
		if _, err := ReadFigures(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzReadFigures: whatever is read, the figures are numbers and JSON can hold them.
func FuzzReadFigures(f *testing.F) {
	f.Add("## a\n\nx. 5 calls a run, reuse 3 %.\n\n| policy | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 |\n| --- |\n| **b** | 1 ± 2 | - | 1 | - | 1 s | 1 s | - | 3 ms | 4 % | 5 | - |\n")
	f.Fuzz(func(t *testing.T, text string) {
		x, err := ReadFigures(strings.NewReader(text))
		if err != nil {
			return
		}
		if len(x.Cells) == 0 {
			t.Fatal("no cells and no error")
		}
		if _, err := json.Marshal(x); err != nil {
			t.Fatal(err)
		}
	})
}
