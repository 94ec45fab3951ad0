package sim

import (
	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// life is a call that runs.
type life struct {
	call    *Call
	record  *Record
	router  *router
	ticket  flow.Ticket
	attempt int
	slot    selection.Slot
	running bool // an engine works on it
	started bool // content has come
	over    bool
}

func (w *world) addCall(i int) {
	c := &w.cfg.Calls[i]
	l := &life{call: c, record: &w.result.Records[i], router: w.routers[c.Router]}
	*l.record = Record{Call: c.Request.ID, At: c.At}
	w.schedule(event{at: c.At, rank: rankArrival, handle: func(now mono.Time) []event {
		l.router.lives[c.Request.ID] = l
		return l.router.step(now, flow.Arrive(&c.Request))
	}})
	if c.LeaveAt > 0 {
		w.schedule(event{at: c.LeaveAt, rank: rankLeave, handle: func(now mono.Time) []event { return l.leave(now) }})
	}
}

// leave is the client's going away: its engine is told at once, as a gateway that sees
// the connection close would.
func (l *life) leave(now mono.Time) []event {
	if l.over {
		return nil
	}
	var events []event
	if l.running {
		events = l.router.world.replicas[l.slot].abort(now, l)
	}
	l.end(now, attempt.ClientGone)
	return append(events, l.router.step(now, flow.Left(l.ticket))...)
}

func (l *life) end(now mono.Time, o attempt.Outcome) {
	l.over, l.running = true, false
	l.record.End, l.record.Outcome = now, o
	delete(l.router.lives, l.call.Request.ID)
}

// fail ends the running attempt without an answer, or in the middle of one.
func (l *life) fail(now mono.Time, o attempt.Outcome) []event {
	l.running = false
	if l.started || !o.Retryable() {
		l.end(now, o)
	} else {
		l.record.Outcome = o
	}
	return l.router.step(now, flow.Done(l.ticket, l.attempt, o, flow.Usage{}))
}

// recall takes the call back from an engine, unless its content has come.
func (l *life) recall(now mono.Time) []event {
	if l.started || !l.running {
		return nil
	}
	return append(l.router.world.replicas[l.slot].abort(now, l), l.fail(now, attempt.Recalled)...)
}

// output is what an engine's step brought for the call.
func (l *life) output(now mono.Time, out engine.Output) []event {
	l.record.Tokens += out.Tokens
	var events []event
	if l.started && l.call.Request.Stream { // what a gateway sees of an answer
		events = l.router.alive(now, l.slot)
	}
	// An answer that is not streamed is content only once it is whole.
	if !l.started && (l.call.Request.Stream || out.Finished) {
		l.started = true
		l.record.First, l.record.Cached = now, out.Cached
		events = append(events, l.router.step(now, flow.FirstToken(l.ticket, l.attempt))...)
	}
	if !out.Finished {
		return events
	}
	l.end(now, attempt.Success)
	p := &l.call.Prompt
	u := flow.Usage{Known: true, Prompt: p.PromptTokens, Cached: out.Cached, Output: p.OutputTokens}
	return append(events, l.router.step(now, flow.Done(l.ticket, l.attempt, attempt.Success, u))...)
}
