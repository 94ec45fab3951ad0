package proxy

import (
	"context"
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/policy"
)

// TestRace_TheMachineSaysWhoWins, not who comes first: both ask at one instant, the second before
// the first, and the second does not get the client though nobody has it.
func TestRace_TheMachineSaysWhoWins(t *testing.T) {
	var now mono.Time
	rule, _ := policy.Lookup("round-robin")
	pool := flow.Pool{Name: "p", PolicyName: rule.Name, Policy: rule.Params().New(), Endpoints: []flow.Endpoint{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}}
	cfg := flow.Config{
		Retry: attempt.Default(), Health: health.Default(), Pools: []flow.Pool{pool},
		Hedge: attempt.HedgeConfig{Ratio: 1, After: time.Millisecond},
	}
	r := newRouter(flow.New(cfg), func() mono.Time { return now }, func(selection.Slot) *endpoint { return nil }, func(flow.Action, *endpoint) {})
	defer r.close()
	c := &call{scratch: newScratch(), try: newTry(), ctx: t.Context(), model: &model{core: &core{router: r}}}
	c.request = selection.Request{ID: 1, Stream: true}
	c.race = &race{second: *c}
	c.race.dogs[firstRunner] = &c.dog
	c.race.speaker.Store(nobody)
	x := c.race
	x.second.race, x.second.runner, x.second.try, x.second.body = x, secondRunner, newTry(), &body{}
	a := r.arrive(c)
	c.ticket, c.answer.action = a.Ticket, a

	// The hedge's dispatch, without its goroutine.
	now = mono.Time(2 * time.Millisecond)
	r.mu.Lock()
	for _, a := range r.machine.Step(now, flow.Wake()) {
		if a.Hedge {
			x.start(a)
			x.second.answer.action = a
		}
	}
	r.mu.Unlock()
	if !x.started.Load() {
		t.Fatal("not hedged")
	}
	now = mono.Time(3 * time.Millisecond)
	c.answer.begun, x.second.answer.begun = true, true
	if !r.claim(&x.second) || !r.claim(c) {
		t.Fatal("they do not race")
	}
	now++
	r.wake()
	if x.winner != 0 {
		t.Fatalf("attempt %d won; of one instant the first does", x.winner)
	}
	if x.second.wins() || !c.wins() {
		t.Error("the client goes to who asked first, not to who won")
	}
}

// bench is a router whose time stands until it is moved, and whose timer never fires.
type bench struct {
	*router
	now mono.Time
}

func newBench(t *testing.T, attempts int) *bench {
	t.Helper()
	rule, ok := policy.Lookup("round-robin")
	if !ok {
		t.Fatal("no policy round-robin")
	}
	retry := attempt.Default()
	retry.Attempts, retry.Floor = attempts, 1e4
	m := flow.New(flow.Config{
		Seed: 1, Retry: retry, Health: health.Default(),
		Pools: []flow.Pool{{Name: "p", PolicyName: "round-robin", Policy: rule.Params().New(), Endpoints: []flow.Endpoint{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}}},
	})
	b := &bench{now: 1}
	b.router = newRouter(m, func() mono.Time { return b.now }, func(selection.Slot) *endpoint { return nil }, nil)
	b.close() // its wake-ups are the test's
	return b
}

// wait lets so much time pass, and wakes the machine.
func (b *bench) wait(d time.Duration) {
	b.now = b.now.Add(d)
	b.report(flow.Wake())
}

// come lets a call come, which is sent at once.
func (b *bench) come(t *testing.T, id selection.CallID) *call {
	t.Helper()
	c := &call{scratch: newScratch(), try: newTry(), ctx: t.Context(), model: &model{core: &core{router: b.router}}}
	c.request = selection.Request{ID: id, Stream: true}
	a := b.arrive(c)
	if a.Kind != flow.Dispatch {
		t.Fatalf("call %d: %+v", id, a)
	}
	c.ticket, c.held, c.answer.action = a.Ticket, true, a
	return c
}

// A machine forgets calls by itself, and gives their indices to others, before their own goroutines
// are through with them. What those say then touches nobody else: the other call hears each of its
// words.
func TestRouter_DropsNobodyElse(t *testing.T) {
	for name, x := range map[string]struct {
		attempts int
		outcome  attempt.Outcome
		late     func(*router, *call)
	}{
		"no other attempt follows":             {3, attempt.CallerFault, (*router).forget},
		"its client leaves as it is given up":  {0, attempt.Broken, (*router).left},
		"its client leaves, and it has failed": {3, attempt.CallerFault, (*router).left},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, x.attempts)
			first := b.come(t, 1)
			b.failed(first, flow.Done(first.ticket, 0, x.outcome, flow.Usage{}))
			b.wait(1)
			second := b.come(t, 2)
			if first.ticket.Index() != second.ticket.Index() {
				t.Fatalf("indices %d and %d: the test says nothing", first.ticket.Index(), second.ticket.Index())
			}
			x.late(b.router, first)
			b.now++
			b.failed(second, flow.Done(second.ticket, 0, attempt.Broken, flow.Usage{}))
			b.wait(1)
			b.wait(time.Minute)
			select {
			case a := <-second.word:
				if a.Ticket != second.ticket {
					t.Errorf("heard %+v", a)
				}
			default:
				t.Error("the call behind it hears nothing more")
			}
		})
	}
}

// raced gives the call a second attempt that has begun.
func raced(c *call) *race {
	x := &race{number: 1, runs: [2]bool{true, true}, dogs: [2]*watchdog{{}, {}}}
	x.decided, x.spoken, x.over = make(chan struct{}), make(chan struct{}), make(chan struct{})
	x.speaker.Store(nobody)
	x.started.Store(true)
	x.second = *c
	x.second.race, x.second.runner, x.second.try = x, secondRunner, newTry()
	c.race = x
	return x
}

// An attempt that is never sent, since the client has left and the other attempt speaks, is
// reported as ended by its own number: its charge ends.
func TestSend_WhatIsNeverSentEnds(t *testing.T) {
	for _, retried := range []bool{false, true} {
		b := newBench(t, 3)
		c := b.come(t, 1)
		a := c.answer.action
		c.answer = answer{}
		if retried {
			c.answer = answer{endpoint: &endpoint{name: "a"}, action: a, outcome: attempt.Broken}
			b.failed(c, flow.Done(c.ticket, 0, attempt.Broken, flow.Usage{}))
			b.wait(1)
			b.wait(time.Minute)
			a = <-c.word
		}
		raced(c).speaker.Store(secondRunner)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		c.ctx = ctx
		c.send(a)
		if !c.held {
			t.Fatal("the other attempt speaks: it ends the call")
		}
		c.reportFailure()
		b.now++
		for _, e := range b.snapshot().Pools[0].Endpoints {
			if e.Book.Outstanding != 0 {
				t.Errorf("retried %v: endpoint %s still has %d calls", retried, e.Name, e.Book.Outstanding)
			}
		}
		if c.record.Tried != "" {
			t.Errorf("retried %v: %q was tried after the client had left", retried, c.record.Tried)
		}
	}
}

// Once one attempt has ended the call by itself, as at the end of its time, the machine has no word
// for the other one, which does not wait for it.
func TestWins_NotOnceTheOtherOneSpeaks(t *testing.T) {
	for speaker := range 2 {
		b := newBench(t, 3)
		c := b.come(t, 1)
		x := raced(c)
		ends, waits := c, &x.second
		if speaker == secondRunner {
			ends, waits = waits, ends
		}
		won := make(chan bool)
		go func() { won <- waits.wins() }()
		select {
		case <-won:
			t.Fatal("nobody has said who goes on")
		case <-time.After(20 * time.Millisecond): // it waits by now
		}
		if !ends.takes() {
			t.Fatal("nobody spoke before")
		}
		b.left(c)
		select {
		case ok := <-won:
			if ok {
				t.Error("both speak")
			}
		case <-time.After(5 * time.Second):
			t.Fatal("it waits for a word that does not come")
		}
	}
}

// The machine's word that follows two failures may come before the second attempt's goroutine is
// through: what it has brought counts all the same.
func TestHear_OfBothFailuresBeforeTheWord(t *testing.T) {
	b := newBench(t, 3)
	c := b.come(t, 1)
	c.record.Attempts, c.answer.outcome = 1, attempt.Broken
	x := raced(c)
	x.second.record.Attempts = 1
	x.second.answer = answer{endpoint: &endpoint{name: "b"}, outcome: attempt.Failed}
	c.word <- flow.Action{Kind: flow.GiveUp, Ticket: c.ticket}
	time.AfterFunc(20*time.Millisecond, func() { close(x.over) })
	a, ok := c.hear()
	if !ok || a.Kind != flow.GiveUp {
		t.Fatalf("heard %+v, %v", a, ok)
	}
	if c.record.Attempts != 2 || c.record.Tried != "b failed" || !c.record.Hedged {
		t.Errorf("the record says %d attempts, tried %q, hedged %v", c.record.Attempts, c.record.Tried, c.record.Hedged)
	}
}

// A call that the second attempt ends leaves no watch behind: neither attempt's timer goes on.
func TestEndRace_EndsBothWatches(t *testing.T) {
	b := newBench(t, 3)
	c := b.come(t, 1)
	c.g = &Gateway{}
	x := raced(c)
	x.second.g = c.g
	dogs := [2]*watchdog{&c.dog, &x.second.dog}
	dogs[firstRunner].arm(1, Timeouts{}, time.Now())
	dogs[firstRunner].company(time.Hour, &c.out, nil)
	if !x.second.takes() {
		t.Fatal("nobody spoke before")
	}
	close(x.over)
	if p := c.endRace(); p != nil {
		t.Fatal(p)
	}
	c.dog.disarm() // as the call's end does
	for i, d := range dogs {
		if d.armed {
			t.Errorf("attempt %d is watched after its call has ended", i)
		}
	}
}

// TestRace_TheRecordNamesTheOnlyAttempt that was sent, where the client left before the other one
// was, whichever of the two notices that first.
func TestRace_TheRecordNamesTheOnlyAttempt(t *testing.T) {
	for sent := range 2 {
		for speaker := range 2 {
			c := &call{scratch: newScratch(), try: newTry()}
			c.race = &race{second: *c, over: make(chan struct{})}
			x := c.race
			x.second.try = newTry()
			c.answer.endpoint, x.second.answer.endpoint = &endpoint{name: "b"}, &endpoint{name: "b"}
			r := &c.record
			if sent == secondRunner {
				r = &x.second.record
			}
			r.Attempts, r.Pool, r.Endpoint, r.Policy = 1, "p", "b", "random"
			x.speaker.Store(int32(speaker))
			close(x.over)
			if c.join() != (speaker == secondRunner) {
				t.Errorf("sent %d, speaker %d: who has ended the call is mistaken", sent, speaker)
			}
			if r := c.record; !r.Hedged || r.Attempts != 1 || r.Pool != "p" || r.Endpoint != "b" || r.Policy != "random" {
				t.Errorf("sent %d, speaker %d: hedged %v, %d attempts at %q of %q by %q; want 1 at b of p by random", sent, speaker, r.Hedged, r.Attempts, r.Endpoint, r.Pool, r.Policy)
			}
		}
	}
}
