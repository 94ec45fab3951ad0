package arrival

import (
	"iter"
	"time"
)

// Constant is one session every 1/rate: the i-th comes at i/rate, exactly.
type Constant struct {
	Rate float64 `spec:"rate" doc:"sessions a second; it has no default"`
}

// Validate reports a rate outside its range.
func (c Constant) Validate() error { return rate("rate", c.Rate) }

// Instants yields the process; the seed is not used.
func (c Constant) Instants(root uint64) iter.Seq[time.Duration] {
	return run(root, even, 0, flat(c.Rate))
}

// Poisson is arrivals that know nothing of each other: what many independent users are
// together (article section 1.2).
type Poisson struct {
	Rate    float64 `spec:"rate" doc:"sessions a second, expected; it has no default"`
	Exactly int     `spec:"exactly" doc:"the arrival that comes at exactly its number divided by the rate, as the last one does in vLLM's benchmark; 0: none"`
}

// Validate reports every field outside its range.
func (p Poisson) Validate() error { return Gamma{p.Rate, 1, p.Exactly}.Validate() }

// Instants yields the process.
func (p Poisson) Instants(root uint64) iter.Seq[time.Duration] {
	return Gamma{p.Rate, 1, p.Exactly}.Instants(root)
}

// Gamma is a renewal process with gamma distributed gaps: vLLM's --request-rate with its
// --burstiness, AIPerf's --arrival-pattern gamma with its --arrival-smoothness.
//
// vLLM scales the gaps of a run so that its last call comes at exactly number / rate;
// Exactly does that, but for the nanosecond that keeps arrivals apart. Those after it are
// not scaled.
type Gamma struct {
	Rate       float64 `spec:"rate" doc:"sessions a second, expected; it has no default"`
	Burstiness float64 `spec:"burstiness" doc:"shape of the gaps, whose CV is 1/√burstiness: 1 Poisson, below bursty, inf even"`
	Exactly    int     `spec:"exactly" doc:"the arrival that comes at exactly its number divided by the rate, as the last one does in vLLM's benchmark; 0: none"`
}

// Validate reports every field outside its range.
func (g Gamma) Validate() error {
	return join(rate("rate", g.Rate), burstiness(g.Burstiness), exactly(g.Exactly))
}

// Instants yields the process.
func (g Gamma) Instants(root uint64) iter.Seq[time.Duration] {
	return run(root, g.Burstiness, g.Exactly, flat(g.Rate))
}

// flat is the clock of a rate that stays.
func flat(rate float64) func() clock {
	return func() clock { return func(n float64) float64 { return n / rate } }
}
