package workload

import (
	"fmt"
	"strconv"
	"strings"

	"kvasir/internal/spec"
)

// Generators returns the generators that a command line can name. Those of the article's
// five units of work have its numbers of calls (section 13); it states no lengths, so theirs
// are chosen, and parameters like all others.
func Generators() spec.Catalog[Generator] {
	return spec.Catalog[Generator]{Kind: "a workload", Entries: []spec.Entry[Generator]{
		{
			Name: "random", Doc: "prompts that share nothing, or a prefix of fixed length", Source: "vLLM's --dataset-name random",
			Make: func() Generator { return &Random{Input: Fixed(1024), Output: Fixed(128)} },
		},
		{
			Name: "prefix-repetition", Doc: "prompts that begin with one of a few prefixes", Source: "vLLM's --dataset-name prefix_repetition",
			Make: func() Generator {
				return &PrefixRepetition{Prefixes: 10, Prefix: 256, Suffix: 256, Output: Fixed(128)}
			},
		},
		{
			Name: "generated-shared-prefix", Doc: "groups of prompts that share a system prompt", Source: "SGLang's --dataset-name generated-shared-prefix",
			Make: func() Generator {
				return &SharedPrefix{
					Groups: 64, Prompts: 16, System: Fixed(2048), Question: Fixed(128), Output: Fixed(256), Turns: Fixed(1),
				}
			},
		},
		{
			Name: "conversations", Doc: "chat users: few system prompts, several turns, each behind all before it", Source: "article 5.3 and 6",
			Make: func() Generator {
				return &Dialogue{
					Systems: 10, Zipf: 1, System: Fixed(1000), History: Fixed(0), Turns: lengths("lognormal/4/0.6/1/30"),
					User: lengths("lognormal/100/1/5/4000"), Output: lengths("lognormal/300/0.7/5/2000"),
					Gap: delays("lognormal/30s/1/2s/10m"), Context: 32768,
				}
			},
		},
		{
			Name: "chat-turn", Doc: "one question behind an earlier conversation: 1 call", Source: "article 13",
			Make: func() Generator {
				return &Dialogue{
					Systems: 10, Zipf: 1, System: Fixed(1000), History: lengths("lognormal/1500/1/0/16000"), Turns: Fixed(1),
					User: lengths("lognormal/100/1/5/4000"), Output: lengths("lognormal/300/0.7/5/2000"), Context: 32768,
				}
			},
		},
		{
			Name: "rag-answer", Doc: "a question is rewritten, documents are retrieved and read: 2 calls", Source: "article 13",
			Make: func() Generator {
				return &Retrieval{
					Rewrite: Fixed(300), System: Fixed(600), Question: lengths("lognormal/60/0.8/5/1000"), Query: lengths("lognormal/30/0.5/5/200"),
					Gap: delays("lognormal/300ms/0.5/50ms/5s"), Documents: 10000, Zipf: 1, Found: Fixed(8),
					Document: lengths("normal/500/0.2/100/900"), Output: lengths("lognormal/250/0.6/10/1500"),
				}
			},
		},
		{
			Name: "tool-agent", Doc: "an agent calls tools, and each result makes its prompt longer: 12 calls", Source: "article 13",
			Make: func() Generator {
				return &Dialogue{
					Systems: 4, Zipf: 1, System: Fixed(6000), History: lengths("lognormal/1000/1/50/20000"), Turns: Fixed(12),
					User: lengths("lognormal/800/1.5/20/16000"), Output: lengths("lognormal/150/1/10/4000"),
					Gap: delays("lognormal/3s/1.5/50ms/5m"), Context: 131072,
				}
			},
		},
		{
			Name: "subagents", Doc: "an agent sets off others in parallel and waits for all of them: 40 calls in bursts", Source: "article 13",
			Make: func() Generator {
				return &Subagents{
					System: Fixed(6000), Task: lengths("lognormal/1000/1/50/20000"), Rounds: 3, Branches: Fixed(12), Steps: 1,
					Plan: lengths("lognormal/400/0.6/50/2000"), Briefing: lengths("lognormal/300/0.6/50/2000"),
					Output: lengths("lognormal/400/0.8/20/4000"), Result: lengths("lognormal/800/1.5/20/16000"),
					Gap: delays("lognormal/3s/1.5/50ms/5m"), Context: 131072,
				}
			},
		},
		{
			Name: "long-agent", Doc: "an agent works for hours and compacts its context when that is full: 300 calls", Source: "article 13",
			Make: func() Generator {
				return &Dialogue{
					Systems: 4, Zipf: 1, System: Fixed(12000), History: lengths("lognormal/3000/1/100/40000"), Turns: Fixed(300),
					User: lengths("lognormal/900/1.5/20/16000"), Output: lengths("lognormal/250/1.2/10/8000"),
					Gap: delays("lognormal/25s/3/100ms/1h"), Context: 131072, Summary: lengths("lognormal/6000/0.4/1000/20000"),
				}
			},
		},
	}}
}

// lengths and delays return what a text of this file stands for, whose correctness a test
// shows: that every generator is valid.
func lengths(text string) (l Lengths) {
	_ = l.UnmarshalText([]byte(text))
	return l
}

func delays(text string) (d Delays) {
	_ = d.UnmarshalText([]byte(text))
	return d
}

// Parse returns the workload that a text stands for: a generator's or preset's name with
// parameters,
//
//	conversations:turns=6,system=2000
//
// or several such, with weights where they are not all alike:
//
//	3*chat-turn + 1*tool-agent:turns=20
//
// Each part is a class of the results, by its name; a second one of a name is called name-2.
// The error says of every mistake the key, the value and what is allowed.
func Parse(text string) (Mix, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("workload of %d bytes; allowed: %d", len(text), maxText)
	}
	parts := strings.Split(text, "+")
	if len(parts) > maxParts {
		return nil, fmt.Errorf("workload of %d parts; allowed: %d", len(parts), maxParts)
	}
	var m Mix
	var c check
	times := map[string]int{}
	for _, part := range parts {
		p, err := parsePart(strings.TrimSpace(part))
		if err != nil {
			c.errs = append(c.errs, err)
			continue
		}
		if times[p.Name]++; times[p.Name] > 1 {
			p.Name += "-" + strconv.Itoa(times[p.Name])
		}
		m = append(m, p)
	}
	if err := c.join(); err != nil {
		return nil, err
	}
	return m, m.Validate()
}

const maxText = 64 << 10

func parsePart(text string) (Part, error) {
	p := Part{Weight: 1}
	if weight, rest, ok := strings.Cut(text, "*"); ok {
		w, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
		if err != nil || !(w > 0 && w <= maxWeight) {
			return p, fmt.Errorf("weight is %.60q; allowed: above 0, to %v", weight, float64(maxWeight))
		}
		p.Weight, text = w, strings.TrimSpace(rest)
	}
	e, g, err := all().Parse(text)
	if err != nil {
		return p, err
	}
	p.Name, p.Generator, p.Objectives = e.Name, g, objectives(e.Name)
	return p, nil
}

// Describe returns the help for Parse: all generators and presets with their keys, defaults
// and sources.
func Describe() string {
	var b strings.Builder
	b.WriteString("workloads, as in conversations:turns=6,system=2000 or 3*chat-turn + 1*tool-agent:turns=20\n\n")
	b.WriteString(Generators().Describe())
	b.WriteString("\npresets: workloads of others' benchmarks, whose keys are those of the generator behind them\n\n")
	for _, p := range presets {
		b.WriteString("  " + p.name + "\n    " + p.doc + "\n    (" + p.source + ")\n    = " + p.text + "\n")
		for _, o := range p.objectives {
			b.WriteString("    objective: " + o.String() + "\n")
		}
	}
	b.WriteString(`
lengths, in tokens or counts: 256, uniform/MIN/MAX, normal/MEAN/CV, lognormal/MEAN/CV,
exponential/MEAN, these three with /MIN/MAX behind if wanted (what falls outside is set to the
bound), or quantiles/Q0/…/Qn. Gaps are the same with durations: lognormal/30s/1/2s/10m.
`)
	return b.String()
}
