package flow

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// holding returns a machine of one pool that holds calls for endpoints with so many tokens
// unstarted.
func holding(tokens int64, order admission.Order, p selection.Policy, endpoints ...string) *Machine {
	pool := newTestPool("p", p, endpoints...)
	pool.Queue = admission.Default()
	pool.Queue.Tokens, pool.Queue.Order = tokens, order
	return New(newConfig(pool))
}

// settle delivers wake-ups that are due within a microsecond and returns the actions that
// are neither wake-ups nor notices, in their order.
func settle(m *Machine, now mono.Time) []Action {
	var all []Action
	for until := now + 1000; m.wakeAt <= until; {
		for _, a := range m.Step(m.wakeAt, Wake()) {
			if a.Kind < Ejected {
				all = append(all, a)
			}
		}
	}
	return all
}

func TestHold_LetsCallsGoOneByOneInTheirOrder(t *testing.T) {
	m := holding(1, admission.FIFO, lightest{}, "a", "b")
	var running []Action
	for i := range 6 {
		a := only(t, m.Step(mono.Time(10*(i+1)), Arrive(request(i+1))))
		if i < 2 {
			running = append(running, a)
		} else if a.Kind != Hold || a.Ticket.Call != selection.CallID(i+1) {
			t.Fatalf("call %d: %+v, want it held", i+1, a)
		}
	}
	if s := m.Snapshot(60); s.Held != 4 || s.InFlight != 6 || s.Pools[0].Queue.Calls != 4 || s.Pools[0].Queue.Tokens != 400 || s.Pools[0].Queue.Oldest != 30 {
		t.Fatalf("held: %+v, %+v", s, *s.Pools[0].Queue)
	}
	// Both endpoints have room at one instant: two calls go, a nanosecond apart.
	m.Step(100, FirstToken(running[1].Ticket, 0))
	if at, ok := wakeIn(m.Step(100, FirstToken(running[0].Ticket, 0))); ok {
		t.Fatalf("another wake-up was asked for at %d, though one was", at)
	}
	for i, want := range []selection.CallID{3, 4} {
		at := mono.Time(101 + i)
		if m.wakeAt != at {
			t.Fatalf("wake-up at %d, want %d", m.wakeAt, at)
		}
		a := only(t, m.Step(at, Wake()))
		if a.Kind != Dispatch || a.Ticket.Call != want || a.Wait != at.Sub(mono.Time(10*want)) {
			t.Fatalf("got %+v, want call %d", a, want)
		}
	}
	if got := settle(m, 103); len(got) != 0 {
		t.Errorf("without room: %+v", got)
	}
}

// TestHold_PicksWhenACallGoes: with what is known then, not when it came.
func TestHold_PicksWhenACallGoes(t *testing.T) {
	m := holding(1, admission.FIFO, lightest{}, "a", "b", "c")
	var running []Action
	for i := range 3 {
		running = append(running, only(t, m.Step(mono.Time(i+1), Arrive(request(i+1)))))
	}
	m.Step(10, Arrive(request(4)))
	m.Step(20, FirstToken(running[1].Ticket, 0))
	m.Step(20, Done(running[2].Ticket, 0, attempt.Success, Usage{}))
	a := only(t, m.Step(21, Wake()))
	if a.Slot != 2 || len(a.Decision.Candidates) != 2 {
		t.Errorf("went to slot %d of %+v, want the idle one of the two that have room", a.Slot, a.Decision.Candidates)
	}
}

func TestHold_WhoComesGoesBehind(t *testing.T) {
	m := holding(1, admission.FIFO, lightest{}, "a")
	first := only(t, m.Step(1, Arrive(request(1))))
	m.Step(2, Arrive(request(2)))
	m.Step(3, FirstToken(first.Ticket, 0))
	// The wake-up at 4 is late: a call comes before it.
	var got []Action
	for _, a := range m.Step(5, Arrive(request(3))) {
		if a.Kind < Ejected {
			got = append(got, a)
		}
	}
	if len(got) != 2 || got[0].Kind != Dispatch || got[0].Ticket.Call != 2 || got[1].Kind != Hold || got[1].Ticket.Call != 3 {
		t.Errorf("got %+v, want call 2 sent and call 3 held", got)
	}
}

// TestHold_RoomOfTheSameInstant: a report that is not folded yet when a call comes makes room
// for it a nanosecond later.
func TestHold_RoomOfTheSameInstant(t *testing.T) {
	m := holding(1, admission.FIFO, lightest{}, "a")
	first := only(t, m.Step(1, Arrive(request(1))))
	m.Step(10, FirstToken(first.Ticket, 0))
	if a := only(t, m.Step(10, Arrive(request(2)))); a.Kind != Hold || m.wakeAt != 11 {
		t.Fatalf("got %+v, and a wake-up at %d; want it held until 11", a, m.wakeAt)
	}
	if a := only(t, m.Step(11, Wake())); a.Kind != Dispatch {
		t.Errorf("got %+v, want it sent", a)
	}
}

func TestHold_LeastSlackGoesByDeadlineLessPrefill(t *testing.T) {
	m := holding(1, admission.LeastSlack, lightest{}, "a")
	m.state[0].speed.Learn(1000-admission.CallTokens, time.Second)
	first := only(t, m.Step(1, Arrive(request(1))))
	ask := func(id, tokens int, deadline time.Duration) {
		q := request(id)
		q.InputTokens, q.Deadline = tokens, deadline
		if a := only(t, m.Step(mono.Time(id), Arrive(q))); a.Kind != Hold {
			t.Fatalf("call %d: %+v", id, a)
		}
	}
	ask(2, 1000, 10*time.Second) // 8.5 s
	ask(3, 5000, 12*time.Second) // 6.5 s
	ask(4, 10, 8*time.Second)    // 7.5 s
	ask(5, 10, 0)                // as long as calls may wait
	order := []selection.CallID{}
	for now, a := mono.Time(1000), first; len(order) < 4; now += 1000 {
		m.Step(now, FirstToken(a.Ticket, 0))
		a = only(t, m.Step(now+1, Wake()))
		order = append(order, a.Ticket.Call)
	}
	if want := []selection.CallID{3, 4, 2, 5}; !slices.Equal(order, want) {
		t.Errorf("order is %v, want %v", order, want)
	}
}

func TestHold_RefusesPastABound(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*admission.Config)
		reason Reason
		wait   time.Duration
	}{
		{"length", func(c *admission.Config) { c.Length = 2 }, QueueFull, 200 * time.Millisecond},
		{"bytes", func(c *admission.Config) { c.Bytes = 25 }, QueueBytes, 200 * time.Millisecond},
		{"wait", func(c *admission.Config) { c.MaxWait = 199 * time.Millisecond }, QueueWait, 200 * time.Millisecond},
	} {
		pool := newTestPool("p", lightest{}, "a")
		pool.Queue = admission.Default()
		pool.Queue.Tokens = 1
		x.change(&pool.Queue)
		m := New(newConfig(pool))
		usual(m, 0)
		for i := range 4 {
			q := request(i + 1)
			q.Bytes = 10
			a := only(t, m.Step(mono.Time(i+1), Arrive(q)))
			if i == 3 && (a.Kind != Refuse || a.Reason != x.reason || a.Wait != x.wait) {
				t.Errorf("%s: got %v for %v after %v, want a refusal for %v after %v", x.name, a.Kind, a.Reason, a.Wait, x.reason, x.wait)
			}
		}
		if s := m.Snapshot(10); s.InFlight != 3 || s.Held != 2 {
			t.Errorf("%s: %d in flight, %d held", x.name, s.InFlight, s.Held)
		}
	}
}

func TestHold_GivesUpWhoWaitsTooLong(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a")
	pool.Queue = admission.Default()
	pool.Queue.Tokens, pool.Queue.MaxWait = 1, 50
	c := newConfig(pool)
	c.Health.Stall = 0
	m := New(c)
	m.Step(1, Arrive(request(1)))
	m.Step(10, Arrive(request(2)))
	m.Step(20, Arrive(request(3)))
	for _, want := range []struct {
		at   mono.Time
		call selection.CallID
	}{{60, 2}, {70, 3}} {
		if m.wakeAt != want.at {
			t.Fatalf("wake-up at %d, want %d", m.wakeAt, want.at)
		}
		if a := only(t, m.Step(want.at, Wake())); a.Kind != GiveUp || a.Reason != QueueTimeout || a.Ticket.Call != want.call || a.Wait != 50 {
			t.Errorf("got %+v, want call %d given up", a, want.call)
		}
	}
	if m.holding != 0 || m.inFlight != 1 {
		t.Errorf("%d held, %d in flight", m.holding, m.inFlight)
	}
}

func TestHold_WhoLeavesFreesItsPlace(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a")
	pool.Queue = admission.Default()
	pool.Queue.Tokens, pool.Queue.Length = 1, 1
	m := New(newConfig(pool))
	m.Step(1, Arrive(request(1)))
	held := only(t, m.Step(2, Arrive(request(2))))
	if a := only(t, m.Step(3, Arrive(request(3)))); a.Kind != Refuse {
		t.Fatalf("a second call may wait: %+v", a)
	}
	m.Step(4, Left(held.Ticket))
	if a := only(t, m.Step(5, Arrive(request(4)))); a.Kind != Hold {
		t.Errorf("after one has left: %+v, want the call held", a)
	}
}

// TestHold_OneWhoseOwnerIsBusyBlocksNobody: it is passed over until its owner has room.
func TestHold_OneWhoseOwnerIsBusyBlocksNobody(t *testing.T) {
	m := holding(1, admission.FIFO, lightest{}, "a", "b")
	var running []Action
	for i := range 2 {
		running = append(running, only(t, m.Step(mono.Time(i+1), Arrive(request(i+1)))))
	}
	owned := request(3)
	owned.Owned, owned.Owner = true, 1
	m.Step(3, Arrive(owned))
	m.Step(4, Arrive(request(4)))
	m.Step(10, FirstToken(running[0].Ticket, 0))
	if a := only(t, settle(m, 10)); a.Ticket.Call != 4 || a.Slot != 0 {
		t.Fatalf("with room at slot 0: %+v, want call 4 there", a)
	}
	q := request(5)
	q.Owned = true
	if a := only(t, m.Step(2000, Arrive(q))); a.Kind != Hold {
		t.Fatalf("an owner without room got a call: %+v", a)
	}
	m.Step(3000, FirstToken(running[1].Ticket, 0))
	if a := only(t, settle(m, 3000)); a.Ticket.Call != 3 || a.Slot != 1 {
		t.Fatalf("with room at slot 1: %+v, want call 3 there", a)
	}
}

// TestHold_BusyEndpointsAreWaitedFor: they are not bothered while a call can wait
// (field case F29).
func TestHold_BusyEndpointsAreWaitedFor(t *testing.T) {
	m := holding(1, admission.FIFO, lightest{}, "a")
	a := only(t, m.Step(1, Arrive(request(1))))
	m.Step(10, Pushed(a.Ticket, 0, attempt.Busy, 3*time.Second))
	settle(m, 10)
	if a := only(t, m.Step(1e9, Arrive(request(2)))); a.Kind != Hold {
		t.Fatalf("got %+v, want the call held", a)
	}
	due := mono.Time(3e9 + 10)
	for m.wakeAt < due {
		m.Step(m.wakeAt, Wake())
	}
	if m.wakeAt > due+2 {
		t.Fatalf("wake-up at %d, want about %d", m.wakeAt, due)
	}
	sent := settle(m, due)
	if !slices.ContainsFunc(sent, func(a Action) bool { return a.Kind == Dispatch && a.Ticket.Call == 2 }) {
		t.Errorf("when the endpoint has room: %+v", sent)
	}
}

// TestHold_NobodyWaitsInVain: where every endpoint has asked to be left alone for longer than
// a call may wait, calls are refused and told for how long; one that is free again in time, in
// a lower pool too, is waited for.
func TestHold_NobodyWaitsInVain(t *testing.T) {
	for _, test := range []struct {
		name  string
		busy  []time.Duration // of a, b and the lower pool's c
		until time.Duration   // 0: held
	}{
		{"all for a minute", []time.Duration{60 * time.Second, 50 * time.Second, 55 * time.Second}, 49 * time.Second},
		{"one for as long as a call may wait", []time.Duration{60 * time.Second, 31 * time.Second, 60 * time.Second}, 0},
		{"one in the lower pool", []time.Duration{60 * time.Second, 60 * time.Second, 5 * time.Second}, 0},
	} {
		high, low := newTestPool("high", lightest{}, "a", "b"), newTestPool("low", lightest{}, "c")
		for _, p := range []*Pool{&high, &low} {
			p.Queue = admission.Default() // of 30 s
			p.Queue.Tokens = 1
		}
		m := New(newConfig(high, low))
		for slot, d := range test.busy {
			m.state[slot].busyUntil, m.state[slot].asked = mono.Time(d), true
			for _, p := range m.pools {
				p.dirty = true
			}
		}
		a := only(t, m.Step(1e9, Arrive(request(1))))
		switch {
		case test.until == 0 && a.Kind != Hold:
			t.Errorf("%s: %+v, want the call held", test.name, a)
		case test.until > 0 && (a.Kind != Refuse || a.Reason != QueueWait || a.Wait != test.until):
			t.Errorf("%s: %+v, want it refused for %v", test.name, a, test.until)
		}
	}
}

func TestHold_FallsToTheLowerPoolWhenTheHigherIsOut(t *testing.T) {
	high := newTestPool("high", lightest{}, "a")
	high.Queue = admission.Default()
	high.Queue.Tokens = 1
	c := newConfig(high, newTestPool("low", lightest{}, "b"))
	c.Health.Failures = 1
	m := New(c)
	first := only(t, m.Step(1, Arrive(request(1))))
	if a := only(t, m.Step(2, Arrive(request(2)))); a.Kind != Hold {
		t.Fatalf("got %+v, want the call held for the pool that is preferred", a)
	}
	m.Step(10, Done(first.Ticket, 0, attempt.ConnectFailed, Usage{}))
	for _, a := range settle(m, 10) {
		if a.Kind == Dispatch && a.Ticket.Call == 2 && a.Pool == 1 {
			return
		}
	}
	t.Errorf("the held call did not go to the pool that is left: %d held", m.holding)
}

func TestReconfigure_PlacesWhoWaitedForAPoolThatGoes(t *testing.T) {
	a := newTestPool("a", lightest{}, "x")
	a.Queue = admission.Default()
	a.Queue.Tokens = 1
	m := New(newConfig(a))
	m.Step(1, Arrive(request(1)))
	m.Step(2, Arrive(request(2)))
	m.Step(3, Arrive(request(3)))
	m.Reconfigure(10, newConfig(newTestPool("b", lightest{}, "y")))
	var got []selection.CallID
	for _, a := range settle(m, 10) {
		if a.Kind == Dispatch && a.Pool == 0 {
			got = append(got, a.Ticket.Call)
		}
	}
	if !slices.Equal(got, []selection.CallID{2, 3}) || m.holding != 0 {
		t.Errorf("calls %v went to the new pool, %d are held; want 2 and 3, and none", got, m.holding)
	}
}

func TestReconfigure_ANewEndpointTakesWhoWaits(t *testing.T) {
	p := newTestPool("p", lightest{}, "a")
	p.Queue = admission.Default()
	p.Queue.Tokens = 1
	m := New(newConfig(p))
	m.Step(1, Arrive(request(1)))
	m.Step(2, Arrive(request(2)))
	p.Endpoints = append(p.Endpoints, Endpoint{Name: "b", Weight: 1})
	m.Reconfigure(10, newConfig(p))
	if a := only(t, settle(m, 10)); a.Kind != Dispatch || a.Ticket.Call != 2 || a.Slot != 1 {
		t.Errorf("got %+v, want call 2 at the new endpoint", a)
	}
}

// predicting is lightest with an opinion of how long prefill takes.
type predicting struct{ lightest }

func (predicting) PrefillTime(slot selection.Slot, w selection.Work) (time.Duration, bool) {
	return time.Duration(w.Tokens) * time.Duration(slot+1), slot < 2
}

// TestRoom_IsWhatThePolicyPredicts, and what the endpoint has shown lately once it has.
func TestRoom_IsWhatThePolicyPredicts(t *testing.T) {
	pool := newTestPool("p", predicting{}, "a", "b", "c", "d")
	pool.Queue = admission.Default()
	pool.Queue.Work = 250
	m := New(newConfig(pool))
	m.state[3].speed.Learn(9*admission.CallTokens+1000, time.Microsecond) // 0.1 µs a call
	for i := range 20 {
		m.Step(mono.Time(i+1), Arrive(request(i+1)))
	}
	// Calls have 100 tokens: 100, 200, nobody knows, 100 ns.
	for slot, want := range []int32{3, 2, 1, 3} {
		if got := m.books[slot].Outstanding; got != want {
			t.Errorf("slot %d has %d calls, want %d", slot, got, want)
		}
	}
}

// TestRoom_AnswersThatComeWholeTakeNone: nobody sees when their prefill is over.
func TestRoom_AnswersThatComeWholeTakeNone(t *testing.T) {
	m := holding(1, admission.FIFO, lightest{}, "a")
	for i := range 5 {
		q := request(i + 1)
		q.Stream = false
		if a := only(t, m.Step(mono.Time(i+1), Arrive(q))); a.Kind != Dispatch {
			t.Fatalf("call %d: %+v", i+1, a)
		}
	}
	if s := &m.state[0]; s.unstartedCalls != 0 || s.unstarted != (selection.Work{}) {
		t.Errorf("unstarted: %d calls, %+v", s.unstartedCalls, s.unstarted)
	}
}

// TestHold_Laws plays random traffic and holds the machine to what a queue promises.
func TestHold_Laws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order := admission.Order(rapid.IntRange(0, 1).Draw(t, "order"))
		const length, bytes, room = 5, 40, 150
		pool := newTestPool("p", lightest{}, "a", "b", "c")
		pool.Queue = admission.Config{Tokens: room, Order: order, Length: length, Bytes: bytes, MaxWait: time.Millisecond}
		if rapid.Bool().Draw(t, "single-flight") {
			pool.Flights = admission.FlightConfig{MinTokens: 20, MaxWait: 700, MaxSiblings: 2}
		}
		m := New(newConfig(pool))
		type known struct {
			ticket Ticket
			state  string // held or running
			rank   mono.Time
			tied   bool
			again  bool // it has had an attempt
			first  bool
			n      int  // attempt
			queued bool // until just now
		}
		calls := map[selection.CallID]*known{}
		now, id := mono.Time(0), 0
		var asked *selection.Request

		obey := func(actions []Action) {
			for _, a := range actions {
				c := calls[a.Ticket.Call]
				switch a.Kind {
				case Dispatch:
					if c != nil && c.state == "held" {
						for other, o := range calls {
							if o != c && o.state == "held" && !o.tied && m.calls[o.ticket.index].queued != nil && c.queued && (o.rank < c.rank || o.rank == c.rank && other < a.Ticket.Call) {
								t.Fatalf("call %d went before call %d", a.Ticket.Call, other)
							}
						}
					}
					if s := &m.state[a.Slot]; s.unstartedCalls > 1 && s.unstarted.Tokens-m.calls[a.Ticket.index].work.Tokens >= room {
						t.Fatalf("slot %d got a call and had %d tokens unstarted", a.Slot, s.unstarted.Tokens)
					}
					if c == nil {
						c = &known{}
						calls[a.Ticket.Call] = c
					}
					c.ticket, c.state, c.n, c.again, c.first = a.Ticket, "running", a.Attempt, true, false
				case Hold:
					rank := now
					if order == admission.LeastSlack {
						rank = now.Add(asked.Deadline)
					}
					calls[a.Ticket.Call] = &known{ticket: a.Ticket, state: "held", rank: rank, tied: asked.Owned}
				case Refuse:
					if c != nil {
						t.Fatalf("call %d was refused after it was let in", a.Ticket.Call)
					}
				case GiveUp:
					if c == nil {
						t.Fatalf("call %d was given up and nobody knows it", a.Ticket.Call)
					}
					delete(calls, a.Ticket.Call)
				}
			}
		}
		// later lets time pass, and what the machine asked for happen.
		later := func(d time.Duration) {
			until := now.Add(d)
			for m.wakeAt <= until {
				now = max(now, m.wakeAt)
				obey(m.Step(now, Wake()))
			}
			now = until
		}
		pick := func(t *rapid.T, state string) (selection.CallID, *known) {
			var ids []selection.CallID
			for id, c := range calls {
				if c.state == state {
					ids = append(ids, id)
				}
			}
			if len(ids) == 0 {
				t.Skip("none is " + state)
			}
			slices.Sort(ids)
			id := ids[rapid.IntRange(0, len(ids)-1).Draw(t, "which")]
			return id, calls[id]
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				later(time.Duration(rapid.IntRange(2, 2000).Draw(t, "pause")))
				id++
				q := request(id)
				q.InputTokens = rapid.IntRange(1, 200).Draw(t, "tokens")
				q.Bytes = int64(rapid.IntRange(1, 15).Draw(t, "bytes"))
				q.Deadline = time.Duration(rapid.IntRange(1, 3000).Draw(t, "deadline"))
				if rapid.IntRange(0, 4).Draw(t, "owned") == 0 {
					q.Owned, q.Owner = true, selection.Slot(rapid.IntRange(0, 2).Draw(t, "owner"))
				}
				family := 1000 * rapid.IntRange(1, 2).Draw(t, "family")
				q.BlockTokens = 10
				for d := range q.InputTokens / 10 {
					q.Blocks = append(q.Blocks, kvblock.Hash(family+d))
				}
				if order == admission.LeastSlack {
					for i := range m.state { // so that ranks are deadlines alone
						m.state[i].speed = admission.Speed{}
					}
				}
				asked = q
				obey(m.Step(now, Arrive(q)))
			},
			"first": func(t *rapid.T) {
				_, c := pick(t, "running")
				c.first = true
				obey(m.Step(now, FirstToken(c.ticket, c.n)))
			},
			"done": func(t *rapid.T) {
				id, c := pick(t, "running")
				obey(m.Step(now, Done(c.ticket, c.n, attempt.Success, Usage{})))
				delete(calls, id)
			},
			"busy": func(t *rapid.T) {
				_, c := pick(t, "running")
				if c.first {
					t.Skip("it has content")
				}
				obey(m.Step(now, Pushed(c.ticket, c.n, attempt.Busy, time.Duration(rapid.IntRange(0, 500).Draw(t, "wait")))))
				c.state, c.tied, c.rank = "held", true, -1 // it waits, for a backoff or in the queue, and may not go everywhere
			},
			"leave": func(t *rapid.T) {
				id, c := pick(t, rapid.SampledFrom([]string{"running", "held"}).Draw(t, "state"))
				obey(m.Step(now, Left(c.ticket)))
				delete(calls, id)
			},
			"": func(t *rapid.T) {
				later(10)
				for range 50 { // while one call after the other goes
					if m.wakeAt > now+1 {
						break
					}
					later(1)
				}
				m.Snapshot(now) // folds
				q := m.pools[0].queue
				for _, c := range calls {
					c.queued = m.calls[c.ticket.index].queued != nil
				}
				waiting, again, size, following := 0, 0, int64(0), 0
				for i := range m.calls {
					c := &m.calls[i]
					if c.phase == held && c.follows != nil {
						following++
						if !c.patient || c.attempt == 0 && now.Sub(c.arrived) > time.Millisecond+700+50 {
							t.Fatalf("call %d follows since it came at %d, and it is %d", c.request.ID, c.arrived, now)
						}
					}
					if c.phase == held && c.queued != nil {
						waiting++
						size += c.request.Bytes
						if c.attempt > 0 {
							again++
						}
					}
				}
				if q.Len() != waiting || q.Bytes() != size || m.holding != waiting {
					t.Fatalf("%d calls of %d bytes are held, the queue has %d of %d, the machine counts %d", waiting, size, q.Len(), q.Bytes(), m.holding)
				}
				if m.following != following || m.pools[0].flights != nil && m.pools[0].flights.Waiting() != following {
					t.Fatalf("%d follow, the machine counts %d", following, m.following)
				}
				if waiting-again > length || again == 0 && size > bytes {
					t.Fatalf("%d calls and %d bytes are held, over the bound", waiting-again, size)
				}
				if m.inFlight != len(calls) {
					t.Fatalf("the machine has %d calls, want %d", m.inFlight, len(calls))
				}
				for i := range m.state {
					s := &m.state[i]
					n, w := 0, selection.Work{}
					for k := range m.calls {
						if c := &m.calls[k]; c.phase == running && !c.committed && c.slot == selection.Slot(i) {
							n++
							w = w.Plus(c.work)
						}
					}
					if s.unstartedCalls != n || s.unstarted != w {
						t.Fatalf("slot %d: %d calls and %+v unstarted, want %d and %+v", i, s.unstartedCalls, s.unstarted, n, w)
					}
					if n > 0 && w.Tokens >= room || now < s.busyUntil {
						continue
					}
					for id, c := range calls {
						k := &m.calls[c.ticket.index]
						if k.queued != nil && !k.excludes(selection.Slot(i), 0) {
							t.Fatalf("slot %d has room and call %d is held at %d", i, id, now)
						}
					}
				}
			},
		})
	})
}

// With a queue a pool's only endpoint is not asked at all after failing: it was shunned as
// "with nobody else to ask, a refused connection costs less than a refusal of ours".
func TestHold_TheOnlyEndpointThatFailsIsAsked(t *testing.T) {
	for _, on := range []bool{false, true} {
		m := holding(1<<30, admission.FIFO, lightest{}, "a")
		if !on {
			m = New(newConfig(newTestPool("p", lightest{}, "a")))
		}
		for id := range 3 {
			a := only(t, m.Step(mono.Time(10*id+1), Arrive(request(id+1))))
			if a.Kind != Dispatch {
				t.Fatalf("queue %v: call %d: %+v", on, id+1, a)
			}
			m.Step(mono.Time(10*id+2), Done(a.Ticket, 0, attempt.ConnectFailed, Usage{}))
			m.Step(mono.Time(10*id+3), Wake())
		}
		if a := only(t, m.Step(1000, Arrive(request(9)))); a.Kind != Dispatch {
			t.Errorf("queue %v: call is held for %v while nothing is at the endpoint", on, time.Duration(m.admitAt-1000))
		}
	}
}

// A lower pool is idle; the upper one, with a queue, is busy. The Config says the lower is used.
func TestHold_TheLowerPoolIsUsedWhereTheHigherIsBusy(t *testing.T) {
	up := newTestPool("up", lightest{}, "a")
	up.Queue = admission.Default()
	up.Queue.Tokens = 1000
	m := New(newConfig(up, newTestPool("down", lightest{}, "b")))
	a := only(t, m.Step(1, Arrive(request(1))))
	m.Step(2, Pushed(a.Ticket, 0, attempt.Limited, time.Minute))
	settle(m, 2)
	if a := only(t, m.Step(mono.Time(time.Second), Arrive(request(2)))); a.Kind != Dispatch {
		t.Errorf("held for a busy endpoint for a minute while another pool is idle: %+v, next look in %v", a, time.Duration(m.admitAt)-time.Second)
	}
}

// Whoever brings the most prefill goes first: short calls wait until they are given up.
func TestHold_LeastSlackStarvesNobody(t *testing.T) {
	m := holding(1, admission.LeastSlack, lightest{}, "a")
	m.state[0].speed.Learn(1000-admission.CallTokens, time.Second)
	running := only(t, m.Step(1, Arrive(request(1))))
	m.Step(2, Arrive(request(2))) // 0.1 s of work, wanted within max_wait
	now := mono.Time(2)
	for id := 3; id < 40; id++ {
		now = now.Add(time.Second)
		q := request(id)
		q.InputTokens = 100_000 // a minute and a half; its client aborts it after a second
		acts := append([]Action{}, m.Step(now, Arrive(q))...)
		m.Step(now+1, Left(running.Ticket))
		acts = append(acts, m.Step(now+2, Wake())...)
		for _, a := range acts {
			switch {
			case a.Kind == Dispatch && a.Ticket.Call == 2:
				return
			case a.Kind == GiveUp && a.Ticket.Call == 2:
				t.Fatalf("call 2 is given up (%v) after %v; %d calls that came later went before it", a.Reason, a.Wait, id-3)
			case a.Kind == Dispatch:
				running = a
			}
		}
	}
	t.Fatal("neither")
}

// A call held by a lower pool isn't looked at when an upper pool's endpoint may be probed.
func TestHold_LooksAgainWhenAnotherPoolMayBeProbed(t *testing.T) {
	down := newTestPool("down", lightest{}, "b")
	down.Queue = admission.Default()
	down.Queue.Tokens = 1
	m := New(newConfig(newTestPool("up", lightest{}, "a"), down))
	m.eject(0, 0, 1, false, m.health.Term())
	only(t, m.Step(1, Arrive(request(1)))) // to b
	if a := only(t, m.Step(2, Arrive(request(2)))); a.Kind != Hold {
		t.Fatalf("%+v", a)
	}
	due, _ := m.state[0].breaker.ProbeDue()
	if m.wakeAt > due+1 {
		t.Errorf("the next look is at %v, though a may be probed at %v", m.wakeAt.Duration(), due.Duration())
	}
}

// TestHold_MaxWaitIsForTheWholeWait has a call wait, fail at the endpoint that it is sent to, and
// wait again.
func TestHold_MaxWaitIsForTheWholeWait(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a", "b")
	pool.Queue = admission.Default()
	pool.Queue.Tokens, pool.Queue.MaxWait = 1, 10*time.Second
	c := newConfig(pool)
	c.Health.Stall = 0
	m := New(c)
	first := only(t, m.Step(1, Arrive(request(1))))
	m.Step(2, Arrive(request(2)))
	m.Step(3, Arrive(request(3)))
	at := mono.Time(6 * time.Second)
	m.Step(at, FirstToken(first.Ticket, 0))
	again := only(t, settle(m, at))
	m.Step(at+10, Done(again.Ticket, 0, attempt.ConnectFailed, Usage{}))
	for m.wakeAt < mono.Time(time.Hour) {
		now := m.wakeAt
		for _, a := range m.Step(now, Wake()) {
			if a.Kind == GiveUp {
				if again.Wait < 5*time.Second || a.Reason != QueueTimeout || a.Wait != 10*time.Second || now > mono.Time(11*time.Second) {
					t.Errorf("after %v: %+v, want it given up after 10 s in the queue", now.Duration(), a)
				}
				return
			}
		}
	}
	t.Fatal("it waits on")
}
