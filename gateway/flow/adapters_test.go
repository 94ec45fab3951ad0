package flow

import (
	"maps"
	"slices"
	"testing"

	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// adapting is lightest with an appetite for adapters. It keeps what it saw at the last pick.
type adapting struct {
	lightest
	saw *[2][]int32
}

func (adapting) UsesAdapters() {}
func (a adapting) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	if a.saw != nil {
		*a.saw = [2][]int32{slices.Clone(v.AdapterCalls), slices.Clone(v.Adapters)}
	}
	return a.lightest.Pick(v, q, r)
}

// auditAdapters recounts the book of adapters from the calls.
func auditAdapters(t interface{ Fatalf(string, ...any) }, m *Machine) {
	calls := map[kvblock.Hash]map[selection.Slot]int32{}
	distinct := make([]int32, len(m.endpoints))
	for i := range m.calls {
		c := &m.calls[i]
		if a := c.request.Adapter; c.phase == running && a != 0 {
			if calls[a] == nil {
				calls[a] = map[selection.Slot]int32{}
			}
			if calls[a][c.slot]++; calls[a][c.slot] == 1 {
				distinct[c.slot]++
			}
		}
	}
	got := map[kvblock.Hash]map[selection.Slot]int32{}
	for a, held := range m.adapters.byAdapter {
		got[a] = map[selection.Slot]int32{}
		for _, c := range held {
			got[a][c.slot] = c.calls
		}
	}
	if !maps.EqualFunc(got, calls, maps.Equal) || !slices.Equal(m.adapters.distinct, distinct) {
		t.Fatalf("calls by adapter are %v, adapters by slot %v; the calls add up to %v and %v", got, m.adapters.distinct, calls, distinct)
	}
}

func TestAdapterBook_KnowsWhoseCallsAreWhere(t *testing.T) {
	var saw [2][]int32
	m := New(newConfig(newTestPool("p", adapting{saw: &saw}, "a", "b")))
	var tickets []Ticket
	arrive := func(id int, a kvblock.Hash, calls, adapters []int32) {
		t.Helper()
		q := request(id)
		q.Adapter = a
		tickets = append(tickets, only(t, m.Step(mono.Time(id*10), Arrive(q))).Ticket)
		if !slices.Equal(saw[0], calls) || !slices.Equal(saw[1], adapters) {
			t.Errorf("call %d saw %v calls of its adapter and %v adapters, want %v and %v", id, saw[0], saw[1], calls, adapters)
		}
	}
	arrive(1, 7, []int32{0, 0}, []int32{0, 0}) // to a
	arrive(2, 5, []int32{0, 0}, []int32{1, 0}) // to b
	arrive(3, 7, []int32{1, 0}, []int32{1, 1}) // to a
	arrive(4, 7, []int32{2, 0}, []int32{1, 1}) // to b
	arrive(5, 0, []int32{0, 0}, []int32{1, 2}) // to a
	arrive(6, 5, []int32{0, 1}, []int32{1, 2}) // to b
	m.Step(61, Done(tickets[1], 0, attempt.Success, Usage{}))
	m.Step(61, Left(tickets[3]))
	arrive(7, 5, []int32{0, 1}, []int32{1, 1}) // to b
	m.Step(71, Done(tickets[5], 0, attempt.Success, Usage{}))
	m.Step(71, Done(tickets[6], 0, attempt.Success, Usage{}))
	arrive(8, 5, []int32{0, 0}, []int32{1, 0})
}

// A policy that wants the book when calls run already finds them in it; one that does not
// want it has none.
func TestAdapterBook_IsThereOnlyWhereAPolicyUsesIt(t *testing.T) {
	with, without := newTestPool("p", adapting{}, "a", "b"), newTestPool("p", lightest{}, "a", "b")
	m := New(newConfig(without))
	q := request(1)
	q.Adapter = 7
	first := only(t, m.Step(10, Arrive(q))).Ticket
	if m.adapters != nil || m.pools[0].view.AdapterCalls != nil {
		t.Error("there is a book that nobody uses")
	}
	m.Reconfigure(20, newConfig(with))
	auditAdapters(t, m)
	if m.pools[0].view.Adapters[0] != 1 {
		t.Errorf("the view has %v adapters", m.pools[0].view.Adapters)
	}
	with.Endpoints = append(with.Endpoints, Endpoint{Name: "c", Weight: 1})
	m.Reconfigure(30, newConfig(with))
	m.Step(40, Done(first, 0, attempt.Success, Usage{}))
	m.Step(50, Wake())
	auditAdapters(t, m)
	if len(m.adapters.byAdapter) != 0 || len(m.pools[0].view.Adapters) != 3 {
		t.Errorf("after the only call the book has %v, of %d endpoints", m.adapters.byAdapter, len(m.pools[0].view.Adapters))
	}
	m.Reconfigure(60, newConfig(without))
	if m.adapters != nil {
		t.Error("the book stays with nobody who uses it")
	}
}

func TestAdapterBook_DoesNotAllocate(t *testing.T) {
	m := New(newConfig(newTestPool("p", adapting{}, "a", "b", "c")))
	m.explain = false
	q := request(0)
	now := mono.Time(0)
	call := func() {
		q.ID++
		q.Adapter = kvblock.Hash(1 + q.ID%40)
		now += 10
		a := m.Step(now, Arrive(q))[0]
		m.Step(now+1, Done(a.Ticket, 0, attempt.Success, Usage{}))
	}
	for range 1000 {
		call()
	}
	if n := testing.AllocsPerRun(1000, call); n > 0 {
		t.Errorf("%v allocations a call", n)
	}
}
