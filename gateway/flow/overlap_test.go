package flow

import (
	"testing"

	"kvasir/selection"
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
