package flow

import (
	"slices"

	"kvasir/internal/kvblock"
	"kvasir/selection"
)

// adapterBook is the load book's part that goes by LoRA adapter: at which endpoints calls of
// each are outstanding. The base model, 0, is not in it.
type adapterBook struct {
	byAdapter map[kvblock.Hash][]adapterCalls
	spare     [][]adapterCalls // emptied, for reuse

	// By slot; views point to them.
	calls    []int32 // of the adapter that was matched last
	distinct []int32 // adapters among the outstanding calls
}

// adapterCalls is how many calls of an adapter an endpoint has.
type adapterCalls struct {
	slot  selection.Slot
	calls int32
}

// newAdapterBook returns a book of so many slots.
func newAdapterBook(slots int) *adapterBook {
	b := &adapterBook{byAdapter: map[kvblock.Hash][]adapterCalls{}}
	b.grow(slots)
	return b
}

// grow makes room for so many slots.
func (b *adapterBook) grow(slots int) {
	for len(b.calls) < slots {
		b.calls, b.distinct = append(b.calls, 0), append(b.distinct, 0)
	}
}

func at(slot selection.Slot) func(adapterCalls) bool {
	return func(c adapterCalls) bool { return c.slot == slot }
}

// charge counts a call of the adapter at the endpoint.
func (b *adapterBook) charge(slot selection.Slot, adapter kvblock.Hash) {
	if adapter == 0 {
		return
	}
	held, found := b.byAdapter[adapter]
	if n := len(b.spare); !found && n > 0 {
		held, b.spare = b.spare[n-1], b.spare[:n-1]
	}
	i := slices.IndexFunc(held, at(slot))
	if i < 0 {
		i = len(held)
		held = append(held, adapterCalls{slot: slot})
		b.distinct[slot]++
	}
	held[i].calls++
	b.byAdapter[adapter] = held
}

// release takes a charge back.
func (b *adapterBook) release(slot selection.Slot, adapter kvblock.Hash) {
	if adapter == 0 {
		return
	}
	held := b.byAdapter[adapter]
	i := slices.IndexFunc(held, at(slot))
	if held[i].calls--; held[i].calls > 0 {
		return
	}
	b.distinct[slot]--
	last := len(held) - 1
	held[i] = held[last]
	if held = held[:last]; last > 0 {
		b.byAdapter[adapter] = held
		return
	}
	delete(b.byAdapter, adapter)
	b.spare = append(b.spare, held)
}

// match writes how many calls of the adapter each endpoint has.
func (b *adapterBook) match(adapter kvblock.Hash) {
	clear(b.calls)
	for _, c := range b.byAdapter[adapter] {
		b.calls[c.slot] = c.calls
	}
}

// rebook gives the machine the book of adapters if one of its policies, or a shadow, needs it.
func (m *Machine) rebook() {
	switch needed := slices.ContainsFunc(m.pools, func(p *pool) bool { return p.usesAdapters || p.shadow != nil && p.shadow.usesAdapters }); {
	case !needed:
		m.adapters = nil
	case m.adapters != nil:
		m.adapters.grow(len(m.endpoints))
	default:
		m.adapters = newAdapterBook(len(m.endpoints))
		for i := range m.calls {
			if c := &m.calls[i]; c.phase == running {
				m.adapters.charge(c.slot, c.request.Adapter)
			}
		}
	}
}
