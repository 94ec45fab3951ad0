package trace

import (
	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// chain grows the blocks of one branch of a session. What it has handed out stays as it is,
// and prompts that go on from each other share memory.
type chain struct{ all []kvblock.Hash }

// keep cuts the chain behind its first n blocks. What is added then goes into new memory
// where blocks were cut off, for they are in use.
func (c *chain) keep(n int) {
	if n < len(c.all) {
		c.all = c.all[:n:n]
	}
}

// add extends the chain by the block with the given id.
func (c *chain) add(id uint64) {
	var head kvblock.Hash
	if n := len(c.all); n > 0 {
		head = c.all[n-1]
	}
	c.all = append(c.all, workload.Extend(head, id))
}

// first returns the first n blocks, which whoever gets them can't add to.
func (c *chain) first(n int) []kvblock.Hash { return c.all[:n:n] }

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
