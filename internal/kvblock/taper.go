package kvblock

// A tapered chain has fine blocks at its head and coarse ones behind. Which prompts share
// a system prompt, and whether a short one matches at all, is decided at the head; behind
// it the part of a block that two prompts share and no whole block covers is less than an
// eighth of what they share before it. Where a block ends depends on its position alone,
// so prompts share blocks as in a uniform chain, and a chain changes at its end only.
//
// A router's chains of prompts are tapered. An engine's are uniform, as its KV blocks are.
const (
	FineBlocks   = 64 // blocks at the head of a tapered chain that have the size given
	CoarseFactor = 8  // how many times as long each block after those is

	// MostBlocks bounds a tapered chain, and with it what one prompt can take of an index:
	// with fine blocks of 256 bytes it is 32 MiB of text.
	MostBlocks = 1 << 14
)

// Span returns the length of the first n blocks of a tapered chain, in fine blocks.
func Span(n int) int {
	return n + (CoarseFactor-1)*max(0, n-FineBlocks)
}

// Within returns how many blocks of a tapered chain lie wholly within the length of n
// fine blocks: the largest number whose Span is at most n.
func Within(n int) int {
	return min(n, FineBlocks) + max(0, n-FineBlocks)/CoarseFactor
}
