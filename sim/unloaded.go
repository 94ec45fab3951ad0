package sim

import (
	"time"

	"kvasir/accelerator"
	"kvasir/engine"
)

// Unloaded returns how long an idle engine of that configuration, which must be valid, takes
// to compute a prompt of so many tokens of which it holds nothing: its unloaded prefill, and
// so the best time to first token that a cold cache allows. It does not allocate.
func Unloaded(c *engine.Config, tokens int) time.Duration {
	cost := c.Profile.Cost(c.Overhead, 1)
	var all accelerator.Femtoseconds
	var prefill [1]accelerator.Prefill
	for done := 0; done < tokens; {
		chunk := tokens - done
		if c.ChunkedPrefill {
			chunk = min(chunk, c.MaxBatchedTokens)
		}
		prefill[0] = accelerator.Prefill{Chunk: chunk, Context: done}
		all = all.Plus(cost.Step(accelerator.Batch{Tokens: chunk, Prefills: prefill[:]}), 1)
		done += chunk
	}
	return all.Duration()
}
