package proxy

import (
	"sync"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// router is the live shell round one model's machine: one lock, one timer, and the calls
// that the machine may have a word for. The clock is read inside the lock, so that the
// machine's time never goes backwards.
type router struct {
	clock  func() mono.Time
	lookup func(selection.Slot) *endpoint // who has a slot now
	tell   func(flow.Action, *endpoint)   // hears of what becomes of an endpoint, outside the lock

	share func([]flow.Word) // hears what the peers are to be told, likewise

	mu      sync.Mutex
	machine *flow.Machine
	calls   []*call     // those that the machine holds, by their tickets' index
	timer   *time.Timer // of the machine's wake-up
	later   []notice
	words   [][]flow.Word // for share
	recalls []recall      // to be carried out outside the lock, as later is
	seconds []second      // likewise: attempts beside others
	wins    []win         // likewise
	closed  bool
}

type notice struct {
	flow.Action
	endpoint *endpoint
}

type recall struct {
	dog     *watchdog
	call    selection.CallID
	attempt int
}

type second struct {
	race   *race
	action flow.Action
}

type win struct {
	race    *race
	call    selection.CallID
	attempt int
}

func newRouter(m *flow.Machine, clock func() mono.Time, lookup func(selection.Slot) *endpoint, tell func(flow.Action, *endpoint)) *router {
	r := &router{machine: m, clock: clock, lookup: lookup, tell: tell}
	r.timer = time.AfterFunc(time.Hour, r.wake)
	r.timer.Stop()
	return r
}

// arrive places a call: the action is a Dispatch, a Refuse or a Hold, after which the
// machine's word comes over the call's word.
func (r *router) arrive(c *call) flow.Action {
	r.mu.Lock()
	defer r.unlock()
	var own flow.Action
	for _, a := range r.machine.Step(r.clock(), flow.Arrive(&c.request)) {
		if a.Kind <= flow.Hold && a.Ticket.Call == c.request.ID { // ids begin at 1; what belongs to no call has 0
			own = a
			continue
		}
		r.do(a)
	}
	if c.race != nil {
		c.race.runs[firstRunner] = own.Kind == flow.Dispatch
	}
	if own.Kind != flow.Refuse {
		i := own.Ticket.Index()
		for len(r.calls) <= i {
			r.calls = append(r.calls, nil)
		}
		r.calls[i] = c
	}
	return own
}

// report tells the machine what happened. Where that is the end of an attempt that another
// one may follow, the machine's word, a Dispatch or a GiveUp, comes over the call's word.
func (r *router) report(e flow.Event) {
	r.mu.Lock()
	defer r.unlock()
	r.step(e)
}

// failed reports the end of an attempt, as report does, which another one may run beside.
func (r *router) failed(c *call, e flow.Event) {
	r.mu.Lock()
	defer r.unlock()
	if c.race != nil {
		c.race.runs[c.runner] = false
	}
	r.step(e)
}

// claim reports that an attempt of a race has an answer to pass on. Where the other one runs,
// too, it returns true, and the machine's word says which of the two goes on.
func (r *router) claim(c *call) (raced bool) {
	r.mu.Lock()
	defer r.unlock()
	a := &c.answer
	e := flow.Claim(c.ticket, a.action.Attempt)
	if a.begun {
		a.told, e = true, flow.FirstToken(c.ticket, a.action.Attempt)
	}
	r.step(e)
	return c.race.runs[firstRunner] && c.race.runs[secondRunner]
}

// forget drops a call that the machine holds no longer.
func (r *router) forget(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(c.ticket)
}

// ended reports what ends a call: the machine has no word for it any more.
func (r *router) ended(c *call, e flow.Event) {
	r.mu.Lock()
	defer r.unlock()
	r.drop(c.ticket)
	r.step(e)
}

// left reports that a call's client is gone; nobody waits for the machine's word.
func (r *router) left(c *call) {
	r.ended(c, flow.Left(c.ticket))
	select {
	case <-c.word: // it came too late
	default:
	}
}

// drop forgets a call, if that was not done before: the machine may have forgotten it already,
// and have given its index to another one.
func (r *router) drop(t flow.Ticket) {
	if c := r.find(t); c != nil {
		r.calls[t.Index()] = nil
	}
}

// find returns the call that a ticket names; nil: it was dropped.
func (r *router) find(t flow.Ticket) *call {
	if i := t.Index(); i < len(r.calls) && r.calls[i] != nil && r.calls[i].request.ID == t.Call {
		return r.calls[i]
	}
	return nil
}

// signal reports an endpoint's load.
func (r *router) signal(slot selection.Slot, generation uint32, load signal.Load, took time.Duration) {
	r.report(flow.Signal(slot, generation, load, took))
}

// health reports whether an endpoint's health path answered well.
func (r *router) health(slot selection.Slot, generation uint32, ok bool) {
	r.report(flow.Health(slot, generation, ok))
}

func (r *router) snapshot() flow.Snapshot {
	r.mu.Lock()
	defer r.unlock()
	return r.machine.Snapshot(r.clock())
}

// reconfigure changes the model. place hears under the lock which slots the endpoints
// have, so that no call is sent to one before it is known who that is.
func (r *router) reconfigure(c flow.Config, place func([]flow.Placed)) {
	r.mu.Lock()
	defer r.unlock()
	placed, actions := r.machine.Reconfigure(r.clock(), c)
	for _, a := range actions { // what is said of a slot is said of who has it still
		r.do(a)
	}
	place(placed)
}

// close stops the timer. Calls that are still waiting hear nothing more.
func (r *router) close() {
	r.mu.Lock()
	defer r.unlock()
	r.closed = true
	r.timer.Stop()
}

func (r *router) wake() {
	r.mu.Lock()
	defer r.unlock()
	if !r.closed {
		r.step(flow.Wake())
	}
}

func (r *router) step(e flow.Event) {
	for _, a := range r.machine.Step(r.clock(), e) {
		r.do(a)
	}
}

// unlock gives the lock back and does what is not to be done under it.
func (r *router) unlock() {
	later, recalls, words, seconds, wins := r.later, r.recalls, r.words, r.seconds, r.wins
	r.later, r.recalls, r.words, r.seconds, r.wins = nil, nil, nil, nil, nil
	r.mu.Unlock()
	for _, s := range seconds {
		go s.race.run(s.action)
	}
	for _, w := range wins {
		w.race.decide(w.call, w.attempt)
	}
	for _, x := range recalls {
		x.dog.abort(x.call, x.attempt, attempt.Recalled)
	}
	for _, n := range later {
		r.tell(n.Action, n.endpoint)
	}
	for _, w := range words {
		r.share(w)
	}
}

// do carries out an action that is not the answer to the current call's arrival.
func (r *router) do(a flow.Action) {
	switch a.Kind {
	case flow.WakeAt:
		if !r.closed {
			r.timer.Reset(max(a.At.Sub(r.clock()), 0))
		}
	case flow.Tell:
		r.words = append(r.words, r.machine.Words())
	case flow.Dispatch, flow.GiveUp, flow.Recall, flow.Won:
		c := r.find(a.Ticket)
		if c == nil {
			return
		}
		x := c.race
		switch {
		case a.Kind == flow.Recall && x != nil && x.runs[secondRunner] && x.number == a.Attempt:
			r.recalls = append(r.recalls, recall{x.dogs[secondRunner], a.Ticket.Call, a.Attempt})
			return
		case a.Kind == flow.Recall:
			r.recalls = append(r.recalls, recall{&c.dog, a.Ticket.Call, a.Attempt})
			return
		case a.Kind == flow.Won:
			r.wins = append(r.wins, win{x, a.Ticket.Call, a.Attempt})
			return
		case a.Hedge:
			x.start(a)
			r.seconds = append(r.seconds, second{x, a})
			return
		case a.Kind == flow.GiveUp:
			r.drop(a.Ticket)
		case x != nil:
			x.runs[firstRunner] = true
		}
		c.word <- a // capacity 1, and each word is sent once
	default:
		if e := r.lookup(a.Slot); e != nil && e.generation == a.Generation {
			r.later = append(r.later, notice{a, e})
		}
	}
}
