package flow

import (
	"slices"
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection/health"
)

// breaks lets a call's running attempt break off after its first content. It returns what the
// machine said by the end of any backoff.
func breaks(m *Machine, now mono.Time, a Action, o attempt.Outcome) []Action {
	m.Step(now, FirstToken(a.Ticket, a.Attempt))
	said := slices.Clone(m.Step(now+1, Done(a.Ticket, a.Attempt, o, Usage{}).Resumes()))
	said = append(said, m.Step(now+2, Wake())...)
	return append(said, m.Step(now.Add(time.Second), Wake())...)
}

func granted(actions []Action) (Action, bool) {
	for _, a := range actions {
		if a.Kind == Dispatch || a.Kind == GiveUp {
			return a, true
		}
	}
	return Action{}, false
}

func TestResume_GoesElsewhereAndIsCommittedAgain(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a", "b")))
	q := request(1)
	q.Blocks = []kvblock.Hash{1, 2, 3}
	q.Deadline, q.Firm = time.Millisecond, true // of the first token, which comes in time
	first := only(t, m.Step(1, Arrive(q)))
	m.Step(2, FirstToken(first.Ticket, 0))
	if at, ok := wakeIn(m.Step(3, Done(first.Ticket, 0, attempt.Broken, Usage{}).Resumes())); !ok || at != 4 {
		t.Fatalf("the verdict comes at %d (%v), want the next instant", at, ok)
	}
	m.Step(4, Wake())
	second, ok := granted(m.Step(mono.Time(time.Second), Wake()))
	if !ok || second.Kind != Dispatch || second.Attempt != 1 || second.Slot == first.Slot || second.Ticket != first.Ticket {
		t.Fatalf("after %+v came %+v", first, second)
	}
	if m.state[first.Slot].torn != 1 || m.inFlight != 1 || m.charged != 1 {
		t.Errorf("torn answers %d, %d calls, %d charges", m.state[first.Slot].torn, m.inFlight, m.charged)
	}
	now := mono.Time(5 * time.Second)
	m.Step(now, FirstToken(second.Ticket, 1))
	m.Step(now+1, Done(second.Ticket, 1, attempt.Success, Usage{}))
	empty(t, m)
}

// What broke in the middle has counted as a torn answer: the next endpoint's content does not
// make it count again.
func TestResume_ABreakCountsOnce(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b", "c", "d"))
	c.Health = health.Default()
	c.Health.Failures = 2
	m := New(c)
	first := only(t, m.Step(1, Arrive(request(1))))
	second, _ := granted(breaks(m, 2, first, attempt.Broken))
	now := mono.Time(3 * time.Second)
	m.Step(now, FirstToken(second.Ticket, 1))
	m.Step(now+1, Done(second.Ticket, 1, attempt.Success, Usage{}))
	m.Step(now+2, Wake())
	if got := m.state[first.Slot].breaker.State(); got != health.InRotation {
		t.Errorf("one break of two that are allowed leaves the endpoint in state %v", got)
	}
}

func TestResume_EndsWithoutOne(t *testing.T) {
	for name, x := range map[string]struct {
		change  func(*Config)
		outcome attempt.Outcome
		left    bool
		reason  Reason
	}{
		"nobody else":     {change: func(c *Config) { c.Pools[0].Endpoints = c.Pools[0].Endpoints[:1] }, outcome: attempt.Broken, reason: NoAlternative},
		"attempts spent":  {change: func(c *Config) { c.Retry.Attempts = 0 }, outcome: attempt.Stalled, reason: AttemptsSpent},
		"budget spent":    {change: func(c *Config) { c.Retry.Floor, c.Retry.Ratio = 0, 0 }, outcome: attempt.StreamError, reason: BudgetSpent},
		"its client left": {left: true, outcome: attempt.Broken},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConfig(newTestPool("p", lightest{}, "a", "b"))
			if x.change != nil {
				x.change(&c)
			}
			m := New(c)
			a := only(t, m.Step(1, Arrive(request(1))))
			if x.left {
				m.Step(2, FirstToken(a.Ticket, 0))
				m.Step(3, Done(a.Ticket, 0, x.outcome, Usage{}).Resumes())
				m.Step(3, Left(a.Ticket))
				if got, ok := granted(m.Step(mono.Time(time.Second), Wake())); ok {
					t.Errorf("for nobody: %+v", got)
				}
			} else if got, ok := granted(breaks(m, 2, a, x.outcome)); !ok || got.Kind != GiveUp || got.Reason != x.reason {
				t.Errorf("%+v, want a GiveUp for %v", got, x.reason)
			}
			empty(t, m)
		})
	}
}

// Without the driver's word a torn answer ends its call, as ever.
func TestResume_OnlyWhereTheDriverCan(t *testing.T) {
	m := New(newConfig(newTestPool("p", lightest{}, "a", "b")))
	a := only(t, m.Step(1, Arrive(request(1))))
	m.Step(2, FirstToken(a.Ticket, 0))
	m.Step(3, Done(a.Ticket, 0, attempt.Broken, Usage{}))
	if got, ok := granted(m.Step(mono.Time(time.Second), Wake())); ok {
		t.Errorf("after the first content: %+v", got)
	}
	empty(t, m)
}

// Two records are one call's: the driver hears that nothing follows.
func TestResume_NotBesideAHedge(t *testing.T) {
	m := hedgingMachine(newTestPool("p", lightest{}, "a", "b", "c"))
	first, second := lateness(t, m, request(1))
	m.Step(5e8, FirstToken(first.Ticket, 0))
	m.Step(6e8, Done(first.Ticket, 0, attempt.Broken, Usage{}).Resumes())
	if got, ok := granted(m.Step(7e8, Wake())); !ok || got.Kind != GiveUp {
		t.Errorf("%+v, want a GiveUp", got)
	}
	m.Step(8e8, Done(second.Ticket, second.Attempt, attempt.Beaten, Usage{}))
	empty(t, m)
}

// A call that goes on is not hedged.
func TestResume_IsNotHedged(t *testing.T) {
	m := hedgingMachine(newTestPool("p", lightest{}, "a", "b", "c"))
	first := only(t, m.Step(1, Arrive(request(1))))
	second, _ := granted(breaks(m, 2, first, attempt.Broken))
	for now := mono.Time(2e9); now < 5e9; now += 1e8 {
		if got, ok := granted(m.Step(now, Wake())); ok {
			t.Fatalf("%+v beside %+v", got, second)
		}
	}
}

func BenchmarkResume(b *testing.B) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	c.Retry.Floor = 1e9
	m, now, id := New(c), mono.Time(1), 0
	q := request(1)
	b.ReportAllocs()
	for b.Loop() {
		id++
		q.ID++
		now += mono.Time(time.Second)
		a, _ := granted(m.Step(now, Arrive(q)))
		m.Step(now+1, FirstToken(a.Ticket, 0))
		m.Step(now+2, Done(a.Ticket, 0, attempt.Broken, Usage{}).Resumes())
		m.Step(now+3, Wake())
		next, _ := granted(m.Step(now.Add(300*time.Millisecond), Wake()))
		m.Step(now.Add(400*time.Millisecond), FirstToken(next.Ticket, 1))
		m.Step(now.Add(500*time.Millisecond), Done(next.Ticket, 1, attempt.Success, Usage{}))
	}
}
