package contest

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"kvasir/client/workload/trace"
	"kvasir/internal/testkit/fulltrace"
	"kvasir/selection/policy"
)

func TestCells_AreValidAndTheirNamesDiffer(t *testing.T) {
	p := Plan{Half: ReportedHalf, Share: 0.8}
	cells, err := p.Cells()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, c := range cells {
		if names[c.Name] {
			t.Errorf("two cells are called %s", c.Name)
		}
		names[c.Name] = true
		for _, e := range c.Scenario.Engines {
			if err := e.Config.Validate(); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
			if e.Config.NumBlocks*e.Config.BlockTokens < contextTokens || e.Config.MaxModelLen < contextTokens {
				t.Errorf("%s: a call of %d tokens does not fit", c.Name, contextTokens)
			}
		}
	}
	if len(cells) != 18 {
		t.Errorf("%d cells", len(cells))
	}
}

func TestGrid_EverySettingIsOneOfItsRule(t *testing.T) {
	tried := 0
	for rule := range grids {
		if !slices.Contains(Peers(), rule) {
			t.Errorf("%s is no peer", rule)
		}
		if _, ok := policy.Lookup(rule); !ok {
			continue // a build that lacks it says so in its report
		}
		tried++
		for _, text := range Grid(rule) {
			if _, err := Policy(text); err != nil {
				t.Error(err)
			}
		}
	}
	if tried < 3 {
		t.Errorf("%d rules were tried", tried)
	}
}

func TestFanOut_SiblingsComeTogetherAndShareTheirLeadersPrompt(t *testing.T) {
	p := Plan{Half: ReportedHalf, Share: 0.3}
	cells, err := p.Cells()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		if c.Name != "fan-out-small-8" {
			continue
		}
		d, err := c.Draw(1)
		if err != nil {
			t.Fatal(err)
		}
		if reuse := d.Reuse(); !c.FanOut || reuse < 0.9 || reuse >= 1 {
			t.Errorf("fan-out %v, reuse %v", c.FanOut, reuse)
		}
		groups, largest, longest := 0, 0, 0
		for s := range d.Source.Sessions {
			waiting := map[int]int{} // by leader: how many start when it has ended
			for i := range s.Calls {
				if a := s.Calls[i].After; len(a) == 1 && s.Calls[i].Gap == 0 {
					waiting[a[0]]++
				}
				longest = max(longest, s.Calls[i].PromptTokens+s.Calls[i].OutputTokens)
			}
			for _, n := range waiting {
				groups++
				largest = max(largest, n)
			}
		}
		if groups < 60 || largest < 40 || largest > 64 || longest > contextTokens {
			t.Errorf("%d groups, the largest of %d, the longest call %d tokens", groups, largest, longest)
		}
		return
	}
	t.Error("there is no such cell")
}

// The reading of the traces: whole, in halves, and the same again.
func TestDraw_OfTheTraces(t *testing.T) {
	p := Plan{Half: ReportedHalf, Share: 0.8, Open: func(name string) trace.File {
		path := fulltrace.Path(t, name)
		return trace.File{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(path) }}
	}}
	cells, err := p.Cells()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		if !strings.HasPrefix(c.Name, "conversation-small") && !strings.HasPrefix(c.Name, "synthetic-small") {
			continue
		}
		d, err := c.Draw(1)
		if err != nil {
			t.Fatal(err)
		}
		p.Half = TuningHalf // a cell is of the plan that it was made from
		again, err := c.Draw(1)
		if err != nil || again.Calls != d.Calls || again.Reuse() != d.Reuse() {
			t.Errorf("%s: %d calls and then %d, %v", c.Name, d.Calls, again.Calls, err)
		}
		if d.Trace < 3 || d.Trace > 4 || d.Reuse() < 0.3 {
			t.Errorf("%s: the trace has %v calls a second, reuse %v", c.Name, d.Trace, d.Reuse())
		}
	}
}
