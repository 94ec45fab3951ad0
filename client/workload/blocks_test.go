package workload

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
)

func TestAdded_UndoesExtend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent := kvblock.Hash(rapid.Uint64().Draw(t, "parent"))
		id := rapid.Uint64().Draw(t, "id")
		if got := Added(parent, Extend(parent, id)); got != id {
			t.Fatalf("block %d behind %x reads as %d", id, parent, got)
		}
		h := kvblock.Hash(rapid.Uint64().Draw(t, "hash"))
		if got := Extend(parent, Added(parent, h)); got != h {
			t.Fatalf("hash %x behind %x comes back as %x", h, parent, got)
		}
	})
}

func TestExtend_CoversWhatCameBefore(t *testing.T) {
	seen := map[kvblock.Hash]bool{}
	for parent := range kvblock.Hash(300) {
		for id := range uint64(300) {
			h := Extend(parent, id)
			for part := range 3 {
				seen[within(h, part)] = true
			}
			seen[h] = true
		}
	}
	if want := 4 * 300 * 300; len(seen) != want {
		t.Errorf("%d different hashes of %d prefixes", len(seen), want)
	}
}

// pair draws two calls whose blocks are known to the ends of their prompts or somewhat
// less, and which share the ids of some first blocks.
func pair(t *rapid.T) (a, b *Call, blockTokens, shared int) {
	blockTokens = rapid.SampledFrom([]int{1, 8, 16, 32, 64, 128, 192, 512, 1024}).Draw(t, "block")
	shared = rapid.IntRange(0, 40).Draw(t, "shared")
	call := func(other uint64) *Call {
		n := shared + rapid.IntRange(0, 30).Draw(t, "more")
		c := &Call{
			PromptTokens: n*blockTokens + rapid.IntRange(0, 2*blockTokens).Draw(t, "tail") + 1,
			OutputTokens: rapid.IntRange(0, 3*blockTokens).Draw(t, "output"),
		}
		chain := make([]kvblock.Hash, 0, n)
		var head kvblock.Hash
		for i := range n {
			id := uint64(i)
			if i >= shared {
				id = other + uint64(i-shared)
			}
			head = Extend(head, id)
			chain = append(chain, head)
		}
		inPrompt := min(n, c.PromptTokens/blockTokens)
		if inPrompt == c.PromptTokens/blockTokens {
			// The last few may be the answer's.
			cut := rapid.IntRange(0, min(3, inPrompt)).Draw(t, "answer")
			inPrompt -= cut
			c.PromptTokens = inPrompt*blockTokens + rapid.IntRange(0, blockTokens-1).Draw(t, "end")
			c.OutputTokens = max(c.OutputTokens, n*blockTokens-c.PromptTokens)
		}
		c.Blocks, c.AnswerBlocks = chain[:inPrompt], chain[inPrompt:]
		return c
	}
	return call(1000), call(2000), blockTokens, shared
}

// known returns how many tokens of a call the blocks that it has cover.
func known(c *Call, blockTokens int) int { return (len(c.Blocks) + len(c.AnswerBlocks)) * blockTokens }

func TestRouterBlocks_ShareWhatTheirCoverShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, size, shared := pair(t)
		x, y := RouterBlocks(nil, a, size), RouterBlocks(nil, b, size)
		if want := kvblock.Within(min(a.PromptTokens, known(a, size)) / RouterBlockTokens); len(x) != want {
			t.Fatalf("%d blocks of a prompt of %d tokens, %d of them known; want %d", len(x), a.PromptTokens, known(a, size), want)
		}
		for i := range min(len(x), len(y)) {
			end := RouterBlockTokens * kvblock.Span(i+1)
			if covered := (end+size-1)/size <= shared; (x[i] == y[i]) != covered {
				t.Fatalf("block %d, which ends at token %d, is equal: %v; %d blocks of %d tokens are shared", i, end, x[i] == y[i], shared, size)
			}
		}
	})
}

func TestEngineBlocks_ShareWhatTheirCoverShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, size, shared := pair(t)
		engine := rapid.SampledFrom([]int{1, 16, 24, 64, 512}).Draw(t, "engine")
		x, prompt := EngineBlocks(nil, a, size, engine)
		y, _ := EngineBlocks(nil, b, size, engine)
		if want := min(a.PromptTokens+a.OutputTokens, known(a, size)) / engine; len(x) != want {
			t.Fatalf("%d blocks, want %d", len(x), want)
		}
		if want := min(a.PromptTokens/engine, len(x)); prompt != want {
			t.Fatalf("%d blocks are the prompt's, want %d", prompt, want)
		}
		for i := range min(len(x), len(y)) {
			end := engine * (i + 1)
			if covered := (end+size-1)/size <= shared; (x[i] == y[i]) != covered {
				t.Fatalf("block %d, which ends at token %d, is equal: %v; %d blocks of %d tokens are shared", i, end, x[i] == y[i], shared, size)
			}
		}
	})
}

// TestEngineBlocks_OfTheSameLength: where nothing has to be derived, nothing is.
func TestEngineBlocks_OfTheSameLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, _, size, _ := pair(t)
		all := slices.Concat(c.Blocks, c.AnswerBlocks)
		x, prompt := EngineBlocks(nil, c, size, size)
		if !slices.Equal(x, all) || prompt != len(c.Blocks) {
			t.Fatalf("%d blocks, %d the prompt's; the call has %d and %d", len(x), prompt, len(c.Blocks), len(c.AnswerBlocks))
		}
	})
}

// TestBlocks_AgreeAcrossLengths: one prefix has one hash, in whatever blocks it is cut.
func TestBlocks_AgreeAcrossLengths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, _, size, _ := pair(t)
		fine, _ := EngineBlocks(nil, c, size, 8)
		coarse, _ := EngineBlocks(nil, c, size, 24)
		for i, h := range coarse {
			if fine[3*i+2] != h {
				t.Fatalf("the prefix of %d tokens has two hashes", 24*(i+1))
			}
		}
	})
}

func TestBlocks_WhereNothingIsKnown(t *testing.T) {
	c := &Call{PromptTokens: 5000, OutputTokens: 100}
	for _, size := range []int{0, 64} {
		x, prompt := EngineBlocks(nil, c, size, 16)
		if len(x) != 0 || prompt != 0 || len(RouterBlocks(nil, c, size)) != 0 {
			t.Errorf("blocks of %d tokens: there are some", size)
		}
	}
}

func BenchmarkRouterBlocks(b *testing.B) {
	c := &Call{PromptTokens: 100_000}
	var head kvblock.Hash
	for i := range uint64(100_000 / 64) {
		head = Extend(head, i)
		c.Blocks = append(c.Blocks, head)
	}
	var room []kvblock.Hash
	b.ReportAllocs()
	for b.Loop() {
		room = RouterBlocks(room[:0], c, 64)
	}
}

func BenchmarkEngineBlocks(b *testing.B) {
	c := &Call{PromptTokens: 12_000, OutputTokens: 300}
	var head kvblock.Hash
	for i := range uint64(12_000 / 512) {
		head = Extend(head, i)
		c.Blocks = append(c.Blocks, head)
	}
	var room []kvblock.Hash
	b.ReportAllocs()
	for b.Loop() {
		room, _ = EngineBlocks(room[:0], c, 512, 16)
	}
}
