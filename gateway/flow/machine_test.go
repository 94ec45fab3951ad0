package flow

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/prefix"
	"kvasir/selection/signal"
)

// lightest is the policy of these tests: fewest outstanding, first of equals.
type lightest struct{}

func (lightest) Pick(v *selection.View, _ *selection.Request, _ *seed.Rand) selection.Choice {
	best := 0
	for i, slot := range v.Candidates {
		v.Scores[i] = float64(v.Book[slot].Outstanding)
		if v.Scores[i] < v.Scores[best] {
			best = i
		}
	}
	return selection.Choice{Index: best, Reason: "lightest"}
}

// overlapping is lightest with an appetite for overlap, blocks in use and first tokens.
type overlapping struct {
	lightest
	learned []time.Duration
	samples []selection.Sample
}

func (*overlapping) UsesOverlap() {}
func (*overlapping) UsesActive()  {}
func (o *overlapping) Learn(s *selection.Sample) {
	o.learned, o.samples = append(o.learned, s.TTFT), append(o.samples, *s)
}

var _ selection.Learner = (*overlapping)(nil)

// newConfig has no slow start: what a test brings back takes calls at once.
func newConfig(pools ...Pool) Config {
	hc := health.Default()
	hc.SlowStart = 0
	return Config{
		Seed: 1, Retry: attempt.Default(), Health: hc,
		Prefix: prefix.Config{BudgetBytes: 1 << 20, SpeculativeTTL: 30 * time.Second},
		Pools:  pools, Explain: true,
	}
}

func newTestPool(name string, p selection.Policy, endpoints ...string) Pool {
	pool := Pool{Name: name, PolicyName: "lightest", Policy: p}
	for _, e := range endpoints {
		pool.Endpoints = append(pool.Endpoints, Endpoint{Name: e, Weight: 1})
	}
	return pool
}

func request(id int) *selection.Request {
	return &selection.Request{ID: selection.CallID(id), Stream: true, InputTokens: 100}
}

// only returns the one action that is neither a wake-up nor a notice.
func only(t *testing.T, actions []Action) Action {
	t.Helper()
	var found []Action
	for _, a := range actions {
		if a.Kind < Ejected {
			found = append(found, a)
		}
	}
	if len(found) != 1 {
		t.Fatalf("got %d actions, want 1: %+v", len(found), found)
	}
	return found[0]
}

func wakeIn(actions []Action) (mono.Time, bool) {
	for _, a := range actions {
		if a.Kind == WakeAt {
			return a.At, true
		}
	}
	return 0, false
}

func TestArrival_ChargesInTheSameStep(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a", "b", "c")))
	for i := range 30 {
		a := only(t, m.Step(5, Arrive(request(i+1)))) // all at one instant
		if want := selection.Slot(i % 3); a.Slot != want {
			t.Fatalf("call %d went to slot %d, want %d", i, a.Slot, want)
		}
	}
	if b := m.books[0]; b.Outstanding != 10 || b.OutstandingTokens != 1000 || b.PendingTokens != 1000 || b.Unseen != 10 {
		t.Errorf("book of slot 0 is %+v", b)
	}
}

// TestBook_KnowsSinceWhenTheOldestCallIsWorkedOn: from its dispatch, or from the first
// token (or the end) of the one before it.
func TestBook_KnowsSinceWhenTheOldestCallIsWorkedOn(t *testing.T) {
	p := &overlapping{}
	m := New(newConfig(newTestPool("p", p, "a")))
	var tickets []Ticket
	for i, tokens := range []int{100, 30, 7} {
		q := request(i + 1)
		q.InputTokens = tokens
		tickets = append(tickets, only(t, m.Step(mono.Time(10*(i+1)), Arrive(q))).Ticket)
	}
	book := func(pending int32, tokens, attention, head int64, since mono.Time) {
		t.Helper()
		m.Step(m.last+1, Wake())
		b := m.books[0]
		if b.Pending != pending || b.PendingWork != (selection.Work{Tokens: tokens, Attention: attention}) || b.Head.Tokens != head || b.HeadSince != since {
			t.Errorf("got %+v, want %d pending of %d tokens and %d token², the oldest of %d since %d", b, pending, tokens, attention, head, since)
		}
	}
	book(3, 137, 100*100/2+30*30/2+7*7/2, 100, 10)
	m.Step(50, FirstToken(tickets[1], 0)) // not the oldest
	book(2, 107, 100*100/2+7*7/2, 100, 10)
	m.Step(60, Left(tickets[0]))
	book(1, 7, 7*7/2, 7, 60)
	m.Step(70, FirstToken(tickets[2], 0))
	book(0, 0, 0, 0, 0)
	want := []selection.Sample{
		{At: 50, TTFT: 30, Input: 30, Own: selection.Work{Tokens: 30, Attention: 450}, Ahead: selection.Work{Tokens: 100, Attention: 5000}},
		{At: 70, TTFT: 40, Input: 7, Own: selection.Work{Tokens: 7, Attention: 24}, Ahead: selection.Work{Tokens: 130, Attention: 5450}},
	}
	if !slices.Equal(p.samples, want) {
		t.Errorf("the policy learned\n%+v, want\n%+v", p.samples, want)
	}
}

// TestBook_ACallThatShowsNothingMayBePrefilledAlready: one that is not streamed is pending
// until its answer is whole, or until a later call's first token shows that its turn is over.
func TestBook_ACallThatShowsNothingMayBePrefilledAlready(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
	var tickets []Ticket
	for i, stream := range []bool{false, false, true, false} {
		q := request(i + 1)
		q.Stream, q.InputTokens = stream, 10*(i+1)
		tickets = append(tickets, only(t, m.Step(mono.Time(10*(i+1)), Arrive(q))).Ticket)
	}
	book := func(pending int32, tokens, head int64, since mono.Time, silent bool) {
		t.Helper()
		m.Step(m.last+1, Wake())
		b := m.books[0]
		if b.Pending != pending || b.PendingWork.Tokens != tokens || b.PendingTokens != tokens || b.Head.Tokens != head || b.HeadSince != since || b.HeadSilent != silent {
			t.Errorf("got %+v, want %d pending of %d tokens, the oldest of %d since %d, silent %v", b, pending, tokens, head, since, silent)
		}
	}
	book(4, 100, 10, 10, true)
	m.Step(50, Done(tickets[0], 0, attempt.Success, Usage{})) // nobody saw when its prefill was over
	book(3, 90, 20, 20, true)
	m.Step(60, FirstToken(tickets[2], 0))
	book(1, 40, 40, 60, true)
	m.Step(70, Done(tickets[1], 0, attempt.Success, Usage{}))
	m.Step(80, Done(tickets[2], 0, attempt.Success, Usage{}))
	book(1, 40, 40, 60, true)
	m.Step(90, Left(tickets[3]))
	book(0, 0, 0, 0, false)
	if b := m.books[0]; b != (selection.Book{}) {
		t.Errorf("left over: %+v", b)
	}
}

func TestReport_FoldsOnlyOnceItsInstantHasPassed(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a")))
	a := only(t, m.Step(1, Arrive(request(1))))
	m.Step(10, Done(a.Ticket, 0, attempt.Success, Usage{}))
	m.Step(10, Signal(0, 0, signal.Load{}, 0))
	if m.books[0].Outstanding != 1 {
		t.Fatal("a report was folded at its own instant")
	}
	m.Step(11, Wake())
	if m.books[0].Outstanding != 0 {
		t.Fatal("a report was not folded after its instant")
	}
}

func TestRetry_GoesElsewhereAfterItsBackoff(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a", "b")))
	first := only(t, m.Step(1, Arrive(request(1))))
	at, ok := wakeIn(m.Step(100, Done(first.Ticket, 0, attempt.Busy, Usage{})))
	if !ok || at != 101 {
		t.Fatalf("wake-up asked for at %d (%v), want 101", at, ok)
	}
	until, ok := wakeIn(m.Step(101, Wake()))
	backoff := until.Sub(101)
	if !ok || backoff <= 0 || backoff > 25*time.Millisecond {
		t.Fatalf("backoff is %v (%v), want at most 25 ms", backoff, ok)
	}
	second := only(t, m.Step(until, Wake()))
	if second.Kind != Dispatch || second.Attempt != 1 || second.Slot == first.Slot {
		t.Fatalf("second attempt is %+v after slot %d", second, first.Slot)
	}
	if got := second.Decision.Candidates; len(got) != 1 {
		t.Errorf("the tried endpoint was a candidate: %+v", got)
	}
}

func TestRetry_EndsForEachReason(t *testing.T) {
	fail := func(m *Machine, now mono.Time, a Action) Action {
		m.Step(now, Done(a.Ticket, a.Attempt, attempt.Busy, Usage{}))
		actions := m.Step(now+1, Wake())
		for {
			at, ok := wakeIn(actions)
			if !ok {
				return only(t, actions)
			}
			actions = slices.Clone(m.Step(at, Wake()))
			if !slices.ContainsFunc(actions, func(a Action) bool { return a.Kind == WakeAt }) {
				return only(t, actions)
			}
		}
	}
	t.Run("attempts spent", func(t *testing.T) {
		m := New(newConfig(newTestPool("p", lightest{}, "a", "b", "c", "d")))
		a := only(t, m.Step(1, Arrive(request(1))))
		for now := mono.Time(1e9); a.Kind == Dispatch; now += 1e9 {
			a = fail(m, now, a)
		}
		if a.Reason != AttemptsSpent || a.Attempt != 2 {
			t.Errorf("got %v after attempt %d", a.Reason, a.Attempt)
		}
	})
	t.Run("no alternative", func(t *testing.T) {
		m := New(newConfig(newTestPool("p", lightest{}, "a")))
		if a := fail(m, 100, only(t, m.Step(1, Arrive(request(1))))); a.Reason != NoAlternative {
			t.Errorf("got %v", a.Reason)
		}
	})
	t.Run("budget spent", func(t *testing.T) {
		c := newConfig(newTestPool("p", lightest{}, "a", "b"))
		c.Retry.Ratio, c.Retry.Floor = 0, 0
		m := New(c)
		if a := fail(m, 100, only(t, m.Step(1, Arrive(request(1))))); a.Reason != BudgetSpent {
			t.Errorf("got %v", a.Reason)
		}
		if m.inFlight != 0 {
			t.Errorf("%d calls are held", m.inFlight)
		}
	})
	t.Run("a stale connection may be tried again", func(t *testing.T) {
		m := New(newConfig(newTestPool("p", lightest{}, "a")))
		a := only(t, m.Step(1, Arrive(request(1))))
		m.Step(100, Done(a.Ticket, 0, attempt.StaleConnection, Usage{}))
		at, _ := wakeIn(m.Step(101, Wake()))
		if a = only(t, m.Step(at, Wake())); a.Kind != Dispatch || a.Slot != 0 {
			t.Errorf("got %+v", a)
		}
	})
	t.Run("never after the first content", func(t *testing.T) {
		m := New(newConfig(newTestPool("p", lightest{}, "a", "b")))
		a := only(t, m.Step(1, Arrive(request(1))))
		m.Step(50, FirstToken(a.Ticket, 0))
		if at, ok := wakeIn(m.Step(100, Done(a.Ticket, 0, attempt.Broken, Usage{}))); ok {
			t.Errorf("a wake-up was asked for at %d", at)
		}
		if m.Step(200, Wake()); m.inFlight != 0 {
			t.Errorf("%d calls are held", m.inFlight)
		}
	})
}

func TestVerdicts_BudgetGoesByCallNotByOrderOfReports(t *testing.T) {
	grants := func(order []int) []selection.CallID {
		c := newConfig(newTestPool("p", lightest{}, "a", "b"))
		c.Retry.Ratio, c.Retry.Floor = 0, 3
		m := New(c)
		tickets := make([]Action, 8)
		for i := range tickets {
			tickets[i] = only(t, m.Step(mono.Time(i+1), Arrive(request(i+1))))
		}
		for _, i := range order {
			m.Step(100, Done(tickets[i].Ticket, 0, attempt.BadGateway, Usage{}))
		}
		var given []selection.CallID
		for _, a := range m.Step(101, Wake()) {
			if a.Kind == GiveUp {
				given = append(given, a.Ticket.Call)
			}
		}
		return given
	}
	want := grants([]int{0, 1, 2, 3, 4, 5, 6, 7})
	if len(want) != 5 {
		t.Fatalf("%d calls were given up, want 5", len(want))
	}
	if got := grants([]int{7, 3, 5, 1, 0, 6, 2, 4}); !slices.Equal(got, want) {
		t.Errorf("given up %v; in another order of reports %v", want, got)
	}
}

func TestWake_ForAFailureAtTheInstantOfAnotherWake(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a", "b", "c")))
	one := only(t, m.Step(1, Arrive(request(1))))
	two := only(t, m.Step(2, Arrive(request(2))))
	m.Step(100, Done(one.Ticket, 0, attempt.Busy, Usage{}))
	m.Step(101, Done(two.Ticket, 0, attempt.Busy, Usage{})) // at the wake-up's own instant, before it
	at, ok := wakeIn(m.Step(101, Wake()))
	if !ok || at != 102 {
		t.Fatalf("next wake-up is at %d (%v), want 102", at, ok)
	}
	m.Step(102, Wake())
	if len(m.backoffs) != 2 {
		t.Errorf("%d calls back off, want 2", len(m.backoffs))
	}
}

func TestPools_LowerOneOnlyWhenHigherHasNobody(t *testing.T) {
	m := New(newConfig(newTestPool("high", lightest{}, "a"), newTestPool("low", lightest{}, "b")))
	now := mono.Time(1)
	for i := range 3 {
		a := only(t, m.Step(now, Arrive(request(i+1))))
		if a.Pool != 0 {
			t.Fatalf("call %d went to pool %d with the higher one in rotation", i, a.Pool)
		}
		m.Step(now+1, Done(a.Ticket, 0, attempt.ConnectFailed, Usage{}))
		m.Step(now+2, Left(a.Ticket))
		now += 10
	}
	if a := only(t, m.Step(now, Arrive(request(4)))); a.Pool != 1 {
		t.Fatalf("call went to pool %d with the higher one out of rotation", a.Pool)
	}
	// The last pool keeps its last endpoint however it fails.
	for i := range 5 {
		a := only(t, m.Step(now+1, Arrive(request(10+i))))
		if a.Kind != Dispatch || a.Pool != 1 {
			t.Fatalf("got %+v", a)
		}
		m.Step(now+2, Done(a.Ticket, 0, attempt.ConnectFailed, Usage{}))
		m.Step(now+3, Left(a.Ticket))
		now += 10
	}
	// After its time the higher pool is probed by one call, and by no other meanwhile.
	now += mono.Time(5 * time.Second)
	probe := only(t, m.Step(now, Arrive(request(20))))
	other := only(t, m.Step(now+1, Arrive(request(21))))
	if probe.Pool != 0 || other.Pool != 1 {
		t.Fatalf("probe went to pool %d, the call beside it to pool %d", probe.Pool, other.Pool)
	}
	m.Step(now+2, FirstToken(probe.Ticket, 0))
	if a := only(t, m.Step(now+3, Arrive(request(22)))); a.Pool != 0 {
		t.Errorf("after a good probe a call went to pool %d", a.Pool)
	}
}

// fails lets a call arrive, end so, and be forgotten.
func fails(t *testing.T, m *Machine, now mono.Time, id int, o attempt.Outcome) Action {
	t.Helper()
	a := only(t, m.Step(now, Arrive(request(id))))
	m.Step(now+1, Done(a.Ticket, 0, o, Usage{}))
	m.Step(now+1, Left(a.Ticket))
	m.Step(now+2, Wake())
	return a
}

func TestLastResort_IsWhatWasEjected(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a", "b")))
	for i := range 3 {
		fails(t, m, mono.Time(10*i+10), i+1, attempt.ConnectFailed) // a, the first of equals
	}
	a := only(t, m.Step(100, Arrive(request(10))))
	if a.Slot != 1 {
		t.Fatalf("the call went to slot %d, which is out of rotation", a.Slot)
	}
	m.Step(101, Done(a.Ticket, 0, attempt.ConnectFailed, Usage{}))
	at, _ := wakeIn(m.Step(102, Wake()))
	a = only(t, m.Step(at, Wake()))
	if a.Kind != Dispatch || a.Slot != 0 {
		t.Fatalf("with nobody else left to ask: %+v", a)
	}
	m.Step(at+1, FirstToken(a.Ticket, 1))
	if b := only(t, m.Step(at+2, Arrive(request(11)))); len(b.Decision.Candidates) != 2 {
		t.Error("what answered is not back in rotation")
	}
}

func TestLastResort_GoesAcrossPoolsAndLeavesEjectionsAlone(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a"), newTestPool("q", lightest{}, "b")))
	for i := range 3 {
		fails(t, m, mono.Time(10*i+10), i+1, attempt.ConnectFailed) // a
	}
	retry := func(now mono.Time, id int, o attempt.Outcome) Action {
		a := only(t, m.Step(now, Arrive(request(id))))
		if a.Slot != 1 {
			t.Fatalf("call %d went to slot %d, which is out of rotation", id, a.Slot)
		}
		m.Step(now+1, Done(a.Ticket, 0, o, Usage{}))
		actions := slices.Clone(m.Step(now+2, Wake()))
		if at, ok := wakeIn(actions); ok {
			return only(t, m.Step(at, Wake()))
		}
		return only(t, actions)
	}
	second := mono.Time(time.Second)
	if a := retry(second, 10, attempt.Busy); a.Kind != GiveUp || a.Reason != NoAlternative {
		t.Errorf("after a busy endpoint, a dead one was asked: %+v", a)
	}
	a := retry(2*second, 11, attempt.ConnectFailed)
	if a.Kind != Dispatch || a.Pool != 0 || a.Slot != 0 {
		t.Fatalf("with the lower pool dead too: %+v", a)
	}
	m.Step(2*second+second/2, Done(a.Ticket, 1, attempt.Broken, Usage{}))
	m.Step(2*second+second/2+1, Left(a.Ticket))
	for _, x := range []struct {
		at   mono.Time
		slot selection.Slot
	}{{4 * second, 1}, {6 * second, 0}} { // ejected at about 0 for 5 s, whatever was resorted to
		if b := only(t, m.Step(x.at, Arrive(request(int(20+x.at))))); b.Slot != x.slot {
			t.Errorf("at %v a call went to slot %d, want %d", x.at.Duration(), b.Slot, x.slot)
		}
	}
}

func TestGuard_ToBeDueForAProbeIsNotToBeInRotation(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a", "b")))
	for i := range 3 {
		fails(t, m, mono.Time(10*i+10), i+1, attempt.ConnectFailed)
	}
	var onB []Action
	for i := range 3 {
		onB = append(onB, only(t, m.Step(mono.Time(100+i), Arrive(request(40+i)))))
	}
	now := mono.Time(6 * time.Second) // a is due
	for _, b := range onB {
		m.Step(now-10, Done(b.Ticket, 0, attempt.ConnectFailed, Usage{}))
		m.Step(now-10, Left(b.Ticket))
	}
	if s := m.Snapshot(now - 5).Pools[0].Endpoints[1]; s.Health != health.InRotation || s.Failures < 3 {
		t.Fatalf("the last endpoint is %v after %d failures while the other one is due", s.Health, s.Failures)
	}
	probe := only(t, m.Step(now, Arrive(request(10))))
	for i := range 5 {
		if a := fails(t, m, now+mono.Time(10*i+10), 20+i, attempt.ConnectFailed); a.Slot != 1 || probe.Slot != 0 {
			t.Fatalf("probe at slot %d, call %d at slot %d", probe.Slot, i, a.Slot)
		}
	}
	if s := m.Snapshot(now + 1000).Pools[0].Endpoints[1]; s.Health != health.InRotation {
		t.Errorf("the last endpoint is %v while the other one is only being probed", s.Health)
	}
	// The probe hangs; after twice as long the next call is one too.
	if a := only(t, m.Step(now+mono.Time(10*time.Second), Arrive(request(30)))); len(a.Decision.Candidates) != 2 {
		t.Error("a probe that hangs keeps its endpoint out")
	}
}

func TestPoison_OneCallIsNoEvidence(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b", "c"))
	c.Health.Failures = 1
	m := New(c)
	a := only(t, m.Step(1, Arrive(request(1))))
	now := mono.Time(1000)
	for a.Kind == Dispatch {
		m.Step(now, Done(a.Ticket, a.Attempt, attempt.Broken, Usage{}))
		at, ok := wakeIn(m.Step(now+1, Wake()))
		if !ok {
			break
		}
		a, now = only(t, m.Step(at, Wake())), at+1000
	}
	out := 0
	for _, e := range m.Snapshot(now + 1000).Pools[0].Endpoints {
		if e.Health != health.InRotation {
			out++
		}
	}
	if out != 0 {
		t.Errorf("one call that breaks whoever takes it put %d endpoints out of rotation", out)
	}
}

func TestNotices_TellWhenAnEndpointGoesAndComes(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a", "b")))
	notices := func(actions []Action) (kinds []ActionKind) {
		for _, a := range actions {
			if a.Kind == Ejected || a.Kind == Returned {
				kinds = append(kinds, a.Kind)
			}
		}
		return kinds
	}
	now := mono.Time(1)
	for i := range 6 { // three for each: a leaves, b, then the last one, stays
		a := only(t, m.Step(now, Arrive(request(i+1))))
		m.Step(now+1, Done(a.Ticket, 0, attempt.ConnectFailed, Usage{}))
		m.Step(now+1, Left(a.Ticket))
		now += 10
		if i == 2 {
			m.Snapshot(now) // folds what is past; its notice must not be lost
		}
		if got := notices(m.Step(now, Wake())); len(got) > 0 != (i == 2) || i == 2 && got[0] != Ejected {
			t.Fatalf("after failure %d the notices are %v", i+1, got)
		}
		now += 10
	}
	now += mono.Time(10 * time.Second)
	a := only(t, m.Step(now, Arrive(request(20))))
	m.Step(now+1, FirstToken(a.Ticket, 0))
	if got := notices(m.Step(now+2, Wake())); len(got) != 1 || got[0] != Returned {
		t.Errorf("after a good probe the notices are %v", got)
	}
}

func TestRefuse(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a"))
	c.Calls = 1
	m := New(c)
	m.Step(1, Arrive(request(1)))
	if a := only(t, m.Step(2, Arrive(request(2)))); a.Kind != Refuse || a.Reason != TooManyCalls {
		t.Errorf("got %+v", a)
	}
}

func TestOutcome_CallerFaultsLeaveHealthAlone(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a", "b")))
	for i := range 50 {
		a := only(t, m.Step(mono.Time(10*i+1), Arrive(request(i+1))))
		m.Step(mono.Time(10*i+2), Done(a.Ticket, 0, attempt.CallerFault, Usage{}))
	}
	for _, e := range m.Snapshot(1e6).Pools[0].Endpoints {
		if e.Health != health.InRotation || e.Failures != 0 {
			t.Errorf("%s is %v after %d failures", e.Name, e.Health, e.Failures)
		}
	}
}

// Field case F17: what an engine reports says which calls it has seen, and never changes
// what is charged.
func TestSignal_TellsSeenFromUnseen(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a")))
	var tickets []Ticket
	for i := range 4 {
		tickets = append(tickets, only(t, m.Step(mono.Time(10*i+10), Arrive(request(i+1)))).Ticket)
	}
	load := signal.Load{Running: signal.Known(2, 0)}
	m.Step(50, Signal(0, 0, load, 20)) // true at 30: it saw the calls of 10 and 20
	m.Step(51, Wake())
	if b := m.books[0]; b.Unseen != 2 || b.UnseenTokens != 200 || b.Outstanding != 4 {
		t.Fatalf("book is %+v, want 2 of 4 unseen", b)
	}
	m.Step(60, Done(tickets[3], 0, attempt.Success, Usage{}))
	m.Step(61, Done(tickets[0], 0, attempt.Success, Usage{}))
	m.Step(70, Signal(0, 0, load, 0))
	m.Step(71, Wake())
	if b := m.books[0]; b.Unseen != 0 || b.UnseenTokens != 0 || b.Outstanding != 2 {
		t.Fatalf("book is %+v, want 0 of 2 unseen", b)
	}
	m.Step(80, Signal(0, 7, signal.Load{Running: signal.Known(9, 0)}, 0)) // another generation
	m.Step(81, Wake())
	if g := m.endpoints[0].Load.Running; g.Value != 2 || g.At != 70 {
		t.Errorf("a report for another generation was taken: %+v", g)
	}
}

func TestFirstToken_TeachesPolicyAndIndex(t *testing.T) {
	p := &overlapping{}
	m := New(newConfig(newTestPool("p", p, "a", "b")))
	q := request(1)
	q.Blocks = []kvblock.Hash{11, 12, 13}
	a := only(t, m.Step(1, Arrive(q)))
	m.Step(1001, FirstToken(a.Ticket, 0))
	q.ID = 2
	b := only(t, m.Step(2000, Arrive(q)))
	if len(p.learned) != 1 || p.learned[0] != 1000 {
		t.Errorf("learned %v, want [1µs]", p.learned)
	}
	if got := b.Decision.Candidates[a.Slot].Overlap; got != 3 {
		t.Errorf("overlap on the endpoint that answered is %d, want 3", got)
	}
}

// TestLaw_NothingIsLost drives the machine with random events and checks after each that
// what is charged is what runs, and at the end that nothing is held: no count expires, and
// none goes below zero, however long calls last (field case F18).
func TestLaw_NothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newConfig(newTestPool("p", &overlapping{}, "a", "b", "c"), newTestPool("q", adapting{}, "d"))
		c.Calls = 12
		m := New(c)
		now := mono.Time(0)
		running := map[selection.CallID]Action{} // attempts that the driver runs
		waiting := map[selection.CallID]Ticket{} // failed ones, waiting for a word
		wake := mono.Never
		accepted, ended := 0, 0
		do := func(actions []Action) {
			for _, a := range slices.Clone(actions) {
				switch a.Kind {
				case WakeAt:
					wake = a.At
				case Dispatch:
					if a.Attempt > 0 {
						if _, ok := waiting[a.Ticket.Call]; !ok {
							return // its client has left; the machine hears of it
						}
						delete(waiting, a.Ticket.Call)
					}
					running[a.Ticket.Call] = a
				case GiveUp:
					delete(waiting, a.Ticket.Call)
					ended++
				}
			}
		}
		step := func(e Event) { do(m.Step(now, e)) }
		pick := func() (Action, bool) {
			if len(running) == 0 {
				return Action{}, false
			}
			var ids []selection.CallID
			for id := range running {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			return running[rapid.SampledFrom(ids).Draw(t, "call")], true
		}
		for i := range rapid.IntRange(1, 120).Draw(t, "steps") {
			now += mono.Time(rapid.SampledFrom([]int{0, 1, 5, 1e7, 1e9}).Draw(t, "dt"))
			if wake <= now {
				wake = mono.Never
				step(Wake())
			}
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0, 1:
				q := request(i + 1)
				q.Blocks = []kvblock.Hash{1, 2, kvblock.Hash(i)}
				q.Adapter = kvblock.Hash(rapid.IntRange(0, 3).Draw(t, "adapter"))
				if before := len(running); true {
					step(Arrive(q))
					if len(running) > before {
						accepted++
					}
				}
			case 2:
				if a, ok := pick(); ok {
					step(FirstToken(a.Ticket, a.Attempt))
				}
			case 3:
				if a, ok := pick(); ok {
					o := attempt.Outcome(rapid.IntRange(0, int(attempt.ClientGone)-1).Draw(t, "outcome"))
					delete(running, a.Ticket.Call)
					c := m.lookup(a.Ticket)
					// The driver knows what it committed; the machine may not have folded it.
					committed := c.committed || slices.ContainsFunc(m.pending, func(r report) bool {
						return r.kind == reportFirst && r.ticket == a.Ticket
					})
					done := Done(a.Ticket, a.Attempt, o, Usage{})
					resumes := committed && rapid.Bool().Draw(t, "resumes")
					if resumes {
						done = done.Resumes()
					}
					if o.Retryable() && (!committed || resumes) {
						waiting[a.Ticket.Call] = a.Ticket
					} else {
						ended++
					}
					step(done)
				}
			case 4:
				if a, ok := pick(); ok {
					delete(running, a.Ticket.Call)
					ended++
					step(Left(a.Ticket))
				}
			case 5:
				step(Signal(selection.Slot(rapid.IntRange(0, 3).Draw(t, "slot")), 0,
					signal.Load{Running: signal.Known(1, 0)}, time.Duration(rapid.IntRange(0, 10).Draw(t, "took"))))
			}
			audit(t, m)
		}
		for range 1000 {
			now += 1e9
			if a, ok := pick(); ok {
				delete(running, a.Ticket.Call)
				ended++
				step(Done(a.Ticket, a.Attempt, attempt.Success, Usage{}))
			} else if len(waiting) == 0 {
				break
			} else {
				step(Wake())
			}
		}
		now += 1e9
		step(Wake())
		if m.inFlight != 0 || accepted != ended {
			t.Fatalf("%d calls are held; %d accepted, %d ended", m.inFlight, accepted, ended)
		}
		for slot, b := range m.books {
			if b != (selection.Book{}) {
				t.Fatalf("book of slot %d is %+v with nothing in flight", slot, b)
			}
		}
	})
}

// audit recounts every book from the calls.
func audit(t *rapid.T, m *Machine) {
	want, heads := make([]selection.Book, len(m.books)), make([]*call, len(m.books))
	comesBefore := func(a, b *call) bool { // to the endpoint; which of one instant came first the list knows
		for i := a.newerWait; i != none; i = m.calls[i].newerWait {
			if &m.calls[i] == b {
				return true
			}
		}
		return false
	}
	for i := range m.calls {
		c := &m.calls[i]
		if c.phase != running {
			continue
		}
		b := &want[c.slot]
		b.Outstanding++
		b.OutstandingTokens += int64(c.request.InputTokens)
		if c.pending {
			b.PendingTokens += int64(c.request.InputTokens)
			b.Pending++
			b.PendingWork = b.PendingWork.Plus(c.work)
			if h := &heads[c.slot]; *h == nil || comesBefore(c, *h) {
				*h = c
			}
		}
		if c.unseen {
			b.Unseen++
			b.UnseenTokens += int64(c.request.InputTokens)
		}
	}
	for slot, h := range heads {
		if h == nil {
			continue
		}
		since := m.books[slot].HeadSince
		if since < h.dispatched || since > m.last {
			t.Fatalf("the oldest call at slot %d was sent at %d, it is %d, and it is worked on since %d", slot, h.dispatched, m.last, since)
		}
		want[slot].Head, want[slot].HeadSince, want[slot].HeadSilent = h.work, since, !h.showsStart()
	}
	for slot, blocks := range activeBlocks(m) {
		want[slot].ActiveBlocks = blocks
	}
	if !slices.Equal(want, m.books) {
		t.Fatalf("books are %+v, the calls add up to %+v", m.books, want)
	}
	auditAdapters(t, m)
}

// activeBlocks recounts by slot the blocks that running calls use.
func activeBlocks(m *Machine) []int64 {
	total, seen := make([]int64, len(m.books)), make([]map[kvblock.Hash]bool, len(m.books))
	for i := range m.calls {
		c := &m.calls[i]
		if c.phase != running || !m.state[c.slot].pool.usesActive {
			continue
		}
		if seen[c.slot] == nil {
			seen[c.slot] = map[kvblock.Hash]bool{}
		}
		for j, h := range c.request.Blocks {
			if !seen[c.slot][h] {
				seen[c.slot][h] = true
				total[c.slot] += int64(kvblock.Span(j+1) - kvblock.Span(j))
			}
		}
	}
	return total
}

// TestLaw_OrderOfReportsOfOneInstantIsNothing gives two machines the same reports of an
// instant in different orders and expects the same state and the same next decision.
func TestLaw_OrderOfReportsOfOneInstantIsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "calls")
		outcomes := rapid.SliceOfN(rapid.IntRange(0, int(attempt.ClientGone)), n, n).Draw(t, "outcomes")
		order := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range 2 * n {
				if !yield(i) {
					return
				}
			}
		})).Draw(t, "order")
		run := func(order []int) ([]Action, []selection.Book, []time.Duration) {
			p := &overlapping{}
			m := New(newConfig(newTestPool("p", p, "a", "b", "c")))
			var tickets []Ticket
			for i := range n {
				for _, a := range m.Step(mono.Time(i+1), Arrive(request(i+1))) {
					tickets = append(tickets, a.Ticket)
				}
			}
			for _, i := range order {
				if call := i / 2; i%2 == 0 {
					m.Step(100, FirstToken(tickets[call], 0))
				} else {
					m.Step(100, Done(tickets[call], 0, attempt.Outcome(outcomes[call]), Usage{}))
				}
			}
			m.Step(101, Wake())
			actions := slices.Clone(m.Step(200, Arrive(request(1000))))
			for i := range actions {
				actions[i].Decision = nil
				actions[i].Ticket.index = 0 // which record is reused is nobody's business
			}
			return actions, m.books, p.learned
		}
		sorted := slices.Sorted(slices.Values(order))
		a1, b1, l1 := run(sorted)
		a2, b2, l2 := run(order)
		if !slices.Equal(a1, a2) || !slices.Equal(b1, b2) || !slices.Equal(l1, l2) {
			t.Fatalf("order %v changes\n%+v %+v %v\ninto\n%+v %+v %v", order, a1, b1, l1, a2, b2, l2)
		}
	})
}
