// Package arrival is layer 1 (clients), pure: when sessions come. They come open-loop:
// nothing here waits for an answer (article sections 1.2 and 15).
//
// All processes but List are one idea. Arrivals are drawn on a clock on which one is
// expected a unit, and each is moved to the instant at which the process expects so many:
//
//	t_i = Λ⁻¹(S_i)    Λ(t): arrivals expected until t;  S_i: the sum of i gaps of mean 1
//
// Gaps are gamma distributed. Their shape is the burstiness, as in vLLM's benchmark: their
// coefficient of variation is 1/√burstiness, so 1 is a Poisson process, 0.1 is bursty, and
// infinity is as even as the rate allows. A ramp or a day of bursty arrivals is therefore
// one with the same shape of gaps, and its expected number of arrivals is exact.
package arrival

import (
	"iter"
	"math"
	"time"

	"kvasir/internal/draw"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
)

// Process is a law by which sessions come.
type Process interface {
	// Validate reports every mistake, by the field's key, the value and what is allowed.
	// It changes nothing.
	Validate() error

	// Instants yields when sessions come, since the start: ascending, no two of them equal
	// (at least a nanosecond apart), the same ones for the same seed. It does not end,
	// except where the process says so or after 292 years, and may be ranged over again,
	// from several goroutines as well.
	// The process must be valid.
	Instants(root uint64) iter.Seq[time.Duration]
}

// even is the burstiness of gaps that do not vary.
var even = math.Inf(1)

// clock is Λ⁻¹: it returns when n arrivals are expected, in seconds. It is asked for
// n > 0 that never get smaller.
type clock func(n float64) float64

// run yields the arrivals of a process whose gaps have the burstiness given. With
// exactly > 0 the gaps up to that arrival are scaled so that it comes when as many are
// expected. start makes the clock of one run.
func run(root uint64, burstiness float64, exactly int, start func() clock) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		at := start()
		u := units{gaps: seed.New(root, seed.Arrival, 0, 0), burstiness: burstiness, exactly: exactly}
		u.fit()
		last := time.Duration(-1)
		for {
			t, ok := instant(at(u.next()), last)
			if !ok || !yield(t) {
				return
			}
			last = t
		}
	}
}

// horizon is the last instant that there is, in seconds, with room for the rounding of a
// number so large.
const horizon = float64(math.MaxInt64-1<<11) / 1e9

// instant returns the instant at the time given, or the nearest one after last; false
// beyond the horizon.
func instant(seconds float64, last time.Duration) (time.Duration, bool) {
	if !(seconds < horizon) || last == math.MaxInt64 {
		return 0, false
	}
	return max(mono.FromSeconds(seconds), last+1), true
}

// units draws S_i, arrivals of rate 1.
type units struct {
	gaps       seed.Rand
	burstiness float64
	exactly    int     // this arrival comes at exactly this time; 0: none does
	scale      float64 // of the gaps until then
	n          int     // drawn so far
	raw        float64 // the sum of the gaps since the last fixed time
	fixed      float64 // the last time that does not depend on gaps
}

// fit finds the scale: it draws the gaps once, so that nothing has to be kept.
func (u *units) fit() {
	u.scale = 1
	if u.exactly == 0 || u.burstiness == even {
		return
	}
	trial := u.gaps
	sum := 0.0
	for range u.exactly {
		sum += u.gap(&trial)
	}
	if sum > 0 {
		u.scale = float64(u.exactly) / sum
	}
}

func (u *units) next() float64 {
	if u.n++; u.burstiness == even {
		return float64(u.n)
	}
	u.raw += u.gap(&u.gaps)
	if u.n == u.exactly {
		u.fixed, u.raw, u.scale = float64(u.n), 0, 1
	}
	return u.fixed + float64(u.raw*u.scale)
}

// gap draws a gap of mean 1.
func (u *units) gap(r *seed.Rand) float64 {
	if u.burstiness == 1 {
		return draw.Exponential(r)
	}
	return draw.Gamma(r, u.burstiness) / u.burstiness
}
