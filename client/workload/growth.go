package workload

import "kvasir/internal/kvblock"

// blockTokens is the length of the blocks of generated workloads: that of an engine's KV
// blocks (vLLM's default), a quarter of a router's fine block.
const blockTokens = 16

// growth is a context that grows at its end. Its text is made of pieces, each named by a
// number: two contexts share a block exactly when they are the same pieces up to its end.
type growth struct {
	blocks []kvblock.Hash // of the full ones
	tokens int
	open   uint64 // what the block that is not full has so far
}

// reserve makes room for a context of so many tokens.
func (g *growth) reserve(tokens int) {
	g.blocks = make([]kvblock.Hash, 0, tokens/blockTokens)
}

// add appends so many tokens of a piece, from its first one on.
func (g *growth) add(piece uint64, tokens int) {
	for at := 0; at < tokens; {
		filled := g.tokens % blockTokens
		n := min(blockTokens-filled, tokens-at)
		g.open = mix(g.open + piece + mix(uint64(at)*blockTokens+uint64(n)))
		at += n
		if g.tokens += n; filled+n == blockTokens {
			var before kvblock.Hash
			if len(g.blocks) > 0 {
				before = g.blocks[len(g.blocks)-1]
			}
			g.blocks = append(g.blocks, Extend(before, g.open))
			g.open = 0
		}
	}
}

// fork returns a copy that grows by itself.
func (g *growth) fork() growth {
	c := *g
	c.blocks = append(make([]kvblock.Hash, 0, len(g.blocks)+64), g.blocks...)
	return c
}

// reveal gives calls whose prompts and answers are beginnings of the context their blocks.
// It comes after the last add, so that all of them share one array.
func (g *growth) reveal(calls []Call) {
	for i := range calls {
		c := &calls[i]
		prompt, both := c.PromptTokens/blockTokens, (c.PromptTokens+c.OutputTokens)/blockTokens
		c.Blocks = g.blocks[:prompt:prompt]
		if both > prompt {
			c.AnswerBlocks = g.blocks[prompt:both:both]
		}
	}
}

// The kinds of pieces.
const (
	sharedPiece   uint64 = 1 + iota // system prompts, with their tools
	ownPiece                        // what only one session has
	documentPiece                   // what is retrieved
)

// piece names a piece of text: the number of one kind, and which part of it.
func piece(root, kind, number, part uint64) uint64 {
	return mix(mix(mix(root^kind*0x9e3779b97f4a7c15)+number) + part)
}
