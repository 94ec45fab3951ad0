package engine

import (
	"slices"
	"testing"

	"kvasir/accelerator"
)

// A batch is what waits when the one before has ended: as many as have budget and place,
// none that comes later, though places are empty long before.
func TestStatic_NoPlaceIsFreeUntilTheWholeBatchHasEnded(t *testing.T) {
	type prefills = []accelerator.Prefill
	cfg := small()
	cfg.Batching, cfg.ChunkedPrefill, cfg.MaxBatchedTokens, cfg.MaxSeqs = Static, false, 10, 3
	got := batches(t, cfg, plain('a', 4, 4), plain('b', 5, 2), plain('c', 2, 1), plain('d', 1, 1), plain('e', 1, 2), plain('f', 1, 1))
	want := []accelerator.Batch{
		{Tokens: 9, Prefills: prefills{{Chunk: 4}, {Chunk: 5}}}, // c has no budget in it
		{Tokens: 2, Decodes: 2, DecodeContext: 5 + 6},
		{Tokens: 1, Decodes: 1, DecodeContext: 6},
		{Tokens: 1, Decodes: 1, DecodeContext: 7},
		{Tokens: 4, Prefills: prefills{{Chunk: 2}, {Chunk: 1}, {Chunk: 1}}}, // f has no place in it
		{Tokens: 1, Decodes: 1, DecodeContext: 2},
		{Tokens: 1, Prefills: prefills{{Chunk: 1}}},
	}
	same := func(a, b accelerator.Batch) bool {
		return a.Tokens == b.Tokens && a.Decodes == b.Decodes && a.DecodeContext == b.DecodeContext && slices.Equal(a.Prefills, b.Prefills)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The article's section 7.1: a request that stops after 10 tokens waits for one that
// generates 1,000, and places stand empty meanwhile; continuous batching refills them.
func TestBatching_ContinuousKeepsPlacesFull(t *testing.T) {
	play := func(b Batching) (steps int64, occupancy float64) {
		c := small()
		c.Batching, c.ChunkedPrefill, c.MaxSeqs, c.EveryToken = b, false, 4, false
		c.MaxModelLen, c.NumBlocks = 2000, 4*500
		e := mustNew(t, c)
		tokens := int64(0)
		for i := range 16 {
			answer := 10
			if i%4 == 0 {
				answer = 1000
			}
			tokens += int64(answer)
			mustSubmit(t, e, 0, plain(ID(i), 10, answer))
		}
		drain(e)
		return e.Stats().Steps, float64(tokens) / float64(4*e.Stats().Steps)
	}
	// Four batches, each as long as its longest: a place is used 1,030 of 4·1,000 times.
	if steps, occupancy := play(Static); steps != 4*1000 || occupancy != 1030.0/4000 {
		t.Errorf("static: %d steps, %.3f of the places used", steps, occupancy)
	}
	// The long ones end up side by side.
	if steps, occupancy := play(Continuous); steps > 1100 || occupancy < 0.93 {
		t.Errorf("continuous: %d steps, %.3f of the places used", steps, occupancy)
	}
}
