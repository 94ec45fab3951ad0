package lab

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// What read leaves out is not held: a session that was cut is copied.
func TestRead_HoldsNothingOfWhatItCuts(t *testing.T) {
	const sessions, blocks = 8, 1 << 21
	var b strings.Builder
	b.WriteString(`{"kvasir_trace":1,"name":"cut","block_tokens":1}` + "\n")
	for i := range sessions {
		fmt.Fprintf(&b, `{"id":"%d","at_ns":%d,"calls":[{"prompt_tokens":8,"output_tokens":1},{"prompt_tokens":%d,"output_tokens":1,"blocks":[[%d,%d]]}]}`+"\n", i, i, blocks, i*blocks, blocks)
	}
	tr, err := (&Trace{Name: "cut", Data: []byte(b.String())}).workload()
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	x, err := read(tr.Source, 2000, contextTokens)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 16<<20 {
		t.Errorf("%d calls of 8 tokens hold %d MiB of the ones that were cut", x.calls, held>>20)
	}
	runtime.KeepAlive(x)
}

// TestRead_EndsWhereItHasEnoughBlocks, and says so.
func TestRead_EndsWhereItHasEnoughBlocks(t *testing.T) {
	const sessions, blocks = 130, 131_000
	x, err := read(blockTrace(t, sessions, blocks), 2000, contextTokens)
	if err != nil {
		t.Fatal(err)
	}
	if want := mostKept / blocks; x.calls != want || !x.cut {
		t.Errorf("%d calls of %d blocks are kept, %v that it is cut; want %d", x.calls, blocks, x.cut, want)
	}
}

// TestTrace_OfTooManyBlocks is an error, for a lab that keeps none of them, too.
func TestTrace_OfTooManyBlocks(t *testing.T) {
	_, err := kneeLab().Run(Options{Trace: &Trace{Name: "blocks", Data: blockSessions(6, 1<<24-8)}})
	if err == nil || !strings.Contains(err.Error(), `session "4" and those before it have 83886040 KV blocks; allowed: 67108864`) {
		t.Error(err)
	}
}

// TestCopied_SharesWhatWasShared: prompts that begin alike are one chain in memory.
func TestCopied_SharesWhatWasShared(t *testing.T) {
	all := make([]kvblock.Hash, 100)
	for i := range all {
		all[i] = kvblock.Hash(i)
	}
	calls := []workload.Call{{Blocks: all[:10]}, {Blocks: all[:50], AnswerBlocks: all[50:60]}, {}}
	if n := chainsOf(calls).hashes(); n != 60 {
		t.Errorf("they are %d", n)
	}
	got := copied(calls)
	for i := range calls {
		if !slices.Equal(got[i].Blocks, calls[i].Blocks) || !slices.Equal(got[i].AnswerBlocks, calls[i].AnswerBlocks) {
			t.Errorf("call %d: %v", i, got[i])
		}
	}
	if &got[0].Blocks[0] == &all[0] || &got[0].Blocks[0] != &got[1].Blocks[0] || cap(got[0].Blocks) != 10 || chainsOf(got).hashes() != 60 {
		t.Error("they are not a copy of their own")
	}
}

// blockSessions is a trace of sessions of one call, each with so many blocks of one token.
func blockSessions(sessions, blocks int) []byte {
	var b strings.Builder
	b.WriteString(`{"kvasir_trace":1,"name":"blocks","block_tokens":1}` + "\n")
	for i := range sessions {
		fmt.Fprintf(&b, `{"id":"%d","at_ns":%d,"calls":[{"prompt_tokens":%d,"output_tokens":1,"blocks":[[%d,%d]]}]}`+"\n", i, i, blocks, i*blocks, blocks)
	}
	return []byte(b.String())
}

func blockTrace(t *testing.T, sessions, blocks int) workload.Source {
	t.Helper()
	tr, err := (&Trace{Name: "blocks", Data: blockSessions(sessions, blocks)}).workload()
	if err != nil {
		t.Fatal(err)
	}
	return tr.Source
}
