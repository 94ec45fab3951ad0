package lab

import (
	"fmt"
	"time"

	"kvasir/client/arrival"
	"kvasir/client/workload"
	"kvasir/gateway/limit"
	"kvasir/internal/stats"
	"kvasir/sim"
)

// fanOut is article 13.1 and 13.2: agents that set off many calls at once, beside people who talk.
type fanOut struct {
	pressure
	agents   float64
	people   float64
	children int
	briefing int
	cap      int
	lasts    int
}

func fanOutLab() Lab {
	return Lab{
		Name: "fan-out", Title: "an agent's fan-out beside people who talk", Section: "13",
		About: "People hold single calls with a pool of simulated engines; now and then an agent sets off many subagents at once, which share a long prefix. A cap on the calls of one conversation lets the gateway hold its further children back until one has ended: they wait, none is refused. " +
			"The article gives no numbers; these are ours.",
		Look: []string{
			"Without a cap one agent's burst is every person's wait: their P99 is that of the burst. A cap of eight gives them most of their time back, and costs the agents a part of theirs.",
			"Turn `cap` down to 1: the agent's children go one after the other, which helps nobody more.",
			"Turn `children` up: without a cap the people's tail grows with it, with one the agents' own time does.",
		},
		Seeded: true, repeats: 5,
		settings: func() experiment {
			p := defaultPressure()
			p.replicas, p.capacity, p.patience, p.retries = 2, 26, 600, 0
			return &fanOut{pressure: p, agents: 0.05, people: 0.5, children: 40, briefing: 3000, cap: 8, lasts: 180}
		},
	}
}

func (x *fanOut) params() []Param {
	return append(x.pressure.params(),
		number(&x.agents, "agents", "agents that begin, a second", 0.02, 0.2),
		number(&x.people, "people", "load of the people, in capacities", 0.05, 1),
		count(&x.children, "children", "subagents of an agent, at once", 2, 100),
		count(&x.briefing, "briefing", "tokens that only one subagent is told, beside the prefix that all share", 10, 8000),
		count(&x.cap, "cap", "calls of one conversation at a time, in the rows with a cap", 1, 200),
		count(&x.lasts, "lasts", "length of a run, s; its first sixth is not measured", 60, 240))
}

// The classes.
const (
	personClass = "person"
	agentClass  = "agent"
)

// burst is what came of a run.
type burst struct{ p50, p99, good, agent, cached float64 }

func (x *fanOut) play(cap int, root uint64) burst {
	lasts := time.Duration(x.lasts) * time.Second
	people := float64(x.capacity * x.people)
	mix := workload.Mix{
		{Name: personClass, Weight: people, Generator: x.work()},
		{Name: agentClass, Weight: x.agents, Generator: workload.Subagents{
			System: workload.Fixed(2000), Task: workload.Fixed(4000), Rounds: 1, Branches: workload.Fixed(x.children), Steps: 1, Plan: workload.Fixed(50),
			Briefing: workload.Fixed(x.briefing), Output: around(x.output), Result: workload.Fixed(100), Gap: workload.FixedDelay(0), Context: 100_000,
		}},
	}
	s := x.scenario(root, mix, arrival.Poisson{Rate: people + x.agents}, lasts)
	s.Warmup = lasts / 6
	if cap > 0 {
		s.Limits = &sim.Limits{Config: limit.Config{FanOut: limit.FanOut{Concurrency: cap, Waiting: 1000}}}
	}
	r := x.simulate(s)
	p, a := r.Classes[personClass], r.Classes[agentClass]
	return burst{float64(p.TTFT.P50), float64(p.TTFT.P99), 100 * float64(p.Attainment), float64(a.Session.Mean), 100 * float64(a.CachedRatio)}
}

func (x *fanOut) run(seeds int) Findings {
	t := Table{Name: "caps", Title: fmt.Sprintf("agents set off %d subagents at once; %s", x.children, x.sizes()), Columns: []Column{{Name: "cap on a conversation"},
		{Name: "people's TTFT P50", Unit: "s"}, {Name: "P99", Unit: "s"}, {Name: "within the SLO", Unit: "%"}, {Name: "an agent's time", Unit: "s"}, {Name: "its prompt tokens cached", Unit: "%"}}}
	p := Plot{Name: "tail", Title: "what a cap costs whom", Kind: Bars, Y: Axis{Label: "time", Unit: "s"}}
	var tails, times [][]float64
	for _, cap := range []int{0, 4 * x.cap, x.cap} {
		var b [5][]float64
		for n := range seeds {
			r := x.play(cap, x.root(n))
			for i, v := range []float64{r.p50, r.p99, r.good, r.agent, r.cached} {
				b[i] = append(b[i], v)
			}
		}
		name := "none"
		if cap > 0 {
			name = fmt.Sprint(cap)
		}
		t.Rows = append(t.Rows, []Cell{Text(name), Mean(b[0], 2), Mean(b[1], 2), Mean(b[2], 1), Mean(b[3], 1), Mean(b[4], 0)})
		p.X.Names = append(p.X.Names, "cap "+name)
		tails, times = append(tails, b[1]), append(times, b[3])
	}
	p.Series = []Series{bars("people's TTFT P99", tails...), bars("an agent's time", times...)}
	p.Says = fmt.Sprintf("Without a cap the people's P99 is %s s and an agent's time %s s; with a cap of %d, %s s and %s s.", decimal(average(tails[0]), 2), decimal(average(times[0]), 1),
		x.cap, decimal(average(tails[2]), 2), decimal(average(times[2]), 1))
	free, _ := stats.Interval(tails[0])
	capped, _ := stats.Interval(tails[2])
	return Findings{Tables: []Table{t}, Plots: []Plot{p}, Verdicts: []Verdict{
		above("13.2", "unbounded subagent parallelism lets one user action monopolize the pool: the others' tail is longer without a cap", tails[0], tails[2], 2, " s"),
		holds("13.2", "capping a session's concurrency and queueing the excess gives most of it back", capped < 0.6*free, fmt.Sprintf("P99 %s s with the cap, %s without", Mean(tails[2], 2), Mean(tails[0], 2))),
		above("13.2", "it costs the agent: its children wait", times[2], times[0], 1, " s"),
	}}
}
