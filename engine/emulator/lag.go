package emulator

import (
	"context"

	"kvasir/internal/mono"
)

// Lag is how long after its instant what the engine had to do was done, in seconds of engine
// time: the emulator sleeps until a step ends, and a busy machine wakes it later. The instants
// of outputs are computed and lateness does not add up, but callers see each output so much
// later; what is measured of an engine that lags says as much of the machine. The zero Lag is
// that of an engine which has done nothing.
type Lag struct {
	Wakes int64   `json:"wakes"` // how often there was something to do
	Mean  float64 `json:"mean_seconds"`
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
	Max   float64 `json:"max_seconds"`
}

// Lag returns the lag since the server began; Restart does not begin anew. The error is ctx's,
// or tells that Run has ended.
func (s *Server) Lag(ctx context.Context) (Lag, error) {
	var lag Lag
	err := s.order(ctx, func(mono.Time) {
		h := &s.lag
		if h.Count() == 0 {
			return
		}
		lag = Lag{
			Wakes: h.Count(), Mean: h.Mean() / 1e9,
			P50: float64(h.Quantile(0.5)) / 1e9, P99: float64(h.Quantile(0.99)) / 1e9, Max: float64(h.Max()) / 1e9,
		}
	})
	return lag, err
}
