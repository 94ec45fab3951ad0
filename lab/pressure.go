package lab

import (
	"fmt"
	"math"
	"time"

	"kvasir/accelerator"
	"kvasir/client/arrival"
	"kvasir/client/workload"
	"kvasir/engine"
	"kvasir/selection/policy"
	"kvasir/sim"
)

// pressure is a pool of simulated engines that is asked for more than it can do, and clients who
// tire of waiting and try again: what the labs on overload have in common. The gateway before it
// is the live one's machine.
type pressure struct {
	seeding

	replicas int
	capacity float64
	prompt   int
	output   int
	ttft     float64
	patience float64
	retries  int
}

// defaultPressure is a pool that does its capacity within the SLO: the lab's tables show that.
func defaultPressure() pressure {
	return pressure{replicas: 1, capacity: 13, prompt: 2000, output: 200, ttft: 2, patience: 8, retries: 2}
}

func (x *pressure) params() []Param {
	return []Param{
		count(&x.replicas, "replicas", "replicas, each llama-3.1-8b on an H100", 1, 2),
		number(&x.capacity, "capacity", "calls a second that are taken to be the pool's capacity", 5, 26),
		count(&x.prompt, "prompt", "mean length of a prompt, tokens; from half to one and a half times as many", 100, 4000),
		count(&x.output, "output", "mean length of an answer, likewise", 10, 500),
		number(&x.ttft, "ttft", "SLO: time to first token, s", 0.1, 60),
		number(&x.patience, "patience", "time after which a client without a first token leaves, s", 1, 3600),
		count(&x.retries, "retries", "how often a client tries again, after 0.5 s, 1 s, 2 s …, or after the Retry-After that it was given", 0, 5),
	}
}

// pressureTPOT is the SLO's other part.
const pressureTPOT = 100 * time.Millisecond

// work returns a session of one call.
func (x *pressure) work() workload.Generator {
	return workload.Random{Prefix: 0, Input: around(x.prompt), Output: around(x.output)}
}

func around(mean int) workload.Lengths { return workload.Around(mean, 0.5) }

// scenario is a run of calls that come as the process says, for so long.
func (x *pressure) scenario(seed uint64, g workload.Generator, comes arrival.Process, lasts time.Duration) sim.Scenario {
	source, err := workload.Generate("calls", g, seed, func(yield func(time.Duration) bool) {
		for at := range comes.Instants(seed) {
			if at >= lasts || !yield(at) {
				return
			}
		}
	})
	if err != nil {
		x.fail(err)
	}
	rule, _ := policy.Lookup("predicted-ttft")
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		x.fail(err)
	}
	s := sim.Scenario{
		Rule: rule, Seed: seed, Scrape: time.Second, Stopped: x.stopped,
		SLO: sim.SLO{TTFT: seconds(x.ttft), TPOT: pressureTPOT},
		Workload: sim.SessionsConfig{Source: source, Rate: 1,
			Clients: sim.Clients{Patience: seconds(x.patience), Retries: x.retries}},
	}
	for range x.replicas {
		s.Engines = append(s.Engines, sim.Engine{Config: engine.Defaults(profile)})
	}
	return s
}

// simulate runs a scenario.
func (x *pressure) simulate(s sim.Scenario) *sim.Summary {
	r, err := s.Run()
	if err != nil {
		x.fail(err)
	}
	return r
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// slices counts good calls by when their clients wanted them.
type goodBy struct {
	width time.Duration
	good  []float64
}

func (g *goodBy) add(r *sim.Record, slo sim.SLO) {
	if r.Again || !r.Succeeded() || r.First.Sub(r.At) > slo.TTFT {
		return
	}
	i := int(r.Wanted().Duration() / g.width)
	for len(g.good) <= i {
		g.good = append(g.good, 0)
	}
	g.good[i]++
}

// rate returns the good calls a second that came between two instants.
func (g *goodBy) rate(from, to time.Duration) float64 {
	sum := 0.0
	for i := int(from / g.width); i < int(to/g.width) && i < len(g.good); i++ {
		sum += g.good[i]
	}
	return sum / (to - from).Seconds()
}

// sizes says what the pool and its clients are, for titles.
func (x *pressure) sizes() string {
	return fmt.Sprintf("%s, SLO %s s to the first token", counted(x.replicas, "replica", "replicas"), show(x.ttft))
}
