package workload

import (
	"cmp"
	"slices"
	"time"

	"kvasir/internal/seed"
)

// Subagents is a leading agent that sets off others in parallel and waits for all of them,
// several times over: the article's burst by fan-out (section 13.1). The leader's prompt
// grows by what they report. A subagent's first prompt is the leader's, the leader's answer
// and a briefing of its own; it goes on from there by itself, with its tools. So the calls
// of one burst come at the same instant and share all but their briefings. The calls are
//
//	1 + Rounds · (Branches · Steps + 1)
//
// with Branches drawn anew in each round; fewer where the context is full before.
type Subagents struct {
	System   Lengths `spec:"system" doc:"tokens of the system prompt, tools included; shared by all sessions"`
	Task     Lengths `spec:"task" doc:"tokens of what is asked for"`
	Rounds   int     `spec:"rounds" doc:"how often subagents are set off"`
	Branches Lengths `spec:"branches" doc:"subagents at a time"`
	Steps    int     `spec:"steps" doc:"calls of a subagent, one after the other"`
	Plan     Lengths `spec:"plan" doc:"tokens of the leader's answers"`
	Briefing Lengths `spec:"briefing" doc:"tokens of what only one subagent is told"`
	Output   Lengths `spec:"output" doc:"tokens of a subagent's answers; the last one is its report"`
	Result   Lengths `spec:"result" doc:"tokens of a tool's result"`
	Gap      Delays  `spec:"gap" doc:"a tool's time, between the calls of a subagent"`
	Context  int     `spec:"context" doc:"tokens that a prompt and its answer have at most; what does not fit is not done; of the first call task and plan are cut, in this order, until it fits"`
}

const (
	maxCalls       = 1 << 16 // of a session
	maxForkedBlock = 1 << 24 // hashes that the branches of a session copy, 128 MiB
)

// Validate reports every field outside its range.
func (g Subagents) Validate() error {
	var c check
	c.whole("context", g.Context, 2, maxContext)
	c.lengths("system", g.System, 0, max(g.Context-2, 0))
	c.lengths("task", g.Task, 1, maxLength)
	c.whole("rounds", g.Rounds, 1, maxCalls)
	c.lengths("branches", g.Branches, 1, maxCalls)
	c.whole("steps", g.Steps, 1, maxCalls)
	for _, l := range []struct {
		key   string
		value Lengths
		least int
	}{{"plan", g.Plan, 0}, {"briefing", g.Briefing, 1}, {"output", g.Output, 0}, {"result", g.Result, 1}} {
		c.lengths(l.key, l.value, l.least, maxLength)
	}
	if len(c.errs) == 0 {
		_, most := g.Branches.Bounds()
		// No product overflows: each factor is at most 2^16 or so.
		c.whole("rounds · branches", g.Rounds*most, 1, maxForkedBlock*blockTokens/g.Context)
		c.whole("rounds · branches · steps", min(g.Rounds*most, maxCalls+1)*g.Steps, 1, maxCalls)
	}
	return c.join()
}

// Session returns the n-th session.
func (g Subagents) Session(root uint64, n int) Session {
	r := seed.New(root, seed.Workload, uint64(n), 0)
	shared := seed.New(root, seed.Workload, 0, 1)
	own := ownPieces{root, uint64(n), 0}
	var s Session
	var leader growth
	system := g.System.Draw(&shared)
	leader.add(piece(root, sharedPiece, 0, 0), system)
	_, task, plan := fit(g.Context-system, 0, g.Task.Draw(&r), g.Plan.Draw(&r))
	leader.add(own.next(), task)
	var leads []int
	lead := func(after []int) {
		leads = append(leads, len(s.Calls))
		s.follow(0, after, leader.tokens, plan)
		leader.add(own.next(), plan)
	}
	lead(nil)
	for range g.Rounds {
		var reports []int
		told := 0 // tokens of the reports
		for range g.Branches.Draw(&r) {
			if last, tokens := g.branch(&s, &r, &own, leader.fork(), leads[len(leads)-1]); last >= 0 {
				reports, told = append(reports, last), told+tokens
			}
		}
		if plan = g.Plan.Draw(&r); len(reports) == 0 || leader.tokens+max(told, 1)+plan > g.Context {
			break
		}
		leader.add(own.next(), max(told, 1))
		lead(reports)
	}
	for _, i := range leads {
		leader.reveal(s.Calls[i : i+1])
	}
	s.sort()
	return s
}

// branch adds a subagent's calls, which wait for the leader's call. It returns the last of
// them and the tokens of its answer, or -1 where none fits.
func (g Subagents) branch(s *Session, r *seed.Rand, own *ownPieces, context growth, lead int) (last, report int) {
	last = -1
	first, told := len(s.Calls), g.Briefing.Draw(r)
	after, gap := lead, time.Duration(0) // a subagent begins at once
	for range g.Steps {
		output := g.Output.Draw(r)
		if context.tokens+told+output > g.Context {
			break
		}
		context.add(own.next(), told)
		last, report = len(s.Calls), output
		s.follow(gap, []int{after}, context.tokens, output)
		context.add(own.next(), output)
		after, told, gap = last, g.Result.Draw(r), g.Gap.Draw(r)
	}
	context.reveal(s.Calls[first:])
	return last, report
}

// sort puts the calls into the order of their Offset.
func (s *Session) sort() {
	order := make([]int, len(s.Calls)) // the calls by Offset, as they are numbered
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(s.Calls[a].Offset, s.Calls[b].Offset)
	})
	place := make([]int, len(order))
	calls := make([]Call, len(order))
	for to, from := range order {
		place[from], calls[to] = to, s.Calls[from]
	}
	for i := range calls {
		for j, a := range calls[i].After {
			calls[i].After[j] = place[a]
		}
	}
	s.Calls = calls
}

// Loop says what waits for what.
func (Subagents) Loop() string {
	return "Within a session they are closed-loop: subagents start when the leader's answer has ended, all at once, and the leader goes on when the last of them has."
}

// Count returns 0: they do not end.
func (Subagents) Count() int { return 0 }
