package accelerator

import (
	"math/bits"
	"time"
)

// Femtoseconds is a duration in units of 10⁻¹⁵ s. The coefficients of the catalogue are
// whole numbers of them, and sums of whole numbers are exact: the sum over many steps is
// the same whether it is taken step by step or as a series, and on every platform.
type Femtoseconds int64

// Nanosecond is the unit of Go's durations.
const Nanosecond Femtoseconds = 1_000_000

// MaxStep bounds a step: what would take longer counts as that. The sum of a step and a
// nanosecond still fits into Femtoseconds.
const MaxStep = Femtoseconds(2*time.Hour) * Nanosecond

// FromSeconds returns the nearest number of femtoseconds, 0 to MaxStep.
func FromSeconds(s float64) Femtoseconds { return whole(max(0, s*1e15)) }

// Duration returns d rounded down to whole nanoseconds.
func (d Femtoseconds) Duration() time.Duration { return time.Duration(d / Nanosecond) }

// Cost is a Profile as one engine uses it: with what its host adds to a step, and at its
// pace. For a given number of tokens and decodes a step's time is linear in the decode
// context, in whole femtoseconds (see Growth). A Cost refers to its Profile, is read-only,
// and is safe for concurrent use.
type Cost struct {
	profile      *Profile
	host         float64 // femtoseconds a step, at pace 1
	pace         float64
	contextToken Femtoseconds // of a decode
	halfPair     Femtoseconds // of a prefill: half of what a token takes to attend to another
}

// Cost returns the profile's cost on a host that adds overhead to every step, each step
// stretched to pace times its length; 1 is the profile's own pace. The profile must be
// valid and must not change, overhead must not be negative, and pace must be above 0.
func (p *Profile) Cost(overhead time.Duration, pace float64) Cost {
	return Cost{
		profile:      p,
		host:         float64(overhead) * float64(Nanosecond),
		pace:         pace,
		contextToken: whole(p.Decode.PerContextToken * 1e9 * pace),
		halfPair:     whole(p.PrefillMicros * 0.5e9 * pace),
	}
}

// Step returns how long the step takes:
//
//	pace · (dense(T) + e0 + e1·T + head + [B>0]·(d0 + d1·B) + overhead) + d2·K + Σ a/2·c·(2p + c)
//
// with the first term, d2 and a/2 rounded to whole femtoseconds. The symbols are those of
// Profile.Step. A step is never shorter than a nanosecond nor longer than MaxStep; an
// empty batch takes no time. Chunk and Context of a prefill must be below 2³¹ together.
// Step does not allocate.
func (c *Cost) Step(b Batch) Femtoseconds {
	if b.Tokens <= 0 {
		return 0
	}
	p := c.profile
	// Every product is converted explicitly, which forbids fusing it with the addition
	// beside it: a fused multiply-add rounds once instead of twice.
	us := p.dense(b.Tokens)
	us += p.Elementwise.Base
	us += float64(p.Elementwise.PerToken * float64(b.Tokens))
	us += p.HeadMicros
	if b.Decodes > 0 {
		us += p.Decode.Base
		us += float64(p.Decode.PerSequence * float64(b.Decodes))
	}
	d := max(whole((float64(us*1e9)+c.host)*c.pace), Nanosecond)
	d = d.Plus(c.contextToken, b.DecodeContext)
	for _, f := range b.Prefills {
		chunk, context := int64(f.Chunk), int64(f.Context)
		d = d.Plus(c.halfPair, chunk*(2*context+chunk))
	}
	return d
}

// Growth returns how much longer the next step takes than this one when so many sequences
// decode in both and nothing else changes: each has then one token more of context. It
// does not hold for steps of MaxStep.
func (c *Cost) Growth(decodes int) Femtoseconds {
	return Femtoseconds(0).Plus(c.contextToken, int64(decodes))
}

// Plus returns d + each·n, at most MaxStep. None of them may be negative.
func (d Femtoseconds) Plus(each Femtoseconds, n int64) Femtoseconds {
	hi, lo := bits.Mul64(uint64(each), uint64(n))
	if hi != 0 || lo > uint64(MaxStep-d) {
		return MaxStep
	}
	return d + Femtoseconds(lo)
}

// whole rounds a number of femtoseconds that is not negative, at most MaxStep.
func whole(fs float64) Femtoseconds {
	if fs >= float64(MaxStep) {
		return MaxStep
	}
	return Femtoseconds(float64(fs) + 0.5)
}
