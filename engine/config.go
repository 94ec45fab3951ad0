package engine

import (
	"errors"
	"fmt"
	"math"
	"time"

	"kvasir/accelerator"
)

// DefaultOverhead is what the host adds to every step: scheduling, input preparation,
// sampling and detokenisation that the device waits for. vLLM's measured steps lie
// 0.5 to 2 ms above the sum of their kernels.
const DefaultOverhead = time.Millisecond

// DefaultMaxRequests bounds the requests that an engine holds. vLLM up to 0.28 has no
// bound; from 0.29 it has max_num_queued_reqs.
const DefaultMaxRequests = 1 << 16

// Config is one engine. Every field must be set; Defaults gives vLLM's values.
type Config struct {
	Profile accelerator.Profile // model and device

	NumBlocks        int // KV blocks that requests can use: vLLM's num_gpu_blocks less its one null block
	BlockTokens      int // tokens a KV block (block_size)
	MaxBatchedTokens int // token budget of a step (max_num_batched_tokens)
	MaxSeqs          int // most requests running at once (max_num_seqs), at most MaxBatchedTokens
	MaxModelLen      int // most tokens of prompt and answer together (max_model_len)
	MaxRequests      int // most requests held, running and waiting; Submit refuses further ones

	Batching Batching // how requests come together in a batch; the zero value is Continuous

	// ChunkedPrefill lets a prompt be computed over several steps, each filling what
	// the decodes leave of the budget. Without it a prompt is computed whole in one
	// step: it waits until the step has budget for all of it, and a prompt longer than
	// the whole budget is taken as the only prefill of its step, beside the decodes,
	// exceeding the budget. vLLM refuses to start in that last case: without chunked
	// prefill it wants max_num_batched_tokens to be at least max_model_len. Static batches
	// have none.
	ChunkedPrefill bool

	// PrefixCaching keeps the blocks of ended requests until their space is needed, and
	// lets requests with the same head use them.
	PrefixCaching bool

	Overhead time.Duration // added to every step's time on the device

	Host HostTier // KV blocks in the host's memory; the zero value is none

	Speculation Speculation // speculative decoding; the zero value is none

	LoRA LoRA // adapters; the zero value is none

	// EveryToken asks for an Output of every step that has a token for a request, as a
	// server that streams needs. Without it a request has its first and its last output
	// alone, Gaps has the times between those left out, and many steps cost no more than
	// one.
	EveryToken bool
}

// Batching is how requests come together in a batch.
type Batching uint8

// The ways.
const (
	// Continuous decides anew in every step: what has ended leaves, what waits comes in as
	// far as budget, places and blocks allow (Orca, OSDI 2022; vLLM).
	Continuous Batching = iota

	// Static forms a batch only when the one before has ended as a whole: of what waits
	// then, first come first served, as many as have place, blocks and, for their whole
	// prompts, budget in one step. The places of those that end early stay empty, and who
	// is preempted waits for another batch. It is how engines batched before Orca (the
	// article's section 7.1); unlike theirs, a step costs nothing for an empty place.
	Static
	batchings // how many there are
)

// String returns the way's name.
func (b Batching) String() string {
	switch b {
	case Continuous:
		return "continuous"
	case Static:
		return "static"
	}
	return fmt.Sprintf("Batching(%d)", uint8(b))
}

// Defaults returns the configuration with which vLLM serves the profile's model on
// the profile's device when no flag is given.
func Defaults(p accelerator.Profile) Config {
	return Config{
		Profile:          p,
		NumBlocks:        p.KVBlocks,
		BlockTokens:      accelerator.BlockTokens,
		MaxBatchedTokens: p.MaxBatchedTokens,
		MaxSeqs:          p.MaxSeqs,
		MaxModelLen:      p.MaxModelLen,
		MaxRequests:      DefaultMaxRequests,
		ChunkedPrefill:   true,
		PrefixCaching:    true,
		Overhead:         DefaultOverhead,
	}
}

// maxOverhead bounds Config.Overhead: a step longer than that is a mistake of unit.
const maxOverhead = time.Minute

// ConfigError is one mistake in a Config.
type ConfigError struct {
	Field   string // of Config
	Value   any
	Allowed string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("engine: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Validate reports every mistake of the configuration, each a *ConfigError (or the
// profile's own), joined; nil when there is none. It changes nothing.
func (c *Config) Validate() error {
	var errs []error
	bad := func(field string, value any, allowed string) {
		errs = append(errs, &ConfigError{Field: field, Value: value, Allowed: allowed})
	}
	if err := c.Profile.Validate(); err != nil {
		errs = append(errs, err)
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"NumBlocks", c.NumBlocks},
		{"BlockTokens", c.BlockTokens},
		{"MaxBatchedTokens", c.MaxBatchedTokens},
		{"MaxSeqs", c.MaxSeqs},
		{"MaxModelLen", c.MaxModelLen},
		{"MaxRequests", c.MaxRequests},
	} {
		if f.value < 1 || f.value >= math.MaxInt32 {
			bad(f.name, f.value, fmt.Sprintf("1 to %d", math.MaxInt32-1))
		}
	}
	if c.MaxBatchedTokens >= 1 && c.MaxSeqs > c.MaxBatchedTokens {
		bad("MaxSeqs", c.MaxSeqs, fmt.Sprintf("at most MaxBatchedTokens, %d: every running request takes a token a step",
			c.MaxBatchedTokens))
	}
	switch {
	case c.Batching >= batchings:
		bad("Batching", c.Batching, "Continuous or Static")
	case c.Batching == Static && c.ChunkedPrefill:
		bad("ChunkedPrefill", true, "false where Batching is static: a batch's prompts are computed whole")
	}
	c.Host.validate(c, bad)
	c.Speculation.validate(c, bad)
	c.LoRA.validate(bad)
	if c.Overhead < 0 || c.Overhead > maxOverhead {
		bad("Overhead", c.Overhead, fmt.Sprintf("0 to %v", maxOverhead))
	}
	return errors.Join(errs...)
}
