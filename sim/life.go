package sim

import (
	"time"

	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/limit"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// life is a call that runs.
type life struct {
	call    Call
	record  Record
	router  *router
	ticket  flow.Ticket
	attempt int
	replica *replica  // that works on it; nil: none does
	id      engine.ID // at that replica
	serial  uint32    // how many calls this object had before
	started bool      // content has come
	reports bool      // the router wants to know how far the answer is
	told    mono.Time // when it last heard, or content came
	over    bool
	grant   limit.Grant   // of its router's limits
	lined   bool          // it waits for its siblings
	behind  time.Duration // it has waited for them
	lent    bool          // an engine may still read its prompt
}

// newLife returns an object for a call, a used one if there is one.
func (w *world) newLife() *life {
	if n := len(w.spare); n > 0 {
		l := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return l
	}
	return &life{}
}

// recycle keeps an object for another call, with the memory of its slices. What an engine
// may still read stays as it is.
func (w *world) recycle(l *life) {
	if l.lent {
		return
	}
	c := &l.call
	blocks, prompt := c.Request.Blocks[:0], c.Prompt.Blocks[:0]
	*l = life{serial: l.serial + 1}
	l.call.Request.Blocks, l.call.Prompt.Blocks = blocks, prompt
	w.spare = append(w.spare, l)
}

// arrive lets a call come to its router, and asks the feed for the next one.
func (w *world) arrive(now mono.Time, l *life) {
	if w.coming == l {
		w.invite()
	}
	r := l.router
	switch {
	case l.record.Limited != limit.NoLimit: // in its turn
		l.limited(now, l.record.Limited)
		return
	case r.gate != nil && !l.grant.Held() && !r.gate.take(now, l):
		return
	}
	r.arriving = l
	r.step(now, flow.Arrive(&l.call.Request))
	r.arriving = nil
}

// leave is the client's going away: its engine is told at once, as a gateway that sees
// the connection close would.
func (l *life) leave(now mono.Time) {
	if l.ticket == (flow.Ticket{}) { // it has not come to the machine yet
		l.end(now, attempt.ClientGone)
		l.close(now)
		return
	}
	if l.replica != nil {
		l.replica.abort(now, l)
	}
	r, t := l.router, l.ticket
	l.end(now, attempt.ClientGone)
	r.step(now, flow.Left(t))
	l.close(now)
}

// refused notes that the machine takes the call no further, and what its client is told.
func (l *life) refused(a *flow.Action) {
	l.record.Refused = a.Reason
	if a.Kind == flow.Refuse {
		l.record.Later = flow.RetryAfter(a.Wait)
		return
	}
	l.record.Held = a.Wait
}

// tire ends a call that has waited for its siblings as long as it may.
func (l *life) tire(now mono.Time) { l.limited(now, limit.Waiting) }

// end notes how the call ended. Its router's machine is told by the caller, and then the
// life is closed.
func (l *life) end(now mono.Time, o attempt.Outcome) {
	l.over, l.replica = true, nil
	l.record.End, l.record.Outcome = now, o
	l.record.Held += l.behind
	l.router.drop(l)
	if g := l.router.gate; g != nil {
		g.settle(now, l)
	}
}

// close tells everybody outside that the call is over.
func (l *life) close(now mono.Time) {
	w := l.router.world
	w.open--
	w.follow(now, &l.record)
	if w.cfg.Ended != nil {
		w.cfg.Ended(&l.record)
	}
	w.recycle(l)
}

// fail ends the running attempt without an answer, or in the middle of one.
func (l *life) fail(now mono.Time, o attempt.Outcome) { l.failNaming(now, o, attempt.NoWait) }

// failNaming is fail where the engine says how long it wants to be left alone.
func (l *life) failNaming(now mono.Time, o attempt.Outcome, wait time.Duration) {
	l.replica = nil
	r, t, n := l.router, l.ticket, l.attempt
	final := l.started || !o.Retryable()
	if final {
		l.end(now, o)
	} else {
		l.record.Outcome = o
	}
	r.step(now, flow.Pushed(t, n, o, wait))
	if final {
		l.close(now)
	}
}

// recall takes the call back from an engine, unless its content has come.
func (l *life) recall(now mono.Time) {
	if l.started || l.replica == nil {
		return
	}
	l.replica.abort(now, l)
	l.fail(now, attempt.Recalled)
}

// output is what an engine's step brought for the call.
func (l *life) output(now mono.Time, out *engine.Output) {
	l.record.Tokens += out.Tokens
	stream := l.call.Request.Stream
	if l.started && stream { // what a gateway sees of an answer
		l.router.alive(now, l.replica.index)
		l.progress(now, l.record.Tokens)
	}
	// An answer that is not streamed is content only once it is whole.
	if !l.started && (stream || out.Finished) {
		l.started, l.told = true, now
		l.record.First, l.record.Cached = now, out.Cached
		l.router.step(now, flow.FirstToken(l.ticket, l.attempt))
	}
	if !out.Finished {
		return
	}
	r, t, n := l.router, l.ticket, l.attempt
	p := &l.call.Prompt
	u := flow.Usage{Known: true, CachedKnown: l.call.Request.Kind == selection.Generate, Prompt: p.PromptTokens, Cached: out.Cached, Output: p.OutputTokens}
	l.end(now, attempt.Success)
	r.step(now, flow.Done(t, n, attempt.Success, u))
	l.close(now)
}

// progress reports how many tokens of the answer have come, as often as a gateway does.
func (l *life) progress(now mono.Time, tokens int) {
	if l.reports && now.Sub(l.told) >= flow.AliveEvery {
		l.told = now
		l.router.step(now, flow.Progress(l.ticket, l.attempt, tokens))
	}
}
