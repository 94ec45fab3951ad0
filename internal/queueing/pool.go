package queueing

import (
	"fmt"
	"math"
	"sort"
)

// Pool is what a plan starts from: means of the traffic, and what was measured of a replica.
type Pool struct {
	Rate         float64 `json:"rate"`          // calls a second
	ArrivalCV2   float64 `json:"arrival_cv2"`   // squared CV of the times between arrivals; 1: Poisson
	ServiceCV2   float64 `json:"service_cv2"`   // squared CV of the time that a call is worked on; 1: exponential
	PromptTokens float64 `json:"prompt_tokens"` // a call
	CachedTokens float64 `json:"cached_tokens"` // of these, found in the prefix cache
	OutputTokens float64 `json:"output_tokens"` // a call

	Places      int     `json:"places"`       // calls that are resident in a replica at most: L_max
	PrefillRate float64 `json:"prefill_rate"` // tokens a second that a replica prefills, nothing cached
	TPOT        float64 `json:"tpot"`         // seconds an output token, in a batch of that many places
	Hidden      float64 `json:"hidden"`       // hidden dimension d of the model
	BlockFactor float64 `json:"block_factor"` // c: parameters of a block in units of d²

	Replicas int     `json:"replicas"` // 0: as many as Wait asks for
	Wait     float64 `json:"wait"`     // mean wait that is accepted, seconds
}

// Bounds of a plan.
const (
	MaxPlaces   = 4096
	MaxReplicas = 1000
)

// PoolError is a number that no plan can start from.
type PoolError struct {
	Field   string // as in JSON
	Value   any
	Allowed string
}

// Error returns field, value and what is allowed, in a line.
func (e *PoolError) Error() string {
	return fmt.Sprintf("%s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Validate reports every field that is out of range. It changes nothing.
func (p *Pool) Validate() []*PoolError {
	var errs []*PoolError
	number := func(field string, x, least, most float64) {
		if !(least <= x && x <= most) {
			errs = append(errs, &PoolError{field, x, fmt.Sprintf("a number from %g to %g", least, most)})
		}
	}
	count := func(field string, n, least, most int) {
		if n < least || n > most {
			errs = append(errs, &PoolError{field, n, fmt.Sprintf("%d to %d", least, most)})
		}
	}
	number("rate", p.Rate, 1e-6, 1e6)
	number("arrival_cv2", p.ArrivalCV2, 0, 1e6)
	number("service_cv2", p.ServiceCV2, 0, 1e6)
	number("prompt_tokens", p.PromptTokens, 1, 1e8)
	number("cached_tokens", p.CachedTokens, 0, max(p.PromptTokens, 0))
	number("output_tokens", p.OutputTokens, 1, 1e8)
	count("places", p.Places, 1, MaxPlaces)
	number("prefill_rate", p.PrefillRate, 1, 1e9)
	number("tpot", p.TPOT, 1e-6, 3600)
	number("hidden", p.Hidden, 1, 1e6)
	number("block_factor", p.BlockFactor, 1, 1000)
	count("replicas", p.Replicas, 0, MaxReplicas)
	number("wait", p.Wait, 0, 86400)
	return errs
}

// Plan is what the closed forms make of a Pool. Times are in seconds, rates in calls a second.
type Plan struct {
	AttentionShare float64 // of a cold prefill
	SavingLeast    float64 // (m/n)²: were all attention
	Saving         float64
	SavingMost     float64 // m/n: were all linear in tokens
	PrefillCold    float64
	PrefillWarm    float64

	Residence      float64 // W: prefill, which gives the first token, then a TPOT for each further one
	PlacesCeiling  float64 // L_max / W, a replica
	PrefillCeiling float64 // 1 / prefill: prefills of one replica take turns
	Ceiling        float64 // the lower of the two

	Replicas    int // given, or needed for the wait by Allen–Cunneen, each replica with a queue
	Utilization float64
	Waits       []Wait
}

// Wait is one model's answer.
type Wait struct {
	Model    Model
	Mean     float64 // seconds, with Plan.Replicas; +Inf: the queue grows without bound
	Replicas int     // fewest with which the mean wait is accepted; 0: more than MaxReplicas
}

// Model is a queue that stands for the pool.
type Model struct {
	Name    string
	Formula string
	Assumes string

	pooled bool // all replicas are behind one queue
	wait   func(p *Pool, ceiling float64, replicas int) float64
}

// Models returns the queues that a plan asks, the coarsest first. In all of them a pool's
// utilization is its rate over the ceiling of all its replicas.
func Models() []Model {
	one := func(*Pool) int { return 1 }
	places := func(p *Pool) int { return p.Places }
	poisson := func(*Pool, int) float64 { return 1 }
	split := func(p *Pool, replicas int) float64 { return Thinned(p.ArrivalCV2, 1/float64(replicas)) }
	exponential := func(*Pool) float64 { return 1 }
	service := func(p *Pool) float64 { return p.ServiceCV2 }
	return []Model{
		{"M/G/1", "Pollaczek–Khinchine",
			"each replica serves one call at a time, as fast as its ceiling; Poisson arrivals, split at random",
			false, replica(one, poisson, service)},
		{"G/G/1", "Kingman",
			"the same with the arrivals' own variation",
			false, replica(one, split, service)},
		{"M/M/c", "Erlang C",
			"each replica has its places, each as fast as any other; Poisson arrivals, split at random; exponential service",
			false, replica(places, poisson, exponential)},
		{"G/G/c", "Allen–Cunneen",
			"the same with the variation of arrivals and service",
			false, replica(places, split, service)},
		{"G/G/Rc", "Allen–Cunneen",
			"all places of all replicas behind one queue: the best that a router can do",
			true, func(p *Pool, ceiling float64, replicas int) float64 {
				rho := p.Rate / float64(ceiling*float64(replicas))
				return AllenCunneen(p.Places*replicas, rho, p.ArrivalCV2, p.ServiceCV2) * float64(p.Places) / ceiling
			}},
	}
}

// replica returns the mean wait, in seconds, of replicas that each have a queue of their own
// and so many servers, which together work through the ceiling's calls a second.
func replica(servers func(*Pool) int, ca2 func(p *Pool, replicas int) float64, cs2 func(*Pool) float64) func(*Pool, float64, int) float64 {
	return func(p *Pool, ceiling float64, replicas int) float64 {
		c := servers(p)
		rho := p.Rate / float64(ceiling*float64(replicas))
		return AllenCunneen(c, rho, ca2(p, replicas), cs2(p)) * float64(c) / ceiling
	}
}

// perReplica is the index in Models of the one that says how many replicas are needed.
const perReplica = 3

// Plan returns what the closed forms say. It may assume that Validate reported nothing.
func (p *Pool) Plan() Plan {
	cached := p.CachedTokens / p.PromptTokens
	a := AttentionShare(p.PromptTokens, p.Hidden, p.BlockFactor)
	cold := p.PromptTokens / p.PrefillRate
	s := Plan{
		AttentionShare: a,
		SavingLeast:    float64(cached * cached),
		Saving:         PrefillSaving(cached, a),
		SavingMost:     cached,
		PrefillCold:    cold,
		PrefillWarm:    float64(cold * (1 - PrefillSaving(cached, a))),
	}
	s.Residence = s.PrefillWarm + float64((p.OutputTokens-1)*p.TPOT)
	s.PlacesCeiling = CeilingRate(p.Places, s.Residence)
	s.PrefillCeiling = math.Inf(1)
	if s.PrefillWarm > 0 {
		s.PrefillCeiling = 1 / s.PrefillWarm
	}
	s.Ceiling = min(s.PlacesCeiling, s.PrefillCeiling)
	models := Models()
	s.Replicas = p.Replicas
	if s.Replicas == 0 {
		s.Replicas = p.needed(models[perReplica], s.Ceiling)
	}
	if s.Replicas == 0 {
		s.Replicas = MaxReplicas // not enough, as its waits say
	}
	s.Utilization = p.Rate / float64(s.Ceiling*float64(s.Replicas))
	for _, m := range models {
		s.Waits = append(s.Waits, Wait{m, m.wait(p, s.Ceiling, s.Replicas), p.needed(m, s.Ceiling)})
	}
	return s
}

// needed returns the fewest replicas with which a model's mean wait is accepted; 0 where
// MaxReplicas are not enough. Behind one queue, more replicas always wait less. Where each
// has its own it looks at one number after another: splitting arrivals that are more
// regular than Poisson makes them less so, and more replicas may wait a little longer.
func (p *Pool) needed(m Model, ceiling float64) int {
	accepted := func(n int) bool { return m.wait(p, ceiling, n) <= p.Wait }
	n := 1
	if m.pooled {
		n += sort.Search(MaxReplicas, func(i int) bool { return accepted(i + 1) })
	} else {
		for n <= MaxReplicas && !accepted(n) {
			n++
		}
	}
	if n > MaxReplicas {
		return 0
	}
	return n
}
