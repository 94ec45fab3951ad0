package engine

import (
	"kvasir/accelerator"
	"kvasir/internal/mono"
)

// instant is a point on the engine's clock, finer than a mono.Time: steps follow one
// another without rounding, and what is told of an instant is its whole nanoseconds.
type instant struct {
	at   mono.Time
	rest accelerator.Femtoseconds // 0 to a nanosecond, exclusive
}

func (i instant) add(d accelerator.Femtoseconds) instant {
	d += i.rest
	return instant{i.at + mono.Time(d/accelerator.Nanosecond), d % accelerator.Nanosecond}
}

// span is a run of steps in which the same requests decode and nothing else happens, so
// that each takes as much longer than the one before it as the last did: their decode
// contexts grow by a token each. A single step, of whatever kind, is a span too.
type span struct {
	start  instant
	first  accelerator.Femtoseconds // length of the first step
	growth accelerator.Femtoseconds
	steps  int64
}

// maxSpan bounds a span's steps, so that their sum fits into Femtoseconds.
const maxSpan = 4096

// fits reports whether so many steps may be one span.
func (s *span) fits(steps int64) bool {
	const most = accelerator.MaxStep / maxSpan
	return s.growth <= most/maxSpan && s.first <= most-s.growth*accelerator.Femtoseconds(steps-1)
}

// length returns how long the step takes that comes after so many of the span.
func (s *span) length(after int64) accelerator.Femtoseconds {
	return s.first + s.growth*accelerator.Femtoseconds(after)
}

// end returns when so many steps of the span have ended.
func (s *span) end(steps int64) instant {
	n := accelerator.Femtoseconds(steps)
	return s.start.add(n*s.first + n*(n-1)/2*s.growth)
}

// ended returns how many of the span's steps end at the instant or before.
func (s *span) ended(at mono.Time) int64 {
	low, high := int64(0), s.steps
	for low < high {
		if mid := (low + high + 1) / 2; s.end(mid).at <= at {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// drop takes the first steps off the span.
func (s *span) drop(steps int64) {
	*s = span{start: s.end(steps), first: s.length(steps), growth: s.growth, steps: s.steps - steps}
}
