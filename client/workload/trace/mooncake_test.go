package trace

import (
	"slices"
	"testing"
	"time"

	"kvasir/client/workload"
)

func TestMooncake_ReadsCalls(t *testing.T) {
	tr, all := read(t, testdata(t, "mooncake_conversation.jsonl"), Options{Strict: true, Raw: true})
	if tr.Format != Mooncake || tr.BlockTokens != 512 || !tr.Timed || tr.Bin != 0 || len(all) != 40 {
		t.Fatalf("format %s, blocks of %d tokens, timed %v, bin %v, %d calls", tr.Format, tr.BlockTokens, tr.Timed, tr.Bin, len(all))
	}
	c := all[0].Calls[0]
	if c.PromptTokens != 6758 || c.OutputTokens != 500 || len(c.Blocks) != 13 || all[0].At != 0 {
		t.Errorf("the first call has %d and %d tokens, %d blocks, at %v", c.PromptTokens, c.OutputTokens, len(c.Blocks), all[0].At)
	}
	other := all[1].Calls[0]
	if c.Blocks[0] != other.Blocks[0] || c.Blocks[1] == other.Blocks[1] {
		t.Error("the first two calls share other blocks than their first ones")
	}
	if all[1].At != 1 || all[10].At != 3*time.Second {
		t.Errorf("the second call comes at %v, that of the next bin at %v", all[1].At, all[10].At)
	}
}

// TestMooncake_SpreadsBins: every call stays in its bin, in its order, and is somewhere in
// it; another seed puts it elsewhere, the same seed does not.
func TestMooncake_SpreadsBins(t *testing.T) {
	f := testdata(t, "mooncake_conversation.jsonl")
	_, raw := read(t, f, Options{Raw: true})
	tr, all := read(t, f, Options{Seed: 1})
	_, again := read(t, f, Options{Seed: 1})
	_, other := read(t, f, Options{Seed: 2})
	if tr.Bin < 2900*time.Millisecond || tr.Bin > 3*time.Second {
		t.Errorf("the bin is %v", tr.Bin)
	}
	if !slices.EqualFunc(all, again, func(a, b workload.Session) bool { return a.At == b.At }) {
		t.Error("one seed gives two spreads")
	}
	bins := map[time.Duration]int{} // how far into their bins calls come
	for i, s := range all {
		bins[s.At-raw[i].At.Truncate(time.Millisecond)]++
	}
	if len(bins) < len(all) {
		t.Errorf("%d calls come at %d places of their bins", len(all), len(bins))
	}
	moved := 0
	for i, s := range all {
		bin := raw[i].At.Truncate(time.Millisecond)
		if into := s.At - bin; into < 0 || into >= 3*time.Second {
			t.Errorf("call %d of the bin at %v comes at %v", i, bin, s.At)
		}
		if s.At != other[i].At {
			moved++
		}
	}
	if moved < len(all)*9/10 {
		t.Errorf("another seed moves %d of %d calls", moved, len(all))
	}
}

// TestMooncake_ChainsIds: an id means something behind the ids before it alone.
func TestMooncake_ChainsIds(t *testing.T) {
	const lines = `{"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[1,5]}
{"timestamp":1,"input_length":1024,"output_length":1,"hash_ids":[2,5]}
`
	_, all := read(t, text("f", lines), Options{Strict: true})
	if a, b := all[0].Calls[0].Blocks, all[1].Calls[0].Blocks; a[1] == b[1] || a[0] == b[0] {
		t.Error("prompts that begin differently share a block")
	}
}

func TestMooncake_LeavesExactStampsAlone(t *testing.T) {
	tr, all := read(t, testdata(t, "mooncake_synthetic.jsonl"), Options{})
	if tr.Bin != 0 || all[2].At != 40*time.Millisecond || all[1].At != 1 {
		t.Errorf("bin %v; the third call is at %v, the second at %v", tr.Bin, all[2].At, all[1].At)
	}
}
