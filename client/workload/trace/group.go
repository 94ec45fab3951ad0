package trace

import (
	"iter"
	"strconv"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// Bounds of what is held while the rows of sessions are mixed in a file.
const (
	maxHeld  = 1 << 20 // rows of all sessions that are held
	maxApart = 100_000 // records between two rows of one session
)

// group is a session whose rows are still coming.
type group struct {
	name   string
	at     time.Duration // when it began
	latest time.Duration // when its latest row came
	record int           // of that row
	rows   []*row
	over   bool
}

// singles makes each row a session.
func (p *pass) singles(rows iter.Seq[*row], yield func(workload.Session) bool) {
	times := arrivals{seed: p.Seed, rate: p.rate}
	for r := range rows {
		if !r.timed {
			r.at = times.next()
		}
		s := workload.Session{ID: strconv.Itoa(p.tally.Sessions + 1), At: r.at, Class: r.class, Calls: []workload.Call{{
			Gap: r.delay, Offset: r.delay,
			PromptTokens: r.prompt, OutputTokens: r.output, Blocks: r.blocks,
		}}}
		if !yield(s) {
			return
		}
	}
}

// groups puts rows of one session together. Sessions leave in the order in which they
// began, each as soon as it is over and those before it have left.
func (p *pass) groups(rows iter.Seq[*row], yield func(workload.Session) bool) {
	times := arrivals{seed: p.Seed, rate: p.rate}
	var queue []*group
	held := 0
	byName := map[string]*group{} // sessions by their name and by the ids of their calls
	leave := func() bool {
		g := queue[0]
		queue = queue[1:]
		held -= len(g.rows)
		for _, name := range append(ids(g.rows), g.name) {
			if byName[name] == g {
				delete(byName, name)
			}
		}
		return yield(p.session(g))
	}
	for r := range rows {
		g := byName[r.session]
		if r.after != "" {
			g = byName[r.after]
		}
		if r.session == "" || g == nil || g.over || p.isOver(g, r.at) {
			g = &group{name: r.session, at: r.at}
			if !r.timed && p.untimed {
				g.at = times.next()
			}
			queue = append(queue, g)
			if r.session != "" {
				byName[r.session] = g
			}
		}
		g.rows = append(g.rows, r)
		held++
		if r.id != "" {
			byName[r.id] = g
		}
		g.latest, g.record = r.at, p.record
		g.over = r.last || r.session == ""
		for len(queue) > 0 && (held > maxHeld || p.isOver(queue[0], r.at)) {
			if !leave() {
				return
			}
		}
	}
	for len(queue) > 0 && p.err == nil {
		if !leave() {
			return
		}
	}
}

// ids returns what the rows are called.
func ids(rows []*row) []string {
	var names []string
	for _, r := range rows {
		if r.id != "" {
			names = append(names, r.id)
		}
	}
	return names
}

func (p *pass) isOver(g *group, now time.Duration) bool {
	return g.over || now-g.latest > p.Idle || p.record-g.record > maxApart
}

// session makes a session of a group's rows.
func (p *pass) session(g *group) workload.Session {
	s := workload.Session{ID: g.name, At: g.at, Class: g.rows[0].class, Calls: make([]workload.Call, len(g.rows))}
	if s.ID == "" {
		s.ID = strconv.Itoa(p.tally.Sessions + 1)
	}
	index := map[string]int{}
	var c chain
	for i, r := range g.rows {
		call := &s.Calls[i]
		*call = workload.Call{PromptTokens: r.prompt, OutputTokens: r.output, Blocks: r.blocks}
		if r.id != "" {
			index[r.id] = i
		}
		if i == 0 {
			call.Gap, call.Offset = r.delay, r.delay
		} else {
			parent := i - 1
			if r.after != "" {
				parent = index[r.after]
			}
			p.follow(call, r, &s.Calls[parent], g.rows[parent])
			call.After = []int{parent}
			if r.timed && g.rows[0].timed {
				call.Offset = r.at - g.at
			}
			call.Offset = max(call.Offset, s.Calls[i-1].Offset)
		}
		if r.delta {
			p.own(call, g.name, i, &c)
		}
	}
	return s
}

// follow fills in what of a call depends on the one before it.
func (p *pass) follow(c *workload.Call, r *row, parent *workload.Call, before *row) {
	lasted := before.lasted
	if !before.hasLasted {
		lasted = time.Duration(parent.OutputTokens) * p.TokenTime
	}
	switch {
	case r.hasDelay:
		c.Gap = r.delay
	case r.timed && before.timed:
		c.Gap = max(r.at-before.at-lasted, 0)
	default:
		c.Gap = p.ThinkTime
	}
	c.Offset = plus(plus(parent.Offset, lasted), c.Gap)
	if r.delta {
		c.PromptTokens = min(parent.PromptTokens+parent.OutputTokens+r.prompt, maxTokens)
	} else if parent.AnswerBlocks == nil {
		parent.AnswerBlocks = answer(parent, c.Blocks, p.blockTokens)
	}
}

// own gives a call of a session whose prompts build on each other blocks that nobody else
// has, behind those that are known already, and its answer as well.
func (p *pass) own(call *workload.Call, session string, i int, c *chain) {
	if p.blockTokens < 1 {
		return
	}
	if i == 0 {
		c.all, c.used = call.Blocks, new(int)
	}
	prompt := call.PromptTokens / p.blockTokens
	both := min((call.PromptTokens+call.OutputTokens)/p.blockTokens, maxOwn)
	first := uint64(kvblock.Seed(p.name, session, strconv.Itoa(i)))
	c.add(first, max(both-len(c.all), 0))
	prompt, both = min(prompt, len(c.all)), min(both, len(c.all))
	call.Blocks, call.AnswerBlocks = c.all[:prompt:prompt], c.all[prompt:both:both]
}

// maxOwn bounds the blocks that are made up for one session; behind them nothing is known.
const maxOwn = 1 << 20
