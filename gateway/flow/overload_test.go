package flow

import (
	"math"
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// crowded returns a machine of one endpoint, which is given one call at a time; change sets
// more of its configuration.
func crowded(change func(*Config)) *Machine {
	pool := newTestPool("p", lightest{}, "a")
	pool.Queue = admission.Default()
	pool.Queue.Tokens = 1
	pool.Overload = admission.DefaultOverload()
	c := newConfig(pool)
	if change != nil {
		change(&c)
	}
	return New(c)
}

func urgent(id int, priority int32) *selection.Request {
	q := request(id)
	q.Priority, q.Bytes = priority, 10
	return q
}

// words returns the actions that are neither wake-ups nor notices.
func words(actions []Action) (all []Action) {
	for _, a := range actions {
		if a.Kind < Ejected {
			all = append(all, a)
		}
	}
	return all
}

func TestHold_HigherPriorityGoesFirst(t *testing.T) {
	m := crowded(nil)
	a := only(t, m.Step(1, Arrive(request(1))))
	for i, priority := range []int32{0, -1, 2, 2, 1} {
		m.Step(mono.Time(2+i), Arrive(urgent(2+i, priority)))
	}
	now := mono.Time(1000)
	for _, want := range []selection.CallID{4, 5, 6, 2, 3} {
		m.Step(now, FirstToken(a.Ticket, 0))
		if a = only(t, settle(m, now)); a.Ticket.Call != want {
			t.Fatalf("call %d goes, want %d", a.Ticket.Call, want)
		}
		now += 2000
	}
}

// TestHold_LowerPriorityGivesWay: a call that comes to a full queue pushes out the newest of the
// lowest band below its own, and is refused where there is none.
func TestHold_LowerPriorityGivesWay(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"length": func(c *Config) { c.Pools[0].Queue.Length = 3 },
		"bytes":  func(c *Config) { c.Pools[0].Queue.Bytes = 35 },
		"calls":  func(c *Config) { c.Calls = 4 },
	} {
		m := crowded(change)
		usual(m, 0)
		m.Step(1, Arrive(request(1)))
		for i, priority := range []int32{-1, 0, -1} {
			m.Step(mono.Time(2+i), Arrive(urgent(2+i, priority)))
		}
		got := words(m.Step(10, Arrive(urgent(5, 1))))
		if len(got) != 2 || got[0].Kind != GiveUp || got[0].Reason != Shed || got[0].Ticket.Call != 4 || got[0].Wait != 6 || got[1].Kind != Hold {
			t.Fatalf("%s: %+v, want call 4 shed and call 5 held", name, got)
		}
		if got[0].Again != 200*time.Millisecond { // of the two of at least its priority that are left
			t.Errorf("%s: it may come again after %v", name, got[0].Again)
		}
		if a := only(t, m.Step(11, Arrive(urgent(6, -1)))); a.Kind != Refuse || a.Reason == Shed {
			t.Errorf("%s: one of the lowest band: %+v, want a bound", name, a)
		}
		if s := m.Snapshot(12); s.InFlight != 4 || s.Held != 3 {
			t.Errorf("%s: %d in flight, %d held", name, s.InFlight, s.Held)
		}
	}
}

// TestHold_TheLowestOfAllPoolsGivesWay to a call for which the model has no place.
func TestHold_TheLowestOfAllPoolsGivesWay(t *testing.T) {
	for _, low := range []selection.CallID{3, 4} {
		pools := []Pool{newTestPool("p", lightest{}, "a"), newTestPool("q", lightest{}, "b")}
		for i := range pools {
			pools[i].Queue = admission.Default()
			pools[i].Queue.Tokens = 1
		}
		c := newConfig(pools...)
		c.Calls = 4
		m := New(c)
		for id := 1; id <= 4; id++ {
			q := urgent(id, 0)
			if q.ID == low {
				q.Priority = -1
			}
			q.Owned, q.Owner = true, selection.Slot((id+1)%2) // each pool runs one and holds one
			m.Step(mono.Time(id), Arrive(q))
		}
		if m.holding != 2 {
			t.Fatalf("%d are held", m.holding)
		}
		got := words(m.Step(10, Arrive(urgent(5, 1))))
		if len(got) != 2 || got[0].Kind != GiveUp || got[0].Ticket.Call != low {
			t.Errorf("%+v, want call %d shed", got, low)
		}
	}
}

// TestHold_NobodyGivesWayInVain: to a call that is refused all the same.
func TestHold_NobodyGivesWayInVain(t *testing.T) {
	m := crowded(func(c *Config) { c.Pools[0].Queue.Bytes, c.Calls = 35, 3 })
	m.Step(1, Arrive(request(1)))
	m.Step(2, Arrive(urgent(2, 0)))
	m.Step(3, Arrive(urgent(3, 1)))
	q := urgent(4, 1)
	q.Bytes = 26
	if a := only(t, m.Step(4, Arrive(q))); a.Kind != Refuse || a.Reason != QueueBytes {
		t.Errorf("%+v, want it refused for its bytes", a)
	}
	if m.holding != 2 || m.inFlight != 3 {
		t.Errorf("%d held, %d in flight", m.holding, m.inFlight)
	}
}

// TestHold_WaitIsThatOfTheBand: who goes later does not count.
func TestHold_WaitIsThatOfTheBand(t *testing.T) {
	m := crowded(func(c *Config) { c.Pools[0].Queue.MaxWait = 150 * time.Millisecond })
	usual(m, 0)
	m.Step(1, Arrive(request(1)))
	m.Step(2, Arrive(urgent(2, 0)))
	m.Step(3, Arrive(urgent(3, 0)))
	if a := only(t, m.Step(4, Arrive(urgent(4, 0)))); a.Kind != Refuse || a.Wait != 200*time.Millisecond {
		t.Errorf("of the same band: %+v", a)
	}
	if a := only(t, m.Step(5, Arrive(urgent(5, 1)))); a.Kind != Hold {
		t.Errorf("of a higher band: %+v", a)
	}
}

func TestHold_WaitIsBoundByTheMeanServiceTime(t *testing.T) {
	m := crowded(func(c *Config) { c.Pools[0].Queue.MaxWaitRatio = 2 })
	usual(m, 0)
	a := only(t, m.Step(1, Arrive(request(1))))
	m.Step(2, FirstToken(a.Ticket, 0))
	m.Step(1+mono.Time(90*time.Millisecond), Done(a.Ticket, 0, attempt.Success, Usage{}))
	now := mono.Time(time.Second)
	m.Step(now, Arrive(request(2)))
	for i := range 2 {
		if a := only(t, m.Step(now+mono.Time(1+i), Arrive(request(3+i)))); a.Kind != Hold {
			t.Fatalf("call %d: %+v", 3+i, a)
		}
	}
	if a := only(t, m.Step(now+5, Arrive(request(9)))); a.Kind != Refuse || a.Reason != QueueWait {
		t.Errorf("a wait of 200 ms, with a service time of 90 ms: %+v", a)
	}
}

// firm returns a call that is worth nothing after d.
func firm(id int, d time.Duration) *selection.Request {
	q := request(id)
	q.Firm, q.Deadline = true, d
	return q
}

func TestDeadline_OneThatCannotBeMetIsRefused(t *testing.T) {
	for _, queue := range []bool{true, false} {
		pool := newTestPool("p", predicting{}, "a")
		pool.Overload = admission.DefaultOverload()
		if queue {
			pool.Queue = admission.Default()
			pool.Queue.Tokens = 1
		}
		m := New(newConfig(pool))
		own, _ := predicting{}.PrefillTime(0, selection.Prefill(100, 0))
		// The endpoint is idle: who has time for its own prefill alone need not wait.
		if a := only(t, m.Step(1, Arrive(firm(1, own+1)))); a.Kind != Dispatch {
			t.Fatalf("queue %v: %+v", queue, a)
		}
		m.Step(2, Arrive(request(2))) // before what comes now: 1's prefill, and 2's
		before := 2 * own
		if a := only(t, m.Step(3, Arrive(firm(3, own+before*100/91)))); a.Kind != Refuse || a.Reason != DeadlineUnmet {
			t.Errorf("queue %v: %+v, want it refused", queue, a)
		}
		refused := 0
		for i := range 100 { // of those halfway up the ramp, every other one
			for _, a := range words(m.Step(mono.Time(10+10*i), Arrive(firm(10+i, own+before*100/75)))) {
				if a.Kind == Refuse {
					refused++
				} else {
					m.Step(mono.Time(10+10*i+5), Left(a.Ticket))
				}
			}
		}
		if !queue && (refused < 30 || refused > 70) {
			t.Errorf("queue %v: %d of 100 on the ramp are refused", queue, refused)
		}
	}
}

func TestDeadline_WithoutAPredictionNobodyIsRefused(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a")
	pool.Overload = admission.DefaultOverload()
	m := New(newConfig(pool))
	for i := range 20 {
		if a := only(t, m.Step(mono.Time(1+i), Arrive(firm(1+i, time.Microsecond)))); a.Kind != Dispatch {
			t.Fatalf("%+v", a)
		}
	}
}

func TestDeadline_OneThatPassesInTheQueueIsDropped(t *testing.T) {
	m := crowded(func(c *Config) { c.Health.Stall = 0 })
	m.Step(1, Arrive(request(1)))
	m.Step(2, Arrive(request(2)))
	if a := only(t, m.Step(3, Arrive(firm(3, 500)))); a.Kind != Hold {
		t.Fatalf("%+v", a)
	}
	m.Step(100, Signal(0, 0, signal.Load{Running: signal.Known(1, 100)}, 0)) // which lets nobody go
	for m.wakeAt < 503 {
		if got := words(m.Step(m.wakeAt, Wake())); len(got) > 0 {
			t.Fatalf("%+v before its deadline", got)
		}
	}
	if m.wakeAt != 503 {
		t.Fatalf("a wake-up at %d, want 503", m.wakeAt)
	}
	if a := only(t, m.Step(503, Wake())); a.Kind != GiveUp || a.Reason != DeadlinePassed || a.Ticket.Call != 3 || a.Wait != 500 {
		t.Errorf("%+v", a)
	}
}

// TestDeadline_OneThatPassesBetweenTwoAttemptsIsDropped: nobody tries again for nothing.
func TestDeadline_OneThatPassesBetweenTwoAttemptsIsDropped(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a", "b")))
	a := only(t, m.Step(1, Arrive(firm(1, 1000))))
	m.Step(500, Done(a.Ticket, 0, attempt.ConnectFailed, Usage{}))
	for m.wakeAt < mono.Never {
		if got := words(m.Step(m.wakeAt, Wake())); len(got) > 0 {
			if got[0].Kind != GiveUp || got[0].Reason != DeadlinePassed {
				t.Errorf("%+v", got)
			}
			return
		}
	}
	t.Error("nothing became of it")
}

// full is a report of an endpoint that is saturated.
func full(at mono.Time) signal.Load {
	return signal.Load{Waiting: signal.Known(6, at), KVUsage: signal.Known(0.5, at)}
}

func TestSaturation_IsTheMeanOfEachEndpointsWorstAxis(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a", "b", "c")
	pool.Overload, pool.MaxAge = admission.DefaultOverload(), time.Second
	c := newConfig(pool)
	c.SLO.TTFT = time.Second
	m := New(c)
	if s := m.Snapshot(1).Pools[0].Saturation; s.Known || s.Saturated() {
		t.Errorf("nothing is known, and saturation is %+v", s)
	}
	m.Step(10, Signal(0, 0, full(0), 0))
	m.Step(10, Signal(1, 0, signal.Load{Waiting: signal.Known(1, 0), KVUsage: signal.Known(0.48, 0)}, 0))
	s := m.Snapshot(11).Pools[0].Saturation // of the third nothing is known
	if want := (6.0/5 + 0.48/0.8) / 2; math.Abs(s.Value-want) > 1e-12 || s.Leads != admission.KVUsage && s.Leads != admission.Waiting {
		t.Errorf("%+v, want %v", s, want)
	}
	if w, k := s.Axes[admission.Waiting], s.Axes[admission.KVUsage]; w.Value != (1.2+0.2)/2 || math.Abs(k.Value-(0.5/0.8+0.48/0.8)/2) > 1e-12 || s.Leads != admission.Waiting {
		t.Errorf("axes %+v, led by %v", s.Axes, s.Leads)
	}
	if s.Axes[admission.Preemptions].Known || s.Axes[admission.TTFT].Known {
		t.Errorf("what is not known is known: %+v", s.Axes)
	}
	// An endpoint's unstarted prefill counts against the SLO.
	m.state[2].speed.Learn(1000-admission.CallTokens, time.Second)
	m.state[2].unstarted = selection.Prefill(3000, 0)
	s = m.Snapshot(12).Pools[0].Saturation
	if s.Axes[admission.TTFT] != admission.AtLevel(3) || s.Leads != admission.TTFT {
		t.Errorf("axes %+v, led by %v", s.Axes, s.Leads)
	}
	if s := m.Snapshot(mono.Time(2 * time.Second)).Pools[0].Saturation; s.Axes[admission.Waiting] != admission.AtLevel(3) {
		t.Errorf("old reports count: %+v", s)
	}
}

func TestSaturation_CallsThatMayBeShedStayOut(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a")
	pool.Overload = admission.DefaultOverload()
	m := New(newConfig(pool))
	m.Step(1, Signal(0, 0, full(1), 0))
	if a := only(t, m.Step(2, Arrive(urgent(1, -1)))); a.Kind != Refuse || a.Reason != Shed {
		t.Errorf("without a queue: %+v, want it shed", a)
	}
	if a := only(t, m.Step(3, Arrive(urgent(2, 0)))); a.Kind != Dispatch {
		t.Errorf("an ordinary call: %+v", a)
	}
	m.Step(4, Signal(0, 0, signal.Load{Waiting: signal.Known(4, 4)}, 0))
	if a := only(t, m.Step(5, Arrive(urgent(3, -1)))); a.Kind != Dispatch {
		t.Errorf("below saturation: %+v", a)
	}
	// Another pool may take it.
	other := newTestPool("q", lightest{}, "b")
	m = New(newConfig(pool, other))
	m.Step(1, Signal(0, 0, full(1), 0))
	if a := only(t, m.Step(2, Arrive(urgent(1, -1)))); a.Kind != Dispatch || a.Pool != 1 {
		t.Errorf("with another pool: %+v", a)
	}
}

func TestSaturation_CallsThatMayBeShedWaitForItsEnd(t *testing.T) {
	m := crowded(func(c *Config) { c.Pools[0].MaxAge = 3 * time.Second })
	m.Step(1, Signal(0, 0, full(1), 0))
	if a := only(t, m.Step(2, Arrive(urgent(1, -1)))); a.Kind != Hold {
		t.Fatalf("%+v, want it held", a)
	}
	if a := only(t, m.Step(3, Arrive(urgent(2, 0)))); a.Kind != Dispatch {
		t.Fatalf("an ordinary call: %+v", a)
	} else {
		m.Step(4, FirstToken(a.Ticket, 0))
	}
	if got := settle(m, 5); len(got) > 0 {
		t.Fatalf("%+v while the pool is saturated", got)
	}
	m.Step(2000, Signal(0, 0, signal.Load{Waiting: signal.Known(4, 2000)}, 0))
	a := only(t, settle(m, 2000))
	if a.Kind != Dispatch || a.Ticket.Call != 1 {
		t.Fatalf("%+v, want call 1 sent", a)
	}
	m.Step(4000, FirstToken(a.Ticket, 0))
	// A report that is too old saturates nobody, and nothing else need happen.
	m.Step(5000, Signal(0, 0, full(5000), 0))
	m.Step(6000, Arrive(urgent(3, -1)))
	for m.wakeAt < mono.Time(5*time.Second) {
		if got := words(m.Step(m.wakeAt, Wake())); len(got) > 0 {
			if now := m.last; now < mono.Time(3*time.Second) || got[0].Kind != Dispatch {
				t.Errorf("at %v: %+v", now.Duration(), got)
			}
			return
		}
	}
	t.Error("it waits on though nothing is known")
}

// TestSaturation_WhoStaysOutBlocksNobody, be it the turn of its band.
func TestSaturation_WhoStaysOutBlocksNobody(t *testing.T) {
	m := crowded(func(c *Config) { c.Pools[0].Queue.Turn = 1 })
	a := only(t, m.Step(1, Arrive(request(1))))
	m.Step(2, Arrive(urgent(2, -1)))
	m.Step(3, Arrive(urgent(3, 0)))
	m.Step(4, Signal(0, 0, full(4), 0))
	m.Step(1000, FirstToken(a.Ticket, 0))
	if b := only(t, settle(m, 1000)); b.Kind != Dispatch || b.Ticket.Call != 3 {
		t.Errorf("%+v, want call 3 sent", b)
	}
}

// TestPreemptions_ThrottleAnEndpoint: while they rise it gets no further call.
func TestPreemptions_ThrottleAnEndpoint(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a", "b")
	pool.Queue = admission.Default()
	pool.Queue.Tokens = 1 << 20
	pool.Overload = admission.DefaultOverload()
	m := New(newConfig(pool))
	put := func(at mono.Time, n float64) {
		m.Step(at, Signal(0, 0, signal.Load{Preemptions: signal.Known(n, at)}, 0))
	}
	put(1, 7)
	put(mono.Time(time.Second)+1, 9)
	now := mono.Time(time.Second) + 10
	// It has no call: one always fits.
	a := only(t, m.Step(now, Arrive(request(1))))
	b := only(t, m.Step(now+1, Arrive(request(2))))
	c := only(t, m.Step(now+2, Arrive(request(3))))
	if a.Slot != 0 || b.Slot != 1 || c.Slot != 1 {
		t.Errorf("slots %d, %d, %d; want the third call beside the second", a.Slot, b.Slot, c.Slot)
	}
	put(mono.Time(2*time.Second)+1, 9)
	if d := only(t, m.Step(mono.Time(2*time.Second)+10, Arrive(request(4)))); d.Slot != 0 {
		t.Errorf("slot %d, after preemptions have ended", d.Slot)
	}
}

// TestOverload_NobodyIsRefusedOnAnIdleEndpoint: whatever short prompts have taught about how long a
// long one takes, it is sent where there is nothing to wait for, and what it takes is learnt.
func TestOverload_NobodyIsRefusedOnAnIdleEndpoint(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a", "b")
	pool.Queue, pool.Overload = admission.Default(), admission.DefaultOverload()
	pool.Queue.Work = 500 * time.Millisecond
	m := New(newConfig(pool))
	now := mono.Time(1)
	for id := range 150 {
		q := request(id + 1)
		q.InputTokens = 10
		a := only(t, m.Step(now, Arrive(q)))
		now = now.Add(20 * time.Millisecond) // a step of an engine, whatever the prompt
		m.Step(now, FirstToken(a.Ticket, a.Attempt))
		now++
		m.Step(now, Done(a.Ticket, a.Attempt, attempt.Success, Usage{}))
		now++
	}
	if d, known := m.prefillTime(m.pools[0], 0, selection.Prefill(1_000_000, 0), 1); !known || d < 30*time.Second {
		t.Fatalf("short prompts taught nothing of which a long one would be refused: %v", d)
	}
	for id := range 3 {
		q := request(1000 + id)
		q.InputTokens, q.Firm, q.Deadline = 1_000_000, true, 15*time.Second
		got := words(m.Step(now, Arrive(q)))
		if len(got) != 1 || got[0].Kind != Dispatch {
			t.Fatalf("prompt %d: %+v", id, got)
		}
		now = now.Add(14 * time.Second)
		m.Step(now, FirstToken(got[0].Ticket, got[0].Attempt))
		now++
		m.Step(now, Done(got[0].Ticket, got[0].Attempt, attempt.Success, Usage{}))
		now++
	}
}
