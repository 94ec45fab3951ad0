package engine

import (
	"slices"
	"testing"

	"kvasir/accelerator"
)

// batches plays the requests, all submitted at 0, and returns what each step computed.
func batches(t *testing.T, c Config, requests ...Request) []accelerator.Batch {
	t.Helper()
	e := mustNew(t, c)
	for _, q := range requests {
		mustSubmit(t, e, 0, q)
	}
	step(t, e)
	var all []accelerator.Batch
	for e.busy {
		b := e.batch
		b.Prefills = slices.Clone(b.Prefills)
		all = append(all, b)
		step(t, e)
		audit(t, e)
	}
	return all
}

func TestSchedule_FillsTheBudget(t *testing.T) {
	type prefills = []accelerator.Prefill
	for _, c := range []struct {
		name     string
		chunked  bool
		budget   int
		seqs     int
		requests []Request
		want     []accelerator.Batch
	}{
		{
			name: "a prompt beyond the budget is computed in chunks", chunked: true, budget: 8, seqs: 4,
			requests: []Request{plain('a', 20, 1)},
			want: []accelerator.Batch{
				{Tokens: 8, Prefills: prefills{{Chunk: 8}}},
				{Tokens: 8, Prefills: prefills{{Chunk: 8, Context: 8}}},
				{Tokens: 4, Prefills: prefills{{Chunk: 4, Context: 16}}},
			},
		},
		{
			name: "decodes come first, chunks take what is left", chunked: true, budget: 8, seqs: 4,
			requests: []Request{plain('a', 5, 4), plain('b', 12, 1)},
			want: []accelerator.Batch{
				{Tokens: 8, Prefills: prefills{{Chunk: 5}, {Chunk: 3}}},
				{Tokens: 8, Decodes: 1, DecodeContext: 6, Prefills: prefills{{Chunk: 7, Context: 3}}},
				{Tokens: 3, Decodes: 1, DecodeContext: 7, Prefills: prefills{{Chunk: 2, Context: 10}}},
				{Tokens: 1, Decodes: 1, DecodeContext: 8},
			},
		},
		{
			name: "without chunks a prompt waits until it fits whole", chunked: false, budget: 8, seqs: 4,
			requests: []Request{plain('a', 5, 2), plain('b', 7, 1), plain('c', 1, 1)},
			want: []accelerator.Batch{
				{Tokens: 5, Prefills: prefills{{Chunk: 5}}}, // b blocks c, which would fit
				{Tokens: 8, Decodes: 1, DecodeContext: 6, Prefills: prefills{{Chunk: 7}}},
				{Tokens: 1, Prefills: prefills{{Chunk: 1}}},
			},
		},
		{
			name: "without chunks a prompt beyond the budget is the step's only prefill", chunked: false, budget: 8, seqs: 4,
			requests: []Request{plain('a', 5, 3), plain('b', 20, 1), plain('c', 2, 1)},
			want: []accelerator.Batch{
				{Tokens: 5, Prefills: prefills{{Chunk: 5}}},
				{Tokens: 21, Decodes: 1, DecodeContext: 6, Prefills: prefills{{Chunk: 20}}},
				{Tokens: 3, Decodes: 1, DecodeContext: 7, Prefills: prefills{{Chunk: 2}}},
			},
		},
		{
			name: "no more run than there are places", chunked: true, budget: 8, seqs: 2,
			requests: []Request{plain('a', 1, 2), plain('b', 1, 1), plain('c', 1, 1)},
			want: []accelerator.Batch{
				{Tokens: 2, Prefills: prefills{{Chunk: 1}, {Chunk: 1}}},
				{Tokens: 2, Decodes: 1, DecodeContext: 2, Prefills: prefills{{Chunk: 1}}},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := small()
			cfg.ChunkedPrefill, cfg.MaxBatchedTokens, cfg.MaxSeqs = c.chunked, c.budget, c.seqs
			got := batches(t, cfg, c.requests...)
			if len(got) != len(c.want) {
				t.Fatalf("%d steps, want %d: %+v", len(got), len(c.want), got)
			}
			for i, w := range c.want {
				g := got[i]
				if g.Tokens != w.Tokens || g.Decodes != w.Decodes || g.DecodeContext != w.DecodeContext || !slices.Equal(g.Prefills, w.Prefills) {
					t.Errorf("step %d: %+v, want %+v", i, g, w)
				}
			}
		})
	}
}

func TestSchedule_StepsTakeTheProfilesTimeAndOverhead(t *testing.T) {
	c := small()
	c.Overhead = 250_000
	e := mustNew(t, c)
	mustSubmit(t, e, 41, plain('a', 10, 2))
	// It arrives at 41 ns, so the step starts at 42. 10 tokens take 1,009 µs, one 1,000.
	first := step(t, e)
	if len(first) != 0 {
		t.Fatalf("outputs at the start: %v", first)
	}
	a, b := step(t, e), step(t, e)
	if at := a[0].At; at != 42+1009*microsecond+250*microsecond {
		t.Errorf("first token at %d", at)
	}
	if d := b[0].At - a[0].At; d != 1250*microsecond {
		t.Errorf("second token after %d", d)
	}
}

// Two requests fill the blocks. When the older one needs another, the younger one gives
// up all of its own, waits in front of those that came after it (though a smaller one
// would fit), and goes on where it was, without a second first token.
func TestPreempt_YoungestIsComputedAgainFromTheHeadOfTheQueue(t *testing.T) {
	c := small()
	c.NumBlocks, c.PrefixCaching = 4, false // 16 tokens
	e := mustNew(t, c)
	mustSubmit(t, e, 0, plain('a', 8, 4)) // 2 blocks, 3 in the end
	mustSubmit(t, e, 0, plain('b', 7, 6)) // 2 blocks, 3 in the end
	mustSubmit(t, e, 0, plain('c', 3, 1)) // 1 block
	tokens := map[ID]int{}
	var ended []ID
	step(t, e)
	for e.busy {
		before := e.counters.Preemptions
		for _, o := range step(t, e) {
			tokens[o.ID] += o.Tokens
			if o.First != (tokens[o.ID] == 1) {
				t.Errorf("%d: first %v with %d tokens", o.ID, o.First, tokens[o.ID])
			}
			if o.Finished {
				ended = append(ended, o.ID)
			}
		}
		audit(t, e)
		if e.counters.Preemptions > before {
			if e.running.n != 1 || e.waiting.head.ID != 'b' || e.kv.free != 1 || e.batch.Tokens != 1 {
				t.Errorf("after the preemption %d run, %d waits first, %d blocks free, %+v",
					e.running.n, e.waiting.head.ID, e.kv.free, e.batch)
			}
		}
	}
	if n := e.Stats().Preemptions; n != 1 {
		t.Errorf("%d preemptions, want 1", n)
	}
	if want := []ID{'a', 'c', 'b'}; !slices.Equal(ended, want) { // c starts beside b
		t.Errorf("ended in the order %v, want %v", ended, want)
	}
	if tokens['a'] != 4 || tokens['b'] != 6 || tokens['c'] != 1 {
		t.Errorf("tokens: %v", tokens)
	}
}

// Two requests with the same text have their own copies of what they computed apart.
// The preempted one would fit again at once, finding the other's copies; it comes back
// in the step after, as vLLM admits no one in a step that preempts.
func TestPreempt_AdmitsNoOneInTheSameStep(t *testing.T) {
	c := small()
	c.NumBlocks = 5
	e := mustNew(t, c)
	x := text{family: 1, shared: 1000}
	mustSubmit(t, e, 0, x.request('a', 8, 8, 4))
	mustSubmit(t, e, 0, x.request('b', 8, 8, 4))
	for e.counters.Preemptions == 0 {
		step(t, e)
	}
	if hits := len(e.kv.lookup(e.waiting.head)); hits != 3 || e.kv.free != 1 {
		t.Fatalf("b finds %d blocks with %d free: it would not fit anyway", hits, e.kv.free)
	}
	if e.running.n != 1 || e.batch.Tokens != 1 {
		t.Errorf("%d run in the step that preempts", e.running.n)
	}
	step(t, e)
	if e.running.n != 2 {
		t.Errorf("%d run in the step after", e.running.n)
	}
	drain(e)
	if s := e.Stats(); s.GenerationTokens != 16 || s.Finished[Stop] != 2 {
		t.Errorf("%+v", s)
	}
}

// A prompt is admitted only when all of it would fit, even though its first chunk would
// do with less.
func TestAdmit_WantsRoomForTheWholePrompt(t *testing.T) {
	c := small()
	c.NumBlocks, c.MaxBatchedTokens, c.PrefixCaching = 6, 8, false
	e := mustNew(t, c)
	mustSubmit(t, e, 0, plain('a', 8, 4)) // takes 2, then 3 blocks
	mustSubmit(t, e, 1, plain('b', 20, 1))
	mustSubmit(t, e, 1, plain('c', 1, 1)) // would fit, but b is before it
	step(t, e)
	for range 4 {
		step(t, e)
		if e.running.n > 1 {
			t.Fatalf("step %d: %d run", e.Stats().Steps, e.running.n)
		}
	}
	if e.running.n != 1 || e.running.head.ID != 'b' {
		t.Errorf("after a's end %d run", e.running.n)
	}
	if out := drain(e); len(out) != 2 || out[0].ID != 'b' {
		t.Errorf("outputs %v", out)
	}
}

func TestEmbedding_EndsWithItsPrefill(t *testing.T) {
	c := small()
	c.MaxBatchedTokens = 8
	e := mustNew(t, c)
	mustSubmit(t, e, 0, plain('a', 20, 0))
	out := drain(e)
	want := []Output{{ID: 'a', At: 1 + (1007+1007+1003)*microsecond, First: true, Finished: true, Queued: 1, Scheduled: 1}}
	if !slices.Equal(out, want) {
		t.Errorf("%v, want %v", out, want)
	}
	if s := e.Stats(); s.PromptTokens != 20 || s.GenerationTokens != 0 || s.Finished[Stop] != 1 || s.Steps != 3 {
		t.Errorf("%+v", s)
	}
}

func TestFinish_TellsTheRequestsReason(t *testing.T) {
	e := mustNew(t, small())
	q := plain('a', 3, 2)
	q.Reason = Length
	mustSubmit(t, e, 0, q)
	out := drain(e)
	if len(out) != 2 || out[0].Finished || !out[1].Finished || out[1].Reason != Length {
		t.Errorf("%v", out)
	}
	if e.Stats().Finished != [reasons]int64{Length: 1} {
		t.Errorf("%v", e.Stats().Finished)
	}
}
