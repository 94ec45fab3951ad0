package scorer

import "kvasir/selection"

// Queue prefers the endpoints where the fewest calls wait in the engine, from the longest
// queue (0) to the shortest (1); where all are the same, 1 (llm-d's queue-scorer). Being
// relative it says nothing of how long the queues are: 1 against 0 is as far as 500.
type Queue struct{ readings readings }

// Score sets out.
func (s *Queue) Score(v *selection.View, _ *selection.Request, left []selection.Slot, out []float64) {
	values, oldest := s.readings.begin(v, len(left))
	for i, slot := range left {
		values[i] = reading(&v.Endpoints[slot].Load.Waiting, oldest)
	}
	if !s.readings.end() {
		all(out, 1)
		return
	}
	fewest(values, out)
}

var _ Scorer = (*Queue)(nil)
