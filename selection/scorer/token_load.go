package scorer

import "kvasir/selection"

// TokenLoad prefers the endpoints with the fewest tokens to prefill before this call's first
// token (llm-d's token-load-scorer): 1 - min(1, tokens / QueueThresholdTokens), where tokens
// are those of the calls there without a first token, and of this one, that aren't in the
// prefix cache.
type TokenLoad struct {
	QueueThresholdTokens int // above 0; llm-d's default 4,194,304
}

// Score sets out.
func (s *TokenLoad) Score(v *selection.View, q *selection.Request, left []selection.Slot, out []float64) {
	for i, slot := range left {
		tokens := v.Book[slot].PendingWork.Tokens + q.Work(selection.OverlapAt(v.Overlap, slot)).Tokens
		out[i] = 1 - min(1, float64(tokens)/float64(s.QueueThresholdTokens))
	}
}

var _ Scorer = (*TokenLoad)(nil)
