package contest

import (
	"cmp"
	"fmt"
	"time"

	"kvasir/client/workload"
	"kvasir/engine"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection/policy"
	"kvasir/sim"
)

// Cell is a pool with a workload.
type Cell struct {
	Name     string
	Workload string       // cells of one Workload have the same Draw
	Pool     string       // for people
	FanOut   bool         // calls of a session come at once and share a prefix
	Scenario sim.Scenario // but for the policy, the seed, and the workload's source
	Draw     func(seed uint64) (*Draw, error)

	// Settle is how long a run takes until it is in the state that is to be measured: as long
	// as its sessions, where these are closed-loop. No more than half of a run is left out.
	Settle time.Duration

	// Shortest is how long a run lasts at the least that says something of a rate; 0: a minute.
	Shortest time.Duration

	// Start is about where goodput lies, as a rate; it decides how long is searched.
	Start float64
}

// Highest returns the highest rate that a run of what was drawn says something of.
func (c *Cell) Highest(d *Draw) float64 {
	return d.Length.Seconds() / cmp.Or(c.Shortest, shortest).Seconds()
}

// Draw is what a seed makes of a workload: its sessions, in memory, for runs that may play
// them at once.
type Draw struct {
	Source workload.Source
	Calls  int
	Length time.Duration // until the last session comes, by the workload's own clock

	// Trace is how many calls a second come in the whole workload, of which this may be a part,
	// by the time stamps of who recorded it; 0 where it has none.
	Trace float64
}

// Rate returns how many calls a second come at rate 1.
func (d *Draw) Rate() float64 { return float64(d.Calls) / d.Length.Seconds() }

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
	if d.Length == 0 {
		return nil, fmt.Errorf("workload %s has %d sessions; allowed: at least two, one after the other", s.Name, len(all))
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

// Reuse returns the share of the prompts' tokens that a cache without bounds, shared by all,
// would hold already.
func (d *Draw) Reuse() float64 {
	made := map[kvblock.Hash]bool{} // by a prompt or an answer before
	found, tokens := 0, 0
	for x := range d.Source.Sessions {
		for i := range x.Calls {
			c := &x.Calls[i]
			tokens += c.PromptTokens
			for _, h := range c.Blocks {
				if made[h] {
					found++
				}
				made[h] = true
			}
			for _, h := range c.AnswerBlocks {
				made[h] = true
			}
		}
	}
	return float64(found*d.Source.BlockTokens) / float64(tokens)
}

// Entrant is what takes part.
type Entrant struct {
	Name  string
	Ours  bool                // not one of the peers that it is to beat
	Enter func(*sim.Scenario) // sets the policy, and whatever else makes the entrant
}

// Ours is the rule that is set beside its peers.
const Ours = "predicted-ttft"

// scrapes has, by rule, how often engines' gauges are read where its source does it more often
// than the cells do: llm-d's router does every 50 ms (--refresh-metrics-interval).
var scrapes = map[string]time.Duration{"weighted-scorers": 50 * time.Millisecond}

// Policy returns the entrant of a policy with parameters, as policy.Parse reads them.
func Policy(text string) (Entrant, error) {
	rule, params, err := policy.Parse(text)
	return Entrant{Name: text, Ours: rule.Name == Ours, Enter: func(s *sim.Scenario) {
		s.Rule, s.Params = rule, params
		if every, ok := scrapes[rule.Name]; ok {
			s.Scrape = every
		}
	}}, err
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

// Vary returns the cell with other costs and the same SLO.
func (c *Cell) Vary(v sim.Variation) *Cell {
	other := *c
	other.Scenario.Reference = c.reference()
	other.Scenario.Engines = v.Of(c.Scenario.Engines)
	return &other
}

// reference returns the engine whose unloaded prefill the SLO counts in.
func (c *Cell) reference() *engine.Config {
	if c.Scenario.Reference != nil {
		return c.Scenario.Reference
	}
	return &c.Scenario.Engines[0].Config
}

const (
	// Shares of a run that are not measured, at the least and at the most.
	leastWarmup, mostWarmup = 0.1, 0.5

	shortest = time.Minute // Cell.Shortest where it says nothing
)

// run plays the cell once; it ends early, with sim.ErrHopeless, where more than most calls
// have missed the SLO and most is above 0.
func (c *Cell) run(e Entrant, d *Draw, seed uint64, rate float64, most int64) (*sim.Summary, error) {
	s := c.Scenario
	s.Seed, s.Misses, s.Reference = seed, most, c.reference()
	s.Workload.Source, s.Workload.Rate = d.Source, rate
	lasts := d.Length.Seconds() / rate
	s.Warmup = mono.FromSeconds(min(max(c.Settle.Seconds(), lasts*leastWarmup), lasts*mostWarmup))
	e.Enter(&s)
	r, err := s.Run()
	if err != nil {
		return nil, fmt.Errorf("%s, %s, seed %d: %w", c.Name, e.Name, seed, err)
	}
	return r, nil
}

// At runs the entrant with each seed at a rate of its own, for example at a share of what
// another one keeps the SLO at, and returns the summaries. A seed whose rate is 0 has none.
func (c *Cell) At(e Entrant, seeds []uint64, rates []float64) ([]sim.Summary, error) {
	var all []sim.Summary
	for i, seed := range seeds {
		if rates[i] == 0 {
			continue
		}
		d, err := c.Draw(seed)
		if err != nil {
			return nil, err
		}
		r, err := c.run(e, d, seed, rates[i], 0)
		if err != nil {
			return nil, err
		}
		all = append(all, *r)
	}
	return all, nil
}
