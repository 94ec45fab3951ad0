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
	"kvasir/selection/health"
)

const hedgeDelay = 400 * time.Millisecond

// hedgingMachine returns a machine that hedges each late call, streamed or not, after hedgeDelay.
func hedgingMachine(pools ...Pool) *Machine {
	c := newConfig(pools...)
	c.Hedge = attempt.HedgeConfig{Ratio: 1, After: hedgeDelay, Whole: hedgeDelay}
	return New(c)
}

// lateness lets a call come at 1 and become late. It returns the two dispatches.
func lateness(t *testing.T, m *Machine, q *selection.Request) (first, second Action) {
	t.Helper()
	first = only(t, m.Step(1, Arrive(q)))
	second = only(t, m.Step(mono.Time(1).Add(hedgeDelay), Wake()))
	return first, second
}

// won returns which attempt the actions say has won; -1 where they do not.
func won(actions []Action) int {
	for _, a := range actions {
		if a.Kind == Won {
			return a.Attempt
		}
	}
	return -1
}

// empty fails the test where the machine holds anything of a call; t is testing's or rapid's.
func empty(t interface {
	Helper()
	Errorf(format string, args ...any)
}, m *Machine) {
	t.Helper()
	m.Step(m.last+1, Wake())
	if m.inFlight != 0 || m.charged != 0 {
		t.Errorf("%d calls and %d charges are held with nothing in flight", m.inFlight, m.charged)
	}
	for slot, b := range m.books {
		if b != (selection.Book{}) {
			t.Errorf("book of slot %d is %+v with nothing in flight", slot, b)
		}
	}
	for i := range m.calls {
		if m.calls[i].phase != unused {
			t.Errorf("record %d is in phase %d", i, m.calls[i].phase)
		}
	}
	for _, p := range m.pools {
		if p.hedging.lines != newHedging().lines {
			t.Errorf("pool %s still watches %v", p.name, p.hedging.lines)
		}
	}
}

func TestHedge_GoesElsewhereOnceTheFirstIsLate(t *testing.T) {
	m := hedgingMachine(newTestPool("p", lightest{}, "a", "b"), newTestPool("q", lightest{}, "c"))
	actions := m.Step(1, Arrive(request(1)))
	at, ok := wakeIn(actions)
	if want := mono.Time(1).Add(hedgeDelay); !ok || at != want {
		t.Fatalf("wake-up asked for at %d (%v), want %d", at, ok, want)
	}
	first := only(t, actions)
	if got := m.Step(at-1, Wake()); slices.ContainsFunc(got, func(a Action) bool { return a.Kind == Dispatch }) {
		t.Fatalf("hedged before its time: %+v", got)
	}
	second := only(t, m.Step(at, Wake()))
	if second.Kind != Dispatch || !second.Hedge || second.Attempt != 1 || second.Slot == first.Slot || second.Pool != 0 || second.Ticket != first.Ticket {
		t.Fatalf("the hedge is %+v after %+v", second, first)
	}
	if first.Hedge || m.books[0].Outstanding != 1 || m.books[1].Outstanding != 1 || m.inFlight != 1 {
		t.Errorf("books %+v with %d calls in flight: want one charge each, and one call", m.books, m.inFlight)
	}
	for range 100 {
		at += mono.Time(hedgeEvery)
		if got := m.Step(at, Wake()); slices.ContainsFunc(got, func(a Action) bool { return a.Kind == Dispatch }) {
			t.Fatalf("a call has three attempts at a time: %+v", got)
		}
	}
}

// TestHedge_FirstContentWins in both orders and at the very same instant, whichever is reported
// first: then the lower attempt goes on.
func TestHedge_FirstContentWins(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []struct {
			at      mono.Time
			attempt int
		}
		winner int
	}{
		{"the first", []struct {
			at      mono.Time
			attempt int
		}{{5e8, 0}, {6e8, 1}}, 0},
		{"the hedge", []struct {
			at      mono.Time
			attempt int
		}{{5e8, 1}, {6e8, 0}}, 1},
		{"both at once", []struct {
			at      mono.Time
			attempt int
		}{{5e8, 0}, {5e8, 1}}, 0},
		{"both at once, told the other way round", []struct {
			at      mono.Time
			attempt int
		}{{5e8, 1}, {5e8, 0}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := hedgingMachine(newTestPool("p", &overlapping{}, "a", "b"))
			first, _ := lateness(t, m, request(1))
			decided := -1
			for i, e := range c.events {
				actions := m.Step(e.at, FirstToken(first.Ticket, e.attempt))
				if at, ok := wakeIn(actions); i == 0 && (!ok || at != e.at+1) {
					t.Fatalf("no wake-up at the next instant decides: %+v", actions)
				}
				if decided < 0 {
					decided = won(actions)
				}
				if i+1 == len(c.events) || c.events[i+1].at > e.at {
					if w := won(m.Step(e.at+1, Wake())); decided < 0 {
						decided = w
					} else if w >= 0 {
						t.Fatalf("two winners: %d, then %d", decided, w)
					}
				}
			}
			if decided != c.winner {
				t.Fatalf("attempt %d won, want %d", decided, c.winner)
			}
			beaten := 1 - c.winner
			if m.inFlight != 1 || m.charged != 2 {
				t.Fatalf("%d charges for %d calls: the beaten one's lasts until its upstream has ended", m.charged, m.inFlight)
			}
			m.Step(7e8, Done(first.Ticket, c.winner, attempt.Success, Usage{Known: true, Prompt: 100}))
			m.Step(7e8+1, Wake())
			if m.charged != 1 || m.inFlight != 1 {
				t.Fatalf("%d charges for %d calls after the winner's end", m.charged, m.inFlight)
			}
			m.Step(8e8, Done(first.Ticket, beaten, attempt.Beaten, Usage{}))
			empty(t, m)
			h := m.pools[0].hedging.HedgeCount
			want := HedgeCount{Sent: 1, Wasted: 100}
			if want.Lost = 1; c.winner == 1 {
				want.Won, want.Lost = 1, 0
			}
			if h != want {
				t.Errorf("counted %+v, want %+v", h, want)
			}
			for slot := range m.state {
				if s := &m.state[slot]; s.breaker.Failures() != 0 || s.beaten != int64(b2i(slot == beaten)) {
					t.Errorf("slot %d has %d failures and was beaten %d times", slot, s.breaker.Failures(), s.beaten)
				}
			}
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestHedge_OneFailsTheOtherGoesOn: no verdict, and the failure counts against its endpoint. If
// the other one fails, too, the call gets its verdict, and its next attempt is its third.
func TestHedge_OneFailsTheOtherGoesOn(t *testing.T) {
	for failing := range 2 {
		m := hedgingMachine(newTestPool("p", &overlapping{}, "a", "b", "c"))
		first, _ := lateness(t, m, request(1))
		m.Step(5e8, Done(first.Ticket, failing, attempt.ConnectFailed, Usage{}))
		for _, a := range m.Step(5e8+1, Wake()) {
			if a.Kind == Dispatch || a.Kind == GiveUp || a.Kind == Won {
				t.Fatalf("attempt %d has failed and the other runs: %+v", failing, a)
			}
		}
		if f := m.state[failing].breaker.Failures(); f != 1 {
			t.Errorf("attempt %d: its endpoint has %d failures", failing, f)
		}
		m.Step(6e8, Done(first.Ticket, 1-failing, attempt.ConnectFailed, Usage{}))
		until, ok := wakeIn(m.Step(6e8+1, Wake()))
		if !ok {
			t.Fatalf("attempt %d failed last: no backoff", 1-failing)
		}
		third := only(t, m.Step(until, Wake()))
		if third.Kind != Dispatch || third.Attempt != 2 || third.Hedge || third.Slot != 2 {
			t.Fatalf("after two failures: %+v", third)
		}
		m.Step(until+1, FirstToken(third.Ticket, 2))
		m.Step(until+2, Done(third.Ticket, 2, attempt.Success, Usage{}))
		empty(t, m)
		if h := m.pools[0].hedging.HedgeCount; h != (HedgeCount{Sent: 1, Failed: 1}) {
			t.Errorf("counted %+v", h)
		}
	}
}

// TestHedge_WinsAlone: the first attempt has failed, the hedge answers.
func TestHedge_WinsAlone(t *testing.T) {
	m := hedgingMachine(newTestPool("p", &overlapping{}, "a", "b"))
	first, second := lateness(t, m, request(1))
	m.Step(5e8, Done(first.Ticket, 0, attempt.Failed, Usage{}))
	m.Step(6e8, FirstToken(first.Ticket, 1))
	if w := won(m.Step(6e8+1, Wake())); w >= 0 {
		t.Errorf("attempt %d has won against nobody", w)
	}
	if f := m.state[first.Slot].breaker.Failures(); f != 1 {
		t.Errorf("%d failures of the endpoint whose call another one answered", f)
	}
	m.Step(7e8, Done(second.Ticket, 1, attempt.Success, Usage{}))
	empty(t, m)
	if h := m.pools[0].hedging.HedgeCount; h != (HedgeCount{Sent: 1, Won: 1}) {
		t.Errorf("counted %+v", h)
	}
}

// TestHedge_NotAtTheInstantOfAReport: its first content, or its end, may be known just then.
func TestHedge_NotAtTheInstantOfAReport(t *testing.T) {
	for _, report := range []func(Ticket) Event{
		func(x Ticket) Event { return FirstToken(x, 0) },
		func(x Ticket) Event { return Done(x, 0, attempt.Success, Usage{}) },
		func(x Ticket) Event { return Left(x) },
	} {
		m := hedgingMachine(newTestPool("p", lightest{}, "a", "b"))
		first := only(t, m.Step(1, Arrive(request(1))))
		due := mono.Time(1).Add(hedgeDelay)
		m.Step(due, report(first.Ticket))
		for _, at := range []mono.Time{due, due + 1, due + 2} {
			for _, a := range m.Step(at, Wake()) {
				if a.Kind == Dispatch {
					t.Fatalf("hedged at %d though its content or end came at %d: %+v", at, due, a)
				}
			}
		}
	}
}

// TestHedge_AFailureThatNothingMayFollowStays the call's, whichever attempt fails first.
func TestHedge_AFailureThatNothingMayFollowStays(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		for fault := range 2 {
			m := hedgingMachine(newTestPool("p", lightest{}, "a", "b", "c"))
			first, _ := lateness(t, m, request(1))
			for i, n := range order {
				o := attempt.Busy
				if n == fault {
					o = attempt.CallerFault
				}
				at := mono.Time(5e8 + 1e8*i)
				m.Step(at, Done(first.Ticket, n, o, Usage{}))
				for _, a := range m.Step(at+1, Wake()) {
					if a.Kind == Dispatch || a.Kind == GiveUp {
						t.Errorf("order %v, the fault is %d's: %+v", order, fault, a)
					}
				}
			}
			empty(t, m)
		}
	}
}

// TestHedge_ABeatenProbeGivesItsPermitBack: another call may probe the endpoint.
func TestHedge_ABeatenProbeGivesItsPermitBack(t *testing.T) {
	m := hedgingMachine(newTestPool("p", lightest{}, "a", "b"))
	m.state[0].breaker.Eject(0, health.Unreachable, m.health.Term())
	due, _ := m.state[0].breaker.ProbeDue()
	m.books[1].Outstanding = 5 // so that the lightest is the one to be probed
	m.last = due
	first := only(t, m.Step(due, Arrive(request(1))))
	m.books[1].Outstanding = 0
	if first.Slot != 0 || m.state[0].breaker.State() != health.Probing {
		t.Fatalf("no probe: %+v, %v", first, m.state[0].breaker.State())
	}
	at := due.Add(hedgeDelay)
	m.Step(at, Wake())
	m.Step(at+10, FirstToken(first.Ticket, 1))
	m.Step(at+11, Wake())
	m.Step(at+20, Done(first.Ticket, 0, attempt.Beaten, Usage{}))
	m.Step(at+21, Wake())
	if s := m.state[0].breaker.State(); s == health.Probing {
		t.Error("the endpoint waits for the end of a probe that was aborted")
	}
	m.Step(at+30, Done(first.Ticket, 1, attempt.Success, Usage{}))
	empty(t, m)
}

func TestHedge_ClaimEndsTheChoice(t *testing.T) {
	m := hedgingMachine(newTestPool("p", lightest{}, "a", "b"))
	first := only(t, m.Step(1, Arrive(request(1))))
	m.Step(100, Claim(first.Ticket, 0))
	for _, a := range m.Step(mono.Time(1).Add(hedgeDelay), Wake()) {
		if a.Kind == Dispatch {
			t.Fatalf("hedged after its answer had begun to pass: %+v", a)
		}
	}
	m.Step(5e8, Done(first.Ticket, 0, attempt.Forfeited, Usage{}))
	empty(t, m)

	m = hedgingMachine(newTestPool("p", lightest{}, "a", "b"))
	first, _ = lateness(t, m, request(1))
	m.Step(5e8, Claim(first.Ticket, 1))
	if w := won(m.Step(5e8+1, Wake())); w != 1 {
		t.Fatalf("attempt %d won, want the one that claimed", w)
	}
	m.Step(6e8, FirstToken(first.Ticket, 1))
	m.Step(6e8, Done(first.Ticket, 0, attempt.Beaten, Usage{}))
	m.Step(7e8, Done(first.Ticket, 1, attempt.Success, Usage{}))
	empty(t, m)
}

// TestHedge_LeavingEndsBoth, whatever the two were doing.
func TestHedge_LeavingEndsBoth(t *testing.T) {
	for _, before := range [][]func(Ticket) Event{
		nil,
		{func(x Ticket) Event { return Done(x, 0, attempt.Broken, Usage{}) }},
		{func(x Ticket) Event { return Done(x, 1, attempt.Broken, Usage{}) }},
		{func(x Ticket) Event { return FirstToken(x, 0) }},
		{func(x Ticket) Event { return FirstToken(x, 1) }},
	} {
		m := hedgingMachine(newTestPool("p", &overlapping{}, "a", "b"))
		first, _ := lateness(t, m, request(1))
		for _, e := range before {
			m.Step(5e8, e(first.Ticket))
		}
		m.Step(6e8, Left(first.Ticket))
		empty(t, m)
		m.Step(7e8, Done(first.Ticket, 0, attempt.Beaten, Usage{})) // too late to matter
		m.Step(7e8, Done(first.Ticket, 1, attempt.Beaten, Usage{}))
		empty(t, m)
		if h := m.pools[0].hedging; h.Sent != h.Won+h.Lost+h.Failed {
			t.Errorf("%d hedges came to %+v", h.Sent, h.HedgeCount)
		}
	}
}

// TestHedge_OneAttemptIsPaidFor, whatever the two were doing when the client left: the one whose
// answer it has, or had set off first.
func TestHedge_OneAttemptIsPaidFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(Ticket) Event
		wasted int64
	}{
		{"both wait", nil, 0},
		{"the first is over", func(x Ticket) Event { return Done(x, 0, attempt.Broken, Usage{}) }, 0},
		{"the hedge is over", func(x Ticket) Event { return Done(x, 1, attempt.Broken, Usage{}) }, 0},
		{"the first has won", func(x Ticket) Event { return FirstToken(x, 0) }, 100},
		{"the hedge has won", func(x Ticket) Event { return FirstToken(x, 1) }, 100},
		{"the first has claimed", func(x Ticket) Event { return Claim(x, 0) }, 100},
		{"the hedge has claimed", func(x Ticket) Event { return Claim(x, 1) }, 100},
	} {
		p := newTestPool("p", &overlapping{}, "a", "b")
		p.Queue = admission.Default()
		p.Queue.Tokens, p.Queue.Order = 1000, admission.Fair
		m := hedgingMachine(p)
		first, _ := lateness(t, m, of(1, 7))
		payer, queue := m.calls[first.Ticket.index].bill.payer, m.pools[0].queue
		if c.before != nil {
			m.Step(5e8, c.before(first.Ticket))
		}
		m.Step(6e8, Left(first.Ticket))
		empty(t, m)
		if got := queue.Had(payer); got != 100 {
			t.Errorf("%s: the principal has paid %v for a prompt of 100 tokens", c.name, got)
		}
		if got := m.pools[0].hedging.Wasted; got != c.wasted {
			t.Errorf("%s: %d tokens are wasted, want %d", c.name, got, c.wasted)
		}
	}
}

// TestHedge_ARecallIsPaidForOnce: also that of a hedge whose first attempt has failed.
func TestHedge_ARecallIsPaidForOnce(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b", "c"))
	c.Hedge = attempt.HedgeConfig{Ratio: 1, After: hedgeDelay}
	c.Retry.Floor, c.Retry.Ratio = 1, 0
	m := New(c)
	first, second := lateness(t, m, request(1))
	at := mono.Time(5e8)
	m.Step(at, Done(first.Ticket, 0, attempt.ConnectFailed, Usage{}))
	kept := c
	kept.Pools = slices.Clone(c.Pools)
	kept.Pools[0].Endpoints = slices.DeleteFunc(slices.Clone(c.Pools[0].Endpoints), func(e Endpoint) bool { return e.Name == m.endpoints[second.Slot].Name })
	m.Reconfigure(at+1, kept)
	recalled := words(m.Step(at+2, Wake()))
	if len(recalled) != 1 || recalled[0].Kind != Recall || recalled[0].Attempt != 1 {
		t.Fatalf("the hedge is not recalled: %+v", recalled)
	}
	m.Step(at+3, Done(first.Ticket, 1, attempt.Recalled, Usage{}))
	for m.wakeAt < mono.Never {
		for _, a := range m.Step(m.wakeAt, Wake()) {
			switch a.Kind {
			case GiveUp:
				t.Fatalf("given up: %v", a.Reason)
			case Dispatch:
				return
			}
		}
	}
	t.Fatal("nothing follows")
}

// TestHedge_DoesNotHideAnEndpointThatAcceptsAndNeverAnswers: each of its calls is answered by a
// hedge, so that none waits there for long, and still nothing was heard of it.
func TestHedge_DoesNotHideAnEndpointThatAcceptsAndNeverAnswers(t *testing.T) {
	m := hedgingMachine(newTestPool("p", &turns{}, "a", "b", "c", "d"))
	const mute = 0
	now, asked, ejected := mono.Time(1), mono.Never, mono.Never
	for i := 1; now.Duration() < 2*time.Minute; i++ {
		now += 1e9
		a := only(t, words(m.Step(now, Arrive(request(i)))))
		if a.Slot == mute {
			asked = min(asked, now)
			at := now.Add(hedgeDelay)
			hedge := only(t, words(m.Step(at, Wake())))
			m.Step(at+1e6, FirstToken(a.Ticket, hedge.Attempt))
			m.Step(at+1e6+1, Wake())
			m.Step(at+2e6, Done(a.Ticket, 0, attempt.Beaten, Usage{}))
			m.Step(at+3e6, Done(a.Ticket, hedge.Attempt, attempt.Success, Usage{}))
		} else {
			m.Step(now+1e6, FirstToken(a.Ticket, 0))
			m.Step(now+2e6, Done(a.Ticket, 0, attempt.Success, Usage{}))
		}
		m.Step(now+9e8, Wake())
		for s := range m.state {
			if out := m.state[s].breaker.State() != health.InRotation; out && s != mute {
				t.Fatalf("slot %d is out", s)
			} else if out {
				ejected = min(ejected, now)
			}
		}
	}
	if d := ejected.Sub(asked); d < m.health.Stall || d > m.health.Stall+15*time.Second {
		t.Errorf("it is out %v after its first call; stall is %v", d, m.health.Stall)
	}
	if n := m.state[mute].dispatched; n > 20 {
		t.Errorf("it was asked %d times: each probe is a call that is late", n)
	}
	empty(t, m)
}

// TestHedge_NotForEveryCall: nor beside what may have effects, nor where one endpoint alone can
// answer, nor beyond the ceiling, nor to who is out of rotation, nor where nobody else is.
func TestHedge_NotForEveryCall(t *testing.T) {
	two := newTestPool("p", lightest{}, "a", "b")
	for name, c := range map[string]struct {
		pool   Pool
		change func(*Config, *selection.Request)
		before func(*Machine)
	}{
		"once":          {two, func(_ *Config, q *selection.Request) { q.Once = true }, nil},
		"owned":         {two, func(_ *Config, q *selection.Request) { q.Owned = true }, nil},
		"sheddable":     {two, func(_ *Config, q *selection.Request) { q.Priority = -1 }, nil},
		"too late":      {two, func(_ *Config, q *selection.Request) { q.Firm, q.Deadline = true, hedgeDelay }, nil},
		"off":           {two, func(c *Config, _ *selection.Request) { c.Hedge.Ratio = 0 }, nil},
		"no attempts":   {two, func(c *Config, _ *selection.Request) { c.Retry.Attempts = 0 }, nil},
		"no budget":     {two, func(c *Config, _ *selection.Request) { c.Hedge.Ratio = 0.05 }, nil},
		"whole answers": {two, func(c *Config, q *selection.Request) { c.Hedge.Whole, q.Stream = 0, false }, nil},
		"few samples":   {two, func(c *Config, _ *selection.Request) { c.Hedge.After, c.Hedge.Quantile = 0, 0.95 }, nil},
		"nobody else":   {newTestPool("p", lightest{}, "a"), nil, nil},
		"out of rotation": {two, nil, func(m *Machine) {
			m.state[1].breaker.Eject(1, health.Failing, m.health.Term())
			m.state[1].pool.dirty = true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, q := newConfig(c.pool), request(1)
			cfg.Hedge = attempt.HedgeConfig{Ratio: 1, After: hedgeDelay, Whole: hedgeDelay}
			if c.change != nil {
				c.change(&cfg, q)
			}
			m := New(cfg)
			m.Step(1, Arrive(q))
			if c.before != nil {
				c.before(m)
			}
			for at := mono.Time(1e8); at < 100e9; at += 1e8 {
				for _, a := range m.Step(at, Wake()) {
					if a.Kind == Dispatch {
						t.Fatalf("hedged at %v: %+v", at.Duration(), a)
					}
				}
			}
		})
	}
}

// TestHedge_TakesNoRoomFromThoseWhoWait: no endpoint has room, or others wait for it.
func TestHedge_TakesNoRoomFromThoseWhoWait(t *testing.T) {
	p := newTestPool("p", lightest{}, "a", "b")
	p.Queue = admission.Config{Tokens: 100, Length: 10, MaxWait: 10 * time.Second}
	m := hedgingMachine(p)
	one := only(t, m.Step(1, Arrive(request(1))))
	two := only(t, m.Step(2, Arrive(request(2))))
	three := only(t, m.Step(3, Arrive(request(3))))
	if three.Kind != Hold {
		t.Fatalf("the third call is not held: %+v", three)
	}
	at := mono.Time(5e8)
	for _, a := range m.Step(at, Wake()) {
		if a.Kind == Dispatch {
			t.Fatalf("hedged with no room: %+v", a)
		}
	}
	m.Step(6e8, FirstToken(two.Ticket, 0))
	if a := only(t, m.Step(6e8+1, Wake())); a.Kind != Dispatch || a.Hedge || a.Ticket.Call != 3 {
		t.Fatalf("room goes to who waits: %+v", a)
	}
	m.Step(7e8, FirstToken(three.Ticket, 0))
	hedge := only(t, m.Step(7e8+mono.Time(hedgeEvery), Wake()))
	if !hedge.Hedge || hedge.Ticket.Call != one.Ticket.Call {
		t.Fatalf("there is room, and nobody waits: %+v", hedge)
	}
}

// TestHedge_AtThePoolsOwnQuantile: after enough first tokens, of which the beaten count as slow.
func TestHedge_AtThePoolsOwnQuantile(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	c.Hedge = attempt.HedgeConfig{Ratio: 1, Quantile: 0.95}
	m := New(c)
	now := mono.Time(1)
	for i := range 200 {
		a := only(t, m.Step(now, Arrive(request(i+1))))
		if got := m.pools[0].hedging.after; (got == 0) != (i < hedgeSamples) {
			t.Fatalf("after %d first tokens the quantile is %v", i, got)
		}
		now = now.Add(time.Duration(i%100+1) * time.Millisecond) // 1 to 100 ms
		m.Step(now, FirstToken(a.Ticket, 0))
		m.Step(now+1, Done(a.Ticket, 0, attempt.Success, Usage{}))
		now += 2
	}
	m.Step(now, Wake())
	if got := m.pools[0].hedging.after; got != 95*time.Millisecond {
		t.Fatalf("the P95 of 1 to 100 ms, twice, is %v", got)
	}
	first := only(t, m.Step(now, Arrive(request(1000))))
	m.Step(now.Add(95*time.Millisecond), Wake())
	won := now.Add(200 * time.Millisecond)
	m.Step(won, FirstToken(first.Ticket, 1))
	m.Step(won+1, Wake())
	if h := m.pools[0].hedging; h.Won != 1 || h.seen.Quantile(1) != int64(200*time.Millisecond) {
		t.Errorf("%+v; the slowest that is known took %v, want 200ms", h.HedgeCount, time.Duration(h.seen.Quantile(1)))
	}
}

func TestHedge_ReconfiguredWhileItRuns(t *testing.T) {
	p := newTestPool("p", &overlapping{}, "a", "b", "c")
	c := newConfig(p)
	c.Hedge = attempt.HedgeConfig{Ratio: 1, After: hedgeDelay}
	m := New(c)
	first, second := lateness(t, m, request(1))
	m.Step(4.5e8, Arrive(request(2)))
	off := c
	off.Hedge = attempt.HedgeConfig{}
	off.Pools = []Pool{newTestPool("p", p.Policy, "c")} // whoever runs the two leaves
	m.Reconfigure(5e8, off)
	if l := m.pools[0].hedging.lines; l != newHedging().lines {
		t.Errorf("hedging is off and %v are watched", l)
	}
	for _, a := range m.Step(5e8+1, Wake()) {
		if a.Kind == Recall && a.Ticket.Call == 1 {
			t.Errorf("taken back, though it has another attempt: %+v", a)
		}
	}
	m.Step(6e8, FirstToken(first.Ticket, 1))
	if w := won(m.Step(6e8+1, Wake())); w != 1 {
		t.Fatalf("attempt %d won, want the hedge", w)
	}
	m.Step(7e8, Done(first.Ticket, 0, attempt.Beaten, Usage{}))
	freed := false
	m.Step(8e8, Done(first.Ticket, 1, attempt.Success, Usage{}))
	for _, a := range m.Step(8e8+1, Wake()) {
		freed = freed || a.Kind == Freed && a.Slot == second.Slot
	}
	if !freed {
		t.Errorf("slot %d, which has no calls any more, was not freed", second.Slot)
	}
	m.Reconfigure(9e8, c) // on again: who runs already is not watched, who comes is
	m.Step(9e8+1, Arrive(request(3)))
	if l := m.pools[0].hedging.lines[streams]; l.first == none || l.first != l.last {
		t.Errorf("one call came since hedging is on; watched are %v", l)
	}
}

// A hedge that is taken back from a silent endpoint is paid for once: its call's next attempt
// follows for nothing.
func TestHedge_ThatIsRecalledIsPaidOnce(t *testing.T) {
	p := newTestPool("p", &overlapping{}, "a", "b", "c")
	c := newConfig(p)
	c.Hedge = attempt.HedgeConfig{Ratio: 1, After: hedgeDelay}
	c.Retry.Ratio, c.Retry.Floor = 0, 1
	m := New(c)
	first, second := lateness(t, m, request(1))
	m.Step(5e8, Done(first.Ticket, 0, attempt.StaleConnection, Usage{}))
	c.Pools = []Pool{newTestPool("p", p.Policy, "a", "c")} // whoever has the hedge leaves
	m.Reconfigure(6e8, c)
	recalled := slices.ContainsFunc(m.Step(6e8+1, Wake()), func(a Action) bool { return a.Kind == Recall && a.Attempt == second.Attempt })
	if second.Slot != 1 || !recalled {
		t.Fatalf("the hedge was not taken back: %+v", second)
	}
	m.Step(6e8+2, Done(first.Ticket, 1, attempt.Recalled, Usage{}))
	until, ok := wakeIn(m.Step(6e8+3, Wake()))
	if !ok {
		t.Fatal("no backoff")
	}
	if third := only(t, m.Step(until, Wake())); third.Kind != Dispatch || third.Attempt != 2 {
		t.Errorf("the next attempt was to be paid anew: %+v", third)
	}
}

// TestLaw_HedgedCallsHaveOneWinner drives a machine that hedges with random events, as a driver
// that keeps the rules would, and checks after each that a call never runs more than twice, that
// nothing is sent once an answer passes, and that what is charged is what runs; at the end that
// nothing is held and each hedge has come to something.
func TestLaw_HedgedCallsHaveOneWinner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newTestPool("p", &overlapping{}, "a", "b", "c")
		if rapid.Bool().Draw(t, "queue") {
			p.Queue = admission.Config{Tokens: 200, Length: 4, MaxWait: 2 * time.Second}
		}
		if rapid.Bool().Draw(t, "flights") {
			p.Flights = admission.FlightConfig{MinTokens: 1, MaxWait: time.Second}
		}
		c := newConfig(p, newTestPool("q", adapting{}, "d", "e"))
		c.Hedge = attempt.HedgeConfig{Ratio: 1, After: time.Millisecond, Whole: 2 * time.Millisecond}
		c.Sharing = Sharing{On: rapid.Bool().Draw(t, "peers"), Peer: 1, Every: time.Millisecond, Refresh: time.Second, Expiry: 3 * time.Second}
		m := New(c)
		if rapid.Bool().Draw(t, "shadow") {
			m.Shadow("p", "x", &overlapping{})
		}
		type client struct {
			ticket  Ticket
			running []int // attempts
			begun   []int // of those, whose first content came, not settled yet
			winner  int   // -1: none
			final   bool  // no other attempt follows
		}
		now, wake := mono.Time(0), mono.Never
		calls := map[selection.CallID]*client{}
		do := func(actions []Action) {
			for _, a := range slices.Clone(actions) {
				x := calls[a.Ticket.Call]
				switch a.Kind {
				case WakeAt:
					wake = a.At
				case Hold:
					calls[a.Ticket.Call] = &client{ticket: a.Ticket, winner: -1}
				case Dispatch:
					if x == nil && a.Attempt == 0 {
						x = &client{ticket: a.Ticket, winner: -1}
						calls[a.Ticket.Call] = x
					}
					if x == nil {
						continue // its client has left; the machine will hear of it
					}
					if a.Hedge != (len(x.running) == 1) || len(x.running) > 1 || x.winner >= 0 {
						t.Fatalf("%+v for a call that runs %v, winner %d", a, x.running, x.winner)
					}
					x.running = append(x.running, a.Attempt)
				case GiveUp, Refuse:
					delete(calls, a.Ticket.Call)
				case Won:
					if x == nil {
						continue
					}
					if x.winner >= 0 && x.winner != a.Attempt {
						t.Fatalf("attempts %d and %d have both won", x.winner, a.Attempt)
					}
					if len(x.running) == 2 && !slices.Contains(x.begun, a.Attempt) {
						t.Fatalf("attempt %d has won without a word", a.Attempt)
					}
					x.winner = a.Attempt
				}
			}
		}
		step := func(e Event) { do(m.Step(now, e)) }
		tick := func() {
			if wake <= now {
				wake = mono.Never
				step(Wake())
			}
		}
		pick := func() (selection.CallID, *client, int) {
			var ids []selection.CallID
			for id, x := range calls {
				if len(x.running) > 0 {
					ids = append(ids, id)
				}
			}
			if len(ids) == 0 {
				return 0, nil, 0
			}
			slices.Sort(ids)
			id := rapid.SampledFrom(ids).Draw(t, "call")
			return id, calls[id], rapid.SampledFrom(calls[id].running).Draw(t, "attempt")
		}
		end := func(id selection.CallID, x *client, n int, o attempt.Outcome) {
			if slices.Contains(x.begun, n) && x.winner < 0 {
				return // it waits for the machine's word
			}
			x.running = slices.DeleteFunc(x.running, func(r int) bool { return r == n })
			switch {
			case x.winner >= 0 && x.winner != n:
				o = attempt.Beaten
			case o == attempt.Success && x.winner < 0 && len(x.running) > 0:
				x.running = append(x.running, n) // it must ask first
				x.begun = append(x.begun, n)
				step(FirstToken(x.ticket, n))
				return
			case o == attempt.Success:
				x.winner = n
			}
			x.final = x.final || !o.Retryable()
			over := len(x.running) == 0 && (x.winner >= 0 || x.final)
			if over {
				delete(calls, id)
			}
			step(Done(x.ticket, n, o, Usage{}))
		}
		for i := range rapid.IntRange(1, 150).Draw(t, "steps") {
			now += mono.Time(rapid.SampledFrom([]int{0, 1, 5, 1e6, 1e8, 3e9}).Draw(t, "dt"))
			tick()
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0, 1:
				q := request(i + 1)
				q.Stream = rapid.IntRange(0, 3).Draw(t, "stream") > 0
				q.Once = rapid.IntRange(0, 9).Draw(t, "once") == 0
				q.Blocks, q.BlockTokens = []kvblock.Hash{1, 2, kvblock.Hash(i)}, 32
				q.Adapter = kvblock.Hash(rapid.IntRange(0, 3).Draw(t, "adapter"))
				step(Arrive(q))
			case 2, 3:
				if _, x, n := pick(); x != nil && x.winner < 0 && !slices.Contains(x.begun, n) {
					x.begun = append(x.begun, n)
					if len(x.running) == 1 {
						x.winner = n
					}
					step(FirstToken(x.ticket, n))
				}
			case 4:
				if id, x, n := pick(); x != nil {
					end(id, x, n, attempt.Outcome(rapid.IntRange(0, int(attempt.ClientGone)-1).Draw(t, "outcome")))
				}
			case 5:
				if id, x, _ := pick(); x != nil {
					delete(calls, id)
					step(Left(x.ticket))
				}
			case 6:
				changed := c
				changed.Hedge.After = time.Duration(rapid.IntRange(0, 3).Draw(t, "after")) * time.Millisecond
				changed.Hedge.Ratio = float64(rapid.IntRange(0, 1).Draw(t, "ratio"))
				_, actions := m.Reconfigure(now, changed)
				do(actions)
			}
			audit(t, m)
		}
		for range 2000 {
			if len(calls) == 0 {
				break
			}
			now += 1e7
			tick()
			if id, x, n := pick(); x != nil {
				end(id, x, n, attempt.Success)
			}
		}
		now += 60e9
		step(Wake())
		now++
		step(Wake())
		empty(t, m)
		for _, p := range m.pools {
			if h := p.hedging; h.Sent != h.Won+h.Lost+h.Failed {
				t.Fatalf("pool %s: %+v", p.name, h.HedgeCount)
			}
		}
	})
}

// BenchmarkHedge is a call that is hedged, from its arrival to the end of both attempts, and one
// that is not.
func BenchmarkHedge(b *testing.B) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b", "c", "d"))
	c.Hedge = attempt.HedgeConfig{Ratio: 1, Quantile: 0.95}
	c.Explain = false
	m := New(c)
	q := *request(0)
	now := mono.Time(1)
	call := func(after time.Duration, winner int) {
		q.ID++
		var t Ticket
		for _, a := range m.Step(now, Arrive(&q)) {
			if a.Kind == Dispatch {
				t = a.Ticket
			}
		}
		now = now.Add(after)
		m.Step(now, Wake())
		m.Step(now+2, FirstToken(t, winner))
		m.Step(now+3, Wake())
		m.Step(now+4, Done(t, 1, attempt.Beaten, Usage{}))
		m.Step(now+5, Done(t, 0, attempt.Success, Usage{}))
		now += 10
		m.Step(now, Wake())
	}
	for range 2 * hedgeWindow {
		call(time.Millisecond, 0)
	}
	m.hedging.Quantile = 0.01 // which the late calls do not reach soon
	won := m.pools[0].hedging.Won
	b.ReportAllocs()
	n := int64(0)
	for b.Loop() {
		call(time.Millisecond, 0)
		call(time.Second, 1)
		n++
	}
	if got := m.pools[0].hedging.Won - won; got < n*9/10 || m.inFlight > 0 {
		b.Fatalf("%d of %d hedges won, and %d calls are in flight", got, n, m.inFlight)
	}
}
