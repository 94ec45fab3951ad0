package flow

import (
	"kvasir/internal/kvblock"
	"kvasir/selection"
	"kvasir/selection/prefix"
	"kvasir/selection/signal"
)

// learnLoad takes an endpoint's report and counts anew which of the router's own calls
// the report cannot have seen.
func (m *Machine) learnLoad(r *report) {
	if !m.has(r.slot, r.generation) {
		return
	}
	at := r.at.Add(-r.took)
	load := &m.endpoints[r.slot].Load
	newer := r.load.Stamped(at)
	s := &m.state[r.slot]
	restarted := signal.Restarted(*load, newer)
	if restarted {
		s.darkUntil = r.at.Add(m.health.Blackout)
	}
	believed := newer
	if at < s.darkUntil {
		believed = newer.WithoutLoad()
	}
	if restarted {
		m.restarted(r, believed)
	} else {
		load.Merge(believed)
	}
	if p := newer.Preemptions; p.Known {
		s.preempting.Read(p.Value, p.At)
	}
	if usage := newer.KVUsageMax(); usage.Known {
		s.crammed = usage.Value >= crammedUsage
	}
	b := &m.books[r.slot]
	b.Unseen, b.UnseenTokens = 0, 0
	i := m.state[r.slot].newest
	for ; i != none && m.calls[i].dispatched >= at; i = m.calls[i].older {
		c := &m.calls[i]
		c.unseen = true
		b.Unseen++
		b.UnseenTokens += int64(c.request.InputTokens)
	}
	// The unseen calls are the newest ones, so the first seen one ends them.
	for ; i != none && m.calls[i].unseen; i = m.calls[i].older {
		m.calls[i].unseen = false
	}
}

// restarted forgets what was believed of an endpoint whose process is a new one. Its calls
// stay charged: each of them ends, one way or another, and is released then. How fast it does
// prefill stays known: the machine below is the same, and what has changed is soon learned.
func (m *Machine) restarted(r *report, load signal.Load) {
	m.endpoints[r.slot].Load = load
	m.unlearn(r.slot)
	m.state[r.slot].restarts++
	m.refresh(r.at, r.slot)
	m.notice(Action{Kind: Restarted, Slot: r.slot})
}

// capacity returns how much the endpoint's KV cache holds, in fine blocks of the request;
// 0 where it isn't known.
func (m *Machine) capacity(slot selection.Slot, q *selection.Request) int {
	l := &m.endpoints[slot].Load
	if !l.KVBlocks.Known || !l.BlockTokens.Known || q.BlockTokens == 0 {
		return 0
	}
	tokens := float64(l.KVBlocks.Value * l.BlockTokens.Value)
	return int(min(tokens, 1<<40)) / q.BlockTokens
}

// fits reports whether the call's endpoint can hold its prompt. An engine refuses one that is
// longer than its cache, and where it answers all the same it has cut the prompt: then nothing
// is known of what it has computed.
func (m *Machine) fits(c *call) bool {
	capacity := m.capacity(c.slot, &c.request)
	return capacity == 0 || kvblock.Span(len(c.request.Blocks)) <= capacity
}

// unlearn forgets what index and policy believe of the slot's endpoint, and what was predicted
// of the calls that it runs.
func (m *Machine) unlearn(slot selection.Slot) {
	if m.index != nil {
		m.index.Forget(slot)
	}
	for i := m.state[slot].newest; i != none; i = m.calls[i].older {
		m.calls[i].believed = prefix.Belief{}
	}
	m.state[slot].trust.Forget()
	m.countLoadOnly()
	p := m.state[slot].pool
	if p.forgetter != nil {
		p.forgetter.Forget(slot)
	}
	if p.shadow != nil && p.shadow.forgetter != nil {
		p.shadow.forgetter.Forget(slot)
	}
}
