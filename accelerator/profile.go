// Package accelerator is layer 5 (the hardware), pure: how long one step of an
// inference engine takes on a device, and how much KV cache the device holds. A
// Profile is one model on one device at one degree of tensor parallelism; the
// catalogue in catalog.json has measured ones.
package accelerator

import (
	"slices"
	"time"
)

// BlockTokens is the size, in tokens, of the KV blocks that Profile.KVBlocks counts:
// vLLM's default block_size on GPUs.
const BlockTokens = 16

// Profile is the cost model of one model on one device. Its times are microseconds;
// the zero Profile is unusable, take one from Lookup or fill every field and call
// Validate. It is read-only after that, and then safe for concurrent use.
type Profile struct {
	Name           string `json:"name"`   // kebab-case: model/device, or model/NxDevice where N work together
	Model          string `json:"model"`  // as its publisher names it
	Device         string `json:"device"` // one accelerator; TensorParallel of them work together
	TensorParallel int    `json:"tensor_parallel"`

	DenseTokens   []int     `json:"dense_tokens"` // ascending: tokens in the step at which DenseMicros was measured
	DenseMicros   []float64 `json:"dense_us"`     // matrix products and, with tensor parallelism, all-reduces
	Elementwise   Linear    `json:"elementwise_us"`
	HeadMicros    float64   `json:"head_us"` // the projection onto the vocabulary, once a step
	Decode        Decode    `json:"decode_attention_us"`
	PrefillMicros float64   `json:"prefill_attention_us_per_token_pair"` // one new token attending to one earlier token

	KVBytesPerToken  int64 `json:"kv_bytes_per_token"` // over all layers and devices
	KVBlocks         int   `json:"kv_blocks"`          // blocks of BlockTokens that fit at gpu_memory_utilization 0.92
	MaxBatchedTokens int   `json:"max_batched_tokens"` // vLLM's default max_num_batched_tokens for the device
	MaxSeqs          int   `json:"max_seqs"`           // vLLM's default max_num_seqs for the device
	MaxModelLen      int   `json:"max_model_len"`      // tokens; the model's max_position_embeddings
}

// Linear is a cost of Base + PerToken·T microseconds for a step of T tokens.
type Linear struct {
	Base     float64 `json:"base"`
	PerToken float64 `json:"per_token"`
}

// Decode is the attention cost of a step's decodes in microseconds: nothing without
// decodes, else Base + PerSequence·B + PerContextToken·K.
type Decode struct {
	Base            float64 `json:"base"`
	PerSequence     float64 `json:"per_sequence"`
	PerContextToken float64 `json:"per_context_token"`
}

// Batch is what one step computes.
type Batch struct {
	Tokens        int       // all tokens of the step: one a decode, and the prefill chunks
	Decodes       int       // sequences that decode one token
	DecodeContext int64     // sum of the decoding sequences' KV lengths in tokens, the new token included
	Prefills      []Prefill // sequences that compute prompt tokens
}

// Prefill is one sequence's share of a step that computes prompt tokens.
type Prefill struct {
	Chunk   int // tokens computed in this step
	Context int // tokens of the sequence whose KV was there before
}

// Step returns the time of one engine step on the device, without what the host adds
// (see Profile.Cost), rounded down to whole nanoseconds:
//
//	dense(T) + e0 + e1·T + head + [B>0]·(d0 + d1·B + d2·K) + Σ a·c·(p + c/2)   µs
//
// with T = Tokens, B = Decodes, K = DecodeContext, c = Chunk, p = Context. dense is
// interpolated linearly between the measured points and continued along the last (or
// first) two beyond them: matrix products take the same time up to 128 to 256 tokens,
// where reading the weights bounds them, and grow linearly afterwards, which no single
// line fits. An empty batch takes no time. Step does not allocate, and its rounding is
// the same on every platform.
func (p *Profile) Step(b Batch) time.Duration {
	c := p.Cost(0, 1)
	return c.Step(b).Duration()
}

// dense interpolates the measured table at the given number of tokens.
func (p *Profile) dense(tokens int) float64 {
	i, exact := slices.BinarySearch(p.DenseTokens, tokens)
	if exact {
		return p.DenseMicros[i]
	}
	i = min(max(i, 1), len(p.DenseTokens)-1)
	x0, x1 := p.DenseTokens[i-1], p.DenseTokens[i]
	y0, y1 := p.DenseMicros[i-1], p.DenseMicros[i]
	share := float64(tokens-x0) / float64(x1-x0)
	return y0 + float64((y1-y0)*share)
}

// Blocks returns how many KV blocks of the given size in tokens (> 0) the device
// holds at gpu_memory_utilization 0.92.
func (p *Profile) Blocks(blockTokens int) int {
	return p.KVBlocks * BlockTokens / blockTokens
}
