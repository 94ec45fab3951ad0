package workload

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLaw_ContextsShareBlocksExactlyWhenTheyShareText compares contexts token by token, each
// token being a piece and a place in it.
func TestLaw_ContextsShareBlocksExactlyWhenTheyShareText(t *testing.T) {
	type token struct{ piece, place int }
	rapid.Check(t, func(t *rapid.T) {
		draw := func(head []int) (g growth, text []token) {
			pieces := append(head, rapid.SliceOfN(rapid.IntRange(0, 3*40-1), 0, 4).Draw(t, "pieces")...)
			for _, p := range pieces {
				name, n := p%3, p/3
				g.add(piece(9, ownPiece, uint64(name), 0), n)
				for i := range n {
					text = append(text, token{name, i})
				}
			}
			return g, text
		}
		head := rapid.SliceOfN(rapid.IntRange(0, 3*40-1), 0, 3).Draw(t, "head")
		a, textA := draw(head)
		b, textB := draw(head)
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
