package sim

import (
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
)

// Fault is a time in which an engine answers calls with a failure, at once and in place of
// working on them.
type Fault struct {
	From, To mono.Time // To excluded
	Share    float64   // of the calls that are sent there, each drawn by itself; 0 to 1
	Seed     uint64    // of the draws
	Outcome  attempt.Outcome
	Wait     time.Duration // that back-pressure names; attempt.NoWait: it names none
	NamesEnd bool          // it names the time that is left until To instead
}

// fault returns the failure that the engine answers an attempt with, if it does: of several
// faults the first one that strikes.
func (p *replica) fault(now mono.Time, x *visit) (f *Fault, wait time.Duration) {
	for i := range p.cfg.Faults {
		f := &p.cfg.Faults[i]
		if now < f.From || now >= f.To {
			continue
		}
		r := seed.New(f.Seed, seed.Fault, uint64(x.life.call.Request.ID), uint64(p.index)<<32|uint64(x.number))
		if r.Float64() >= f.Share {
			continue
		}
		if f.NamesEnd {
			return f, f.To.Sub(now)
		}
		return f, f.Wait
	}
	return nil, 0
}
