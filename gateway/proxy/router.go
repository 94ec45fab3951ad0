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
// that wait for the machine's next word. The clock is read inside the lock, so that the
// machine's time never goes backwards.
type router struct {
	clock func() mono.Time
	tell  func(flow.Action) // hears of notices, outside the lock

	mu      sync.Mutex
	machine *flow.Machine
	waiting map[selection.CallID]chan<- flow.Action
	timer   *time.Timer   // of the machine's wake-up
	notices []flow.Action // not told yet
	closed  bool
}

func newRouter(m *flow.Machine, clock func() mono.Time, tell func(flow.Action)) *router {
	r := &router{machine: m, clock: clock, tell: tell, waiting: map[selection.CallID]chan<- flow.Action{}}
	r.timer = time.AfterFunc(time.Hour, r.wake)
	r.timer.Stop()
	return r
}

// arrive places a call: the action is a Dispatch or a Refuse.
func (r *router) arrive(q *selection.Request) flow.Action {
	r.mu.Lock()
	defer r.unlock()
	var own flow.Action
	for _, a := range r.machine.Step(r.clock(), flow.Arrive(q)) {
		if a.Ticket.Call == q.ID { // ids begin at 1; what belongs to no call has 0
			own = a
			continue
		}
		r.do(a)
	}
	return own
}

// report tells the machine what happened.
func (r *router) report(e flow.Event) {
	r.mu.Lock()
	defer r.unlock()
	r.step(e)
}

// failed reports an attempt that another one may follow. The machine's word, a Dispatch
// or a GiveUp, comes over the channel.
func (r *router) failed(t flow.Ticket, n int, o attempt.Outcome) <-chan flow.Action {
	word := make(chan flow.Action, 1)
	r.mu.Lock()
	defer r.unlock()
	r.waiting[t.Call] = word
	r.step(flow.Done(t, n, o, flow.Usage{}))
	return word
}

// left reports that a call's client is gone; nobody waits for the machine's word.
func (r *router) left(t flow.Ticket) {
	r.mu.Lock()
	defer r.unlock()
	delete(r.waiting, t.Call)
	r.step(flow.Left(t))
}

// signal reports an endpoint's load.
func (r *router) signal(slot selection.Slot, generation uint32, load signal.Load, took time.Duration) {
	r.report(flow.Signal(slot, generation, load, took))
}

func (r *router) snapshot() flow.Snapshot {
	r.mu.Lock()
	defer r.unlock()
	return r.machine.Snapshot(r.clock())
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

// unlock gives the lock back and tells what is to be told.
func (r *router) unlock() {
	notices := r.notices
	r.notices = nil
	r.mu.Unlock()
	for _, a := range notices {
		r.tell(a)
	}
}

// do carries out an action that is not the answer to the current call's arrival.
func (r *router) do(a flow.Action) {
	switch a.Kind {
	case flow.WakeAt:
		if !r.closed {
			r.timer.Reset(max(a.At.Sub(r.clock()), 0))
		}
		return
	case flow.Ejected, flow.Returned:
		r.notices = append(r.notices, a)
		return
	}
	if word, ok := r.waiting[a.Ticket.Call]; ok {
		delete(r.waiting, a.Ticket.Call)
		word <- a // capacity 1, and each word is sent once
	}
}
