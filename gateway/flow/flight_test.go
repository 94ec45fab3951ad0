package flow

import (
	"slices"
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// siblings returns a machine whose calls wait for siblings, but a moment at most.
func siblings(maxWait time.Duration, p selection.Policy, endpoints ...string) *Machine {
	pool := newTestPool("p", p, endpoints...)
	pool.Flights = admission.FlightConfig{MinTokens: 100, MaxWait: maxWait, MaxSiblings: 3}
	return New(newConfig(pool))
}

// child is a call of 1,000 tokens: 60 blocks of 16 that it shares with others of its family,
// and one of its own.
func child(id, family int) *selection.Request {
	q := request(id)
	q.InputTokens, q.BlockTokens = 1000, 16
	for d := range 60 {
		q.Blocks = append(q.Blocks, kvblock.Hash(family*1000+d+1))
	}
	q.Blocks = append(q.Blocks, kvblock.Hash(1_000_000+id))
	return q
}

func TestFlight_SiblingsWaitForTheFirstToken(t *testing.T) {
	m := siblings(time.Second, &overlapping{}, "a", "b", "c", "d", "e")
	first := only(t, m.Step(1, Arrive(child(1, 1))))
	for id := 2; id <= 4; id++ {
		if a := only(t, m.Step(mono.Time(id), Arrive(child(id, 1)))); a.Kind != Hold {
			t.Fatalf("call %d: %+v, want it to wait", id, a)
		}
	}
	if a := only(t, m.Step(5, Arrive(child(5, 1)))); a.Kind != Dispatch {
		t.Errorf("more siblings wait than may: %+v", a)
	}
	if a := only(t, m.Step(6, Arrive(child(6, 2)))); a.Kind != Dispatch {
		t.Errorf("a call of another family waits: %+v", a)
	}
	if s := m.Snapshot(7); s.Following != 3 || s.InFlight != 6 {
		t.Errorf("%d follow, %d in flight", s.Following, s.InFlight)
	}
	m.Step(100, FirstToken(first.Ticket, 0))
	for id := 2; id <= 4; id++ {
		at := mono.Time(99 + id)
		if m.wakeAt != at {
			t.Fatalf("wake-up at %d, want %d", m.wakeAt, at)
		}
		a := only(t, m.Step(at, Wake()))
		if a.Kind != Dispatch || a.Ticket.Call != selection.CallID(id) || a.Wait != at.Sub(mono.Time(id))-time.Duration(id-1) {
			t.Errorf("got %+v, want call %d", a, id)
		}
		if o := a.Decision.Candidates[0].Overlap; o != 60 {
			t.Errorf("call %d went when %d blocks were held, want 60", id, o)
		}
	}
	if m.following != 0 || m.pools[0].flights.Waiting() != 0 {
		t.Errorf("%d follow still", m.following)
	}
	m.Step(200, Wake())
	if a := only(t, m.Step(201, Arrive(child(7, 1)))); a.Kind != Dispatch {
		t.Errorf("a call waits for what is held: %+v", a)
	}
}

func TestFlight_NobodyWaitsForWhoComputesNoLonger(t *testing.T) {
	for name, end := range map[string]func(Ticket) Event{
		"failed": func(t Ticket) Event { return Done(t, 0, attempt.ConnectFailed, Usage{}) },
		"left":   Left,
		"wrong":  func(t Ticket) Event { return Done(t, 0, attempt.CallerFault, Usage{}) },
	} {
		m := siblings(time.Second, &overlapping{}, "a", "b", "c")
		first := only(t, m.Step(1, Arrive(child(1, 1))))
		m.Step(2, Arrive(child(2, 1)))
		m.Step(3, Arrive(child(3, 1)))
		m.Step(100, end(first.Ticket))
		got := map[selection.CallID]ActionKind{}
		for _, a := range settle(m, 100) {
			got[a.Ticket.Call] = a.Kind
		}
		if k, ok := got[2]; !ok || k != Dispatch {
			t.Errorf("%s: %v, want call 2 to go", name, got)
		}
		if k, ok := got[3]; !ok || k != Dispatch {
			t.Errorf("%s: %v, want call 3 to go", name, got)
		}
		if n := m.pools[0].flights.Waiting(); n != 0 || m.following != 0 {
			t.Errorf("%s: %d wait still", name, n)
		}
	}
}

// TestFlight_FirstTokenOfTheSameInstant: one that is not folded yet when a sibling comes.
func TestFlight_FirstTokenOfTheSameInstant(t *testing.T) {
	m := siblings(time.Second, &overlapping{}, "a", "b")
	first := only(t, m.Step(1, Arrive(child(1, 1))))
	m.Step(10, FirstToken(first.Ticket, 0))
	if a := only(t, m.Step(10, Arrive(child(2, 1)))); a.Kind != Hold || m.wakeAt != 11 {
		t.Fatalf("got %+v, and a wake-up at %d; want it held until 11", a, m.wakeAt)
	}
	if a := only(t, m.Step(11, Wake())); a.Kind != Dispatch {
		t.Errorf("got %+v, want it sent", a)
	}
}

func TestFlight_PatienceEnds(t *testing.T) {
	m := siblings(50, &overlapping{}, "a", "b")
	m.Step(1, Arrive(child(1, 1)))
	m.Step(10, Arrive(child(2, 1)))
	m.Step(20, Arrive(child(3, 1)))
	for id, at := range map[int]mono.Time{2: 60} {
		if m.wakeAt != at {
			t.Fatalf("wake-up at %d, want %d", m.wakeAt, at)
		}
		if a := only(t, m.Step(at, Wake())); a.Kind != Dispatch || a.Ticket.Call != selection.CallID(id) || a.Wait != 50 {
			t.Errorf("got %+v, want call %d", a, id)
		}
	}
	if a := only(t, m.Step(70, Wake())); a.Ticket.Call != 3 {
		t.Errorf("got %+v, want call 3", a)
	}
}

// TestFlight_OnlyWhereItPays: not where the sibling takes more than twice as long as the call
// would itself, and no longer than that.
func TestFlight_OnlyWhereItPays(t *testing.T) {
	m := siblings(time.Second, &overlapping{}, "a", "b", "c")
	for i := range m.state {
		m.state[i].speed.Learn(1e9, time.Second) // a nanosecond a token
	}
	for i := range 3 { // ahead of the leader, wherever it goes: 1,000 tokens
		q := request(i + 7)
		q.InputTokens = 1000
		m.Step(mono.Time(i), Arrive(q))
	}
	first := only(t, m.Step(10, Arrive(child(1, 1))))
	if first.Slot != 0 {
		t.Fatalf("the leader is at slot %d", first.Slot)
	}
	// It has 2,512 ns to go when it is sent; a sibling saves 60 blocks of 16 tokens.
	if a := only(t, m.Step(10+591, Arrive(child(2, 1)))); a.Kind != Dispatch {
		t.Errorf("a call waits though that takes too long: %+v", a)
	}
	if a := only(t, m.Step(10+592, Arrive(child(3, 1)))); a.Kind != Hold {
		t.Errorf("a call does not wait: %+v", a)
	}
	m = siblings(time.Second, &overlapping{}, "a", "b", "c")
	for i := range m.state {
		m.state[i].speed.Learn(1e9, time.Second)
	}
	m.Step(10, Arrive(child(1, 1)))
	if a := only(t, m.Step(300, Arrive(child(2, 1)))); a.Kind != Hold {
		t.Fatalf("a call does not wait: %+v", a)
	}
	if want := mono.Time(300 + 2*60*16); m.wakeAt != want {
		t.Errorf("it waits until %d, want %d", m.wakeAt, want)
	}
}

func TestFlight_WhoIsHeldElsewhereWaitsNot(t *testing.T) {
	m := siblings(time.Second, &overlapping{}, "a", "b")
	first := only(t, m.Step(1, Arrive(child(1, 1))))
	m.Step(10, FirstToken(first.Ticket, 0))
	m.Step(11, Wake())
	m.Step(12, Arrive(child(2, 1)))
	if a := only(t, m.Step(13, Arrive(child(3, 1)))); a.Kind != Dispatch {
		t.Errorf("a call waits though its prefix is held: %+v", a)
	}
	// What is short is not worth it.
	short := child(4, 2)
	short.Blocks, short.InputTokens = short.Blocks[:5], 90
	m.Step(14, Arrive(short))
	again := child(5, 2)
	again.Blocks, again.InputTokens = again.Blocks[:5], 90
	if a := only(t, m.Step(15, Arrive(again))); a.Kind != Dispatch {
		t.Errorf("a call waits for 80 tokens: %+v", a)
	}
}

func TestFlight_WhoLeavesIsForgotten(t *testing.T) {
	m := siblings(time.Second, &overlapping{}, "a", "b")
	first := only(t, m.Step(1, Arrive(child(1, 1))))
	held := only(t, m.Step(2, Arrive(child(2, 1))))
	m.Step(3, Left(held.Ticket))
	m.Step(4, FirstToken(first.Ticket, 0))
	if n := m.pools[0].flights.Waiting(); n != 0 {
		t.Errorf("%d wait after the only one has left", n)
	}
	got := slices.Clone(m.Step(5, Wake()))
	if got = append(got, settle(m, 5)...); len(got) != 0 || m.inFlight != 1 || m.following != 0 {
		t.Errorf("got %+v; %d in flight, %d follow", got, m.inFlight, m.following)
	}
}

func TestFlight_AndQueue(t *testing.T) {
	pool := newTestPool("p", &overlapping{}, "a", "b")
	pool.Flights = admission.FlightConfig{MinTokens: 100, MaxWait: time.Second, MaxSiblings: 8}
	pool.Queue = admission.Default()
	pool.Queue.Tokens = 1
	m := New(newConfig(pool))
	busy := only(t, m.Step(1, Arrive(request(1))))
	first := only(t, m.Step(2, Arrive(child(2, 1))))
	for id := 3; id <= 5; id++ {
		m.Step(mono.Time(id), Arrive(child(id, 1)))
	}
	other := only(t, m.Step(6, Arrive(request(6))))
	if m.holding != 4 || other.Kind != Hold {
		t.Fatalf("%d are held for room", m.holding)
	}
	// Room at a: the siblings would go, but wait for the one that is at b. So the last goes.
	m.Step(100, FirstToken(busy.Ticket, 0))
	if a := only(t, settle(m, 100)); a.Ticket.Call != 6 || m.following != 3 || m.holding != 0 {
		t.Fatalf("got %+v; %d follow, %d are held", a, m.following, m.holding)
	}
	m.Step(2000, FirstToken(first.Ticket, 0))
	var got []selection.CallID
	for _, a := range settle(m, 2000) {
		if a.Kind == Dispatch {
			got = append(got, a.Ticket.Call)
		}
	}
	if !slices.Equal(got, []selection.CallID{3}) || m.holding != 2 {
		t.Errorf("calls %v went and %d are held, want 3, and two", got, m.holding)
	}
}

// TestFlight_WhoIsFreedTakesItsPlaceInTheQueue: before those who came later, or behind one
// who has less time.
func TestFlight_WhoIsFreedTakesItsPlaceInTheQueue(t *testing.T) {
	for order, want := range map[admission.Order]selection.CallID{admission.FIFO: 2, admission.LeastSlack: 5} {
		pool := newTestPool("p", &overlapping{}, "a", "b")
		pool.Flights = admission.FlightConfig{MinTokens: 100, MaxWait: time.Second, MaxSiblings: 8}
		pool.Queue = admission.Default()
		pool.Queue.Tokens, pool.Queue.Order = 1, order
		m := New(newConfig(pool))
		first := only(t, m.Step(1, Arrive(child(1, 1))))
		m.Step(2, Arrive(child(2, 1))) // follows
		m.Step(3, Arrive(request(3)))  // goes to b
		m.Step(4, Arrive(request(4)))  // held
		urgent := request(5)
		urgent.Deadline = time.Second
		m.Step(5, Arrive(urgent)) // held
		if m.following != 1 || m.holding != 2 {
			t.Fatalf("%d follow, %d are held", m.following, m.holding)
		}
		m.Step(100, FirstToken(first.Ticket, 0))
		if a := only(t, settle(m, 100)); a.Ticket.Call != want || a.Slot != 0 || m.holding != 2 {
			t.Errorf("%v: got %+v, and %d are held; want call %d at slot 0, and two", order, a, m.holding, want)
		}
	}
}

func TestReconfigure_EndsFlights(t *testing.T) {
	pool := newTestPool("p", &overlapping{}, "a", "b")
	pool.Flights = admission.FlightConfig{MinTokens: 100, MaxWait: time.Second, MaxSiblings: 8}
	m := New(newConfig(pool))
	m.Step(1, Arrive(child(1, 1)))
	m.Step(2, Arrive(child(2, 1)))
	pool.Flights = admission.FlightConfig{}
	m.Reconfigure(10, newConfig(pool))
	if a := only(t, settle(m, 10)); a.Kind != Dispatch || a.Ticket.Call != 2 {
		t.Errorf("got %+v, want call 2", a)
	}
}

// Single-flight waits for what nobody will find.
func TestFlight_NobodyWaitsForWhatALoadOnlyEndpointComputes(t *testing.T) {
	m := siblings(time.Second, &overlapping{}, "a", "b", "c")
	for i := range m.state {
		for range signal.TrustWindow {
			m.state[i].trust.Compare(1000, 0)
		}
	}
	m.countLoadOnly()
	m.Step(1, Arrive(child(1, 1)))
	if a := only(t, m.Step(2, Arrive(child(2, 1)))); a.Kind != Dispatch {
		t.Errorf("waits for a prefix at an endpoint whose cache isn't relied on")
	}
}

func TestFlight_NobodyWaitsForWhatADrainingEndpointComputes(t *testing.T) {
	m := siblings(time.Second, &overlapping{}, "a", "b", "c")
	a := only(t, m.Step(1, Arrive(child(1, 1))))
	pool := newTestPool("p", m.pools[0].policy, "a", "b", "c")
	pool.Flights = m.pools[0].flights.Config()
	pool.Endpoints[a.Slot].Draining = true
	m.Reconfigure(2, newConfig(pool))
	if a := only(t, m.Step(3, Arrive(child(2, 1)))); a.Kind != Dispatch {
		t.Errorf("draining: waits for a prefix at an endpoint that gets no new calls")
	}
	if a := only(t, m.Step(4, Arrive(child(3, 1)))); a.Kind != Hold {
		t.Errorf("draining: what is on its way there is taken for what others can use")
	}
	// and who waits already when its leader's endpoint begins to drain
	m = siblings(time.Second, &overlapping{}, "a", "b", "c")
	a = only(t, m.Step(1, Arrive(child(1, 1))))
	m.Step(2, Arrive(child(2, 1)))
	pool.Policy = m.pools[0].policy
	m.Reconfigure(3, newConfig(pool))
	if got := settle(m, 3); len(got) != 1 {
		t.Errorf("draining: who waits goes on waiting: %+v", got)
	}
	_ = a
}

// What a call was promised to be computed is believed for up to half a minute after it failed
// or its client left: siblings take a prefix for on its way that nobody computes, and none of
// them leads the others.
func TestFlight_APromiseEndsWithItsCall(t *testing.T) {
	for name, end := range map[string]func(Ticket) Event{
		"failed": func(t Ticket) Event { return Done(t, 0, attempt.Failed, Usage{}) },
		"left":   Left,
	} {
		m := siblings(time.Second, &overlapping{}, "a", "b", "c")
		first := only(t, m.Step(1, Arrive(child(1, 1))))
		m.Step(2, end(first.Ticket))
		m.Step(3, Wake())
		a := only(t, m.Step(mono.Time(10*time.Second), Arrive(child(2, 1))))
		if o := a.Decision.Candidates[0].Overlap; o != 0 {
			t.Errorf("%s: ten seconds later %d blocks are believed to be on their way at the endpoint", name, o)
		}
		if a := only(t, m.Step(mono.Time(10*time.Second+1), Arrive(child(3, 1)))); a.Kind != Hold {
			t.Errorf("%s: the next sibling computes the prefix once more", name)
		}
	}
}

func TestFlight_WaitsEndWhenTheEndpointTurnsLoadOnly(t *testing.T) {
	m := siblings(time.Minute, &overlapping{}, "a")
	q := ofChain(1, "other", 40)
	m.serve(t, q, told(q, 0))
	m.state[0].speed = admission.Speed{} // so that patience is as long as it may be
	for range signal.TrustWindow - 1 {
		m.state[0].trust.Compare(1000, 0)
	}
	m.Step(m.last+1, Arrive(child(2, 1)))
	if a := only(t, m.Step(m.last+1, Arrive(child(3, 1)))); a.Kind != Hold {
		t.Fatalf("%+v, want it to wait for its sibling", a)
	}
	a := only(t, m.Step(m.last+1, Arrive(ofChain(4, "other", 40))))
	m.Step(m.last+1, FirstToken(a.Ticket, 0))
	m.Step(m.last+1, Done(a.Ticket, 0, attempt.Success, told(q, 0)))
	if got := settle(m, m.last); len(got) != 1 || got[0].Kind != Dispatch || got[0].Ticket.Call != 3 || m.state[0].trust.State() != signal.LoadOnly {
		t.Errorf("%v: %+v, want the sibling sent", m.state[0].trust.State(), got)
	}
}

// TestFlight_APromiseStaysWithTheCallsThatShareIt has one of two calls fail that bring the same
// prefix to an endpoint.
func TestFlight_APromiseStaysWithTheCallsThatShareIt(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
	first := only(t, m.Step(1, Arrive(ofChain(1, "same", 40))))
	shorter := ofChain(2, "same", 10)
	m.Step(2, Arrive(shorter))
	m.Step(3, Left(first.Ticket))
	m.Step(4, Wake())
	if o := only(t, m.Step(5, Arrive(ofChain(3, "same", 40)))).Decision.Candidates[0].Overlap; o != 10 {
		t.Errorf("%d blocks are believed, want the 10 that another call brings", o)
	}
}
