package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// planner makes a session of what an agent and its subagents have asked.
type planner struct {
	*settings
	local uint64 // what makes the session's ids differ from those of others
	used  int    // hashes that its blocks take
	nodes []node
}

// node is a call that is not in its place yet.
type node struct {
	call  workload.Call // After are numbers of nodes, all of them less than the node's own
	ended time.Duration // since the session's start, by the recorded clock
	sub   bool          // a subagent's, as seen from the branch that is being placed
}

// plan fills in a session.
func (p *planner) plan(b *branch, s *workload.Session) error {
	if _, err := p.place(b, 0, nil); err != nil {
		return err
	}
	s.ID, s.Class = cmp.Or(b.id, fmt.Sprint(p.record+1)), "agent"
	start := p.nodes[0].call.Offset
	for _, n := range p.nodes {
		start = min(start, n.call.Offset)
	}

	// Calls come in the order of their offsets; those of one instant stay in the order in
	// which they were placed, so a call stays behind those that it waits for.
	order := make([]int, len(p.nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(p.nodes[i].call.Offset, p.nodes[j].call.Offset)
	})
	place := make([]int, len(order))
	for at, i := range order {
		place[i] = at
	}
	s.Calls = make([]workload.Call, len(order))
	for at, i := range order {
		c := p.nodes[i].call
		c.Offset -= start
		if len(c.After) == 0 {
			c.Gap = c.Offset
		}
		for k, after := range c.After {
			c.After[k] = place[after]
		}
		slices.Sort(c.After)
		s.Calls[at] = c
	}
	return nil
}

// place puts the calls of a branch that starts at an instant behind others. It returns the
// branch's last call.
func (p *planner) place(b *branch, start time.Duration, after []int) (last int, err error) {
	blocks := agentBlocks{planner: p, chain: chain{used: &p.used}, branch: b}
	from := len(p.nodes)
	recent := time.Duration(0)
	latest, waits := -1, after
	for i := range b.items {
		r := &b.items[i]
		if r.sub != nil {
			last, err := p.placeSub(r.sub, start, from, after)
			if err != nil {
				return 0, err
			}
			if r.sub.waited {
				waits = append(slices.Clip(waits), last)
			}
			continue
		}
		if r.t < recent {
			return 0, fmt.Errorf("t is %v, and that of the request before it %v; allowed: requests in the order of their times", r.t, recent)
		}
		recent = r.t
		n := node{call: workload.Call{
			After: slices.Clone(waits), Offset: plus(start, r.t),
			PromptTokens: r.in, OutputTokens: r.out,
		}}
		p.time(&n, r, len(waits) == 1 && waits[0] == latest && b.itemBefore(i).hasAPI)
		if n.call.Blocks, err = blocks.of(r); err != nil {
			return 0, err
		}
		if latest >= 0 {
			before := &p.nodes[latest].call
			before.AnswerBlocks = answer(before, n.call.Blocks, p.blockTokens)
		}
		latest = len(p.nodes)
		p.nodes = append(p.nodes, n)
		waits = []int{latest}
	}
	if latest < 0 { // it has subagents alone
		latest = len(p.nodes) - 1
	}
	return latest, nil
}

// itemBefore returns the request before item i of the branch; there is one.
func (b *branch) itemBefore(i int) *item {
	for i--; b.items[i].sub != nil; i-- {
	}
	return &b.items[i]
}

// placeSub puts a subagent's branch behind the request of its parent's branch, which begins
// with node from, that ran before its start. It returns the branch's last call.
func (p *planner) placeSub(sub *branch, start time.Duration, from int, after []int) (last int, err error) {
	begins := plus(start, sub.t)
	if sub.waited {
		begins = max(begins-sub.lasted, start)
	}
	for i := len(p.nodes) - 1; i >= from; i-- {
		if n := &p.nodes[i]; !n.sub && n.call.Offset <= begins {
			after = []int{i}
			break
		}
	}
	placed := len(p.nodes)
	last, err = p.place(sub, begins, after)
	for i := placed; i < len(p.nodes); i++ {
		p.nodes[i].sub = true
	}
	return last, err
}

// time fills in when a call comes. follows says that its think time began with the end of
// the one call that it waits for.
func (p *planner) time(n *node, r *item, follows bool) {
	var free time.Duration // from when on the calls that it waits for have ended
	for _, i := range n.call.After {
		n.call.Offset = max(n.call.Offset, p.nodes[i].call.Offset)
		free = max(free, p.nodes[i].ended)
	}
	if follows && r.hasThink {
		n.call.Gap = r.think
	} else {
		n.call.Gap = max(n.call.Offset-free, 0)
	}
	lasted := r.api
	if !r.hasAPI {
		lasted = time.Duration(r.out) * p.TokenTime
	}
	n.ended = plus(n.call.Offset, lasted)
}

// forever bounds instants, so that sums of times can't overflow: 146 years.
const forever time.Duration = 1 << 62

// plus returns the instant d after at; both are 0 or more, and at is at most forever.
func plus(at, d time.Duration) time.Duration { return at + min(d, forever-at) }

// agentBlocks makes the chains of a branch's prompts.
type agentBlocks struct {
	*planner
	chain
	*branch
	first, before []run // ids of the branch's first prompt, and of the latest
}

// of returns the blocks of a request's prompt.
func (a *agentBlocks) of(r *item) ([]kvblock.Hash, error) {
	full := r.in / a.planner.blockTokens
	if r.blocks < full || r.blocks > (r.in+a.planner.blockTokens-1)/a.planner.blockTokens {
		return nil, fmt.Errorf("hash_ids has %d ids, and in is %d; allowed: one id for each of its %d full blocks of %d tokens, and one for the rest",
			r.blocks, r.in, full, a.planner.blockTokens)
	}
	if a.first == nil {
		a.first = r.runs
	}
	// The branch's head, as far as this prompt has it.
	shared := min(common(a.first, r.runs), (a.tool+a.system)/a.planner.blockTokens)
	a.keep(min(common(a.before, r.runs), full))
	a.before = r.runs
	// Blocks up to one have ids that count up from that of block 0.
	grow := func(first uint64, to int) bool {
		from := len(a.all)
		return from >= to || a.add(first+uint64(from), to-from)
	}
	at := 0
	for _, ids := range r.runs {
		end := at + ids.n
		local := a.local + ids.first - uint64(at)
		if !grow(a.head(), min(end, shared)) || !grow(local, min(end, full)) {
			return nil, errBlocks
		}
		at = end
	}
	return a.all[:full:full], nil
}

// head returns the id of the first block of all heads of these lengths.
func (b *branch) head() uint64 {
	return 1<<63 | uint64(b.tool)<<43 | uint64(b.system)<<23
}

// common returns with how many equal ids two prompts begin. Runs are as long as they can be.
func common(a, b []run) int {
	n := 0
	for i := range min(len(a), len(b)) {
		if a[i].first != b[i].first {
			break
		}
		n += min(a[i].n, b[i].n)
		if a[i].n != b[i].n {
			break
		}
	}
	return n
}
