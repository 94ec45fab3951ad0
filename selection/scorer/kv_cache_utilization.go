package scorer

import "kvasir/selection"

// KVCacheUtilization prefers the endpoints whose KV blocks are the least in use: 1 less the
// share of them (llm-d's kv-cache-utilization-scorer).
type KVCacheUtilization struct{ readings readings }

// Score sets out.
func (s *KVCacheUtilization) Score(v *selection.View, _ *selection.Request, left []selection.Slot, out []float64) {
	values, oldest := s.readings.begin(v, len(left))
	for i, slot := range left {
		values[i] = reading(&v.Endpoints[slot].Load.KVUsage, oldest)
	}
	if !s.readings.end() {
		all(out, 1)
		return
	}
	for i, usage := range values {
		out[i] = 1 - usage
	}
}

var _ Scorer = (*KVCacheUtilization)(nil)
