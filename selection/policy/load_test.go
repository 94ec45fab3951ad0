package policy

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// loaded returns a view whose endpoints have so many outstanding calls each.
func loaded(calls ...int32) *selection.View {
	v := newView(len(calls))
	for i, n := range calls {
		v.Book[i].Outstanding = n
	}
	return v
}

func TestLeastOutstandingPicksTheFewestOfAll(t *testing.T) {
	v := loaded(3, 1, 2, 1, 9)
	got := map[selection.Slot]bool{}
	for draw := range 50 {
		got[picked(build("least-outstanding"), v, nil, draw)] = true
	}
	if len(got) != 2 || !got[1] || !got[3] {
		t.Errorf("picked %v, want slots 1 and 3", got)
	}
	if want := []float64{3, 1, 2, 1, 9}; !slices.Equal(v.Scores, want) {
		t.Errorf("scores %v, want %v", v.Scores, want)
	}
}

// TestPowerOfTwoDrawsDistinctEndpoints: exactly choice_count endpoints are looked at,
// or all where there are fewer, every set equally often, and the lightest is picked.
func TestPowerOfTwoDrawsDistinctEndpoints(t *testing.T) {
	for choices := 2; choices <= 6; choices++ {
		v := loaded(0, 1, 2, 3, 4)
		p := (&PowerOfTwo{ChoiceCount: choices}).New()
		sets := map[int]int{}
		for draw := range 6000 {
			c := pick(p, v, nil, draw)
			set, size := 0, 0
			for i, s := range v.Scores {
				if !math.IsNaN(s) {
					set, size = set|1<<i, size+1
				}
			}
			if size != min(choices, 5) {
				t.Fatalf("choice_count %d looked at %d: %v", choices, size, v.Scores)
			}
			if lowest := slices.IndexFunc(v.Scores, func(s float64) bool { return s == s }); c.Index != lowest {
				t.Fatalf("picked %d of %v", c.Index, v.Scores)
			}
			sets[set]++
		}
		want := map[int]int{2: 10, 3: 10, 4: 5, 5: 1, 6: 1}[choices]
		for set, n := range sets {
			if mean := 6000 / want; want > 1 && (n < mean*8/10 || n > mean*12/10) || len(sets) != want {
				t.Errorf("choice_count %d: %d sets, %b drawn %d times of 6000", choices, len(sets), set, n)
			}
		}
	}
}

func TestArgminDrawsOnceAndOnlyForTies(t *testing.T) {
	r := seed.New(1, seed.Pick, 0, 0)
	untouched := r
	if i := argmin([]float64{math.NaN(), 2, 1, math.Inf(1)}, &r); i != 2 || r != untouched {
		t.Errorf("argmin = %d, want 2 without a draw", i)
	}
	if i := argmin([]float64{math.NaN(), math.Inf(1)}, &r); i != 1 {
		t.Errorf("argmin of an infinite score alone = %d", i)
	}
	counts := make([]int, 5)
	for range 3000 {
		counts[argmin([]float64{1, 5, 1, math.NaN(), 1}, &r)]++
	}
	if counts[1]+counts[3] > 0 || min(counts[0], counts[2], counts[4]) < 900 {
		t.Errorf("equals drawn %v times", counts)
	}
}

// reports gives the endpoint a fresh report.
func reports(v *selection.View, slot int, usage, waiting, running float64) {
	v.Endpoints[slot].Load = signal.Load{
		KVUsage: signal.Known(usage, v.Now), Waiting: signal.Known(waiting, v.Now), Running: signal.Known(running, v.Now),
		KVBlocks: signal.Known(1000, v.Now), BlockTokens: signal.Known(16, v.Now),
	}
}

// TestLeastKVInNumbers follows the formula of LeastKV.
func TestLeastKVInNumbers(t *testing.T) {
	v := newView(4)
	reports(v, 0, 0.4, 0, 10)                                           // 400
	reports(v, 1, 0.1, 3, 2)                                            // 100 + 3 · mean
	v.Endpoints[2].Load = signal.Load{}                                 // the median
	reports(v, 3, 0.3, 0, 8)                                            // 300 + 1600/16
	v.Book[2] = selection.Book{OutstandingTokens: 160, UnseenTokens: 0} // less than the median
	v.Book[3] = selection.Book{OutstandingTokens: 1600, UnseenTokens: 1600}
	// Mean of a running call: (400 + 100 + 300) / (10 + 2 + 8) = 40 blocks. The reports
	// are 400, 220 and 300, their median 300.
	c := pick(build("least-kv"), v, newRequest(1, 4), 0)
	if want := []float64{400, 220, 300, 400}; !slices.Equal(v.Scores, want) {
		t.Errorf("scores %v, want %v", v.Scores, want)
	}
	if c != (selection.Choice{Index: 1, Reason: ReasonReported}) {
		t.Errorf("chose %+v", c)
	}
}

// TestLeastKVCountsQueuedWork is the article's broken case: an endpoint that has just
// drained uses no blocks, but a queue waits there.
func TestLeastKVCountsQueuedWork(t *testing.T) {
	v := newView(2)
	reports(v, 0, 0.0, 12, 0)
	reports(v, 1, 0.3, 0, 3)
	if c := pick(build("least-kv"), v, newRequest(1, 4), 0); c.Index != 1 {
		t.Errorf("the drained endpoint with 12 calls waiting is chosen: %v", v.Scores)
	}
}

func TestLeastKVFallsBack(t *testing.T) {
	q := newRequest(1, 4)
	t.Run("to the median, and to no less than its own calls", func(t *testing.T) {
		v := newView(3)
		reports(v, 0, 0.5, 0, 5)
		reports(v, 1, 0.7, 0, 7)
		reports(v, 2, 0, 0, 0)
		v.Endpoints[2].Load.KVUsage.At = v.Now.Add(-v.MaxAge - 1)
		for _, test := range []struct {
			book selection.Book
			want float64
		}{
			{selection.Book{}, 500}, // the lower of two middles
			{selection.Book{OutstandingTokens: 1600, UnseenTokens: 1600}, 600},
			{selection.Book{OutstandingTokens: 16_000, UnseenTokens: 1600}, 1000},
		} {
			v.Book[2] = test.book
			if pick(build("least-kv"), v, q, 0); v.Scores[2] != test.want {
				t.Errorf("%+v: score %v, want %v", test.book, v.Scores[2], test.want)
			}
		}
	})
	t.Run("to its own calls", func(t *testing.T) {
		v := newView(2)
		v.Endpoints[0].Load, v.Endpoints[1].Load = signal.Load{}, signal.Load{}
		charge(v, 0, 320)
		charge(v, 1, 160)
		c := pick(build("least-kv"), v, q, 0)
		if c != (selection.Choice{Index: 1, Reason: ReasonOwnCounts}) || !slices.Equal(v.Scores, []float64{20, 10}) {
			t.Errorf("chose %+v by %v", c, v.Scores)
		}
	})
	t.Run("to this call's blocks for a call that waits where none runs", func(t *testing.T) {
		v := newView(1)
		reports(v, 0, 0, 2, 0)
		if pick(build("least-kv"), v, q, 0); v.Scores[0] != 2*float64(q.InputTokens)/16 {
			t.Errorf("score %v", v.Scores[0])
		}
	})
	t.Run("to this call's blocks where less than one call is said to run", func(t *testing.T) {
		v := newView(2)
		reports(v, 0, 0.5, 0, 5e-324) // its mean would be infinite, times no call at all
		reports(v, 1, 0, 1, 0)
		c := pick(build("least-kv"), v, q, 0)
		if want := []float64{500, float64(q.InputTokens) / 16}; c.Index != 1 || !slices.Equal(v.Scores, want) {
			t.Errorf("chose %+v by %v, want %v", c, v.Scores, want)
		}
	})
	t.Run("reason", func(t *testing.T) {
		v := newView(2)
		reports(v, 0, 0.5, 0, 5)
		v.Endpoints[1].Load = signal.Load{}
		v.Book[0].UnseenTokens = 16
		if c := pick(build("least-kv"), v, q, 0); c != (selection.Choice{Index: 1, Reason: ReasonMedian}) {
			t.Errorf("chose %+v by %v", c, v.Scores)
		}
	})
}

func TestNthIsThatOfASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SliceOfN(rapid.Uint64Range(0, 20), 1, 60).Draw(t, "s")
		n := rapid.IntRange(0, len(s)-1).Draw(t, "n")
		sorted := slices.Sorted(slices.Values(s))
		if got := nth(s, n); got != sorted[n] {
			t.Fatalf("nth = %d, want %d", got, sorted[n])
		}
	})
}

// wholeBlocks returns the hashes of a prompt's full blocks.
func wholeBlocks(text string, size int) []kvblock.Hash {
	var w kvblock.Writer
	w.ResetTapered(kvblock.Seed("test"), size)
	_, _ = w.Write([]byte(text))
	return slices.Clone(w.Blocks())
}

// TestCacheAwareIsANaiveTextTree compares with SGLang's rule over plain strings: every
// endpoint has the texts that it was sent, the match is the longest common prefix in
// characters. Wherever the tree's ratio is a block or more away from the threshold, the
// two take the same branch, and the endpoint chosen holds the tree's longest match to
// within a block. The longer texts reach to where blocks are coarse.
func TestCacheAwareIsANaiveTextTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "characters a block")
		threshold := rapid.SampledFrom([]float64{0.1, 0.3, 0.5, 0.8}).Draw(t, "threshold")
		n := rapid.IntRange(1, 4).Draw(t, "endpoints")
		v := newView(n)
		tree := make([][]string, n)
		index := make([]map[kvblock.Hash]bool, n)
		for i := range index {
			index[i] = map[kvblock.Hash]bool{}
		}
		p := (&CacheAware{CacheThreshold: threshold, BalanceAbsThreshold: 64, BalanceRelThreshold: 1.5}).New()
		var known []string
		for draw := range rapid.IntRange(1, 25).Draw(t, "calls") {
			text := drawText(t, known)
			known = append(known, text)
			q := &selection.Request{Blocks: wholeBlocks(text, size)}
			for i := range n {
				v.Overlap[i] = 0
				for _, h := range q.Blocks {
					if !index[i][h] {
						break
					}
					v.Overlap[i]++
				}
				v.Book[i].Outstanding = int32(rapid.IntRange(0, 5).Draw(t, "load"))
			}
			c := pick(p, v, q, draw)
			checkAgainstTree(t, v, c, tree, text, threshold, size)
			slot := v.Candidates[c.Index]
			tree[slot] = append(tree[slot], text)
			for _, h := range q.Blocks {
				index[slot][h] = true
			}
		}
	})
}

// drawText draws a prompt that often begins like an earlier one.
func drawText(t *rapid.T, known []string) string {
	text := ""
	if len(known) > 0 && rapid.Bool().Draw(t, "shares") {
		text = rapid.SampledFrom(known).Draw(t, "with")
		text = text[:rapid.IntRange(0, len(text)).Draw(t, "to")]
	}
	return text + rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 150, -1).Draw(t, "rest")
}

func checkAgainstTree(t *rapid.T, v *selection.View, c selection.Choice, tree [][]string, text string, threshold float64, size int) {
	matches := make([]int, len(tree))
	for i, texts := range tree {
		for _, other := range texts {
			matches[i] = max(matches[i], commonPrefix(text, other))
		}
	}
	longest := slices.Max(matches)
	least := slices.MinFunc(v.Book, func(a, b selection.Book) int { return int(a.Outstanding - b.Outstanding) })
	long := size // the block at the text's end
	if len(text) >= 64*size {
		long = 8 * size
	}
	block := float64(long) / float64(len(text))
	ratio := float64(longest) / float64(len(text))
	switch {
	case len(text) < size:
		if c.Reason != ReasonNoMatch {
			t.Fatalf("a prompt under a block is a match")
		}
	case ratio >= threshold+block:
		if c.Reason != ReasonMatch {
			t.Fatalf("the tree matches %.2f of %q, chose %+v", ratio, text, c)
		}
	case ratio <= threshold-block:
		if c.Reason != ReasonNoMatch {
			t.Fatalf("the tree matches only %.2f of %q, chose %+v", ratio, text, c)
		}
	}
	if c.Reason == ReasonNoMatch && v.Book[c.Index].Outstanding != least.Outstanding {
		t.Fatalf("without a match %d is chosen of %+v", c.Index, v.Book)
	}
	if c.Reason == ReasonMatch && matches[c.Index] <= longest-long {
		t.Fatalf("%d is chosen, the tree's matches are %v", c.Index, matches)
	}
}

// TestCacheAwareRatioIsWithinABlock tries the edges that a random prompt seldom meets:
// a prompt of n blocks and a tail, a match of j blocks and a part of the next.
func TestCacheAwareRatioIsWithinABlock(t *testing.T) {
	const size = 16
	for _, n := range []int{1, 2, 3, 5, 8, 13, 20, 62, 63, 64, 65, 66, 80, 264} {
		long := size * (kvblock.Span(n+1) - kvblock.Span(n))
		q := newRequest(1, n)
		for _, j := range []int{0, 1, n / 9, n / 3, n / 2, min(n, 63), min(n, 64), min(n, 65), n - 1, n} {
			next := size * (kvblock.Span(j+1) - kvblock.Span(j))
			for _, tail := range []int{0, long / 2, long - 1} {
				for _, part := range []int{0, next / 2, next - 1} {
					if j == n && part > tail {
						continue
					}
					for threshold := 0.05; threshold < 1; threshold += 0.05 {
						length := float64(kvblock.Span(n)*size + tail)
						ratio, block := float64(kvblock.Span(j)*size+part)/length, float64(long)/length
						v := loaded(1, 0)
						v.Overlap[0] = int32(j)
						p := (&CacheAware{CacheThreshold: threshold, BalanceAbsThreshold: 64, BalanceRelThreshold: 1.5}).New()
						c := pick(p, v, q, 0)
						if ratio >= threshold+block && c.Index != 0 || ratio <= threshold-block && c.Index != 1 {
							t.Fatalf("%d of %d blocks, a part of %d and a tail of %d: the tree's ratio is %.3f, the threshold %.2f, chose %+v",
								j, n, part, tail, ratio, threshold, c)
						}
					}
				}
			}
		}
	}
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func TestCacheAwareBranches(t *testing.T) {
	for _, test := range []struct {
		name    string
		loads   []int32
		overlap []int32
		blocks  int
		want    selection.Choice
	}{
		{"a match above the threshold wins over load", []int32{60, 0, 5}, []int32{4, 0, 3}, 10, selection.Choice{Index: 0, Reason: ReasonMatch}},
		{"a match at the threshold doesn't", []int32{60, 0, 5}, []int32{3, 0, 3}, 10, selection.Choice{Index: 1, Reason: ReasonNoMatch}},
		{"of equal matches the least load", []int32{9, 0, 5}, []int32{8, 7, 8}, 10, selection.Choice{Index: 2, Reason: ReasonMatch}},
		{"a difference of 64 is balanced", []int32{64, 0, 1}, []int32{9, 0, 0}, 10, selection.Choice{Index: 0, Reason: ReasonMatch}},
		{"a difference of 65 is not", []int32{65, 0, 1}, []int32{9, 0, 0}, 10, selection.Choice{Index: 1, Reason: ReasonImbalanced}},
		{"unless it is small for the load", []int32{195, 130, 131}, []int32{9, 0, 0}, 10, selection.Choice{Index: 0, Reason: ReasonMatch}},
		{"behind the 64th a block is eight", []int32{60, 0, 5}, []int32{118, 0, 118}, 264, selection.Choice{Index: 1, Reason: ReasonNoMatch}}, // 496 of 1,664
		{"and one more of them is enough", []int32{60, 0, 5}, []int32{119, 0, 118}, 264, selection.Choice{Index: 0, Reason: ReasonMatch}},     // 504 of 1,664
		{"a prompt under a block has no match", []int32{1, 0, 1}, []int32{0, 0, 0}, 0, selection.Choice{Index: 1, Reason: ReasonNoMatch}},
	} {
		v := loaded(test.loads...)
		copy(v.Overlap, test.overlap)
		if got := pick(build("cache-aware"), v, newRequest(1, test.blocks), 0); got != test.want {
			t.Errorf("%s: chose %+v, want %+v", test.name, got, test.want)
		}
	}
	v := loaded(1, 0)
	v.Overlap = nil
	if c := pick(build("cache-aware"), v, newRequest(1, 4), 0); c.Index != 1 {
		t.Errorf("without an index: chose %+v", c)
	}
}
