package proxy

import (
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
	c.race = &race{second: *c, dog: &c.dog}
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
