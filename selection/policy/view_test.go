package policy

import (
	"fmt"
	"math"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// unset is what testPick writes into every score before a pick, to see that the policy
// sets them all.
var unset = math.Float64frombits(0x7ff8_0000_dead_beef)

// newView returns a view of n idle endpoints, all of them candidates, all reporting the
// same half-full engine.
func newView(n int) *selection.View {
	v := &selection.View{
		Now: mono.Time(time.Hour), MaxAge: 10 * time.Second, Version: 1,
		Endpoints:    make([]selection.Endpoint, n),
		Book:         make([]selection.Book, n),
		Overlap:      make([]int32, n),
		Active:       make([]int32, n),
		AdapterCalls: make([]int32, n), Adapters: make([]int32, n),
		Position: make([]int32, n),
		Scores:   make([]float64, n),
	}
	for i := range n {
		slot := selection.Slot(i)
		v.Members = append(v.Members, slot)
		v.Candidates = append(v.Candidates, slot)
		v.Position[i] = int32(i)
		v.Endpoints[i] = selection.Endpoint{Name: fmt.Sprintf("e%d", i), Weight: 1, Load: report5000(v.Now)}
	}
	return v
}

// report5000 is a fresh report of 5,000 of 10,000 blocks in use by 50 calls.
func report5000(now mono.Time) signal.Load {
	return signal.Load{
		Running: signal.Known(50, now), Waiting: signal.Known(0, now), KVUsage: signal.Known(0.5, now),
		KVBlocks: signal.Known(10_000, now), BlockTokens: signal.Known(16, now),
	}
}

// restrict makes the slots for which keep returns true the view's only candidates.
func restrict(v *selection.View, keep func(selection.Slot) bool) {
	v.Candidates = v.Candidates[:0]
	for _, slot := range v.Members {
		v.Position[slot] = selection.None
		if keep(slot) {
			v.Position[slot] = int32(len(v.Candidates))
			v.Candidates = append(v.Candidates, slot)
		}
	}
	v.Scores = v.Scores[:len(v.Candidates)]
}

// newRequest returns a call whose prompt has that many full blocks and is like no
// other with another id.
func newRequest(id, blocks int) *selection.Request {
	q := &selection.Request{
		ID: selection.CallID(id), InputTokens: 64*kvblock.Span(blocks) + 10, BlockTokens: 64,
		Head: kvblock.Seed("head", fmt.Sprint(id)), Key: kvblock.Seed("key", fmt.Sprint(id)),
		Conversation: kvblock.Seed("conversation", fmt.Sprint(id)),
	}
	h := kvblock.Seed("prompt", fmt.Sprint(id))
	for range blocks {
		h = kvblock.Chain(h, []byte("block"))
		q.Blocks = append(q.Blocks, h)
	}
	return q
}

// pick calls the policy with the randomness of the numbered draw.
func pick(p selection.Policy, v *selection.View, q *selection.Request, draw int) selection.Choice {
	for i := range v.Scores {
		v.Scores[i] = unset
	}
	r := seed.New(1, seed.Pick, uint64(draw), 0)
	return p.Pick(v, q, &r)
}

// picked is pick for who only wants to know the slot.
func picked(p selection.Policy, v *selection.View, q *selection.Request, draw int) selection.Slot {
	return v.Candidates[pick(p, v, q, draw).Index]
}

// charge books a call as the machine does after a pick.
func charge(v *selection.View, slot selection.Slot, tokens int) {
	b := &v.Book[slot]
	b.Outstanding++
	b.Unseen++
	b.OutstandingTokens += int64(tokens)
	b.PendingTokens += int64(tokens)
	b.UnseenTokens += int64(tokens)
	work := (&selection.Request{InputTokens: tokens}).Work(0)
	if b.Pending == 0 {
		b.Head, b.HeadSince = work, v.Now
	}
	b.Pending++
	b.PendingWork = b.PendingWork.Plus(work)
}

// build returns a policy of the named rule with its defaults.
func build(name string) selection.Policy {
	rule, ok := Lookup(name)
	if !ok {
		panic("no rule " + name)
	}
	return rule.Params().New()
}
