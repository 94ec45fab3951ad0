package contest

import (
	"fmt"
	"strings"
	"time"

	"kvasir/accelerator"
	"kvasir/client/arrival"
	"kvasir/client/workload"
	"kvasir/client/workload/trace"
	"kvasir/engine"
	"kvasir/sim"
)

// Plan says which part of the workloads the cells play.
type Plan struct {
	Open  func(name string) trace.File // a file of the traces' folder
	Half  Half
	Share float64 // of the half's sessions, drawn anew by each seed, so that intervals say how other traffic would fare
}

// TTFT, three times the unloaded prefill and TPOT: the SLO of all cells, kept by Attainment
// of the calls.
const (
	boundTTFT    = 2 * time.Second
	boundPrefill = 3.0
	boundTPOT    = 100 * time.Millisecond
	Attainment   = 0.9
)

// KV capacities of a replica in tokens. SmallKV is that of the pods of llm-d's benchmark
// (2 × H100, Qwen3-32B: 600 blocks of 512 tokens). LargeKV is five times as much: more than the
// device has, as where blocks that leave it are kept in the host's memory and come back at
// no cost.
const (
	SmallKV = 600 * 512
	LargeKV = 5 * SmallKV
)

// contextTokens is how long a call may be; those of the traces that are longer are left out.
const contextTokens = 131072

// source is a workload of the catalogue.
type source struct {
	name, about string
	open        func(p Plan, seed uint64) (workload.Source, error)
	timed       bool          // it has times of its own
	generated   bool          // a seed makes another one, so there is nothing to sample: open makes Plan.Share of it
	fanOut      bool          // see Cell
	blockTokens int           // of the engines' KV blocks; the workload's own are shorter or as long
	settle      time.Duration // see Cell
	loops       [2]int        // how often it is played with 8 replicas and with 32, each time with prefixes of its own
	start       [2]float64    // about where goodput lies
}

// sources returns the workloads.
func sources() []source {
	return []source{
		{
			name:  "conversation",
			about: "Mooncake's conversation trace: every call begins with the same block, 37 % of the rest is repeated, by later turns of one conversation. Calls of one timestamp are spread over the 3 s that it stands for.",
			open:  mooncake("mooncake/conversation_trace.jsonl"), timed: true,
			blockTokens: 512, loops: [2]int{1, 2}, start: [2]float64{8, 32},
		},
		{
			name:  "synthetic",
			about: "Mooncake's synthetic trace: prefixes of many lengths, mostly repeated.",
			open:  mooncake("mooncake/synthetic_trace.jsonl"), timed: true,
			blockTokens: 512, loops: [2]int{3, 6}, start: [2]float64{10, 40},
		},
		{
			name:        "agents",
			about:       "Recorded sessions of a coding agent (kv-cache-tester), closed-loop: the first five minutes of each, up to its first call that is longer than the context. Sessions come as a Poisson process, since the file has no times for them; tools and system prompt are shared where their lengths are the same.",
			open:        agents,
			blockTokens: generatedBlock, settle: 4 * time.Minute, loops: [2]int{2, 4}, start: [2]float64{30, 120},
		},
		{
			name:  "fan-out",
			about: "Generated agents that set off others and wait for all of them, closed-loop.",
			open:  fanOut, generated: true, fanOut: true, blockTokens: generatedBlock, settle: 40 * time.Second, loops: [2]int{1, 2}, start: [2]float64{4, 16},
		},
	}
}

func mooncake(file string) func(Plan, uint64) (workload.Source, error) {
	return func(p Plan, seed uint64) (workload.Source, error) {
		t, err := trace.Open(p.Open(file), trace.Options{Strict: true, Seed: seed})
		if err != nil {
			return workload.Source{}, err
		}
		return clip(t.Source, 1<<62, contextTokens), nil
	}
}

const agentFile = "claude-code/agent_sessions.jsonl.zst"

func agents(p Plan, seed uint64) (workload.Source, error) {
	t, err := trace.Open(p.Open(agentFile), trace.Options{Strict: true, Seed: seed})
	if err != nil {
		return workload.Source{}, err
	}
	return clip(t.Source, 5*time.Minute, contextTokens), nil
}

// FanOut is the fan-out workload. What is known of 219 production sessions of a coding agent
// (Weka, in llm-d's blog) gives the numbers: groups of subagents p50 7 and p90 51, here at
// most 64; growth by turn p50 632 tokens; gaps p50 2 s and p90 24 s, here at most 10 s.
// Prompts are about a quarter as long as theirs (p50 195,000 tokens), so that they fit into
// the model's context and a replica holds several.
const FanOut = "subagents:system=8000,task=lognormal/36000/0.6/4000/90000,rounds=2,branches=lognormal/23/3.17/1/64,steps=2," +
	"plan=lognormal/400/0.8/20/4000,briefing=lognormal/600/1/20/8000,output=lognormal/250/1/10/4000,result=lognormal/600/1/20/16000," +
	"gap=lognormal/13s/6.5/100ms/10s,context=131072"

// fanOutSessions is how many there are, over both halves.
const fanOutSessions = 200

func fanOut(p Plan, seed uint64) (workload.Source, error) {
	g, err := workload.Parse(FanOut)
	if err != nil {
		return workload.Source{}, err
	}
	process, err := arrival.Parse("poisson:rate=0.1")
	if err != nil {
		return workload.Source{}, err
	}
	s, err := workload.Generate("fan-out", g, seed, process.Instants(seed))
	return coarsen(trace.Transform{Sessions: max(int(fanOutSessions*p.Share), 4)}.Apply(s), generatedBlock), err
}

// generatedBlock is the length of a KV block where the workload's own are shorter: few enough
// for fast runs, and what is lost of reuse, half a block a call, is little beside a prompt.
const generatedBlock = 128

// draw returns what a seed makes of the workload with so many loops.
func (p Plan) draw(w *source, seed uint64, loops int) (*Draw, error) {
	s, err := w.open(p, seed)
	if err != nil {
		return nil, err
	}
	calls, last := 0, time.Duration(0)
	s = filter(s, func(x *workload.Session) bool {
		calls += len(x.Calls)
		last = x.At
		return true
	})
	s = p.Half.Of(s)
	if p.Share < 1 && !w.generated {
		s = Sample(s, seed, p.Share)
	}
	once, err := Keep(s)
	if err != nil {
		return nil, err
	}
	d := once
	if loops > 1 {
		if d, err = Keep(trace.Transform{Loops: loops, Fresh: true}.Apply(once.Source)); err != nil {
			return nil, err
		}
	}
	if w.timed {
		d.Trace = float64(calls) / last.Seconds()
	}
	return d, nil
}

// Cells returns the cells.
func (p Plan) Cells() ([]*Cell, error) {
	var out []*Cell
	for _, w := range sources() {
		for _, kv := range []struct {
			name   string
			tokens int
		}{{"small", SmallKV}, {"large", LargeKV}} {
			for size, replicas := range []int{8, 32} {
				c, err := p.cell(w, fmt.Sprintf("%s-%s-%d", w.name, kv.name, replicas), size, part{"h100", replicas, kv.tokens})
				if err != nil {
					return nil, err
				}
				out = append(out, c)
			}
		}
		if w.name == "conversation" || w.fanOut {
			c, err := p.cell(w, w.name+"-mixed-8", 0, part{"h100", 4, 2 * SmallKV}, part{"a100", 4, SmallKV})
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// part is so many equal replicas of a pool.
type part struct {
	device string
	count  int
	kv     int // tokens of each
}

func (p Plan) cell(w source, name string, size int, pool ...part) (*Cell, error) {
	c := &Cell{
		Name: name, Workload: fmt.Sprintf("%s × %d", w.name, w.loops[size]), FanOut: w.fanOut,
		Settle: w.settle, Start: w.start[size],
		Draw: func(seed uint64) (*Draw, error) { return p.draw(&w, seed, w.loops[size]) },
	}
	c.Scenario.SLO = sim.SLO{TTFT: boundTTFT, Prefill: boundPrefill, TPOT: boundTPOT}
	c.Scenario.Scrape = time.Second
	var parts []string
	for _, x := range pool {
		profile, err := accelerator.Lookup("llama-3.1-8b/" + x.device)
		if err != nil {
			return nil, err
		}
		e := engine.Defaults(profile)
		e.BlockTokens, e.NumBlocks = w.blockTokens, x.kv/w.blockTokens
		for range x.count {
			c.Scenario.Engines = append(c.Scenario.Engines, sim.Engine{Config: e})
		}
		parts = append(parts, fmt.Sprintf("%d × %s, %d k tokens of KV each", x.count, profile.Name, x.kv/1000))
	}
	c.Pool = strings.Join(parts, "; ")
	return c, nil
}
