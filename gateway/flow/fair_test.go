package flow

import (
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

func fairly(order admission.Order, p selection.Policy, endpoints ...string) *Machine {
	return holding(1, order, p, endpoints...)
}

func of(id int, tenant kvblock.Hash) *selection.Request {
	q := request(id)
	q.Tenant = tenant
	return q
}

// had returns what a running call's principal has had.
func had(m *Machine, a Action) float64 {
	b := &m.calls[a.Ticket.index].bill
	return b.queue.Had(b.payer)
}

func TestFair_LeastServiceGoesFirst(t *testing.T) {
	m := fairly(admission.Fair, lightest{}, "a")
	a := only(t, m.Step(1, Arrive(of(1, 7))))
	if !a.Progress {
		t.Error("progress is not asked for")
	}
	m.Step(2, Arrive(of(2, 7)))
	m.Step(3, Arrive(of(3, 7)))
	m.Step(4, Arrive(of(4, 8)))
	m.Step(5, Arrive(of(5, 8)))
	now := mono.Time(1000)
	for _, want := range []selection.CallID{2, 4, 3, 5} { // who comes is lifted to whom it meets, who came first goes first
		m.Step(now, FirstToken(a.Ticket, 0))
		if a = only(t, settle(m, now)); a.Ticket.Call != want {
			t.Fatalf("call %d goes, want %d", a.Ticket.Call, want)
		}
		now += 2000
	}
}

func TestFair_ChargesAsTheAnswerComes(t *testing.T) {
	m := fairly(admission.Fair, lightest{}, "a")
	q := of(1, 7)
	q.Share = 2
	a := only(t, m.Step(1, Arrive(q)))
	if got := had(m, a); got != 50 {
		t.Errorf("a prompt of 100 tokens, with a share of 2, costs %v", got)
	}
	m.Step(2, FirstToken(a.Ticket, 0))
	m.Step(3, Progress(a.Ticket, 0, 10))
	m.Step(4, Progress(a.Ticket, 0, 10)) // it is cumulative
	m.Step(5, Progress(a.Ticket, 0, 30))
	m.Step(6, Progress(a.Ticket, 0, 20))  // it came too late
	m.Step(6, Progress(a.Ticket, 1, 900)) // of another attempt
	m.Step(7, Wake())
	if got := had(m, a); got != 50+30 {
		t.Errorf("30 tokens later it is %v", got)
	}
	payer, queue := m.calls[a.Ticket.index].bill.payer, m.pools[0].queue
	m.Step(8, Done(a.Ticket, 0, attempt.Success, Usage{Known: true, CachedKnown: true, Prompt: 120, Cached: 20, Output: 40}))
	m.Step(9, Wake())
	if got := queue.Had(payer); got != (100+2+80)/2.0 {
		t.Errorf("in the end it is %v", got)
	}
}

// TestFair_AFailedAttemptCostsNothing: its principal pays for the one that follows; but who leaves
// pays for what he has set off.
func TestFair_AFailedAttemptCostsNothing(t *testing.T) {
	m := fairly(admission.Fair, lightest{}, "a", "b")
	a := only(t, m.Step(1, Arrive(of(1, 7))))
	m.Step(2, Done(a.Ticket, 0, attempt.ConnectFailed, Usage{}))
	b := Action{}
	for b.Kind != Dispatch || b.Attempt != 1 {
		for _, x := range m.Step(m.wakeAt, Wake()) {
			if x.Kind == Dispatch {
				b = x
			}
		}
	}
	if got := had(m, b); got != 100 {
		t.Errorf("after two attempts it is %v", got)
	}
	payer := m.calls[b.Ticket.index].bill.payer
	m.Step(m.last+1, Left(b.Ticket))
	m.Step(m.last+2, Wake())
	if got := m.pools[0].queue.Had(payer); got != 100 {
		t.Errorf("after its client has left it is %v", got)
	}
}

// TestFair_EveryBillIsShut: whatever becomes of calls, in the end no principal has one under
// way, and none is remembered but who went last.
func TestFair_EveryBillIsShut(t *testing.T) {
	m := fairly(admission.Fair, lightest{}, "a", "b")
	var tickets []Ticket
	now := mono.Time(1)
	for i := range 30 {
		now += 10
		for _, a := range words(m.Step(now, Arrive(of(i+1, kvblock.Hash(i%5))))) {
			if a.Kind != Refuse && a.Ticket.Call == selection.CallID(i+1) {
				tickets = append(tickets, a.Ticket)
			}
		}
	}
	for i, ticket := range tickets {
		now += 2000
		c := m.lookup(ticket)
		switch {
		case c == nil:
		case i%3 == 0 || c.phase != running:
			m.Step(now, Left(ticket))
		case i%3 == 1:
			m.Step(now, FirstToken(ticket, c.attempt))
			m.Step(now+1, Done(ticket, c.attempt, attempt.Success, Usage{}))
		default:
			m.Step(now, Done(ticket, c.attempt, attempt.CallerFault, Usage{}))
		}
		settle(m, now)
	}
	m.Step(now+mono.Time(time.Minute), Wake())
	if m.inFlight != 0 || m.holding != 0 {
		t.Fatalf("%d in flight, %d held", m.inFlight, m.holding)
	}
	q := m.pools[0].queue
	p := q.Enter(0, 99) // who went last before it is forgotten, too
	q.End(p)
	if n := q.Principals(); n > 2 {
		t.Errorf("%d principals are remembered", n)
	}
}

// TestFairLocal_PrefersThePrefixThatAnEndpointWithRoomHolds.
func TestFairLocal_PrefersThePrefixThatAnEndpointWithRoomHolds(t *testing.T) {
	m := fairly(admission.FairLocal, &overlapping{}, "a", "b")
	ask := func(id int, tenant kvblock.Hash, blocks ...kvblock.Hash) *selection.Request {
		q := of(id, tenant)
		q.Blocks, q.BlockTokens, q.Head = blocks, 10, 1
		return q
	}
	a := only(t, m.Step(1, Arrive(ask(1, 7, 1, 2, 3))))
	b := only(t, m.Step(2, Arrive(ask(2, 8, 4, 5, 6))))
	m.Step(3, Arrive(ask(3, 9, 7, 8, 9)))
	m.Step(4, Arrive(ask(4, 9, 4, 5, 6)))
	m.Step(5, Arrive(ask(5, 10, 1, 2, 3)))
	m.Step(1000, FirstToken(a.Ticket, 0))
	if c := only(t, settle(m, 1000)); c.Ticket.Call != 5 || c.Slot != a.Slot {
		t.Errorf("call %d goes to slot %d, want call 5 to %d, which has its prefix", c.Ticket.Call, c.Slot, a.Slot)
	}
	m.Step(5000, FirstToken(b.Ticket, 0))
	if c := only(t, settle(m, 5000)); c.Ticket.Call != 3 { // the first of its principal's, and so looked at first; the second finds more
		if c.Ticket.Call != 4 || c.Slot != b.Slot {
			t.Errorf("call %d goes to slot %d, want call 4 to %d", c.Ticket.Call, c.Slot, b.Slot)
		}
	} else {
		t.Error("call 3 goes, though call 4 finds its prefix")
	}
}

// TestFair_AnotherOrderKeepsTheCalls: bills of a queue that is gone are shut there.
func TestFair_AnotherOrderKeepsTheCalls(t *testing.T) {
	for _, order := range []admission.Order{admission.FIFO, admission.FairLocal} {
		m := fairly(admission.Fair, lightest{}, "a")
		before := m.pools[0].queue
		a := only(t, m.Step(1, Arrive(of(1, 7))))
		m.Step(2, Arrive(of(2, 7)))
		m.Step(3, Arrive(of(3, 8)))
		pool := newTestPool("p", lightest{}, "a")
		pool.Queue = admission.Default()
		pool.Queue.Tokens, pool.Queue.Order = 1, order
		m.Reconfigure(10, newConfig(pool))
		settle(m, 10)
		if m.holding != 2 || m.pools[0].queue == before {
			t.Fatalf("%v: %d held", order, m.holding)
		}
		now := mono.Time(2000)
		for range 3 {
			m.Step(now, FirstToken(a.Ticket, 0))
			m.Step(now+1, Progress(a.Ticket, 0, 5))
			m.Step(now+2, Done(a.Ticket, 0, attempt.Success, Usage{Known: true, Prompt: 100, Output: 9}))
			for _, x := range settle(m, now+3) {
				a = x
			}
			now += 5000
		}
		m.Step(now, Wake())
		if m.inFlight != 0 {
			t.Errorf("%v: %d in flight", order, m.inFlight)
		}
		if n := before.Principals(); n > 2 {
			t.Errorf("%v: the former queue remembers %d principals", order, n)
		}
	}
}
