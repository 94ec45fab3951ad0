package flow

import (
	"fmt"
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/signal"
)

func blocks(n int) []kvblock.Hash {
	var out []kvblock.Hash
	for i := range n {
		out = append(out, kvblock.Hash(1000+i))
	}
	return out
}

func names(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint("e", i))
	}
	return out
}

// driver drives a machine whose endpoints answer by rule.
type driver struct {
	t       *testing.T
	m       *Machine
	now     mono.Time
	id      int
	answer  func(slot selection.Slot, call int) (attempt.Outcome, time.Duration)
	sent    map[selection.Slot]int
	notices []Action
	recalls []Action
}

func drive(t *testing.T, c Config, answer func(selection.Slot, int) (attempt.Outcome, time.Duration)) *driver {
	return &driver{t: t, m: New(c), now: 1, answer: answer, sent: map[selection.Slot]int{}}
}

func (d *driver) step(e Event) []Action {
	d.now += 10
	var own []Action
	for _, a := range d.m.Step(d.now, e) {
		switch a.Kind {
		case Dispatch, Refuse, GiveUp:
			own = append(own, a)
		case Recall:
			d.recalls = append(d.recalls, a)
		case WakeAt:
			if a.At <= d.now {
				d.t.Errorf("at %d ns a wake-up is asked for at %d ns", d.now, a.At)
			}
		default:
			d.notices = append(d.notices, a)
		}
	}
	return own
}

// call makes a call to its end and returns the last action and the last outcome.
func (d *driver) call() (Action, attempt.Outcome) {
	d.id++
	a := d.step(Arrive(request(d.id)))[0]
	for a.Kind == Dispatch {
		d.sent[a.Slot]++
		o, wait := d.answer(a.Slot, d.id)
		if o == attempt.Success {
			d.step(FirstToken(a.Ticket, a.Attempt))
		}
		d.step(Pushed(a.Ticket, a.Attempt, o, wait))
		if !o.Retryable() {
			d.step(Wake())
			return a, o
		}
		next := d.step(Wake())
		for len(next) == 0 {
			d.now = d.now.Add(20 * time.Millisecond)
			next = d.step(Wake())
		}
		if a = next[0]; a.Kind == GiveUp {
			return a, o
		}
	}
	return a, attempt.Success
}

func (d *driver) count(k ActionKind) (n int) {
	for _, a := range d.notices {
		if a.Kind == k {
			n++
		}
	}
	return n
}

// An endpoint that fails fast looks idle, and under a rule that reads load attracts
// everything: it must leave, whatever it says.
func TestFailingFast_LeavesOnceOthersAnswerItsCalls(t *testing.T) {
	for _, o := range []attempt.Outcome{attempt.Failed, attempt.BadGateway, attempt.Denied, attempt.Missing, attempt.StreamError, attempt.Unusable} {
		d := drive(t, newConfig(newTestPool("p", lightest{}, names(4)...)), func(slot selection.Slot, _ int) (attempt.Outcome, time.Duration) {
			if slot == 0 {
				return o, attempt.NoWait
			}
			return attempt.Success, attempt.NoWait
		})
		for range 50 {
			if _, got := d.call(); got != attempt.Success {
				t.Fatalf("%v: a call ended with %v while three endpoints are well", o, got)
			}
		}
		if d.sent[0] != 3 || d.count(Ejected) != 1 || d.notices[0].Cause != health.Failing {
			t.Errorf("%v: the bad endpoint got %d calls (want 3), notices %+v", o, d.sent[0], d.notices)
		}
	}
}

func TestF30_OneCallThatFailsEverywhereBlamesNobody(t *testing.T) {
	for _, o := range []attempt.Outcome{attempt.Failed, attempt.Missing, attempt.StreamError} {
		d := drive(t, newConfig(newTestPool("p", &turns{}, names(3)...)), func(_ selection.Slot, call int) (attempt.Outcome, time.Duration) {
			if call%10 == 0 {
				return o, attempt.NoWait
			}
			return attempt.Success, attempt.NoWait
		})
		d.m.retry.Attempts = 5
		for range 400 {
			d.now = d.now.Add(time.Second) // so that the budget is no reason to stop
			d.call()
		}
		if len(d.notices) != 0 {
			t.Errorf("%v: %+v", o, d.notices)
		}
		if n := d.sent[0] + d.sent[1] + d.sent[2]; n != 360+2*40 {
			t.Errorf("%v: 360 good calls and 40 bad ones were sent %d times", o, n)
		}
	}
}

func TestF28_CallersFaultsAreNeutral(t *testing.T) {
	d := drive(t, newConfig(newTestPool("p", lightest{}, names(2)...)), func(_ selection.Slot, call int) (attempt.Outcome, time.Duration) {
		if call%3 > 0 {
			return attempt.CallerFault, attempt.NoWait
		}
		return attempt.Success, attempt.NoWait
	})
	for range 200 {
		d.call()
	}
	if len(d.notices) != 0 || d.sent[0]+d.sent[1] != 200 {
		t.Errorf("notices %+v; 200 calls made %d attempts", d.notices, d.sent[0]+d.sent[1])
	}
}

func TestDoubt_TakesOutOnlyAPartOfThePool(t *testing.T) {
	bad := func(slot selection.Slot) bool { return slot < 6 }
	d := drive(t, newConfig(newTestPool("p", &turns{}, names(8)...)), func(slot selection.Slot, _ int) (attempt.Outcome, time.Duration) {
		if bad(slot) {
			return attempt.Failed, attempt.NoWait
		}
		return attempt.Success, attempt.NoWait
	})
	for range 500 {
		d.now = d.now.Add(100 * time.Millisecond)
		d.call()
		if out := outOfRotation(d.m); out > 4 {
			t.Fatalf("doubtful evidence took out %d of 8", out)
		}
	}
	if outOfRotation(d.m) == 0 {
		t.Error("nobody left")
	}
	// Those that can't be reached go, however many they are.
	d.answer = func(slot selection.Slot, _ int) (attempt.Outcome, time.Duration) {
		if bad(slot) {
			return attempt.ConnectFailed, attempt.NoWait
		}
		return attempt.Success, attempt.NoWait
	}
	for range 200 {
		d.now = d.now.Add(100 * time.Millisecond)
		d.call()
	}
	if out := outOfRotation(d.m); out != 6 {
		t.Errorf("%d of the 6 dead are out", out)
	}
}

func outOfRotation(m *Machine) (n int) {
	for i := range m.state {
		if m.state[i].breaker.State() != health.InRotation {
			n++
		}
	}
	return n
}

func TestF29_BusyIsLeftAloneAndNotEjected(t *testing.T) {
	full := true
	d := drive(t, newConfig(newTestPool("p", lightest{}, "a", "b")), func(slot selection.Slot, _ int) (attempt.Outcome, time.Duration) {
		if slot == 0 && full {
			return attempt.Busy, attempt.NoWait
		}
		return attempt.Success, attempt.NoWait
	})
	for range 20 {
		d.call()
	}
	if d.sent[0] != 1 {
		t.Errorf("an endpoint that has no room got %d calls within its second", d.sent[0])
	}
	full = false
	d.now = d.now.Add(time.Second)
	d.call()
	if d.sent[0] != 2 || len(d.notices) != 0 {
		t.Errorf("after its second it got %d calls; notices %+v", d.sent[0]-1, d.notices)
	}
}

func TestF31_WhereAllAreBusySomebodyIsAskedAllTheSame(t *testing.T) {
	full := true
	d := drive(t, newConfig(newTestPool("p", lightest{}, "a")), func(selection.Slot, int) (attempt.Outcome, time.Duration) {
		if full {
			return attempt.Busy, attempt.NoWait
		}
		return attempt.Success, attempt.NoWait
	})
	if a, o := d.call(); o != attempt.Busy || a.Reason != NoAlternative {
		t.Fatalf("the only endpoint is busy: %+v, %v", a, o)
	}
	full = false
	if _, o := d.call(); o != attempt.Success {
		t.Errorf("the next call ended with %v", o)
	}
}

func TestF24_RetryAfterIsHonoured(t *testing.T) {
	t.Run("a short one is waited for where nobody else is", func(t *testing.T) {
		for _, wait := range []time.Duration{0, 150 * time.Millisecond, 2 * time.Second} {
			m := New(newConfig(newTestPool("p", lightest{}, "a")))
			a := only(t, m.Step(1, Arrive(request(1))))
			m.Step(100, Pushed(a.Ticket, 0, attempt.Limited, wait))
			at, ok := wakeIn(m.Step(101, Wake()))
			if want := mono.Time(101 + max(wait, 1)); !ok || at != want {
				t.Fatalf("%v: the next attempt is due at %d (%v), want %d", wait, at, ok, want)
			}
			if b := only(t, m.Step(at, Wake())); b.Kind != Dispatch || b.Attempt != 1 {
				t.Errorf("%v: %+v", wait, b)
			}
		}
	})
	t.Run("a long one is not", func(t *testing.T) {
		for _, wait := range []time.Duration{attempt.NoWait, 3 * time.Second, 24 * time.Hour} {
			m := New(newConfig(newTestPool("p", lightest{}, "a")))
			a := only(t, m.Step(1, Arrive(request(1))))
			m.Step(100, Pushed(a.Ticket, 0, attempt.Limited, wait))
			if b := only(t, m.Step(101, Wake())); b.Kind != GiveUp || b.Reason != NoAlternative {
				t.Errorf("%v: %+v", wait, b)
			}
		}
	})
	t.Run("the endpoint is left alone for so long, up to a bound", func(t *testing.T) {
		for wait, want := range map[time.Duration]time.Duration{
			0: 0, 20 * time.Second: 20 * time.Second, 24 * time.Hour: time.Minute, attempt.NoWait: time.Second,
		} {
			m := New(newConfig(newTestPool("p", lightest{}, "a", "b")))
			a := only(t, m.Step(1, Arrive(request(1))))
			m.Step(100, Pushed(a.Ticket, 0, attempt.Limited, wait))
			m.Step(101, Left(a.Ticket))
			m.Step(102, Wake())
			if got := m.state[0].busyUntil.Sub(100); got != want {
				t.Errorf("%v: left alone for %v, want %v", wait, got, want)
			}
		}
	})
	t.Run("the wait ends with its client", func(t *testing.T) {
		m := New(newConfig(newTestPool("p", lightest{}, "a")))
		a := only(t, m.Step(1, Arrive(request(1))))
		m.Step(100, Pushed(a.Ticket, 0, attempt.Limited, time.Second))
		at, _ := wakeIn(m.Step(101, Wake()))
		m.Step(200, Left(a.Ticket))
		m.Step(at, Wake())
		if m.inFlight != 0 || m.books[0].Outstanding != 0 {
			t.Errorf("%d calls held, %d outstanding", m.inFlight, m.books[0].Outstanding)
		}
	})
}

// busyPool is a pool of two of which the first hangs with n calls.
func hanging(t *testing.T, c Config, n int) (*driver, []Action) {
	d := drive(t, c, nil)
	var calls []Action
	for len(calls) < n {
		d.id++
		a := d.step(Arrive(request(d.id)))[0]
		if a.Slot == 0 {
			calls = append(calls, a)
			continue
		}
		d.step(FirstToken(a.Ticket, 0))
	}
	return d, calls
}

func TestF34_SilenceTakesAnEndpointOutAndItsCallsBack(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	c.Retry.Ratio, c.Retry.Floor = 0, 2
	d, calls := hanging(t, c, 5)
	start := d.now
	d.step(Health(0, 0, true)) // its health path says that all is well
	d.now = start.Add(29 * time.Second)
	d.step(Wake())
	if len(d.notices) != 0 {
		t.Fatalf("out before its time: %+v", d.notices)
	}
	d.now = start.Add(31 * time.Second)
	d.step(Wake())
	if d.count(Ejected) != 1 || d.notices[0].Cause != health.Silent {
		t.Fatalf("notices %+v", d.notices)
	}
	if len(d.recalls) != 2 || d.recalls[0].Ticket.Call != calls[0].Ticket.Call {
		t.Fatalf("a budget of 2 took back %+v", d.recalls)
	}
	// A call that is taken back goes elsewhere without paying again.
	d.step(Done(d.recalls[0].Ticket, 0, attempt.Recalled, Usage{}))
	d.step(Wake())
	d.now = d.now.Add(30 * time.Millisecond)
	a := d.step(Wake())
	if len(a) != 1 || a[0].Kind != Dispatch || a[0].Slot != 1 {
		t.Fatalf("a call that was taken back: %+v", a)
	}
	// The others follow as the budget fills.
	for range 20 {
		d.now = d.now.Add(recallEvery)
		d.step(Wake())
	}
	if len(d.recalls) != 5 {
		t.Errorf("after five seconds %d of 5 calls were taken back", len(d.recalls))
	}
}

func TestF34_TheCallThatMakesItSilentMayComeLate(t *testing.T) {
	d, _ := hanging(t, newConfig(newTestPool("p", lightest{}, "a", "b")), 2)
	d.now = d.now.Add(time.Minute)
	for range 2 {
		d.id++
		d.step(Arrive(request(d.id))) // step sees that nothing is to be done before now
	}
	d.step(Wake())
	if d.count(Ejected) != 1 {
		t.Errorf("notices %+v", d.notices)
	}
}

func TestF34_ASignOfLifeIsEnough(t *testing.T) {
	d, calls := hanging(t, newConfig(newTestPool("p", lightest{}, "a", "b")), 5)
	for i := range 4 {
		d.now = d.now.Add(20 * time.Second)
		if i < 2 {
			d.step(FirstToken(calls[i].Ticket, 0))
		} else {
			d.step(Done(calls[i].Ticket, 0, attempt.CallerFault, Usage{}))
		}
		d.step(Wake())
	}
	if len(d.notices) != 0 {
		t.Errorf("notices %+v", d.notices)
	}
}

// A busy endpoint whose streams flow is not silent, however long others wait there.
func TestF34_AnEndpointThatStreamsIsNotSilent(t *testing.T) {
	d, _ := hanging(t, newConfig(newTestPool("p", lightest{}, "a", "b")), 5)
	for range 20 {
		d.now = d.now.Add(10 * time.Second)
		d.step(Alive(0, 0))
		d.step(Wake())
	}
	if len(d.notices) != 0 {
		t.Fatalf("notices %+v", d.notices)
	}
	d.now = d.now.Add(31 * time.Second)
	d.step(Alive(0, 7)) // another one, that has left
	d.step(Wake())
	if d.count(Ejected) != 1 {
		t.Errorf("once it streams no more: notices %+v", d.notices)
	}
}

func TestF17_HealthReportsNeverTouchCalls(t *testing.T) {
	d, _ := hanging(t, newConfig(newTestPool("p", lightest{}, "a", "b")), 20)
	before := d.m.books[0]
	for i := range 50 {
		d.step(Health(0, 0, i%5 == 0))
	}
	d.step(Wake())
	if d.m.books[0] != before {
		t.Errorf("book %+v, before %+v", d.m.books[0], before)
	}
}

func TestHealthPath_TakesOutAndOnlyACallBringsBack(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	c.Pools[0].Misses = 3
	d := drive(t, c, func(selection.Slot, int) (attempt.Outcome, time.Duration) { return attempt.Success, attempt.NoWait })
	for range 3 {
		d.step(Health(0, 0, false))
	}
	d.step(Wake())
	if d.count(Ejected) != 1 || d.notices[0].Cause != health.Unhealthy {
		t.Fatalf("notices %+v", d.notices)
	}
	d.now = d.now.Add(time.Hour)
	for range 10 {
		d.call()
	}
	if d.sent[0] != 0 {
		t.Errorf("%d calls went to an endpoint whose health path fails", d.sent[0])
	}
	d.step(Health(0, 0, true))
	d.step(Wake())
	if d.count(Returned) != 0 {
		t.Error("a health path alone brought it back")
	}
	d.call()
	if d.sent[0] != 1 || d.count(Returned) != 1 {
		t.Errorf("probed by %d calls, returned %d times", d.sent[0], d.count(Returned))
	}
	// The last endpoint of the last pool stays.
	d.m.state[1].draining = true
	for range 5 {
		d.step(Health(0, 0, false))
	}
	d.step(Wake())
	if d.m.state[0].breaker.State() != health.InRotation {
		t.Error("the last endpoint left")
	}
}

func TestRestart_ForgetsCacheAndLoadAndKeepsCharges(t *testing.T) {
	policy := &overlapping{}
	m := New(newConfig(newTestPool("p", policy, "a")))
	q := request(1)
	q.Blocks = blocks(8)
	a := only(t, m.Step(1, Arrive(q)))
	m.Step(10, FirstToken(a.Ticket, 0))
	load := signal.Load{Started: signal.Known(1000, 0), PrefixQueries: signal.Known(50, 0), KVUsage: signal.Known(0.5, 0)}
	m.Step(20, Signal(0, 0, load, 0))
	overlap := func(id int) int {
		q := request(id)
		q.Blocks = blocks(8)
		x := only(t, m.Step(m.last+10, Arrive(q)))
		m.Step(m.last+1, Left(x.Ticket))
		return x.Decision.Candidates[0].Overlap
	}
	if got := overlap(2); got != 8 {
		t.Fatalf("overlap %d before the restart, want 8", got)
	}
	m.Step(1000, Signal(0, 0, signal.Load{Started: signal.Known(2000, 0)}, 0))
	notices := m.Step(1010, Wake())
	if len(notices) == 0 || notices[0].Kind != Restarted {
		t.Fatalf("actions %+v", notices)
	}
	if m.endpoints[0].Load.KVUsage.Known {
		t.Error("the load of the process before is still believed")
	}
	if got := m.books[0].Outstanding; got != 1 {
		t.Errorf("%d calls outstanding, want the one that has not ended", got)
	}
	if got := overlap(3); got != 0 {
		t.Errorf("overlap %d after the restart", got)
	}
	if m.Snapshot(m.last + 1).Pools[0].Endpoints[0].Restarts != 1 {
		t.Error("the restart is not counted")
	}
}

func TestF40_SlowStart(t *testing.T) {
	shares := func(t *testing.T, p selection.Policy, seconds int) float64 {
		c := newConfig(newTestPool("p", p, names(4)...))
		c.Health = health.Default()
		m := New(c)
		c.Pools[0].Endpoints = append(c.Pools[0].Endpoints, Endpoint{Name: "new", Weight: 1})
		start := mono.Time(time.Hour)
		m.Reconfigure(start, c)
		const calls = 20000
		got := 0
		now := start.Add(time.Duration(seconds) * time.Second)
		for i := range calls {
			now++
			a := only(t, m.Step(now, Arrive(request(i+1))))
			if a.Slot == 4 {
				got++
			}
			now++
			m.Step(now, Left(a.Ticket))
		}
		return float64(got) / calls * 5 // 1: its whole share
	}
	for _, p := range []struct {
		name string
		make func() selection.Policy
	}{
		{"by chance", func() selection.Policy { return &turns{} }},
		{"by weight", func() selection.Policy { return &weighted{} }},
	} {
		t.Run(p.name, func(t *testing.T) {
			last := 0.0
			for _, s := range []int{1, 10, 20, 29} {
				got := shares(t, p.make(), s)
				// A candidate by chance c among 4 others that take turns gets c·5/(4+c) at most.
				if got < last || got > float64(s)/30*1.35+0.12 {
					t.Errorf("after %d s it has %.2f of its share", s, got)
				}
				last = got
			}
			if got := shares(t, p.make(), 31); got < 0.9 {
				t.Errorf("after its time it has %.2f of its share", got)
			}
		})
	}
	t.Run("not where all are new", func(t *testing.T) {
		c := newConfig(newTestPool("p", &turns{}, names(4)...))
		c.Health = health.Default()
		m := New(c)
		a := only(t, m.Step(1, Arrive(request(1))))
		if len(a.Decision.Candidates) != 4 {
			t.Errorf("%d candidates at the start", len(a.Decision.Candidates))
		}
		for i := range c.Pools[0].Endpoints {
			c.Pools[0].Endpoints[i].Revision++
		}
		m.Reconfigure(2, c)
		for i := range 100 {
			a := only(t, m.Step(mono.Time(10+i), Arrive(request(10+i))))
			if len(a.Decision.Candidates) != 4 {
				t.Fatalf("%d candidates where all are new", len(a.Decision.Candidates))
			}
		}
	})
}

// turns takes candidates at random.
type turns struct{}

func (*turns) Pick(v *selection.View, _ *selection.Request, r *seed.Rand) selection.Choice {
	return selection.Choice{Index: r.Intn(len(v.Candidates))}
}

// weighted takes candidates at random by their weights.
type weighted struct{}

func (*weighted) UsesWeight() {}
func (*weighted) Pick(v *selection.View, _ *selection.Request, r *seed.Rand) selection.Choice {
	total := 0.0
	for _, slot := range v.Candidates {
		total += v.Endpoints[slot].Weight
	}
	x := r.Float64() * total
	for i, slot := range v.Candidates {
		if x -= v.Endpoints[slot].Weight; x < 0 {
			return selection.Choice{Index: i}
		}
	}
	return selection.Choice{Index: len(v.Candidates) - 1}
}

func TestProbe_ThatIsAnsweredWithAFailureSendsOutAgain(t *testing.T) {
	d := drive(t, newConfig(newTestPool("p", lightest{}, "a", "b")), func(slot selection.Slot, _ int) (attempt.Outcome, time.Duration) {
		if slot == 0 {
			return attempt.Failed, attempt.NoWait
		}
		return attempt.Success, attempt.NoWait
	})
	for range 10 {
		d.call()
	}
	before := d.sent[0]
	d.now = d.now.Add(6 * time.Second) // the first ejection is over
	for range 10 {
		d.call()
	}
	if got := d.sent[0] - before; got != 1 {
		t.Errorf("after its first ejection it got %d calls, want one probe", got)
	}
	d.now = d.now.Add(6 * time.Second) // the second lasts twice as long
	for range 10 {
		d.call()
	}
	if got := d.sent[0] - before; got != 1 {
		t.Errorf("in its second ejection it got %d more calls", got-1)
	}
}

// An endpoint whose answers stop in the middle is found by the share of such calls.
func TestStalledAnswersCount(t *testing.T) {
	d := drive(t, newConfig(newTestPool("p", &turns{}, "a", "b")), nil)
	for range 60 {
		d.id++
		a := d.step(Arrive(request(d.id)))[0]
		d.sent[a.Slot]++
		d.step(FirstToken(a.Ticket, 0))
		o := attempt.Success
		if a.Slot == 0 {
			o = attempt.Stalled
		}
		d.step(Done(a.Ticket, 0, o, Usage{}))
		d.step(Wake())
	}
	if d.count(Ejected) != 1 || d.notices[0].Cause != health.Silent || d.sent[0] > 15 {
		t.Errorf("%d calls went there; notices %+v", d.sent[0], d.notices)
	}
}

// Field case F41: a connection that was closed while idle costs no retry, and no wait,
// once a call.
func TestF41_AStaleConnectionIsReplacedForNothing(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a"))
	c.Retry.Ratio, c.Retry.Floor = 0, 0
	m := New(c)
	a := only(t, m.Step(1, Arrive(request(1))))
	m.Step(100, Done(a.Ticket, 0, attempt.StaleConnection, Usage{}))
	at, _ := wakeIn(m.Step(101, Wake()))
	if at != 102 {
		t.Fatalf("the next attempt is due at %d, want 102", at)
	}
	b := only(t, m.Step(at, Wake()))
	if b.Kind != Dispatch || b.Slot != 0 || b.Attempt != 1 {
		t.Fatalf("%+v", b)
	}
	m.Step(200, Done(b.Ticket, 1, attempt.StaleConnection, Usage{}))
	if g := only(t, m.Step(201, Wake())); g.Kind != GiveUp || g.Reason != BudgetSpent {
		t.Errorf("a second one in a row: %+v", g)
	}
}

// Silence is counted from when somebody waits, not from the last answer.
func TestF34_AnEndpointThatWasIdleIsNotSilent(t *testing.T) {
	d := drive(t, newConfig(newTestPool("p", lightest{}, "a", "b")), nil)
	a := d.step(Arrive(request(1)))[0]
	d.step(FirstToken(a.Ticket, 0))
	d.step(Done(a.Ticket, 0, attempt.Success, Usage{}))
	d.now = d.now.Add(time.Hour)
	for i := range 12 {
		d.step(Arrive(request(10 + i)))
	}
	d.step(Wake())
	d.now = d.now.Add(20 * time.Second)
	d.step(Wake())
	if len(d.notices) != 0 {
		t.Errorf("notices %+v", d.notices)
	}
}

// Answers that break after their first content are counted by themselves: that content
// brings the endpoint back each time. Good ones between them are a reason to stay.
func TestTornAnswers_TakeOutWhatOnlyEverBegins(t *testing.T) {
	for _, o := range []attempt.Outcome{attempt.Broken, attempt.StreamError, attempt.Stalled} {
		for _, good := range []int{0, 3} { // of one endpoint's answers each third is good
			d := drive(t, newConfig(newTestPool("p", lightest{}, "a", "b")), nil)
			for i := range 9 {
				d.id++
				d.now = d.now.Add(20 * time.Second) // too few for their share to count
				a := d.step(Arrive(request(d.id)))[0]
				d.step(FirstToken(a.Ticket, 0))
				end := attempt.Success
				if a.Slot == 0 && (good == 0 || i%good != 0) {
					end = o
				}
				d.step(Done(a.Ticket, 0, end, Usage{}))
				d.step(Wake())
			}
			if want := map[int]int{0: 7, 3: 0}[good]; d.count(Ejected) != want {
				t.Errorf("%v, one in %d good: notices %+v", o, good, d.notices)
			}
		}
	}
}

// Two failures in one pool say that the call is at fault there; another pool may yet
// answer it.
func TestF30_AnotherPoolIsAskedAfterTwoFailures(t *testing.T) {
	d := drive(t, newConfig(newTestPool("first", lightest{}, "a", "b", "c"), newTestPool("second", lightest{}, "d", "e", "f")),
		func(slot selection.Slot, _ int) (attempt.Outcome, time.Duration) {
			if slot < 3 {
				return attempt.Failed, attempt.NoWait
			}
			return attempt.Success, attempt.NoWait
		})
	d.m.retry.Attempts = 5
	a, o := d.call()
	if o != attempt.Success || a.Pool != 1 || d.sent[0]+d.sent[1]+d.sent[2] != 2 {
		t.Fatalf("%v in pool %d after %v", o, a.Pool, d.sent)
	}
	// What another pool has answered was the first one's failure, and all of it may leave.
	for range 40 {
		d.now = d.now.Add(200 * time.Millisecond)
		d.call()
	}
	if n := outOfRotation(d.m); n != 3 {
		t.Errorf("%d endpoints out of rotation, want the first pool's 3: %v", n, d.sent)
	}
}

// An endpoint that may not leave since too many others have is asked last: what fails
// fast looks idle.
func TestDoubt_WhoMayNotLeaveIsAskedLast(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, names(4)...))
	c.Health.MaxEjected = 0.25
	d := drive(t, c, func(slot selection.Slot, _ int) (attempt.Outcome, time.Duration) {
		if slot < 2 {
			return attempt.Failed, attempt.NoWait
		}
		return attempt.Success, attempt.NoWait
	})
	failed := 0
	for range 600 {
		d.now = d.now.Add(100 * time.Millisecond)
		if _, o := d.call(); o != attempt.Success {
			failed++
		}
	}
	if failed > 3 || d.count(Ejected) == 0 || outOfRotation(d.m) > 1 || d.sent[0]+d.sent[1] > 30 {
		t.Errorf("%d calls failed, notices %+v, sent %v", failed, d.notices, d.sent)
	}
}

// An endpoint with no room that asks to be tried again at once is not believed for ever.
func TestF24_NoWaitAtAllIsBelievedOnce(t *testing.T) {
	d := drive(t, newConfig(newTestPool("p", lightest{}, "a", "b")), func(slot selection.Slot, _ int) (attempt.Outcome, time.Duration) {
		if slot == 0 {
			return attempt.Busy, 0
		}
		return attempt.Success, attempt.NoWait
	})
	for range 200 {
		d.now = d.now.Add(10 * time.Millisecond)
		d.call()
	}
	if d.sent[0] > 10 || len(d.notices) != 0 {
		t.Errorf("in two seconds %d calls of 200 found no room, notices %+v", d.sent[0], d.notices)
	}
}

// The call that probes an endpoint found silent is taken back as well, once it has waited
// as long.
func TestF34_AProbeThatHangsIsTakenBack(t *testing.T) {
	for _, n := range []int{5, 10} { // of ten the last are taken back after the probe was sent
		c := newConfig(newTestPool("p", lightest{}, "a", "b"))
		c.Retry.Ratio, c.Retry.Floor = 0, 1
		d, _ := hanging(t, c, n)
		until := func(at mono.Time) {
			for d.now < at {
				d.now = d.now.Add(recallEvery)
				seen := len(d.recalls)
				d.step(Wake())
				for _, r := range d.recalls[seen:] {
					d.step(Done(r.Ticket, r.Attempt, attempt.Recalled, Usage{}))
				}
			}
		}
		until(d.now.Add(37 * time.Second))
		d.id++
		probe := d.step(Arrive(request(d.id)))[0]
		if probe.Slot != 0 || (len(d.recalls) < n) != (n == 10) {
			t.Fatalf("%d of %d calls were taken back; the probe is %+v", len(d.recalls), n, probe)
		}
		until(d.now.Add(29 * time.Second))
		if len(d.recalls) != n {
			t.Fatalf("%d of %d calls were taken back before the probe's time", len(d.recalls), n)
		}
		until(d.now.Add(3 * time.Second))
		if len(d.recalls) != n+1 || d.recalls[n].Ticket.Call != probe.Ticket.Call {
			t.Errorf("%d of %d and the probe were taken back", len(d.recalls), n)
		}
	}
}

// A call that met back-pressure and finds, when its backoff is over, that the others have asked to
// be left alone too, waits for the first of them, but not for longer than it would for one.
func TestF24_OthersHaveNoRoomEitherAfterTheBackoff(t *testing.T) {
	for _, x := range []struct {
		named time.Duration // by both endpoints
		again bool
	}{{time.Second, true}, {attempt.Default().MaxWait + time.Second, false}} {
		m := New(newConfig(newTestPool("p", lightest{}, "a", "b")))
		first := only(t, m.Step(1, Arrive(request(1))))
		second := only(t, m.Step(2, Arrive(request(2))))
		m.Step(100, Pushed(first.Ticket, 0, attempt.Limited, x.named))
		back, ok := wakeIn(m.Step(101, Wake()))
		if !ok {
			t.Fatal("no backoff")
		}
		m.Step(back-2, Pushed(second.Ticket, 0, attempt.Limited, x.named))
		var said []Action
		for until := back.Add(3 * time.Second); m.wakeAt <= until; {
			for _, a := range m.Step(m.wakeAt, Wake()) {
				if (a.Kind == Dispatch || a.Kind == GiveUp) && a.Ticket.Call == 1 {
					said = append(said, a)
				}
			}
			if len(said) > 0 {
				break
			}
		}
		want := Dispatch
		if !x.again {
			want = GiveUp
		}
		if len(said) != 1 || said[0].Kind != want {
			t.Errorf("both name %v: %+v", x.named, said)
		}
	}
}
