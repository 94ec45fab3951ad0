package admission

import (
	"time"

	"kvasir/internal/mono"
)

// CallTokens is what a call takes of an endpoint beside its prompt's tokens, in tokens: a step of
// the engine costs its overhead however short the prompt is, some 10 ms where a prompt of 20,000 to
// 50,000 tokens takes a second. Without it short prompts would teach what a step costs as the price
// of a token, and a long one would seem to take minutes.
const CallTokens = 512

// Speed is how fast an endpoint does prefill, as it looks from outside: prompt tokens, and
// CallTokens for each call, by second of the time in which it had some to do. What it decodes
// meanwhile and what its memory lacks is in it. Every new sample takes a little of the weight of
// those before.
type Speed struct{ tokens, seconds float64 }

// memory is what is left of a sample's weight after another one: half after some 44.
const memory = 63.0 / 64

// Learn adds that the endpoint took so long for a call of so many tokens.
func (s *Speed) Learn(tokens int64, took time.Duration) {
	s.tokens = float64(s.tokens*memory) + float64(tokens+CallTokens)
	s.seconds = float64(s.seconds*memory) + took.Seconds()
}

// longest is the most that is predicted: beyond it nobody waits.
const longest = 24 * time.Hour

// Time returns how long the endpoint takes for so many calls with so many tokens together; false
// where nothing is known.
func (s *Speed) Time(calls int, tokens int64) (time.Duration, bool) {
	rate := s.Rate()
	if rate == 0 {
		return 0, false
	}
	return Seconds(float64(tokens+int64(calls)*CallTokens) / rate), true
}

// Rate returns how many tokens a second it does, CallTokens for each call among them; 0 where
// nothing is known.
func (s *Speed) Rate() float64 {
	if s.seconds <= 0 || s.tokens <= 0 {
		return 0
	}
	return s.tokens / s.seconds
}

// Seconds returns a number of seconds as time, at most a day.
func Seconds(s float64) time.Duration {
	if !(s < longest.Seconds()) {
		return longest
	}
	return mono.FromSeconds(s)
}
