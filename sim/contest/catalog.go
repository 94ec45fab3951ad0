package contest

import (
	"fmt"
	"time"

	"kvasir/accelerator"
	"kvasir/client/arrival"
	"kvasir/client/workload"
	"kvasir/client/workload/trace"
	"kvasir/engine"
	"kvasir/sim"
)

// Plan says which cells there are and how much of them is played.
type Plan struct {
	Open  func(name string) trace.File // a file of the traces' folder
	Half  Half
	Share float64 // of the half's sessions, drawn anew by each seed, so that intervals say how other traffic would fare
	Quick bool    // half as much of every workload
}

// TTFT, three times the unloaded prefill and TPOT: the SLO of all cells, kept by Attainment
// of the calls.
const (
	boundTTFT    = 2 * time.Second
	boundPrefill = 3
	boundTPOT    = 100 * time.Millisecond
	Attainment   = 0.9
)

// KV capacities of a replica in tokens. Small is that of the pods of llm-d's benchmark
// (2 × H100, Qwen3-32B: 600 blocks of 512 tokens). Large is five times as much: more than the
// device has, as where blocks that leave it are kept in the host's memory and come back at
// no cost.
const (
	smallKV = 600 * 512
	largeKV = 5 * smallKV
)

// contextTokens is how long a call may be; those of the traces that are longer are left out.
const contextTokens = 131072

// source is a workload of the catalogue.
type source struct {
	name, about string
	file        string // of the traces' folder; empty: generated
	open        func(p *Plan, seed uint64) (workload.Source, error)
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
			file:  "mooncake/conversation_trace.jsonl", open: mooncake("mooncake/conversation_trace.jsonl"),
			blockTokens: 512, loops: [2]int{1, 2}, start: [2]float64{8, 32},
		},
		{
			name:  "synthetic",
			about: "Mooncake's synthetic trace: prefixes of many lengths, mostly repeated.",
			file:  "mooncake/synthetic_trace.jsonl", open: mooncake("mooncake/synthetic_trace.jsonl"),
			blockTokens: 512, loops: [2]int{3, 6}, start: [2]float64{8, 32},
		},
		{
			name:  "agents",
			about: "Recorded sessions of a coding agent (kv-cache-tester), closed-loop: the first five minutes of each, up to its first call that is longer than the context. Sessions come as a Poisson process, since the file has no times for them; tools and system prompt are shared where their lengths are the same.",
			file:  "claude-code/agent_sessions.jsonl.zst", open: agents,
			blockTokens: 128, settle: 4 * time.Minute, loops: [2]int{4, 12}, start: [2]float64{10, 40},
		},
		{
			name:  "fan-out",
			about: "Generated agents that set off others and wait for all of them, closed-loop.",
			open:  fanOut, blockTokens: 128, settle: 40 * time.Second, loops: [2]int{1, 4}, start: [2]float64{20, 80},
		},
	}
}

func mooncake(file string) func(*Plan, uint64) (workload.Source, error) {
	return func(p *Plan, seed uint64) (workload.Source, error) {
		t, err := trace.Open(p.Open(file), trace.Options{Strict: true, Seed: seed})
		if err != nil {
			return workload.Source{}, err
		}
		return Clip(t.Source, 1<<62, contextTokens), nil
	}
}

const agentFile = "claude-code/agent_sessions.jsonl.zst"

func agents(p *Plan, seed uint64) (workload.Source, error) {
	t, err := trace.Open(p.Open(agentFile), trace.Options{Strict: true, Seed: seed})
	if err != nil {
		return workload.Source{}, err
	}
	return Clip(t.Source, 5*time.Minute, contextTokens), nil
}

// FanOut is the fan-out workload. What is known of 219 production sessions of a coding agent
// (Weka, in llm-d's blog) gives the numbers: groups of subagents p50 7 and p90 51, here at
// most 64; growth by turn p50 632 tokens; gaps p50 2 s and p90 24 s, here at most 10 s.
// Prompts are shorter than theirs (p50 195,000 tokens), which no device of the catalogue
// holds several of.
const FanOut = "subagents:system=12000,task=lognormal/8000/1/500/40000,rounds=2,branches=lognormal/23/3.17/1/64,steps=2," +
	"plan=lognormal/400/0.8/20/4000,briefing=lognormal/600/1/20/8000,output=lognormal/250/1/10/4000,result=lognormal/600/1/20/16000," +
	"gap=lognormal/13s/6.5/100ms/10s,context=131072"

// fanOutSessions is how many there are, over both halves.
const fanOutSessions = 500

func fanOut(_ *Plan, seed uint64) (workload.Source, error) {
	g, err := workload.Parse(FanOut)
	if err != nil {
		return workload.Source{}, err
	}
	process, err := arrival.Parse("poisson:rate=0.1")
	if err != nil {
		return workload.Source{}, err
	}
	s, err := workload.Generate("fan-out", g, seed, process.Instants(seed))
	return trace.Transform{Sessions: fanOutSessions}.Apply(s), err
}

// draw returns what a seed makes of the workload with so many loops.
func (p *Plan) draw(w *source, seed uint64, loops int) (*Draw, error) {
	s, err := w.open(p, seed)
	if err != nil {
		return nil, err
	}
	s = p.Half.Of(s)
	if p.Share < 1 {
		s = Sample(s, seed, p.Share)
	}
	if loops > 1 {
		s = trace.Transform{Loops: loops, Fresh: true}.Apply(s)
	}
	return Keep(s)
}

// Cells returns the cells.
func (p *Plan) Cells() ([]Cell, error) {
	var out []Cell
	for _, w := range sources() {
		for _, kv := range []struct {
			name   string
			tokens int
		}{{"small", smallKV}, {"large", largeKV}} {
			for size, replicas := range []int{8, 32} {
				c, err := p.cell(w, fmt.Sprintf("%s-%s-%d", w.name, kv.name, replicas), size, pool{"h100", replicas, kv.tokens})
				if err != nil {
					return nil, err
				}
				out = append(out, c)
			}
		}
		if w.name == "conversation" || w.name == "fan-out" {
			c, err := p.cell(w, w.name+"-mixed-8", 0, pool{"h100", 4, 2 * smallKV}, pool{"a100", 4, smallKV})
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// pool is so many equal replicas.
type pool struct {
	device string
	count  int
	kv     int // tokens of each
}

func (p *Plan) cell(w source, name string, size int, pools ...pool) (Cell, error) {
	c := Cell{Name: name, Workload: fmt.Sprintf("%s × %d", w.name, w.loops[size]), Settle: w.settle, Start: w.start[size]}
	c.Scenario.SLO = sim.SLO{TTFT: boundTTFT, Prefill: boundPrefill, TPOT: boundTPOT}
	c.Scenario.Scrape = time.Second
	for _, x := range pools {
		profile, err := accelerator.Lookup("llama-3.1-8b/" + x.device)
		if err != nil {
			return c, err
		}
		e := engine.Defaults(profile)
		e.BlockTokens, e.NumBlocks = w.blockTokens, x.kv/w.blockTokens
		for range x.count {
			c.Scenario.Engines = append(c.Scenario.Engines, sim.Engine{Config: e})
		}
	}
	c.Draw = func(seed uint64) (*Draw, error) { return p.draw(&w, seed, w.loops[size]) }
	return c, nil
}
