package scorer

import "kvasir/selection"

// longMatch is the tokens of a match beyond which PrefixCache no longer tells lengths apart.
const longMatch = 8192

// PrefixCache prefers the endpoints that hold the most of the prompt (llm-d's
// prefix-cache-scorer):
//
//	match_length_weight · min(1, matched tokens / 8,192)²
//	+ (1 - match_length_weight) · share of the prompt's full blocks that match
//
// Shares are lengths, since blocks differ in length (kvblock.Span). A prompt without a full
// block matches nothing.
type PrefixCache struct {
	MatchLengthWeight float64 // 0 to 1; llm-d's default 0
}

// Score sets out.
func (s *PrefixCache) Score(v *selection.View, q *selection.Request, left []selection.Slot, out []float64) {
	whole := span(len(q.Blocks))
	if whole == 0 {
		all(out, 0)
		return
	}
	w := s.MatchLengthWeight
	for i, slot := range left {
		n := int(selection.OverlapAt(v.Overlap, slot))
		out[i] = span(n) / whole
		if w > 0 {
			long := min(1, float64(q.Tokens(n))/longMatch)
			out[i] = float64(w*float64(long*long)) + float64((1-w)*out[i])
		}
	}
}

var _ Scorer = (*PrefixCache)(nil)
