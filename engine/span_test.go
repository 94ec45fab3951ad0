package engine

import (
	"testing"

	"pgregory.net/rapid"

	"kvasir/accelerator"
	"kvasir/internal/mono"
)

// A span's closed forms are what adding its steps up gives.
func TestSpan_IsItsSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, lo, hi int64) int64 { return rapid.Int64Range(lo, hi).Draw(t, name) }
		s := span{
			start:  instant{at: mono.Time(n("start", 0, 1e15)), rest: accelerator.Femtoseconds(n("rest", 0, 999_999))},
			first:  accelerator.Femtoseconds(n("first", 1_000_000, 1e14)),
			growth: accelerator.Femtoseconds(n("growth", 0, 1e11)),
			steps:  n("steps", 1, 300),
		}
		end, length := s.start, s.first
		for k := int64(0); k <= s.steps; k++ {
			if got := s.end(k); got != end {
				t.Fatalf("after %d steps %+v, want %+v", k, got, end)
			}
			if got := s.ended(end.at); got != k {
				t.Fatalf("%d steps have ended at %d, want %d", got, end.at, k)
			}
			if got := s.ended(end.at - 1); got != max(k-1, 0) {
				t.Fatalf("%d steps have ended before %d, want %d", got, end.at, max(k-1, 0))
			}
			rest := s
			rest.drop(k)
			if rest.end(rest.steps) != s.end(s.steps) {
				t.Fatalf("without %d steps it ends at %+v, want %+v", k, rest.end(rest.steps), s.end(s.steps))
			}
			end = end.add(length)
			length += s.growth
		}
	})
}

// What fits is within Femtoseconds, down to the last step.
func TestSpan_FitsWhatDoesNotOverflow(t *testing.T) {
	for _, s := range []span{
		{first: accelerator.MaxStep / maxSpan, growth: 0},
		{first: 1, growth: accelerator.MaxStep / maxSpan / maxSpan},
		{first: accelerator.MaxStep / maxSpan / 2, growth: accelerator.MaxStep / maxSpan / maxSpan / 2},
	} {
		if !s.fits(maxSpan) {
			t.Errorf("%+v does not fit", s)
		}
		if at := s.end(maxSpan).at; at < 0 || at > mono.Time(accelerator.MaxStep.Duration()) {
			t.Errorf("%+v ends at %d", s, at)
		}
	}
	for _, s := range []span{
		{first: accelerator.MaxStep/maxSpan + 1},
		{growth: accelerator.MaxStep/maxSpan/maxSpan + 1},
		{first: accelerator.MaxStep / maxSpan, growth: 1},
	} {
		if s.fits(maxSpan) {
			t.Errorf("%+v fits", s)
		}
	}
}
