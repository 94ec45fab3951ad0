package tokenizer

import (
	"math"

	"kvasir/internal/seed"
)

// embeddingDimensions is the length of an embedding that no call shortens.
const embeddingDimensions = 1024

// Embedding returns a vector of length 1 that depends on the prompt alone. Fewer dimensions
// are the first ones of the whole vector, scaled, as with models trained to be shortened.
func (i Item) Embedding(dimensions int) []float32 {
	r := seed.New(uint64(i.Hash), seed.Output, 2, 0)
	v := make([]float64, dimensions)
	sum := 0.0
	for d := range v {
		v[d] = 2*r.Float64() - 1
		sum += float64(v[d] * v[d])
	}
	norm := math.Sqrt(sum)
	out := make([]float32, dimensions)
	for d := range v {
		out[d] = float32(v[d] / norm)
	}
	return out
}
