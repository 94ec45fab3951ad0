package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/selection"
	"kvasir/sim"
)

// duel is article 4.2 on recorded calls, with the shadow of article 15: two policies on one
// trace, and each in the shadow of the other.
type duel struct {
	seeding

	trace       string
	left, right string
	engine      string
	replicas    int
	kv          int
	rate        float64
	calls       int
	goal        goal

	given *Trace // nil: one of the excerpts
}

func duelLab() Lab {
	return Lab{
		Name: "duel", Title: "two policies on one real trace", Section: "4.2, 15",
		About: "The gateway's own routing places recorded calls on a pool of simulated engines, once by each of two policies of the catalogue at their " +
			"defaults. The other one is in the shadow: it ranks the same calls among the same replicas, with what it learns from the same answers, and " +
			"decides nothing. The traces are excerpts: a tenth of the conversations of twenty minutes of Mooncake's trace, each call a session of its own " +
			"and of one timestamp spread over the 3 s that it stands for, and the first five minutes of 29 sessions of a coding agent, whose calls follow " +
			"each other's answers. A call is within the SLO where it keeps both bounds. Every call counts, those that find cold caches, too. Of calls one by one the first seed is shown.",
		Look: []string{
			"The first table has both policies on the same calls. With the defaults least-outstanding spreads every conversation over all replicas and finds a " +
				"tenth of its prompts cached; predicted-ttft finds more than a quarter. Its TTFT P95 is 1.3 s against more than 5 s, and the calls are shared out far less evenly.",
			"The second one is what a shadow tells without a canary: at how many picks the other policy would have chosen otherwise, for which of its reasons, and what that trades: " +
				"tokens of the prompt that are cached there, against calls that are under way there.",
			"In the player, step to a call where the boards part, and read why. Set `right` to cache-aware for another rule that goes by caches, or to round-robin for one that looks at nothing; set `left` and `right` to the same policy, and no call fares otherwise.",
			"Turn `rate` from 10 to 20: at 10 the two hardly differ in what is within the SLO, at 20 one of them keeps it for less than half of its calls, for what it computes again is what it lacks.",
			"Set `trace` to agents: prompts grow by what comes back from tools, and nine tenths of each are repeated. By load alone a third of that is found, by predicted-ttft more than three quarters, and the median TTFT is a tenth.",
		},
		Seeded: true, Traced: true, repeats: 8,
		settings: func() experiment {
			return &duel{
				trace: conversationTrace, left: "least-outstanding", right: "predicted-ttft", engine: engineChoices[0],
				replicas: 4, kv: 300_000, rate: 16, calls: 400, goal: goal{ttft: 2, tpot: 100},
			}
		},
	}
}

func (d *duel) params() []Param {
	return append([]Param{
		choice(&d.trace, "trace", "the recorded calls, where none are given", []string{conversationTrace, agentsTrace}),
		choice(&d.left, "left", "a policy", policyNames()),
		choice(&d.right, "right", "the policy that it is compared with", policyNames()),
		choice(&d.engine, "engine", "model and device of a replica", engineChoices),
		count(&d.replicas, "replicas", "replicas", 1, 16),
		count(&d.kv, "kv_tokens", "KV of a replica, tokens", leastTokens, 4_000_000),
		number(&d.rate, "rate", "how many times as fast as recorded sessions come", 0.1, 1000),
		count(&d.calls, "calls", "of the trace, the first so many", 2, 2000),
	}, d.goal.params()...)
}

// open implements traced.
func (d *duel) open(t *Trace) error {
	d.given = t
	_, err := d.script(1)
	return err
}

// script returns what a seed makes of the trace.
func (d *duel) script(seed uint64) (*script, error) {
	t := d.given
	if t == nil {
		t = excerpt(d.trace)
	}
	tr, err := t.drawn(seed)
	if err != nil {
		return nil, err
	}
	engines := enginesOf(d.engine, 1, d.kv, tr.BlockTokens)
	x, err := read(tr.Source, d.calls, engines[0].Config.MaxModelLen)
	if err != nil {
		return nil, err
	}
	x.cut = x.cut || t.Cut
	if last := x.lastCall(d.rate); last.at > longestRun {
		return nil, fmt.Errorf("its first %d calls last %v or more at rate %s, until call %d of session %d; allowed: %v", x.calls, last.at.Round(time.Second), show(d.rate), last.call, last.session, longestRun)
	}
	return x, nil
}

// longestRun bounds the time that is simulated.
const longestRun = 6 * time.Hour

// duelCall is what became of a call under one policy.
type duelCall struct {
	session, index int
	at, first, end time.Duration
	ok             bool
	replica        int // -1: none
	prompt, output int
	cached         int
	decision       *selection.Decision
}

func (c *duelCall) ttft() time.Duration { return c.first - c.at }

// faresAlike reports whether two calls have the same times, replica and tokens.
func faresAlike(a, b duelCall) bool {
	a.decision, b.decision = nil, nil
	return a == b
}

// duelRun is a trace under one policy.
type duelRun struct {
	policy  string
	summary *sim.Summary
	output  int           // tokens of all answers
	last    time.Duration // when the last call ends
	shadow  reasonCounts

	// calls are in the order of sessions, and of one session in its own. Those of the first seed
	// alone are kept, for they are shown one by one.
	calls []duelCall
}

// reasonCount is how often a shadow gave a reason, and what came of that: article 15.
type reasonCount struct {
	reason string
	shadowCount
}

// shadowCount counts a shadow's picks. The sums are over those that differ.
type shadowCount struct{ picks, differs, overlap, outstanding int }

func (n *shadowCount) add(d *selection.Decision) {
	n.picks++
	x := d.Shadow
	if x.Agrees {
		return
	}
	n.differs++
	n.overlap += x.OverlapTokens[x.Chosen] - x.OverlapTokens[d.Chosen]
	n.outstanding += d.Candidates[x.Chosen].Outstanding - d.Candidates[d.Chosen].Outstanding
}

func (n *shadowCount) plus(o shadowCount) {
	n.picks += o.picks
	n.differs += o.differs
	n.overlap += o.overlap
	n.outstanding += o.outstanding
}

// reasonCounts are in the order of the rule's reasons.
type reasonCounts []reasonCount

// reasonsOf returns those of a rule, with nothing counted.
func reasonsOf(rule string) reasonCounts {
	var all reasonCounts
	for _, r := range ruleOf(rule).Reasons {
		all = append(all, reasonCount{reason: string(r)})
	}
	return all
}

// add counts a pick by the shadow's reason.
func (all reasonCounts) add(d *selection.Decision) {
	i := slices.IndexFunc(all, func(r reasonCount) bool { return r.reason == string(d.Shadow.Reason) })
	all[i].add(d)
}

// play runs the trace once by a policy, with another one in its shadow; without one where that
// has no name.
func (d *duel) play(s *script, seed uint64, by, shadow string) duelRun {
	d.ask()
	run := duelRun{policy: by}
	scenario := sim.Scenario{
		Rule: ruleOf(by), Engines: enginesOf(d.engine, d.replicas, d.kv, s.BlockTokens), Scrape: time.Second,
		Workload: sim.SessionsConfig{Source: s.Source, Rate: d.rate}, SLO: d.goal.slo(), Seed: seed, Stopped: d.stopped,
	}
	byCall := map[selection.CallID]*selection.Decision{} // the last attempt's
	if shadow != "" {
		run.shadow = reasonsOf(shadow)
		scenario.Shadow = ruleOf(shadow)
		scenario.Decided = func(_ int, x *selection.Decision) {
			run.shadow.add(x)
			byCall[x.Call] = x
		}
	}
	scenario.Ended = func(x *sim.SessionRecord, number int, r *sim.Record) {
		session, err := strconv.Atoi(x.ID)
		if err != nil {
			panic(err) // read has made it
		}
		run.output += r.Tokens
		run.last = max(run.last, r.End.Duration())
		run.calls = append(run.calls, duelCall{
			session: session, index: number, at: r.At.Duration(), first: r.First.Duration(), end: r.End.Duration(), ok: r.Succeeded(),
			replica: r.Engine, prompt: r.Prompt, output: r.Tokens, cached: r.Cached, decision: byCall[r.Call],
		})
	}
	summary, err := scenario.Run()
	if err != nil {
		d.fail(err) // it is stopped: the trace was read before, and every setting is within its bounds, which a test tries
	}
	run.summary = summary
	slices.SortFunc(run.calls, func(a, b duelCall) int {
		return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.index, b.index))
	})
	return run
}

// duelRuns are a trace's runs by seed.
type duelRuns struct {
	left, right []duelRun
	alone, same int // seeds in which left was played without anybody in its shadow, too, and those in which no call fared otherwise
}

// runs plays the trace by both policies once a seed. first is what the first one made of it.
func (d *duel) runs(seeds int) (all duelRuns, first *script) {
	for n := range seeds {
		seed := d.root(n)
		s, err := d.script(seed)
		if err != nil {
			d.fail(err) // open has read the first seed's; another one may bring other sessions first
		}
		if first == nil {
			first = s
		}
		left, right := d.play(s, seed, d.left, d.right), d.play(s, seed, d.right, d.left)
		if d.judged() {
			alone := d.play(s, seed, d.left, "")
			all.alone++
			if slices.EqualFunc(left.calls, alone.calls, faresAlike) {
				all.same++
			}
		}
		if n > 0 {
			left.calls, right.calls = nil, nil
		}
		all.left, all.right = append(all.left, left), append(all.right, right)
	}
	return all, first
}

func (d *duel) run(seeds int) Findings {
	all, first := d.runs(seeds)
	pairs := pairCalls(&all.left[0], &all.right[0])
	f := Findings{Tables: []Table{d.policies(&all), d.shadows(&all), d.traceTable(first)}, Verdicts: d.verdicts(&all)}
	f.Tables = append(f.Tables, d.callTables(pairs)...)
	f.Plots = d.plots(&all.left[0], &all.right[0], pairs)
	f.Players = []Player{d.player(pairs)}
	return f
}

// duelPair is a call under both policies.
type duelPair struct {
	number      int // in the order in which the calls came to the left policy, from 1
	left, right *duelCall
}

// pairCalls returns the calls that both runs had, in the order in which they came to the left
// policy. A session whose call failed under one of them has fewer there.
func pairCalls(left, right *duelRun) []duelPair {
	var pairs []duelPair
	j := 0
	for i := range left.calls {
		a := &left.calls[i]
		for j < len(right.calls) && (right.calls[j].session < a.session || right.calls[j].session == a.session && right.calls[j].index < a.index) {
			j++
		}
		if j < len(right.calls) && right.calls[j].session == a.session && right.calls[j].index == a.index {
			pairs = append(pairs, duelPair{left: a, right: &right.calls[j]})
		}
	}
	slices.SortStableFunc(pairs, func(a, b duelPair) int { return cmp.Compare(a.left.at, b.left.at) })
	for i := range pairs {
		pairs[i].number = i + 1
	}
	return pairs
}

// judged reports whether the settings are the article's, or ours in its place, so that there
// are verdicts.
func (d *duel) judged() bool {
	own := duelLab().Params()
	return d.given == nil && slices.EqualFunc(d.params(), own, func(a, b Param) bool { return a.text() == b.text() })
}

// replicaOf returns the number of a simulated endpoint, from 0.
func replicaOf(endpoint string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(endpoint, "engine-"))
	if err != nil {
		panic(err) // sim names them so
	}
	return n - 1
}
