package flow

import (
	"slices"
	"testing"

	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// TestDecision_CountsOverlapInTokens has an endpoint that holds a prompt to where its
// blocks are coarse: 66 blocks are as long as 64 and twice 8.
func TestDecision_CountsOverlapInTokens(t *testing.T) {
	c := newConfig(newTestPool("p", &overlapping{}, "a", "b"))
	m := New(c)
	ask := func(id selection.CallID, n int) []Action {
		q := request(int(id))
		q.Blocks, q.BlockTokens = blocks(n), 64
		return m.Step(1, Arrive(q))
	}
	first := only(t, ask(1, 66))
	d := only(t, ask(2, 70)).Decision
	for i, k := range d.Candidates {
		want := selection.Candidate{}
		if i == int(first.Slot) {
			want.Overlap, want.OverlapTokens = 66, 64*(64+2*8)
		}
		if k.Overlap != want.Overlap || k.OverlapTokens != want.OverlapTokens {
			t.Errorf("%s: %d blocks, %d tokens; want %d and %d", k.Endpoint, k.Overlap, k.OverlapTokens, want.Overlap, want.OverlapTokens)
		}
	}
}

// ofSession returns n blocks, all of which but the first one are the session's own.
func ofSession(session, n int) []kvblock.Hash {
	b := slices.Clone(blocks(1))
	for len(b) < n {
		b = append(b, kvblock.Chain(b[len(b)-1], []byte{byte(session)}))
	}
	return b
}

// believed places a call of n blocks, which are 64 tokens long each, and returns what the only
// endpoint is believed to hold of them. The call ends with what it is told of its prompt.
func believed(t *testing.T, m *Machine, id int, prompt []kvblock.Hash, u Usage) int32 {
	t.Helper()
	q := request(id)
	q.Blocks, q.BlockTokens, q.InputTokens = prompt, 64, 64*len(prompt)+1
	now := m.last + 10
	a := only(t, m.Step(now, Arrive(q)))
	held := m.held[a.Slot]
	m.Step(now+1, FirstToken(a.Ticket, 0))
	m.Step(now+2, Done(a.Ticket, 0, attempt.Success, u))
	m.Step(now+3, Wake())
	return held
}

// TestDone_WhenLessWasCachedThanBelieved_DropsWhatIsOlder has five sessions. When three of
// them turn out to be gone, so is what is older than their last turns, and nothing that is
// newer.
func TestDone_WhenLessWasCachedThanBelieved_DropsWhatIsOlder(t *testing.T) {
	const n = 40
	told := func(cached int) Usage {
		return Usage{Known: true, CachedKnown: true, Prompt: 3 * (64*n + 1), Cached: 3 * 64 * cached} // a tokenizer that needs three times as many
	}
	for name, c := range map[string]struct {
		usage Usage
		older int32
	}{
		"as believed":      {told(n), n},
		"a little less":    {told(n - 8), n},
		"the first alone":  {told(1), 1},
		"half":             {told(n / 2), 1},
		"more":             {told(2 * n), n},
		"it does not tell": {Usage{Known: true, Prompt: 64 * n}, n},
		"unknown":          {Usage{}, n},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
			for session := 1; session <= 5; session++ {
				believed(t, m, session, ofSession(session, n), told(0))
			}
			for session := 2; session <= 4; session++ {
				if got := believed(t, m, 4+session, ofSession(session, n), c.usage); got != n {
					t.Fatalf("held %d blocks of what was just there", got)
				}
			}
			if got := believed(t, m, 9, ofSession(1, n), told(n)); got != c.older {
				t.Errorf("%d blocks of what is older, want %d", got, c.older)
			}
			if got := believed(t, m, 10, ofSession(5, n), told(n)); got != n {
				t.Errorf("%d blocks of what is newer, want %d", got, n)
			}
			if got := believed(t, m, 11, ofSession(2, n), told(n)); got != n {
				t.Errorf("%d blocks of what was computed again, want %d", got, n)
			}
		})
	}
}

// TestDispatch_WhenCapacityIsKnown_BelievesNoMore has an endpoint whose cache of 100
// blocks of 64 tokens, in blocks of 16, takes two sessions of 40 and a part of a third.
func TestDispatch_WhenCapacityIsKnown_BelievesNoMore(t *testing.T) {
	const n = 40
	for _, known := range []bool{false, true} {
		m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
		load := signal.Load{KVBlocks: signal.Known(400, 0)}
		if known {
			load.BlockTokens = signal.Known(16, 0)
		}
		m.Step(1, Signal(0, 0, load, 0))
		for session := 1; session <= 3; session++ {
			believed(t, m, session, ofSession(session, n), Usage{})
		}
		want := int32(n)
		if known {
			want = 100 - 2*(n-1) // the first block of all is in use
		}
		if got := believed(t, m, 4, ofSession(1, n), Usage{}); got != want {
			t.Errorf("capacity known: %v; held %d, want %d", known, got, want)
		}
	}
}

// TestReconfigure_WhenTheIndexIsEmptied_CorrectsNothing has a call that outlives the index
// that knew what its endpoint held.
func TestReconfigure_WhenTheIndexIsEmptied_CorrectsNothing(t *testing.T) {
	c := newConfig(newTestPool("p", &overlapping{}, "a"))
	m := New(c)
	prompt := ofSession(1, 40)
	believed(t, m, 1, prompt, Usage{})
	q := request(2)
	q.Blocks, q.BlockTokens, q.InputTokens = prompt, 64, 64*40+1
	a := only(t, m.Step(m.last+1, Arrive(q)))
	c.Prefix.BudgetBytes *= 2
	m.Reconfigure(m.last+1, c)
	believed(t, m, 3, ofSession(2, 40), Usage{})
	m.Step(m.last+1, FirstToken(a.Ticket, 0))
	m.Step(m.last+1, Done(a.Ticket, 0, attempt.Success, Usage{Known: true, CachedKnown: true, Prompt: 64*40 + 1}))
	if got := believed(t, m, 4, ofSession(2, 40), Usage{}); got != 40 {
		t.Errorf("%d blocks of what the new index was told, want 40", got)
	}
}
