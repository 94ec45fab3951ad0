package trace

import (
	"fmt"
	"slices"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// maxBlocks bounds the hashes that one session's blocks take: 128 MiB of them.
const maxBlocks = 1 << 24

var errBlocks = fmt.Errorf("the session has more than %d blocks", maxBlocks)

// chain grows the blocks of one branch of a session. What it has handed out stays as it is,
// and prompts that go on from each other share memory.
type chain struct {
	all  []kvblock.Hash
	used *int // hashes that the session's chains have taken
}

// keep cuts the chain behind its first n blocks, which stay in use as they were.
func (c *chain) keep(n int) {
	if n < len(c.all) {
		c.all = c.all[:n:n] // what is added next goes into new memory
		*c.used += n
	}
}

// add extends the chain by n blocks with the given id and those behind it. It reports false
// where the session gets too many.
func (c *chain) add(id uint64, n int) bool {
	if n > maxBlocks || *c.used+n > maxBlocks {
		return false
	}
	*c.used += n
	var head kvblock.Hash
	if n := len(c.all); n > 0 {
		head = c.all[n-1]
	}
	c.all = slices.Grow(c.all, n) // at once: a run may be of millions
	for i := range n {
		head = workload.Extend(head, id+uint64(i))
		c.all = append(c.all, head)
	}
	return true
}

// answer returns the blocks that a call's prompt and answer fill beyond the prompt's own, as
// far as the prompt that comes next shows them; nil where it does not go on from this one.
func answer(c *workload.Call, next []kvblock.Hash, blockTokens int) []kvblock.Hash {
	n := len(c.Blocks)
	if blockTokens < 1 || n != c.PromptTokens/blockTokens || n > len(next) || n > 0 && c.Blocks[n-1] != next[n-1] {
		return nil
	}
	both := min((c.PromptTokens+c.OutputTokens)/blockTokens, len(next))
	if both <= n {
		return nil
	}
	return next[n:both:both]
}
