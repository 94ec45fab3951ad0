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

	mu      sync.Mutex
	machine *flow.Machine
	waiting map[selection.CallID]chan<- flow.Action
	timer   *time.Timer // of the machine's wake-up
	closed  bool
}

func newRouter(m *flow.Machine, clock func() mono.Time) *router {
	r := &router{machine: m, clock: clock, waiting: map[selection.CallID]chan<- flow.Action{}}
	r.timer = time.AfterFunc(time.Hour, r.wake)
	r.timer.Stop()
	return r
}

// arrive places a call: the action is a Dispatch or a Refuse.
func (r *router) arrive(q *selection.Request) flow.Action {
	r.mu.Lock()
	defer r.mu.Unlock()
	var own flow.Action
	for _, a := range r.machine.Step(r.clock(), flow.Arrive(q)) {
		if a.Kind != flow.WakeAt && a.Ticket.Call == q.ID {
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
	defer r.mu.Unlock()
	r.step(e)
}

// failed reports an attempt that another one may follow. The machine's word, a Dispatch
// or a GiveUp, comes over the channel.
func (r *router) failed(t flow.Ticket, n int, o attempt.Outcome) <-chan flow.Action {
	word := make(chan flow.Action, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[t.Call] = word
	r.step(flow.Done(t, n, o, flow.Usage{}))
	return word
}

// left reports that a call's client is gone; nobody waits for the machine's word.
func (r *router) left(t flow.Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, t.Call)
	r.step(flow.Left(t))
}

// signal reports an endpoint's load.
func (r *router) signal(slot selection.Slot, generation uint32, load signal.Load, took time.Duration) {
	r.report(flow.Signal(slot, generation, load, took))
}

func (r *router) snapshot() flow.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Snapshot(r.clock())
}

// close stops the timer. Calls that are still waiting hear nothing more.
func (r *router) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.timer.Stop()
}

func (r *router) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.step(flow.Wake())
	}
}

func (r *router) step(e flow.Event) {
	for _, a := range r.machine.Step(r.clock(), e) {
		r.do(a)
	}
}

// do carries out an action that is not the answer to the current call's arrival.
func (r *router) do(a flow.Action) {
	if a.Kind == flow.WakeAt {
		if !r.closed {
			r.timer.Reset(max(a.At.Sub(r.clock()), 0))
		}
		return
	}
	if word, ok := r.waiting[a.Ticket.Call]; ok {
		delete(r.waiting, a.Ticket.Call)
		word <- a // capacity 1, and each word is sent once
	}
}
