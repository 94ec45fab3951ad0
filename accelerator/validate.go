package accelerator

import (
	"errors"
	"fmt"
	"math"
)

// maxMicros bounds every single coefficient, so that no step overflows a duration.
const maxMicros = 1e9

// Validate reports every mistake of the profile, joined; nil when there is none. It
// changes nothing.
func (p *Profile) Validate() error {
	var errs []error
	bad := func(field string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("profile %q: %s is %v; allowed: %s", p.Name, field, value, allowed))
	}
	if p.Name == "" {
		bad("name", `""`, "a name")
	}
	p.validateDense(bad)
	for _, c := range []struct {
		field string
		value float64
	}{
		{"elementwise_us.base", p.Elementwise.Base},
		{"elementwise_us.per_token", p.Elementwise.PerToken},
		{"head_us", p.HeadMicros},
		{"decode_attention_us.base", p.Decode.Base},
		{"decode_attention_us.per_sequence", p.Decode.PerSequence},
		{"decode_attention_us.per_context_token", p.Decode.PerContextToken},
		{"prefill_attention_us_per_token_pair", p.PrefillMicros},
	} {
		if !(c.value >= 0 && c.value <= maxMicros) {
			bad(c.field, c.value, fmt.Sprintf("0 to %g", float64(maxMicros)))
		}
	}
	for _, c := range []struct {
		field string
		value int64
	}{
		{"tensor_parallel", int64(p.TensorParallel)},
		{"kv_bytes_per_token", p.KVBytesPerToken},
		{"kv_blocks", int64(p.KVBlocks)},
		{"max_batched_tokens", int64(p.MaxBatchedTokens)},
		{"max_seqs", int64(p.MaxSeqs)},
		{"max_model_len", int64(p.MaxModelLen)},
	} {
		if c.value < 1 || c.value > math.MaxInt32 {
			bad(c.field, c.value, fmt.Sprintf("1 to %d", math.MaxInt32))
		}
	}
	return errors.Join(errs...)
}

func (p *Profile) validateDense(bad func(field string, value any, allowed string)) {
	if len(p.DenseTokens) < 2 {
		bad("dense_tokens", p.DenseTokens, "two points or more")
	}
	if len(p.DenseMicros) != len(p.DenseTokens) {
		bad("dense_us", fmt.Sprintf("%d numbers", len(p.DenseMicros)),
			fmt.Sprintf("%d, as many as dense_tokens", len(p.DenseTokens)))
		return
	}
	for i, tokens := range p.DenseTokens {
		if tokens < 1 || (i > 0 && tokens <= p.DenseTokens[i-1]) {
			bad(fmt.Sprintf("dense_tokens[%d]", i), tokens, "ascending numbers from 1")
		}
		if us := p.DenseMicros[i]; !(us > 0 && us <= maxMicros) {
			bad(fmt.Sprintf("dense_us[%d]", i), us, fmt.Sprintf("above 0, to %g", float64(maxMicros)))
		}
	}
	// Beyond the table the last two points are continued, which must not fall.
	if n := len(p.DenseMicros); n >= 2 && p.DenseMicros[n-1] < p.DenseMicros[n-2] {
		bad(fmt.Sprintf("dense_us[%d]", n-1), p.DenseMicros[n-1], "no less than the point before it")
	}
}
