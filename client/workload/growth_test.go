package workload

import (
	"fmt"
	"testing"

	"kvasir/internal/kvblock"
)

// TestLaw_ContextsShareBlocksExactlyWhenTheyShareText tries all contexts of up to three parts
// of two texts, token by token, each token being a text and a place in it: a hash stands for
// one beginning, and a beginning has one hash.
func TestLaw_ContextsShareBlocksExactlyWhenTheyShareText(t *testing.T) {
	textOf, hashOf := map[kvblock.Hash]string{}, map[string]kvblock.Hash{}
	shared := 0
	var try func(g growth, text string, parts int)
	try = func(g growth, text string, parts int) {
		const token = 3 // bytes, as written below
		if g.tokens*token != len(text) || len(g.blocks) != g.tokens/blockTokens {
			t.Fatalf("%d tokens in %d blocks for %d", g.tokens, len(g.blocks), len(text)/token)
		}
		for i, h := range g.blocks {
			until := text[:(i+1)*blockTokens*token]
			if was, ok := textOf[h]; ok && was != until {
				t.Fatalf("one hash for\n%s and\n%s", was, until)
			}
			if was, ok := hashOf[until]; ok {
				if shared++; was != h {
					t.Fatalf("two hashes for\n%s", until)
				}
			}
			textOf[h], hashOf[until] = until, h
		}
		if parts == 0 {
			return
		}
		for name := range 2 {
			for _, tokens := range []int{0, 3, 5, 8, 11, 16, 21, 32} {
				longer, more := g.fork(), text
				longer.add(piece(9, ownPiece, uint64(name), 0), tokens)
				for i := range tokens {
					more += fmt.Sprintf("%c%02d", 'a'+name, i)
				}
				try(longer, more, parts-1)
			}
		}
	}
	try(growth{}, "", 3)
	if shared == 0 {
		t.Error("no two contexts share a block")
	}
}
