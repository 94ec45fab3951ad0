package flow

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
)

// verdict lets a call's attempt fail, through nobody's fault, and returns what the machine says then:
// the Dispatch of another attempt, or a GiveUp.
func verdict(t *testing.T, m *Machine, now mono.Time, a Action) Action {
	t.Helper()
	actions := m.Step(now, Done(a.Ticket, a.Attempt, attempt.Exhausted, Usage{}))
	for {
		for _, b := range actions {
			if b.Kind == Dispatch || b.Kind == GiveUp {
				return b
			}
		}
		at, ok := wakeIn(actions)
		if !ok {
			t.Fatal("no verdict comes")
		}
		actions = m.Step(at, Wake())
	}
}

func succeed(m *Machine, now mono.Time, a Action) {
	m.Step(now, FirstToken(a.Ticket, a.Attempt))
	m.Step(now+1, Done(a.Ticket, a.Attempt, attempt.Success, Usage{}))
	m.Step(now+2, Wake())
}

// Calls that come earn nothing; those that are answered do.
func TestBudget_IsEarnedBySuccesses(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	c.Retry.Ratio, c.Retry.Floor = 0.5, 0
	m := New(c)
	var calls []Action
	for i := range 10 {
		calls = append(calls, only(t, m.Step(mono.Time(i+1), Arrive(request(i+1)))))
	}
	if a := verdict(t, m, 1000, calls[0]); a.Reason != BudgetSpent {
		t.Errorf("ten calls in flight, none answered: %v, want that nothing is earned", a)
	}
	succeed(m, m.last+10, calls[1])
	succeed(m, m.last+10, calls[2])
	if a := verdict(t, m, m.last+10, calls[3]); a.Kind != Dispatch {
		t.Errorf("two successes at 0.5: %v, want another attempt", a.Reason)
	}
	if a := verdict(t, m, m.last+10, calls[4]); a.Reason != BudgetSpent {
		t.Errorf("a second one was granted for the same successes: %v", a)
	}
}

// A pool bears the further attempts that are sent to it, so what it has answered pays for
// them: the successes of another pool do not.
func TestBudget_IsThePoolsThatBearsTheAttempt(t *testing.T) {
	c := newConfig(newTestPool("first", lightest{}, "a"), newTestPool("second", lightest{}, "b"))
	c.Retry.Ratio, c.Retry.Floor = 1, 0
	m := New(c)
	a := only(t, m.Step(1, Arrive(request(1))))
	b := only(t, m.Step(2, Arrive(request(2))))
	succeed(m, 10, a) // at the first pool
	if x := verdict(t, m, 100, b); x.Reason != BudgetSpent {
		t.Fatalf("the first pool's success paid for an attempt at the second: %+v", x)
	}
	m.pools[1].budget.Earn(m.last)
	d := only(t, m.Step(m.last+10, Arrive(request(3))))
	if d.Pool != 0 {
		t.Fatal("the test shows nothing: the call went to the second pool at once")
	}
	if x := verdict(t, m, m.last+10, d); x.Kind != Dispatch || x.Pool != 1 {
		t.Errorf("the second pool's success does not pay for an attempt there: %+v", x)
	}
}

// Of two budgets both pay, or neither.
func TestPurse_BothPayOrNeither(t *testing.T) {
	total := attempt.NewBudget(attempt.Config{Floor: 1})
	build := func() *Machine {
		c := newConfig(newTestPool("p", lightest{}, "a", "b"))
		c.Retry.Ratio, c.Retry.Floor, c.Total = 0, 1, total
		return New(c)
	}
	one, other := build(), build()
	a, b := only(t, one.Step(1, Arrive(request(1)))), only(t, other.Step(1, Arrive(request(2))))
	if x := verdict(t, one, 10, a); x.Kind != Dispatch {
		t.Fatalf("the first retry: %v", x.Reason)
	}
	if x := verdict(t, other, 10, b); x.Reason != BudgetSpent {
		t.Errorf("two models share one retry a second, and both had one: %+v", x)
	}
	if !other.pools[0].budget.Has(20) {
		t.Error("the pool paid for an attempt that all models' budget refused")
	}
	c := only(t, one.Step(one.last+10, Arrive(request(3))))
	if x := verdict(t, one, one.last+10, c); x.Reason != BudgetSpent || total.Has(one.last) {
		t.Errorf("the second retry of one pool within its second: %+v", x)
	}
	next := mono.Time(time.Second) + 100
	d := only(t, one.Step(next, Arrive(request(4))))
	one.pools[0].budget = attempt.NewBudget(attempt.Config{}) // of the pool's none is left
	if x := verdict(t, one, next+10, d); x.Reason != BudgetSpent || !total.Has(next+20) {
		t.Errorf("all models paid for an attempt that the pool's budget refused: %+v", x)
	}
}

// What a client sends again pays for nobody, and gets a further attempt only where what is
// tried is answered.
func TestIncomingRetry_HasOnlyWhatIsEarned(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	c.Retry.Ratio, c.Retry.Floor = 1, 10
	m := New(c)
	id := 0
	arrive := func(again bool) Action {
		id++
		q := request(id)
		q.Retry = again
		return only(t, m.Step(m.last+10, Arrive(q)))
	}
	succeed(m, m.last+10, arrive(true))
	if a := verdict(t, m, m.last+10, arrive(true)); a.Reason != BudgetSpent {
		t.Errorf("a retry of the client's was paid from the floor, or has earned: %+v", a)
	}
	if a := verdict(t, m, m.last+10, arrive(false)); a.Kind != Dispatch {
		t.Errorf("a first call has no part of the floor: %v", a.Reason)
	}
	succeed(m, m.last+10, arrive(false))
	if a := verdict(t, m, m.last+10, arrive(true)); a.Kind != Dispatch {
		t.Errorf("where calls are answered, a retry of the client's is not tried again: %v", a.Reason)
	}
	if a := verdict(t, m, m.last+10, arrive(true)); a.Reason != BudgetSpent {
		t.Errorf("a second one was granted for the same success, from the floor: %+v", a)
	}
}

// TestLaw_AttemptsOfACallHaveACeiling whatever they are for: retries, failover to other
// pools, connections that were stale, recalls.
func TestLaw_AttemptsOfACallHaveACeiling(t *testing.T) {
	outcomes := []attempt.Outcome{attempt.Busy, attempt.Limited, attempt.Failed, attempt.ConnectFailed, attempt.StaleConnection,
		attempt.Broken, attempt.Recalled, attempt.FirstTokenTimeout, attempt.Exhausted, attempt.Missing}
	rapid.Check(t, func(rt *rapid.T) {
		c := newConfig(newTestPool("p", lightest{}, names(4)...), newTestPool("q", lightest{}, "x", "y", "z"))
		c.Retry.Attempts = rapid.SampledFrom([]int{0, 1, 2, 5, 6, 100}).Draw(rt, "attempts")
		c.Retry.Floor = 1e6
		m := New(c)
		for id := range 20 {
			q := request(id + 1)
			q.Retry = rapid.Bool().Draw(rt, "again")
			a, sent := Action{}, 0
			for _, b := range m.Step(m.last+10, Arrive(q)) {
				if b.Kind == Dispatch {
					a, sent = b, 1
				}
			}
			for a.Kind == Dispatch && sent > 0 {
				o := rapid.SampledFrom(outcomes).Draw(rt, "outcome")
				actions := m.Step(m.last+10, Pushed(a.Ticket, a.Attempt, o, time.Duration(rapid.IntRange(-1, 1000).Draw(rt, "wait"))))
				next := Action{Kind: WakeAt}
				for next.Kind == WakeAt {
					at, ok := wakeIn(actions)
					if !ok {
						rt.Fatal("no verdict comes")
					}
					actions = m.Step(at, Wake())
					for _, b := range actions {
						if b.Ticket == a.Ticket && (b.Kind == Dispatch || b.Kind == GiveUp) {
							next = b
						}
					}
				}
				if a = next; a.Kind == Dispatch {
					sent++
				}
				if most := 1 + min(c.Retry.Attempts, attempt.MaxAttempts); sent > most {
					rt.Fatalf("%d attempts, allowed %d", sent, most)
				}
			}
		}
	})
}
