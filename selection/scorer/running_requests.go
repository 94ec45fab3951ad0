package scorer

import "kvasir/selection"

// RunningRequests prefers the endpoints with the fewest calls in the engine's batch, from the
// most (0) to the fewest (1); where all are the same, 1 (llm-d's
// running-requests-size-scorer).
type RunningRequests struct{ readings readings }

// Score sets out.
func (s *RunningRequests) Score(v *selection.View, _ *selection.Request, left []selection.Slot, out []float64) {
	values, oldest := s.readings.begin(v, len(left))
	for i, slot := range left {
		values[i] = reading(&v.Endpoints[slot].Load.Running, oldest)
	}
	if !s.readings.end() {
		all(out, 1)
		return
	}
	fewest(values, out)
}

var _ Scorer = (*RunningRequests)(nil)
