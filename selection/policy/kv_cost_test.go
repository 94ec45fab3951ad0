package policy

import (
	"math"
	"slices"
	"testing"

	"kvasir/internal/seed"
	"kvasir/selection"
)

// kvCosts returns the scores and the choice of a kv-cost with changed parameters.
func kvCosts(v *selection.View, q *selection.Request, change func(c *KVCost)) ([]float64, selection.Choice) {
	rule, _ := Lookup("kv-cost")
	c := rule.Params().(*KVCost)
	if change != nil {
		change(c)
	}
	choice := pick(c.New(), v, q, 0)
	return v.Scores, choice
}

// tokens10 is a call of 640 tokens in ten blocks of 64.
func tokens10() *selection.Request {
	q := newRequest(1, 10)
	q.InputTokens = 640
	return q
}

// TestKVCostIsTheArticlesTable is the worked example of article section 5.4. It leaves open
// what decode consists of; here all of the call's blocks are in use already.
func TestKVCostIsTheArticlesTable(t *testing.T) {
	v := newView(3)
	for i, row := range []struct{ overlap, decode int }{{2, 10}, {5, 5}, {8, 9}} {
		v.Overlap[i], v.Active[i] = int32(row.overlap), 10
		v.Book[i].ActiveBlocks = int64(row.decode)
	}
	scores, c := kvCosts(v, tokens10(), nil)
	if want := []float64{18, 10, 11}; !slices.Equal(scores, want) || c != (selection.Choice{Index: 1, Reason: ReasonLowestCost}) {
		t.Errorf("chose %+v by %v, want 1 by %v", c, scores, want)
	}
}

func TestKVCostInNumbers(t *testing.T) {
	view := func() *selection.View {
		v := newView(2)
		waits(v, 0, 3, 320) // 5 blocks
		v.Overlap[0], v.Active[0], v.Book[0].ActiveBlocks = 4, 6, 20
		waits(v, 1, 1, 64) // 1 block
		v.Book[1].ActiveBlocks = 7
		return v
	}
	for _, test := range []struct {
		name   string
		change func(c *KVCost)
		want   []float64
	}{
		// (5 + 10 - 4) + (20 + 10 - 6); (1 + 10) + (7 + 10)
		{"the defaults", nil, []float64{11 + 24, 11 + 17}},
		{"more credit", func(c *KVCost) { c.OverlapScoreCredit = 1.5 }, []float64{9 + 24, 11 + 17}},
		{"no prefill below none", func(c *KVCost) { c.OverlapScoreCredit = 100 }, []float64{0 + 24, 11 + 17}},
		{"prefill counts double", func(c *KVCost) { c.PrefillLoadScale = 2 }, []float64{22 + 24, 22 + 17}},
		{"calls count", func(c *KVCost) { c.DecodeActiveRequestWeight = 2 }, []float64{11 + 24 + 6, 11 + 17 + 2}},
		// The excess is (320 - 64) / 64 / 10 = 0.4, so of the credit 4 / (1 + 2.5 · 0.4) = 2 are left.
		{"credit decays", func(c *KVCost) { c.OverlapScoreCreditDecay = 2.5 }, []float64{13 + 24, 11 + 17}},
	} {
		if got, _ := kvCosts(view(), tokens10(), test.change); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestKVCostCreditsTiers(t *testing.T) {
	v := newView(4)
	copy(v.Overlap, []int32{2, 2, 2, 0})
	v.HostOverlap = []int32{6, 2, 6, 4}
	v.DiskOverlap = []int32{6, 10, 8, 4}
	got, _ := kvCosts(v, tokens10(), nil)
	// Of 20 with nothing cached: 2 + 4·0.75, 2 + 8·0.25, 2 + 4·0.75 + 2·0.25, 4·0.75
	if want := []float64{15, 16, 14.5, 17}; !slices.Equal(got, want) {
		t.Errorf("costs %v, want %v", got, want)
	}
	v.HostOverlap = nil
	got, _ = kvCosts(v, tokens10(), nil)
	if want := []float64{17, 16, 16.5, 19}; !slices.Equal(got, want) {
		t.Errorf("without host memory: costs %v, want %v", got, want)
	}
	v.HostOverlap, v.DiskOverlap = []int32{6, 2, 6, 4}, nil
	got, _ = kvCosts(v, tokens10(), nil)
	if want := []float64{15, 18, 15, 17}; !slices.Equal(got, want) {
		t.Errorf("without disks: costs %v, want %v", got, want)
	}
}

// TestKVCostOfCoarseBlocks: behind the 64th block of a prompt each is eight long.
func TestKVCostOfCoarseBlocks(t *testing.T) {
	v, q := newView(2), newRequest(1, 66)
	q.InputTokens = 64 * 80
	v.Overlap[0], v.Active[0], v.Book[0].ActiveBlocks = 65, 65, 72
	got, _ := kvCosts(v, q, nil)
	if want := []float64{80 - 72 + 72 + 80 - 72, 80 + 80}; !slices.Equal(got, want) {
		t.Errorf("costs %v, want %v", got, want)
	}
}

// TestKVCostOfAShortPrompt: a prompt without a full block has a length all the same.
func TestKVCostOfAShortPrompt(t *testing.T) {
	v, q := newView(2), newRequest(1, 0)
	q.InputTokens, q.BlockTokens = 32, 0
	waits(v, 1, 1, 64)
	got, _ := kvCosts(v, q, func(c *KVCost) { c.OverlapScoreCreditDecay = 1 })
	if want := []float64{0.5, 1.5}; !slices.Equal(got, want) {
		t.Errorf("costs %v, want %v", got, want)
	}
}

// TestKVCostDrawsBySoftmax: with a temperature endpoints are drawn as often as the softmax
// over the costs, scaled to 0 to 1, says.
func TestKVCostDrawsBySoftmax(t *testing.T) {
	const draws, temperature = 40000, 0.5
	costs := []float64{10, 14, 18, 30}
	v, q := newView(len(costs)), tokens10()
	v.Active = []int32{10, 10, 10, 10}
	for i, c := range costs {
		v.Book[i].ActiveBlocks = int64(c - 10)
	}
	rule, _ := Lookup("kv-cost")
	c := rule.Params().(*KVCost)
	c.RouterTemperature = temperature
	p, counts, sum := c.New(), make([]float64, len(costs)), 0.0
	for draw := range draws {
		choice := pick(p, v, q, draw)
		counts[choice.Index]++
		if choice.Reason != ReasonDrawn {
			t.Fatalf("reason %s", choice.Reason)
		}
	}
	weights := make([]float64, len(costs))
	for i, c := range costs {
		weights[i] = math.Exp(-(c - 10) / 20 / temperature)
		sum += weights[i]
	}
	chi2 := 0.0
	for i, w := range weights {
		want := draws * w / sum
		chi2 += (counts[i] - want) * (counts[i] - want) / want
	}
	if chi2 > 16.3 { // 3 degrees of freedom: exceeded by chance once in 1,000
		t.Errorf("drawn %v times, weights %v, chi-square %.1f", counts, weights, chi2)
	}
}

func TestSoften(t *testing.T) {
	r := seed.New(1, seed.Pick, 0, 0)
	untouched := r
	equal := []float64{3, math.NaN(), 3}
	if soften(equal, 1, &r); !sameScores(equal, []float64{3, math.NaN(), 3}) || r != untouched {
		t.Errorf("equals became %v", equal)
	}
	some := []float64{math.NaN(), 1, 2, math.NaN()}
	if soften(some, 1, &r); !math.IsNaN(some[0]) || !math.IsNaN(some[3]) || some[1] == 1 || some[2] == 2 {
		t.Errorf("of two scores among four %v were made", some)
	}
}
