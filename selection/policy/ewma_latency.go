package policy

import (
	"math"
	"time"

	"kvasir/internal/mono"
	"kvasir/internal/portable"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// The reasons of ewma-latency.
const (
	ReasonLowestCost selection.Reason = "lowest-cost"
	ReasonUnmeasured selection.Reason = "unmeasured" // nothing is known yet of the endpoint chosen
)

// EWMALatency picks the lowest peak EWMA of time to first token times load, the rule of
// Finagle's PeakEwma (article section 4.1):
//
//	average: on an observation t above the average: t
//	         else: average·w + t·(1 - w), w = exp(-(time since the last one) / decay)
//	cost = latency · (outstanding + 1)
//
// in seconds. It reacts to a slow answer at once and forgives slowly. As in Finagle an
// average also decays as time passes, so that an endpoint that was slow once is tried
// again:
//
//	latency = max(average·exp(-(now - last observation) / decay), the pool's lowest average)
//
// The lower bound is not Finagle's. Without it an endpoint that was quiet for a minute
// costs next to nothing whatever is sent to it, and because an LLM's first token takes
// its time, a whole burst would go there before the first answer says otherwise. No
// endpoint is believed to be faster than the fastest was when it was measured, so the
// factor outstanding + 1 keeps its force.
//
// Of an endpoint that was never measured Finagle assumes a cost of 0 while it is idle
// and a prohibitive one as soon as it has a call. In the same spirit, but relative to
// the pool: idle, it counts as fast as the fastest, so it is tried soon; with calls
// under way it counts as slow as the slowest until one of them has answered, so it is
// not flooded. Where nothing is measured, only the calls count.
//
// Score: cost, in seconds (in calls where nothing is measured).
type EWMALatency struct {
	Decay time.Duration `config:"decay" doc:"time in which an old observation loses all but 1/e of its weight; above 0"`
}

// Validate reports a decay that is not positive.
func (c *EWMALatency) Validate() []ParamError {
	if c.Decay <= 0 {
		return []ParamError{{"decay", c.Decay, "a duration above 0"}}
	}
	return nil
}

// New returns the policy.
func (c *EWMALatency) New() selection.Policy {
	return &ewmaLatency{constant: float64(c.Decay), decay: newDecay(c.Decay)}
}

type ewmaLatency struct {
	constant float64 // of the decay, in nanoseconds
	decay    *decay
	averages []average // by slot
}

type average struct {
	ttft float64   // in seconds; 0: never measured
	at   mono.Time // of the last observation
}

// Learn takes an observation. A time that isn't positive counts as 1 ns, because with
// a latency of 0 no load would count.
func (p *ewmaLatency) Learn(s *selection.Sample) {
	p.grow(s.Slot)
	at, a := s.At, &p.averages[s.Slot]
	t := max(s.TTFT, 1).Seconds()
	if t > a.ttft {
		a.ttft = t
	} else {
		w := portable.Exp(-float64(max(at.Sub(a.at), 0)) / p.constant)
		a.ttft = float64(a.ttft*w) + float64(t*(1-w))
	}
	a.at = max(a.at, at)
}

// Forget takes back what was learned of the slot.
func (p *ewmaLatency) Forget(slot selection.Slot) {
	if int(slot) < len(p.averages) {
		p.averages[slot] = average{}
	}
}

func (p *ewmaLatency) Pick(v *selection.View, _ *selection.Request, r *seed.Rand) selection.Choice {
	p.grow(v.Candidates[len(v.Candidates)-1])
	averages, scores, book := p.averages, v.Scores, v.Book
	fastest := p.fastest(v.Candidates)
	slowest, unmeasured := fastest, false
	for i, slot := range v.Candidates {
		latency := averages[slot].ttft
		if latency > fastest {
			latency = float64(latency * p.decay.weight(v.Now.Sub(averages[slot].at)))
			if latency < fastest {
				latency = fastest
			}
			if latency > slowest {
				slowest = latency
			}
		}
		unmeasured = unmeasured || latency == 0
		scores[i] = latency * float64(book[slot].Outstanding+1)
	}
	if unmeasured {
		p.assume(v, fastest, slowest)
	}
	best := argmin(scores, r)
	if averages[v.Candidates[best]].ttft == 0 {
		return selection.Choice{Index: best, Reason: ReasonUnmeasured}
	}
	return selection.Choice{Index: best, Reason: ReasonLowestCost}
}

// fastest returns the lowest average of the candidates, 1 where none was measured.
func (p *ewmaLatency) fastest(candidates []selection.Slot) float64 {
	lowest := math.Inf(1)
	for _, slot := range candidates {
		if t := p.averages[slot].ttft; t < lowest && t > 0 {
			lowest = t
		}
	}
	if math.IsInf(lowest, 1) {
		return 1
	}
	return lowest
}

// assume scores the candidates that were never measured.
func (p *ewmaLatency) assume(v *selection.View, fastest, slowest float64) {
	for i, slot := range v.Candidates {
		if p.averages[slot].ttft > 0 {
			continue
		}
		latency := fastest
		if v.Book[slot].Outstanding > 0 {
			latency = slowest
		}
		v.Scores[i] = latency * float64(v.Book[slot].Outstanding+1)
	}
}

// grow makes room for the slot's average.
func (p *ewmaLatency) grow(slot selection.Slot) {
	if n := int(slot) + 1; n > len(p.averages) {
		p.averages = append(p.averages, make([]average, n-len(p.averages))...)
	}
}

var (
	_ selection.Learner   = (*ewmaLatency)(nil)
	_ selection.Forgetter = (*ewmaLatency)(nil)
)
