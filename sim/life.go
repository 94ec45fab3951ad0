package sim

import (
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/limit"
	"kvasir/internal/mono"
)

// life is a call that runs.
type life struct {
	call   Call
	record Record
	router *router
	ticket flow.Ticket
	visits [2]visit // its attempts: one, or, while it is hedged, two
	winner *visit   // whose content the client gets; nil: none yet
	final  bool     // an attempt has ended so that no other may follow
	serial uint32   // how many calls this object had before
	over   bool
	grant  limit.Grant   // of its router's limits
	lined  bool          // it waits for its siblings
	behind time.Duration // it has waited for them
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
	if l.visits[0].lent || l.visits[1].lent {
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

// leave is the client's going away: its engines are told at once, as a gateway that sees
// the connection close would.
func (l *life) leave(now mono.Time) {
	if l.ticket == (flow.Ticket{}) { // it has not come to the machine yet
		l.end(now, attempt.ClientGone)
		l.close(now)
		return
	}
	for i := range l.visits {
		l.visits[i].abort(now)
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

// tire ends a call that has waited for its siblings as long as it may, or until its deadline.
func (l *life) tire(now mono.Time) {
	if q := &l.call.Request; q.Firm && q.Deadline > 0 && now.Sub(l.record.At) >= q.Deadline {
		l.record.Refused = flow.DeadlinePassed
		l.end(now, l.record.Outcome)
		l.close(now)
		return
	}
	l.limited(now, limit.Waiting)
}

// end notes how the call ended. Its router's machine is told by the caller, and then the
// life is closed.
func (l *life) end(now mono.Time, o attempt.Outcome) {
	l.over = true
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

// begin returns the record of an attempt that is being sent.
func (l *life) begin(a *flow.Action, engine int) *visit {
	x := &l.visits[0]
	if x.running {
		x = &l.visits[1]
	}
	*x = visit{life: l, number: a.Attempt, engine: engine, running: true, reports: a.Progress, lent: x.lent}
	return x
}

// visit returns the attempt of that number, if it runs or waits for the machine's word; else nil.
func (l *life) visit(number int) *visit {
	for i := range l.visits {
		if x := &l.visits[i]; x.number == number && (x.running || x.begun) {
			return x
		}
	}
	return nil
}

// other returns the attempt beside x, if there is one that runs; else nil.
func (l *life) other(x *visit) *visit {
	for i := range l.visits {
		if y := &l.visits[i]; y != x && y.running {
			return y
		}
	}
	return nil
}

// recall takes an attempt back from an engine, unless its content has come.
func (l *life) recall(now mono.Time, number int) {
	if x := l.visit(number); x != nil && !x.begun && x.replica != nil {
		x.abort(now)
		x.end(now, attempt.Recalled, flow.Usage{})
	}
}

// won lets an attempt's answer go to the client and aborts the other one.
func (l *life) won(now mono.Time, number int) {
	x := l.visit(number)
	if l.winner != nil || x == nil {
		return // the other one had ended before the machine knew
	}
	l.win(x)
	if y := l.other(x); y != nil {
		y.abort(now)
		y.running = false
		l.router.step(now, flow.Done(l.ticket, y.number, attempt.Beaten, flow.Usage{}))
	}
	if !x.running { // it has ended meanwhile
		l.end(now, x.outcome)
		l.close(now)
	}
}

// win notes that the client gets the attempt's answer.
func (l *life) win(x *visit) {
	l.winner = x
	l.record.First, l.record.Cached, l.record.Engine, l.record.Tokens = x.first, x.cached, x.engine, x.tokens
}
