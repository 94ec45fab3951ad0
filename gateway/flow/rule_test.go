package flow

import (
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
)

// provisioned is the rule of article section 14.4.
func provisioned() []health.Rule {
	return []health.Rule{{
		Failures: 1, Statuses: []health.Statuses{{From: 429, To: 429}}, Trip: 10 * time.Second, MaxTrip: time.Minute,
		RetryAfter: true, MaxAfter: 24 * time.Hour,
	}}
}

// Article section 14.4: provisioned throughput first, pay as you go while its breaker is open.
// A 429 opens it for as long as Retry-After says, a day where it says so; not a call goes there
// meanwhile. Then one does, and its content brings it back.
func TestRule_ProvisionedThenPayAsYouGo(t *testing.T) {
	for _, named := range []time.Duration{attempt.NoWait, 30 * time.Second, 24 * time.Hour} {
		full := false
		ptu, payg := newTestPool("ptu", lightest{}, "a", "b"), newTestPool("payg", lightest{}, "c")
		ptu.Breaker = provisioned()
		d := drive(t, newConfig(ptu, payg), func(slot selection.Slot, _ int) (attempt.Outcome, time.Duration) {
			if slot < 2 && full {
				return attempt.Limited, named
			}
			return attempt.Success, attempt.NoWait
		})
		for range 10 {
			d.call()
		}
		if d.sent[2] != 0 {
			t.Fatalf("%d calls spilled while the first pool answers", d.sent[2])
		}
		full = true
		before := d.sent[0] + d.sent[1]
		for range 50 {
			if _, o := d.call(); o != attempt.Success {
				t.Fatalf("retry-after %v: a call ended with %v while the second pool answers", named, o)
			}
		}
		if n := d.sent[0] + d.sent[1] - before; n != 2 || d.sent[2] != 50 || d.count(Ejected) != 2 || d.notices[0].Cause != health.Tripped {
			t.Errorf("retry-after %v: %d calls at the first pool (want 2, one each), %d at the second, notices %+v", named, n, d.sent[2], d.notices)
		}
		full = false
		out := named
		if named < 0 {
			out = 10 * time.Second
		}
		d.now = d.now.Add(out - 2*time.Second)
		d.call()
		if n := d.sent[0] + d.sent[1] - before; n != 2 {
			t.Errorf("retry-after %v: a call went there 2 s before the time was over", named)
		}
		d.now = d.now.Add(4 * time.Second)
		spilled := d.sent[2]
		for range 10 {
			d.call()
		}
		if d.sent[2] != spilled || d.count(Returned) == 0 {
			t.Errorf("retry-after %v: %d calls spilled after the time was over; notices %+v", named, d.sent[2]-spilled, d.notices)
		}
	}
}

// Without a rule that names it, a 429 opens no breaker, however many there are.
func TestRule_WithoutItA429OpensNothing(t *testing.T) {
	d := drive(t, newConfig(newTestPool("p", lightest{}, "a", "b"), newTestPool("q", lightest{}, "c")), func(slot selection.Slot, _ int) (attempt.Outcome, time.Duration) {
		if slot < 2 {
			return attempt.Limited, 0
		}
		return attempt.Success, attempt.NoWait
	})
	for range 50 {
		d.call()
	}
	if len(d.notices) != 0 {
		t.Errorf("back-pressure took an endpoint out: %+v", d.notices)
	}
}

// The panic threshold: of the model's last pool a rule takes out a part at most, and whoever
// stays is asked.
func TestRule_TheLastPoolNeverEmptiesItself(t *testing.T) {
	pool := newTestPool("only", lightest{}, names(4)...)
	pool.Breaker = provisioned()
	d := drive(t, newConfig(pool), func(selection.Slot, int) (attempt.Outcome, time.Duration) { return attempt.Limited, time.Hour })
	for range 40 {
		if a, o := d.call(); o != attempt.Limited || a.Kind == Refuse {
			t.Fatalf("nobody was asked: %+v", a)
		}
	}
	if n := d.count(Ejected); n != 2 {
		t.Errorf("%d of 4 endpoints left rotation, max_ejected is 0.5", n)
	}
	d = drive(t, newConfig(pool, newTestPool("behind", lightest{}, "z")), d.answer)
	for range 10 {
		d.call()
	}
	if n := d.count(Ejected); n != 4 {
		t.Errorf("%d of 4 endpoints of a higher pool left rotation, and the lower one stands ready", n)
	}
}

// Field case F24: a longer time is kept, whatever comes after it: a shorter one, another
// failure, an answer to a call of before, a good health path.
func TestF24_ALongerTimeIsNeverShortened(t *testing.T) {
	after := map[string]func(m *Machine, now mono.Time, x Action){
		"a shorter one": func(m *Machine, now mono.Time, x Action) {
			m.Step(now, Pushed(x.Ticket, 0, attempt.Limited, time.Second))
		},
		"none": func(m *Machine, now mono.Time, x Action) {
			m.Step(now, Pushed(x.Ticket, 0, attempt.Busy, attempt.NoWait))
		},
		"a failure": func(m *Machine, now mono.Time, x Action) {
			m.Step(now, Done(x.Ticket, 0, attempt.ConnectFailed, Usage{}))
		},
		"an answer": func(m *Machine, now mono.Time, x Action) {
			m.Step(now, FirstToken(x.Ticket, 0))
			m.Step(now+1, Done(x.Ticket, 0, attempt.Success, Usage{}))
		},
		"good health": func(m *Machine, now mono.Time, _ Action) { m.Step(now, Health(0, 0, true)) },
	}
	for _, ruled := range []bool{false, true} {
		for name, then := range after {
			pool := newTestPool("p", lightest{}, "a")
			if ruled {
				pool.Breaker = provisioned()
			}
			m := New(newConfig(pool, newTestPool("q", lightest{}, "z")))
			x, y := only(t, m.Step(1, Arrive(request(1)))), only(t, m.Step(2, Arrive(request(2))))
			m.Step(100, Pushed(x.Ticket, 0, attempt.Limited, 50*time.Second))
			then(m, 1000, y)
			m.Step(2000, Wake())
			due := m.state[0].busyUntil
			if ruled {
				due, _ = m.state[0].breaker.ProbeDue()
			}
			if due.Sub(100) != 50*time.Second {
				t.Errorf("rule %v, then %s: left alone for %v, want 50s", ruled, name, due.Sub(100))
			}
			if a := only(t, m.Step(mono.Time(49*time.Second), Arrive(request(3)))); a.Pool != 1 {
				t.Errorf("rule %v, then %s: a call went there before its time", ruled, name)
			}
		}
	}
}

// The status is what rules go by: of several that are one outcome, one may be named.
func TestRule_GoesByTheStatusOfTheAnswer(t *testing.T) {
	for status, out := range map[int]bool{503: false, 529: true, 0: false} {
		pool := newTestPool("p", lightest{}, "a")
		pool.Breaker = []health.Rule{{Failures: 1, Statuses: []health.Statuses{{From: 529, To: 529}}, Trip: time.Minute}}
		m := New(newConfig(pool, newTestPool("q", lightest{}, "z")))
		x := only(t, m.Step(1, Arrive(request(1))))
		m.Step(100, Pushed(x.Ticket, 0, attempt.Busy, attempt.NoWait).Answered(status))
		m.Step(101, Wake())
		if got := m.state[0].breaker.State() == health.Ejected; got != out {
			t.Errorf("status %d: out of rotation is %v", status, got)
		}
	}
}

// Other rules begin to count anew; an endpoint that is out stays out for its time.
func TestRule_AnotherOneLeavesEjectionsAlone(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a")
	pool.Breaker = provisioned()
	c := newConfig(pool, newTestPool("q", lightest{}, "z"))
	m := New(c)
	x := only(t, m.Step(1, Arrive(request(1))))
	m.Step(100, Pushed(x.Ticket, 0, attempt.Limited, time.Hour))
	m.Step(101, Wake())
	due, _ := m.state[0].breaker.ProbeDue()
	c.Pools[0].Breaker = nil
	m.Reconfigure(200, c)
	if now, out := m.state[0].breaker.ProbeDue(); !out || now != due {
		t.Errorf("the reload moved the end of the ejection from %d to %d (%v)", due, now, out)
	}
	if a := only(t, m.Step(300, Arrive(request(2)))); a.Pool != 1 {
		t.Error("a call went to an endpoint that is out")
	}
}

// A failed probe of several sends the endpoint out once, and they are as many as configured.
func TestHalfOpen_AsManyProbesAsConfigured(t *testing.T) {
	for probes, want := range map[int]int{1: 1, 3: 3} {
		c := newConfig(newTestPool("p", lightest{}, "a"), newTestPool("q", lightest{}, "z"))
		c.Health.Failures, c.Health.Probes = 1, probes
		m := New(c)
		x := only(t, m.Step(1, Arrive(request(1))))
		m.Step(100, Done(x.Ticket, 0, attempt.ConnectFailed, Usage{}))
		m.Step(101, Wake())
		now, sent := mono.Time(6*time.Second), 0
		for i := range 10 {
			if a := only(t, m.Step(now.Add(time.Duration(i)), Arrive(request(i+2)))); a.Pool == 0 {
				sent++
			}
		}
		if sent != want {
			t.Errorf("%d probes at once, want %d", sent, want)
		}
	}
}

// Where nobody else is left, a call goes to what has tripped, too, and its content brings it back.
func TestRule_ALastResortBringsBackWhatHasTripped(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a")
	pool.Breaker = provisioned()
	lower := newTestPool("q", lightest{}, "z")
	m := New(newConfig(pool, lower))
	x := only(t, m.Step(1, Arrive(request(1))))
	m.Step(100, Pushed(x.Ticket, 0, attempt.Limited, time.Hour))
	m.Step(101, Left(x.Ticket))
	m.Step(102, Wake())
	y := only(t, m.Step(200, Arrive(request(2)))) // at the lower pool, which is dead
	actions := m.Step(300, Done(y.Ticket, 0, attempt.ConnectFailed, Usage{}))
	for {
		at, ok := wakeIn(actions)
		if !ok {
			t.Fatal("no attempt follows")
		}
		if actions = m.Step(at, Wake()); len(actions) > 0 && actions[0].Kind == Dispatch {
			break
		}
	}
	z := actions[0]
	if z.Pool != 0 {
		t.Fatalf("the last resort is pool %d", z.Pool)
	}
	m.Step(m.last+10, FirstToken(z.Ticket, z.Attempt))
	m.Step(m.last+10, Wake())
	if s := m.state[0].breaker.State(); s != health.InRotation {
		t.Errorf("it answered, and is %v", s)
	}
}

// What a client is told about another try: of no use where its call had what can be had.
func TestReason_Final(t *testing.T) {
	for r := range reasons {
		for attempts := range 4 {
			want := r == AttemptsSpent || r == BudgetSpent || r == FailsElsewhere || r == DeadlineUnmet || r == DeadlinePassed || r == NoAlternative && attempts > 1
			if got := r.Final(attempts); got != want {
				t.Errorf("%v after %d attempts: %v", r, attempts, got)
			}
		}
	}
}
