package scorer

import "kvasir/selection"

// ActiveRequest prefers the endpoints with the fewest calls that this router has sent and
// that have not finished (llm-d's active-request-scorer): up to IdleThreshold of them 1, and
// above MaxBusyScore · (most - calls) / most, where most is the calls of the busiest.
type ActiveRequest struct {
	IdleThreshold int     // calls; llm-d's default 0
	MaxBusyScore  float64 // 0 to 1; llm-d's default 1
}

// Score sets out.
func (s *ActiveRequest) Score(v *selection.View, _ *selection.Request, left []selection.Slot, out []float64) {
	most := int32(0)
	for _, slot := range left {
		most = max(most, v.Book[slot].Outstanding)
	}
	for i, slot := range left {
		out[i] = 1
		if calls := v.Book[slot].Outstanding; int(calls) > s.IdleThreshold {
			out[i] = float64(most-calls) / float64(most) * s.MaxBusyScore
		}
	}
}

var _ Scorer = (*ActiveRequest)(nil)
