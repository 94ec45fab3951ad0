package admission

import (
	"time"

	"kvasir/internal/mono"
)

// Speed is how fast an endpoint does prefill, as it looks from outside: prompt tokens by
// second of the time in which it had some to do. What it decodes meanwhile and what its
// memory lacks is in it. Every new sample takes a little of the weight of those before.
type Speed struct{ tokens, seconds float64 }

// memory is what is left of a sample's weight after another one: half after some 44.
const memory = 63.0 / 64

// Learn adds that the endpoint took so long for the tokens.
func (s *Speed) Learn(tokens int64, took time.Duration) {
	s.tokens = float64(s.tokens*memory) + float64(tokens)
	s.seconds = float64(s.seconds*memory) + took.Seconds()
}

// longest is the most that is predicted: beyond it nobody waits.
const longest = 24 * time.Hour

// Time returns how long the endpoint takes for the tokens; false where nothing is known.
func (s *Speed) Time(tokens int64) (time.Duration, bool) {
	if s.seconds <= 0 || s.tokens <= 0 {
		return 0, false
	}
	return Seconds(float64(tokens) * s.seconds / s.tokens), true
}

// Seconds returns a number of seconds as time, at most a day.
func Seconds(s float64) time.Duration {
	if !(s < longest.Seconds()) {
		return longest
	}
	return mono.FromSeconds(s)
}
