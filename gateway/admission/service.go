package admission

import "time"

// ServiceTime is how long calls take from being sent to their end, as a mean in which every new
// sample takes a little of the weight of those before, as in Speed.
type ServiceTime struct{ seconds, calls float64 }

// Learn adds a call that took so long.
func (s *ServiceTime) Learn(took time.Duration) {
	s.seconds = float64(s.seconds*memory) + took.Seconds()
	s.calls = float64(s.calls*memory) + 1
}

// Mean returns the mean; 0 where no call has ended.
func (s *ServiceTime) Mean() time.Duration {
	if s.calls == 0 {
		return 0
	}
	return Seconds(s.seconds / s.calls)
}
