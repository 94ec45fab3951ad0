package workload

import (
	"fmt"
	"strings"
	"time"

	"kvasir/internal/spec"
)

// preset is a workload of somebody else's benchmark, as the text of a generator.
type preset struct {
	name, doc, source, text string
	objectives              []Objective
}

// Preset returns the preset with the name, and what its calls are held to. Presets are part
// of what Parse knows, so their parameters can be changed there.
func Preset(name string) (Generator, []Objective, error) {
	for _, p := range presets {
		if p.name == name {
			return p.make(), p.objectives, nil
		}
	}
	return nil, nil, fmt.Errorf("%.60q is not a preset; allowed: %s", name, presetNames())
}

func (p preset) make() Generator {
	_, g, err := Generators().Parse(p.text)
	if err != nil {
		panic("workload: preset " + p.name + ": " + err.Error()) // a test makes every one
	}
	return g
}

func presetNames() string {
	names := make([]string, 0, len(presets))
	for _, p := range presets {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// all returns generators and presets.
func all() spec.Catalog[Generator] {
	c := Generators()
	for _, p := range presets {
		c.Entries = append(c.Entries, spec.Entry[Generator]{Name: p.name, Doc: p.doc, Source: p.source, Make: p.make})
	}
	return c
}

func objectives(name string) []Objective {
	for _, p := range presets {
		if p.name == name {
			return p.objectives
		}
	}
	return nil
}

const (
	inferencePerf = "inference-perf's workload catalogue, Apache-2.0"
	llmd          = "llm-d-benchmark"
)

// presets has the seven shapes of inference-perf's workload catalogue with their objectives,
// llm-d-benchmark's routing workloads and production-stack's multi-round-qa.
//
// The catalogue states means, deviations and bounds of the prompt without its system prompt,
// of the answer, the turns and the time between them. A conversation's prompts grow, so its
// history is what brings the mean over all calls to the catalogue's; two-humped lengths are
// lognormal here, with the mean and the deviation stated. Of code generation's turns the mean
// is kept, since their deviation, 48,600, is none that numbers from 1 to 3,000 can have.
var presets = []preset{
	{
		"interactive-chat", "a person chats: short turns behind a long context", inferencePerf,
		"conversations:systems=1,system=1000,history=lognormal/3000/0.8/490/14000,turns=lognormal/4/0.625/1/15,user=lognormal/50/0.8/10/1000," +
			"output=normal/300/0.5/10/1000,gap=lognormal/45s/0.89/5s/5m,context=32768",
		[]Objective{{TTFT, 0.99, time.Second}, {ITL, 0.99, 50 * time.Millisecond}},
	},
	{
		"code-generation", "a coding agent with very long contexts, which it compacts when they are full", inferencePerf,
		"long-agent:systems=1,system=3000,history=lognormal/35000/1.4/9900/300000,turns=lognormal/650/1.5/1/3000,user=lognormal/1500/0.8/100/10000," +
			"output=lognormal/425/1.94/50/10000,gap=lognormal/15s/3.67/1s/1000s,context=310000,summary=lognormal/10000/0.5/2000/40000",
		[]Objective{{TTFT, 0.95, 30 * time.Second}, {ITL, 0.99, 100 * time.Millisecond}},
	},
	{
		"deep-research", "an agent reads source after source", inferencePerf,
		"tool-agent:systems=1,system=2000,history=exponential/10000/0/100000,turns=normal/15/0.567/2/50,user=lognormal/3000/0.83/500/15000," +
			"output=lognormal/300/2.83/50/4000,gap=normal/25s/0.48/5s/60s,context=156000",
		[]Objective{{TTFT, 0.90, 10 * time.Second}, {ITL, 0.99, 100 * time.Millisecond}},
	},
	{
		"reasoning", "short questions with very long answers", inferencePerf,
		"conversations:systems=1,system=250,turns=1,user=lognormal/1000/0.8/100/5000,output=exponential/8000/500/32000,gap=0s,context=40000",
		[]Objective{{TTFT, 0.99, 2 * time.Second}, {ITL, 0.99, 100 * time.Millisecond}},
	},
	{
		"batch-summarization-rag", "long documents in, summaries out, nobody waits", inferencePerf,
		"conversations:systems=1,system=500,turns=1,user=lognormal/15000/1.47/1000/80000,output=normal/500/0.6/50/2000,gap=0s,context=90000",
		[]Objective{{TTFT, 0.90, 15 * time.Second}, {ITL, 0.95, 150 * time.Millisecond}, {E2E, 0.99, 630 * time.Second}},
	},
	{
		"batch-synthetic-data-generation", "short inputs behind a long system prompt, long outputs, nobody waits", inferencePerf,
		"conversations:systems=1,system=2000,turns=1,user=lognormal/500/2.4/50/15000,output=uniform/500/8000,gap=0s,context=32768",
		[]Objective{{E2E, 0.99, 2080 * time.Second}},
	},
	{
		"agentic-trace-replay", "recorded agents of many kinds, whose shape alone is known", inferencePerf,
		"tool-agent:systems=20,system=8000,history=lognormal/8000/3/0/1000000,turns=lognormal/21.9/1.07/1/300,user=lognormal/1000/2.8/1/200000," +
			"output=lognormal/659/4.66/1/146112,gap=lognormal/13.028s/13.5/1ms/2h,context=1000000",
		nil,
	},
	{
		"llm-d-shared-prefix", "32 groups of 32, 2048 tokens shared and 256 not; run at 2 to 20 calls a second", llmd,
		"generated-shared-prefix:groups=32,prompts=32,system=2048,question=256,output=256", nil,
	},
	{
		"llm-d-precise-prefix", "150 groups of 5, 6000 tokens shared and 1200 not; run at 3 to 60 calls a second, Poisson", llmd,
		"generated-shared-prefix:groups=150,prompts=5,system=6000,question=1200,output=1000", nil,
	},
	factorial(40, 1000), factorial(40, 5000), factorial(40, 8000),
	factorial(60, 1000), factorial(60, 5000), factorial(60, 8000),
	{
		"multi-round-qa", "users who each ask ten short questions about a long history of their own; the gap is the number of users over the rate of calls, here 320 over 2 a second", "production-stack's benchmarks/multi-round-qa",
		"conversations:systems=1,system=1000,history=20000,turns=10,user=20,output=100,gap=160s,context=32768", nil,
	},
}

// factorial is one cell of llm-d-benchmark's experiment over the number of groups and the
// length of their system prompts; what it does not vary is that of its shared-prefix workload.
func factorial(groups, system int) preset {
	return preset{
		fmt.Sprintf("llm-d-factorial-%dx%dk", groups, system/1000),
		fmt.Sprintf("%d groups with %d tokens shared: one cell of an experiment over both", groups, system), llmd,
		fmt.Sprintf("generated-shared-prefix:groups=%d,prompts=32,system=%d,question=256,output=256", groups, system), nil,
	}
}
