package contest

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// tiny is a workload of single calls, so many to a conversation, all of which begin with one
// block, and of sessions of two calls.
func tiny(conversations, turns, sessions int) workload.Source {
	var all []workload.Session
	at := time.Duration(0)
	for c := range conversations {
		for turn := range turns {
			at += time.Second
			blocks := []kvblock.Hash{1}
			for b := range turn + 2 {
				blocks = append(blocks, kvblock.Seed("c", strconv.Itoa(c), strconv.Itoa(b)))
			}
			all = append(all, workload.Session{ID: strconv.Itoa(len(all)), At: at, Calls: []workload.Call{{PromptTokens: 16 * len(blocks), OutputTokens: 5, Blocks: blocks}}})
		}
	}
	for s := range sessions {
		at += time.Second
		all = append(all, workload.Session{ID: "s" + strconv.Itoa(s), At: at, Calls: []workload.Call{
			{PromptTokens: 16, OutputTokens: 16, Blocks: []kvblock.Hash{1}, AnswerBlocks: []kvblock.Hash{kvblock.Seed("a", strconv.Itoa(s))}},
			{PromptTokens: 40, OutputTokens: 1, Blocks: []kvblock.Hash{1, kvblock.Seed("a", strconv.Itoa(s))}, After: []int{0}, Offset: time.Minute, Gap: time.Second},
		}})
	}
	return workload.Source{Name: "tiny", BlockTokens: 16, Sessions: func(yield func(workload.Session, error) bool) {
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
	}}
}

// ids returns which sessions a source has.
func ids(t *testing.T, s workload.Source) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for x, err := range s.Sessions {
		if err != nil {
			t.Fatal(err)
		}
		out[x.ID] = true
	}
	return out
}

func TestHalf_TheHalvesShareNothingAndTogetherAreAll(t *testing.T) {
	all := tiny(200, 3, 200)
	tuning, reported := ids(t, TuningHalf.Of(all)), ids(t, ReportedHalf.Of(all))
	if n := len(tuning) + len(reported); n != 800 || len(ids(t, BothHalves.Of(all))) != 800 {
		t.Errorf("%d and %d of 800 sessions", len(tuning), len(reported))
	}
	for id := range tuning {
		if reported[id] {
			t.Errorf("session %s is in both", id)
		}
	}
	if len(tuning) < 320 || len(tuning) > 480 {
		t.Errorf("%d of 800 sessions are one half", len(tuning))
	}
}

func TestHalf_AConversationStaysTogether(t *testing.T) {
	for name, part := range map[string]workload.Source{"half": TuningHalf.Of(tiny(100, 4, 0)), "sample": Sample(tiny(100, 4, 0), 7, 0.5)} {
		conversations := map[kvblock.Hash]int{}
		for x := range part.Sessions {
			conversations[x.Calls[0].Blocks[1]]++
		}
		if len(conversations) < 25 || len(conversations) > 75 {
			t.Errorf("%s: %d of 100 conversations: one block that all share decides nothing", name, len(conversations))
		}
		for c, n := range conversations {
			if n != 4 {
				t.Errorf("%s: %d of conversation %x's 4 calls", name, n, c)
			}
		}
	}
}

func TestSample_IsDrawnAnewByEachSeed(t *testing.T) {
	one, same, other := ids(t, Sample(tiny(0, 0, 300), 1, 0.5)), ids(t, Sample(tiny(0, 0, 300), 1, 0.5)), ids(t, Sample(tiny(0, 0, 300), 2, 0.5))
	both := 0
	for id := range one {
		if !same[id] {
			t.Errorf("session %s was drawn once and not again by the same seed", id)
		}
		if other[id] {
			both++
		}
	}
	if len(one) < 120 || len(one) > 180 || both < 45 || both > 105 {
		t.Errorf("%d of 300, %d of them by another seed, too", len(one), both)
	}
}

func TestClip_CutsAtTheFirstCallThatIsTooLateOrTooLong(t *testing.T) {
	for _, c := range []struct {
		length time.Duration
		tokens int
		calls  int // of a session; 0: it is left out
	}{{time.Hour, 1000, 2}, {time.Minute, 41, 2}, {time.Minute - 1, 1000, 1}, {time.Hour, 40, 1}, {time.Hour, 31, 0}} {
		sessions := 0
		for x := range clip(tiny(0, 0, 3), c.length, c.tokens).Sessions {
			sessions++
			if len(x.Calls) != c.calls {
				t.Errorf("%v, %d tokens: %d calls, want %d", c.length, c.tokens, len(x.Calls), c.calls)
			}
			if err := x.Validate(16); err != nil {
				t.Error(err)
			}
		}
		if (sessions == 3) != (c.calls > 0) {
			t.Errorf("%v, %d tokens: %d sessions", c.length, c.tokens, sessions)
		}
	}
}

func TestDraw_ReuseIsWhatACacheWithoutBoundsHolds(t *testing.T) {
	// Per conversation prompts of 3, 4 and 5 blocks: 2 new ones, then 1 and 1; the first block is
	// new once. A session's second call has its answer's block, and 8 tokens that are no block.
	d, err := Keep(tiny(2, 3, 2))
	if err != nil {
		t.Fatal(err)
	}
	found := 2*(3+4+5-4) - 1 + 2*(1+2)
	tokens := 2*16*(3+4+5) + 2*(16+40)
	if want := float64(found*16) / float64(tokens); d.Reuse() != want {
		t.Errorf("%v, want %v", d.Reuse(), want)
	}
	if d.Calls != 10 || d.Length != 8*time.Second || d.Rate() != 10./8 {
		t.Errorf("%d calls in %v: %v a second", d.Calls, d.Length, d.Rate())
	}
}

func TestCoarsen_ALongBlockIsThePrefixThatEndsWithIt(t *testing.T) {
	var fine, coarse []workload.Call
	for x := range tiny(2, 9, 2).Sessions {
		fine = append(fine, x.Calls...)
	}
	for x := range coarsen(tiny(2, 9, 2), 32).Sessions {
		if err := x.Validate(32); err != nil {
			t.Error(err)
		}
		coarse = append(coarse, x.Calls...)
	}
	for i, c := range coarse {
		both := append(slices.Clone(c.Blocks), c.AnswerBlocks...)
		all := append(slices.Clone(fine[i].Blocks), fine[i].AnswerBlocks...)
		if len(c.Blocks) != c.PromptTokens/32 || len(both) != (c.PromptTokens+c.OutputTokens)/32 {
			t.Errorf("call %d: %d and %d blocks of %d and %d tokens", i, len(c.Blocks), len(c.AnswerBlocks), c.PromptTokens, c.OutputTokens)
		}
		for k, h := range both {
			if h != all[2*k+1] {
				t.Errorf("call %d: block %d is another prefix", i, k)
			}
		}
	}
}
