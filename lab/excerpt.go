package lab

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"kvasir/accelerator"
	"kvasir/client/workload"
	"kvasir/engine"
	"kvasir/internal/mono"
	"kvasir/selection/policy"
	"kvasir/sim"
)

// What the labs share that play a workload on pools of simulated engines.

// The excerpts; traces/README.md says of what.
var (
	//go:embed traces/conversation.jsonl
	conversationExcerpt []byte
	//go:embed traces/agents.jsonl
	agentsExcerpt []byte
)

// The names of the excerpts.
const (
	conversationTrace = "conversation"
	agentsTrace       = "agents"
)

// excerpt returns one of them.
func excerpt(name string) *Trace {
	if name == agentsTrace {
		return &Trace{Name: name, Format: "agents", Data: agentsExcerpt}
	}
	return &Trace{Name: name, Format: "mooncake", Data: conversationExcerpt}
}

// script is a workload in memory, which several runs play.
type script struct {
	workload.Source
	calls  int
	tokens int           // of all prompts
	last   time.Duration // when the last session comes
	long   int           // calls left out, for they or those before them are longer than the context
	cut    bool          // the workload goes on
}

// longestAnswer bounds an answer, in tokens: each takes a replica a step.
const longestAnswer = 16_384

// read takes the first calls of a workload, at most so many, as whole as they are, and ends where
// they have more than mostKept blocks. Sessions are cut at the first call whose prompt and answer
// are longer than the context, or whose answer is longer than longestAnswer. Their ids become
// their numbers.
func read(s workload.Source, most, context int) (*script, error) {
	x := &script{Source: s}
	var all []workload.Session
	kept := 0
	for w, err := range s.Sessions {
		if err != nil {
			return nil, err
		}
		if x.calls == most {
			x.cut = true
			break
		}
		whole := len(w.Calls)
		if n := most - x.calls; len(w.Calls) > n {
			w.Calls, x.cut = w.Calls[:n], true
		}
		long := slices.IndexFunc(w.Calls, func(c workload.Call) bool {
			return c.OutputTokens > longestAnswer || c.PromptTokens+c.OutputTokens > context
		})
		if long >= 0 {
			x.long += len(w.Calls) - long
			w.Calls = w.Calls[:long]
		}
		if len(w.Calls) == 0 {
			continue
		}
		if kept += chainsOf(w.Calls).hashes(); kept > mostKept {
			x.cut = true
			break
		}
		if len(w.Calls) < whole {
			w.Calls = copied(w.Calls)
		}
		w.ID, x.last = strconv.Itoa(len(all)), w.At
		all = append(all, w)
		x.calls += len(w.Calls)
		for i := range w.Calls {
			x.tokens += w.Calls[i].PromptTokens
		}
	}
	if x.calls == 0 && kept > mostKept {
		return nil, fmt.Errorf("%s: its first session has %d KV blocks; allowed: %d", s.Name, kept, mostKept)
	}
	if x.calls == 0 {
		return nil, fmt.Errorf("%s: it has no call of at most %d tokens, prompt and answer together, of which the answer has at most %d", s.Name, context, longestAnswer)
	}
	x.Sessions = func(yield func(workload.Session, error) bool) {
		for _, w := range all {
			if !yield(w, nil) {
				return
			}
		}
	}
	return x, nil
}

// shortened cuts sessions at the first call that was sent more than so long after their beginning.
func shortened(s workload.Source, length time.Duration) workload.Source {
	all := s.Sessions
	s.Sessions = func(yield func(workload.Session, error) bool) {
		for w, err := range all {
			if i := slices.IndexFunc(w.Calls, func(c workload.Call) bool { return c.Offset > length }); i >= 0 {
				w.Calls = copied(w.Calls[:i])
			}
			if !yield(w, err) {
				return
			}
		}
	}
	return s
}

// answerToken is about how long a token of an answer takes. It counts where calls wait for each
// other's answers.
const answerToken = 10 * time.Millisecond

// sent is when a call of a script is sent, at about the earliest.
type sent struct {
	at            time.Duration // never so late that two of them have no sum
	session, call int           // from 1
}

// lastCall returns the one that is sent last, where sessions come so many times as fast.
func (x *script) lastCall(rate float64) sent {
	const late time.Duration = 100 * 365 * 24 * time.Hour
	last := sent{session: 1, call: 1}
	n := 0
	for s := range x.Sessions {
		n++
		began := mono.FromSeconds(min(s.At.Seconds()/rate, late.Seconds()))
		at := make([]time.Duration, len(s.Calls))
		for i, c := range s.Calls {
			at[i] = began
			for _, before := range c.After {
				at[i] = max(at[i], at[before]+time.Duration(s.Calls[before].OutputTokens)*answerToken)
			}
			if at[i] = min(at[i]+min(c.Gap, late), late); at[i] > last.at {
				last = sent{at[i], n, i + 1}
			}
		}
	}
	return last
}

// engineChoices are the engines of these labs: a model on a device, as the catalogue of
// accelerators has them.
var engineChoices = []string{"llama-3.1-8b/h100", "llama-3.1-8b/a100", "qwen3-32b/2xh100", "llama-3.1-70b/8xh100"}

// leastTokens is the least KV of a replica in tokens: a prompt of any of these models fits.
const leastTokens = 131072

// enginesOf returns equal replicas with so many tokens of KV each, for a workload whose blocks
// have so many tokens; 0: it has none.
func enginesOf(name string, replicas, kv, blockTokens int) []sim.Engine {
	profile, err := accelerator.Lookup(name)
	if err != nil {
		panic(err) // a choice that the catalogue does not have: a test runs them all
	}
	e := engine.Defaults(profile)
	e.BlockTokens = shortestBlock
	if blockTokens > 0 {
		e.BlockTokens = blockTokens * ((shortestBlock + blockTokens - 1) / blockTokens)
	}
	e.NumBlocks = kv / e.BlockTokens
	e.MaxModelLen = min(e.MaxModelLen, e.NumBlocks*e.BlockTokens)
	engines := make([]sim.Engine, replicas)
	for i := range engines {
		engines[i].Config = e
	}
	return engines
}

// shortestBlock bounds the length of KV blocks: longer ones than engines have make runs fast.
const shortestBlock = 256

// policyNames returns the catalogue's names.
func policyNames() []string {
	var names []string
	for _, r := range policy.Catalog() {
		names = append(names, r.Name)
	}
	return names
}

// rule returns a rule of the catalogue by one of its names.
func ruleOf(name string) policy.Rule {
	r, _ := policy.Lookup(name)
	return r
}

// goal is the SLO of these labs as settings have it.
type goal struct {
	ttft float64 // seconds
	tpot float64 // milliseconds
}

// unloadedTimes is how many times its unloaded prefill a call's TTFT may always be.
const unloadedTimes = 3

func (g goal) slo() sim.SLO {
	return sim.SLO{
		TTFT: time.Duration(math.Round(g.ttft * 1e9)), TPOT: time.Duration(math.Round(g.tpot * 1e6)), Prefill: unloadedTimes,
	}
}

// params are the goal's settings.
func (g *goal) params() []Param {
	return []Param{
		number(&g.ttft, "ttft", "SLO: time to first token, s; or three times the unloaded prefill, where that is longer", 0.05, 60),
		number(&g.tpot, "tpot", "SLO: time per output token after the first, ms", 1, 1000),
	}
}
