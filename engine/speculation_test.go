package engine

import (
	"math"
	"slices"
	"testing"
	"time"

	"kvasir/accelerator"
)

// speculative is a small engine that drafts.
func speculative(s Speculation) Config {
	c := small()
	c.Speculation = s
	c.NumBlocks, c.MaxModelLen = 4096, 16000
	return c
}

// The example of the article's section 7.4: outputs come 40 ms apart, a token takes 20 ms.
func TestSpeculation_InterTokenLatencyAndTimePerTokenPart(t *testing.T) {
	c := speculative(Speculation{Drafted: 1, Acceptance: 1})
	c.Profile.DenseMicros = []float64{40_000, 40_000}
	const answer = 101
	e := mustNew(t, c)
	mustSubmit(t, e, 0, plain('a', 8, answer))
	out := drain(e)
	for i, o := range out[1:] {
		if gap := o.At.Sub(out[i].At); gap != 40*time.Millisecond || o.Tokens != 2 {
			t.Fatalf("output %d has %d tokens after %v, want 2 after 40 ms", i+1, o.Tokens, gap)
		}
	}
	if tpot := out[len(out)-1].At.Sub(out[0].At) / (answer - 1); tpot != 20*time.Millisecond {
		t.Errorf("TPOT is %v, want 20 ms", tpot)
	}

	// Who asks for firsts and lasts alone gets the same gaps.
	c.EveryToken = false
	e = mustNew(t, c)
	mustSubmit(t, e, 0, plain('a', 8, answer))
	gaps := int64(0)
	for at, ok := e.Next(); ok; at, ok = e.Next() {
		e.Advance(at)
		for _, g := range e.Gaps() {
			gaps += g.Steps * g.Sequences
			if g.First != 40*time.Millisecond || g.Last != g.First {
				t.Errorf("gap %+v", g)
			}
		}
	}
	if gaps != (answer-1)/2 {
		t.Errorf("%d gaps", gaps)
	}
}

// A drafted token takes budget, time and context like any other, and none is drafted that
// the answer has no place for.
func TestSpeculation_DraftsAreComputed(t *testing.T) {
	type prefills = []accelerator.Prefill
	c := speculative(Speculation{Drafted: 3, Acceptance: 0, Overhead: time.Millisecond})
	got := batches(t, c, plain('a', 5, 4))
	want := []accelerator.Batch{
		{Tokens: 5, Prefills: prefills{{Chunk: 5}}},
		{Tokens: 3, Decodes: 1, DecodeContext: 8}, // 6 known, 3 to come, one of them without a draft
		{Tokens: 2, Decodes: 1, DecodeContext: 8},
		{Tokens: 1, Decodes: 1, DecodeContext: 8},
	}
	same := func(a, b accelerator.Batch) bool {
		return a.Tokens == b.Tokens && a.Decodes == b.Decodes && a.DecodeContext == b.DecodeContext && slices.Equal(a.Prefills, b.Prefills)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%+v, want %+v", got, want)
	}
	e := mustNew(t, c)
	mustSubmit(t, e, 0, plain('a', 5, 4))
	out := drain(e)
	// A step of T tokens takes 999 + T microseconds, and a millisecond where it drafts.
	for i, want := range []time.Duration{2002, 2001, 1000} {
		if gap := out[i+1].At.Sub(out[i].At); gap != want*time.Microsecond {
			t.Errorf("step %d takes %v, want %d µs", i+1, gap, want)
		}
	}
	if s := e.Stats(); s.DraftTokens != 3 || s.AcceptedTokens != 0 || s.GenerationTokens != 4 {
		t.Errorf("%+v", s)
	}
}

func TestSpeculation_TokensAStepAreThoseOfTheAcceptance(t *testing.T) {
	for _, c := range []struct {
		drafted    int
		acceptance float64
		want       float64
	}{{1, 1, 2}, {4, 0, 1}, {3, 0.8, 2.952}, {5, 0.5, 1.96875}} {
		s := Speculation{Drafted: c.drafted, Acceptance: c.acceptance, Seed: 3}
		if got := s.Tokens(); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%+v: %v tokens a step, want %v", s, got, c.want)
		}
		cfg := speculative(s)
		cfg.EveryToken = false
		e := mustNew(t, cfg)
		const answer = 15_001
		mustSubmit(t, e, 0, plain('a', 8, answer))
		drain(e)
		// The first step has no drafts, and the last ones fewer.
		got := float64(answer-1) / float64(e.Stats().Steps-1)
		if math.Abs(got/c.want-1) > 0.02 {
			t.Errorf("%+v: %.3f tokens a step, want %v", s, got, c.want)
		}
		if x := e.Stats(); x.GenerationTokens != answer || x.AcceptedTokens != answer-x.Steps {
			t.Errorf("%+v", x)
		}
	}
}

// A request's acceptance is its own, and what is accepted does not depend on who else is
// there.
func TestSpeculation_DependsOnTheRequestAlone(t *testing.T) {
	c := speculative(Speculation{Drafted: 4, Acceptance: 0.6, Spread: 0.4, Seed: 1})
	play := func(ids ...ID) map[ID][]int {
		e := mustNew(t, c)
		for i, id := range ids {
			mustSubmit(t, e, microsecond*700*500, plain(id, 10+i, 400))
		}
		tokens := map[ID][]int{}
		for _, o := range drain(e) {
			tokens[o.ID] = append(tokens[o.ID], o.Tokens)
		}
		return tokens
	}
	alone, beside := play(5), play(5, 6, 7, 8)
	if !slices.Equal(alone[5], beside[5]) {
		t.Errorf("alone %v, beside others %v", alone[5], beside[5])
	}
	if len(beside[5]) == len(beside[6]) && len(beside[6]) == len(beside[7]) {
		t.Errorf("%d outputs of each, though acceptances differ", len(beside[5]))
	}
	for id := range ID(1000) {
		if a := c.Speculation.acceptance(id); !(a >= 0.2 && a <= 1) {
			t.Errorf("acceptance of %d is %v", id, a)
		}
	}
}
