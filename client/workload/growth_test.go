package workload

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLaw_ContextsShareBlocksExactlyWhenTheyShareText compares contexts token by token, each
// token being a piece and a place in it.
func TestLaw_ContextsShareBlocksExactlyWhenTheyShareText(t *testing.T) {
	type token struct{ piece, place int }
	rapid.Check(t, func(t *rapid.T) {
		type part struct{ name, tokens int }
		parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) part {
			return part{rapid.IntRange(0, 2).Draw(t, "name"), rapid.SampledFrom([]int{0, 1, 5, 8, 11, 16, 27, 40}).Draw(t, "tokens")}
		}), 1, 5)
		grow := func(parts []part) (g growth, text []token) {
			for _, p := range parts {
				g.add(piece(9, ownPiece, uint64(p.name), 0), p.tokens)
				for i := range p.tokens {
					text = append(text, token{p.name, i})
				}
			}
			return g, text
		}
		one := parts.Draw(t, "one")
		two := append(slices.Clone(one), parts.Draw(t, "two")...)
		two[rapid.IntRange(0, len(two)-1).Draw(t, "changed")] = parts.Draw(t, "change")[0]
		a, textA := grow(one)
		b, textB := grow(two)
		if a.tokens != len(textA) || len(a.blocks) != len(textA)/blockTokens {
			t.Fatalf("%d tokens in %d blocks for %d", a.tokens, len(a.blocks), len(textA))
		}
		same := 0
		for same < min(len(textA), len(textB)) && textA[same] == textB[same] {
			same++
		}
		for i := range min(len(a.blocks), len(b.blocks)) {
			if (a.blocks[i] == b.blocks[i]) != ((i+1)*blockTokens <= same) {
				t.Fatalf("block %d is shared: %v, and %d tokens are", i, a.blocks[i] == b.blocks[i], same)
			}
		}
	})
}
