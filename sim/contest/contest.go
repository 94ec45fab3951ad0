// Package contest is pure and stands over all layers: it sets policies beside each other on
// many pools and workloads. A Cell is a pool with a workload, an Entrant a policy with its
// parameters. What is asked of each is its goodput, by the same seeds and so on the same calls
// as all others of the cell, and how it does at one common rate.
//
// Nothing here runs at the same time as anything else: whoever has several cores calls the
// functions for several cells and entrants at once, which share nothing that changes.
package contest

import (
	"fmt"
	"math"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/mono"
	"kvasir/selection/policy"
	"kvasir/sim"
)

// Cell is a pool with a workload.
type Cell struct {
	Name     string
	Workload string       // cells of one Workload have the same Draw
	Scenario sim.Scenario // but for the policy, the seed, and the workload's source
	Draw     func(seed uint64) (*Draw, error)

	// CallRate is how many calls a second come at rate 1 by the workload's own clock, that of
	// the whole of it where the cell plays a part.
	CallRate float64

	// Settle is how long a run takes until it is in the state that is to be measured: as long
	// as its sessions, where these are closed-loop. No more than half of a run is left out.
	Settle time.Duration

	// Start is about where goodput lies, as a rate; 0: 1. It decides how long is searched.
	Start float64
}

// Draw is what a seed makes of a workload: its sessions, in memory, for runs that may play
// them at once.
type Draw struct {
	Source workload.Source
	Calls  int
	Length time.Duration // until the last session comes
}

// Keep reads a source into memory.
func Keep(s workload.Source) (*Draw, error) {
	var all []workload.Session
	d := &Draw{}
	for x, err := range s.Sessions {
		if err != nil {
			return nil, err
		}
		all = append(all, x)
		d.Calls += len(x.Calls)
		d.Length = x.At
	}
	if d.Calls == 0 {
		return nil, fmt.Errorf("workload %s has no calls", s.Name)
	}
	d.Source = s
	d.Source.Sessions = func(yield func(workload.Session, error) bool) {
		for _, x := range all {
			if !yield(x, nil) {
				return
			}
		}
	}
	return d, nil
}

// Entrant is what takes part.
type Entrant struct {
	Name  string
	Enter func(*sim.Scenario) // sets the policy, and whatever else makes the entrant
}

// Policy returns the entrant of a policy as policy.Parse reads it.
func Policy(text string) (Entrant, error) {
	rule, params, err := policy.Parse(text)
	return Entrant{Name: text, Enter: func(s *sim.Scenario) { s.Rule, s.Params = rule, params }}, err
}

// Bound is the name of the entrant that is no policy: sim.Pooled's one engine.
const Bound = "pooled (bound)"

// Bound returns that entrant. It reports false where there is none, because engines differ.
func (c *Cell) Bound() (Entrant, bool) {
	one, ok := sim.Pooled(c.Scenario.Engines)
	return Entrant{Name: Bound, Enter: func(s *sim.Scenario) {
		rule, _ := policy.Lookup("round-robin")
		s.Rule, s.Params, s.Engines = rule, rule.Params(), one
	}}, ok
}

// leastWarmup and mostWarmup are the shares of a run that are not measured, at the
// least and at the most.
const leastWarmup, mostWarmup = 0.1, 0.5

// shortest is how long a run lasts at the least that says something of a rate.
const shortest = time.Minute

// run plays the cell once.
func (c *Cell) run(e Entrant, d *Draw, seed uint64, rate float64, most int64) (*sim.Summary, error) {
	s := c.Scenario
	s.Seed, s.Misses = seed, most
	s.Workload.Source, s.Workload.Rate = d.Source, rate
	lasts := d.Length.Seconds() / rate
	s.Warmup = mono.FromSeconds(min(max(c.Settle.Seconds(), lasts*leastWarmup), lasts*mostWarmup))
	reference := s.Engines[0].Config
	s.Reference = &reference
	e.Enter(&s)
	r, err := s.Run()
	if err != nil {
		return nil, fmt.Errorf("%s, %s, seed %d: %w", c.Name, e.Name, seed, err)
	}
	return r, nil
}

// At runs the entrant in the cell at a rate.
func (c *Cell) At(e Entrant, seed uint64, rate float64) (*sim.Summary, error) {
	d, err := c.Draw(seed)
	if err != nil {
		return nil, err
	}
	return c.run(e, d, seed, rate, 0)
}

// nan is what is not known.
var nan = math.NaN()
