package trace

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// source is a workload of the given sessions.
func source(blockTokens int, all ...workload.Session) workload.Source {
	return workload.Source{BlockTokens: blockTokens, Sessions: func(yield func(workload.Session, error) bool) {
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
	}}
}

// TestStack_IsLRU: the levels that marks give are those of caches that are simulated one by
// one.
func TestStack_IsLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SampledFrom([][]int{{1}, {1, 2}, {3, 4, 9}, {2, 2, 5}, {5, 20}}).Draw(t, "sizes")
		s := newStack(sizes)
		var order []kvblock.Hash // latest first
		for range rapid.IntRange(1, 150).Draw(t, "uses") {
			h := kvblock.Hash(rapid.IntRange(0, 15).Draw(t, "block"))
			i, err := s.get(h, -1)
			if err != nil {
				t.Fatal(err)
			}
			at := slices.Index(order, h)
			for l, size := range sizes {
				if held := at >= 0 && at < size; held != (int(s.nodes[i].level) <= l) {
					t.Fatalf("block %d lies %d deep; level %d, caches of %v", h, at, s.nodes[i].level, sizes)
				}
			}
			if at >= 0 {
				order = slices.Delete(order, at, at+1)
			}
			order = slices.Insert(order, 0, h)
			s.use(i)
		}
		at := s.head
		for _, h := range order {
			if s.index[h] != at {
				t.Fatalf("the stack's order is not that of use")
			}
			at = s.nodes[at].next
		}
	})
}

func TestTimeline_OrdersCallsOfAllSessions(t *testing.T) {
	_, all := read(t, testdata(t, "agents.jsonl"), Options{SessionRate: 1})
	var last time.Duration
	n := 0
	for c, err := range timeline(source(64, all...)) {
		if err != nil || c.at < last {
			t.Fatalf("a call at %v behind one at %v (%v)", c.at, last, err)
		}
		last = c.at
		n++
	}
	if n != 78 {
		t.Errorf("%d calls", n)
	}
}

func TestSummarize_ByHand(t *testing.T) {
	// Blocks of 100 tokens; a cache of 0.1 M tokens holds 1000.
	chain := func(ids ...uint64) (all []kvblock.Hash) {
		var head kvblock.Hash
		for _, id := range ids {
			head = workload.Extend(head, id)
			all = append(all, head)
		}
		return all
	}
	s, err := Summarize(source(100,
		workload.Session{At: 0, Calls: []workload.Call{
			{PromptTokens: 300, OutputTokens: 100, Blocks: chain(1, 2, 3), AnswerBlocks: chain(1, 2, 3, 4)[3:]},
			{After: []int{0}, Gap: 2 * time.Second, Offset: 3 * time.Second, PromptTokens: 500, OutputTokens: 50, Blocks: chain(1, 2, 3, 4, 5)},
		}},
		workload.Session{At: time.Second, Calls: []workload.Call{{PromptTokens: 250, OutputTokens: 30, Blocks: chain(1, 2)}}},
		workload.Session{At: 11 * time.Second, Calls: []workload.Call{{PromptTokens: 210, OutputTokens: 0, Blocks: chain(9, 2)}}},
	))
	if err != nil {
		t.Fatal(err)
	}
	r := s.Reuse
	if s.Sessions != 3 || s.Calls != 4 || r.Blocks != 12 || r.DistinctBlocks != 7 {
		t.Errorf("%d sessions, %d calls, %d blocks, %d distinct", s.Sessions, s.Calls, r.Blocks, r.DistinctBlocks)
	}
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.008*want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	near("the infinite cache's share", r.Infinite, 6./12)
	near("without answers", r.InfinitePrompts, 5./12)
	near("the share by call", r.PerCallMean, (0+1+0.8+0)/4)
	near("calls with reuse", r.CallsHit, 0.5)
	near("calls ago", r.CallsAgo.Mean, 1.5) // 1 and 2: the longest prefix is the first call's
	near("seconds ago", r.SecondsAgo.Mean, (1.+3)/2)
	near("an LRU cache of 0.1 M tokens", r.LRU[0].Share, 0.5)
	near("prompt tokens", s.PromptTokens.Mean, 315)
	near("their CV", s.PromptTokens.CV, math.Sqrt((300*300+500*500+250*250+210*210)/4.-315*315)/315)
	near("gap", s.Gaps.P50, 2)
	near("calls a session", s.CallsPerSession.Mean, 4./3)
	near("rate", s.CallArrivals.PerSecond, 3./11)
	near("CV of gaps", s.CallArrivals.InterarrivalCV, math.Sqrt((1+4+64)/3.-121./9)/(11./3))
	// Three calls in eleven whole seconds, and no two whole windows of 10 s.
	if p := s.CallArrivals.Peaks; len(p) != 3 || math.Abs(*p[0].OfMean-11./3) > 1e-9 || p[1].OfMean != nil || p[2].OfMean != nil {
		t.Errorf("the peaks are %v", p)
	}
	if want := []SharedPrefix{{200, 3}}; !slices.Equal(r.Top, want) {
		t.Errorf("the shared prefixes are %v", r.Top)
	}
}

// An answer's blocks that no prompt has are not among the prompts' distinct ones.
func TestSummarize_CountsDistinctBlocksOfPromptsAlone(t *testing.T) {
	a, b := workload.Extend(0, 1), workload.Extend(workload.Extend(0, 1), 2)
	call := workload.Call{PromptTokens: 100, OutputTokens: 100, Blocks: []kvblock.Hash{a}, AnswerBlocks: []kvblock.Hash{b}}
	s, err := Summarize(source(100, workload.Session{Calls: []workload.Call{call}}, workload.Session{At: 1, Calls: []workload.Call{call}}))
	if err != nil || s.Reuse.Blocks != 2 || s.Reuse.DistinctBlocks != 1 {
		t.Errorf("%+v, %v", s.Reuse, err)
	}
}

// An adapter's cache is of no use to another one, nor to the base model.
func TestSummarize_TellsAdaptersApart(t *testing.T) {
	sessions := make([]workload.Session, 0, 4)
	for i, adapter := range []string{"", "sql", "chat", "sql"} {
		sessions = append(sessions, workload.Session{At: time.Duration(i), Calls: []workload.Call{
			{Adapter: adapter, PromptTokens: 100, Blocks: []kvblock.Hash{workload.Extend(0, 1)}},
		}})
	}
	s, err := Summarize(source(100, sessions...))
	if err != nil || s.Reuse.DistinctBlocks != 3 || s.Reuse.CallsHit != 0.25 {
		t.Errorf("%+v, %v", s.Reuse, err)
	}
}

// TestPeak_IsNotBelowTheMean: and there is none of windows of which the span has no two.
func TestPeak_IsNotBelowTheMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c counted
		var at time.Duration
		for _, gap := range rapid.SliceOfN(rapid.Uint64Range(0, uint64(40*time.Second)), 2, 30).Draw(t, "gaps") {
			at += time.Duration(gap)
			c.add(at)
		}
		a := c.arrivals()
		if a == nil {
			return
		}
		for _, p := range a.Peaks {
			if whole := a.SpanSeconds >= 2*p.WindowSeconds; whole != (p.OfMean != nil) || whole && *p.OfMean < 1-1e-12 {
				t.Fatalf("in %v s of %v: %v", p.WindowSeconds, a.SpanSeconds, p.OfMean)
			}
		}
	})
}

func TestSummarize_OfNothing(t *testing.T) {
	for _, s := range []workload.Source{source(0), source(16), source(0, workload.Session{Calls: []workload.Call{{PromptTokens: 1}}})} {
		got, err := Summarize(s)
		if err != nil || got.Reuse != nil || got.CallArrivals != nil {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// TestSummarize_AgreesWithTheLiterature: figures of the public traces, computed elsewhere
// from the same files: mean lengths, rates, CVs and infinite-cache reuse, of full blocks.
func TestSummarize_AgreesWithTheLiterature(t *testing.T) {
	for _, c := range []struct {
		path                                             string
		calls                                            int
		rate, cv, prompt, promptCV, output, reuse, slack float64
	}{
		{"mooncake/conversation_trace.jsonl", 12031, 3.40, 3.03, 12035, 1.31, 343, 0.3819, 0.005},
		{"mooncake/synthetic_trace.jsonl", 3993, 3.91, 1.01, 15325, 1.20, 149, 0.6594, 0.005},
		{"azure2023/AzureLLMInferenceTrace_code.csv", 8819, 2.57, 13.15, 2048, 0.96, 28, 0, 0.005},
		{"azure2023/AzureLLMInferenceTrace_conv.csv", 19366, 5.53, 1.09, 1155, 0.96, 211, 0, 0.005},
	} {
		tr, err := Open(public(t, c.path), Options{Raw: true, Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Summarize(tr.Source)
		if err != nil {
			t.Fatal(err)
		}
		near := func(name string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > max(c.slack*want, 0.0101) {
				t.Errorf("%s: %s is %v, elsewhere %v", c.path, name, got, want)
			}
		}
		if s.Calls != c.calls {
			t.Errorf("%s: %d calls, want %d", c.path, s.Calls, c.calls)
		}
		near("rate", s.CallArrivals.PerSecond, c.rate)
		near("CV of gaps", s.CallArrivals.InterarrivalCV, c.cv)
		near("prompt mean", s.PromptTokens.Mean, c.prompt)
		near("prompt CV", s.PromptTokens.CV, c.promptCV)
		if math.Abs(s.OutputTokens.Mean-c.output) > 0.5 {
			t.Errorf("%s: output mean is %v, elsewhere %v", c.path, s.OutputTokens.Mean, c.output)
		}
		if c.reuse > 0 && math.Abs(s.Reuse.InfinitePrompts-c.reuse) > 0.0001 {
			t.Errorf("%s: reuse is %v, elsewhere %v", c.path, s.Reuse.InfinitePrompts, c.reuse)
		}
	}
}

// naiveLRU is one cache of so many blocks, latest used first.
type naiveLRU struct {
	size  int
	order []kvblock.Hash
}

// ask returns how many blocks a prompt finds, and then uses it and its answer, last block
// first.
func (c *naiveLRU) ask(call *workload.Call) (found int) {
	for _, h := range call.Blocks {
		if !slices.Contains(c.order, h) {
			break
		}
		found++
	}
	for _, h := range slices.Backward(slices.Concat(call.Blocks, call.AnswerBlocks)) {
		if at := slices.Index(c.order, h); at >= 0 {
			c.order = slices.Delete(c.order, at, at+1)
		}
		c.order = slices.Insert(c.order, 0, h)
	}
	c.order = c.order[:min(len(c.order), c.size)]
	return found
}

// TestSummarize_FindsWhatCachesHold: the shares are those of caches that are played one by
// one.
func TestSummarize_FindsWhatCachesHold(t *testing.T) {
	const blockTokens = 50_000 // so the caches hold 2, 10, 20, 80 and 320 blocks
	rapid.Check(t, func(t *rapid.T) {
		var all []workload.Session
		caches := []naiveLRU{{size: 2}, {size: 10}, {size: 20}, {size: 80}, {size: 320}, {size: 1 << 30}}
		found, blocks := make([]int, len(caches)), 0
		for i := range rapid.IntRange(1, 30).Draw(t, "calls") {
			ids := rapid.SliceOfN(rapid.Uint64Range(0, 2), 1, 14).Draw(t, "ids")
			var chain []kvblock.Hash
			var head kvblock.Hash
			for _, id := range ids {
				head = workload.Extend(head, id)
				chain = append(chain, head)
			}
			prompt := rapid.IntRange(0, len(chain)).Draw(t, "prompt")
			c := workload.Call{PromptTokens: max(prompt*blockTokens, 1), OutputTokens: (len(chain) - prompt) * blockTokens}
			c.Blocks, c.AnswerBlocks = chain[:prompt:prompt], chain[prompt:]
			all = append(all, workload.Session{At: time.Duration(i), Calls: []workload.Call{c}})
			blocks += prompt
			if prompt == 0 {
				continue
			}
			for k := range caches {
				found[k] += caches[k].ask(&c)
			}
		}
		s, err := Summarize(source(blockTokens, all...))
		if err != nil {
			t.Fatal(err)
		}
		if blocks == 0 {
			return
		}
		for k, l := range s.Reuse.LRU {
			if want := float64(found[k]) / float64(blocks); math.Abs(l.Share-want) > 1e-12 {
				t.Fatalf("a cache of %d tokens finds %v, played %v", l.CacheTokens, l.Share, want)
			}
		}
		if want := float64(found[5]) / float64(blocks); math.Abs(s.Reuse.Infinite-want) > 1e-12 {
			t.Fatalf("the infinite cache finds %v, played %v", s.Reuse.Infinite, want)
		}
	})
}
