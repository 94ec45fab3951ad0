package proxy

import (
	"sync/atomic"

	"kvasir/api"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/selection"
	"kvasir/telemetry"
)

// Two attempts of a call that run at the same time race for the client. The first runs on the
// call's own goroutine, the second on one of its own, with a copy of the call's record and what
// an attempt needs for itself. Each holds its answer back until its first content and then asks
// the machine, which says after that very instant who goes on: so it does not matter which
// goroutine is faster. The other one's upstream is aborted at once. Whoever goes on writes the
// whole answer; the call's goroutine waits where that is the second, as only it may end the call.

// The runners of a race, and who speaks to the client.
const (
	firstRunner  = 0
	secondRunner = 1

	nobody = -1
)

// race is what the two share. A call whose model hedges nothing has none.
type race struct {
	second call         // the second attempt's record
	dogs   [2]*watchdog // by runner
	runs   [2]bool      // whether the machine was not told of its end; under router.mu

	// Set under router.mu when the second attempt is sent, before started is.
	number  int           // of the attempt
	decided chan struct{} // closed once the machine has said who goes on
	spoken  chan struct{} // closed once there is a speaker
	over    chan struct{} // closed once the second attempt has ended, and the call with it where it spoke
	started atomic.Bool

	winner   int          // attempt's number; read after decided
	speaker  atomic.Int32 // who ends the call, whatever it writes to the client
	joined   bool
	panicked any // by the second attempt
}

// prepare readies the call for an attempt beside its first, where its model hedges. What the
// second attempt knows of the call is copied here, while nothing runs.
func (c *call) prepare() {
	c.race = nil
	c.sew()
	if c.request.Once = !c.model.Machine.Hedge.On() || c.once(); c.request.Once {
		return
	}
	x := &race{dogs: [2]*watchdog{firstRunner: &c.dog}, second: *c}
	x.speaker.Store(nobody)
	x.second.race, x.second.runner, x.second.try = x, secondRunner, nil
	x.second.seam = nil // an answer of two attempts is not continued
	c.race = x
}

// once reports whether the call may have effects beyond its answer: its client says so, or its
// body does, or it is an upload, of which only the model's name is read.
func (c *call) once() bool {
	return c.in.Header.Get("X-Kvasir-Once") == "1" || c.bodyGrammar() == api.Upload || c.reader.Effects()
}

// start readies the second attempt, which the caller lets run once it has given router.mu back.
// The body is still there: the first attempt has not said that it passes its answer on.
func (x *race) start(a flow.Action) {
	c := &x.second
	c.ticket, c.record.Held = a.Ticket, a.Wait
	c.try = tries.Get().(*try)
	c.body.refs.Add(1)
	x.dogs[secondRunner] = &c.dog
	x.number, x.runs[secondRunner] = a.Attempt, true
	x.decided, x.spoken, x.over = make(chan struct{}), make(chan struct{}), make(chan struct{})
	x.started.Store(true)
}

// run is the second attempt.
func (x *race) run(a flow.Action) {
	c := &x.second
	defer close(x.over)
	defer c.dropBody()
	defer func() {
		if p := recover(); p != nil {
			x.panicked = p
			c.answer.outcome = attempt.Recalled // nobody's failure
		}
		c.dog.disarm()
		if int(x.speaker.Load()) != secondRunner {
			c.model.router.failed(c, c.ending(flow.Usage{}))
		}
	}()
	c.answer.action = a
	c.dog.arm(c.request.ID, c.model.timeouts, c.arrived)
	c.send(a)
}

// decide lets the attempt of that number go on. The first one, where it is beaten, is aborted here;
// the second by the first, when it takes the client.
func (x *race) decide(call selection.CallID, winner int) {
	x.winner = winner
	close(x.decided)
	if winner == x.number {
		x.abort(call, firstRunner)
	} else {
		x.abort(call, secondRunner)
	}
}

// abort aborts a runner's attempt of the race, if it runs.
func (x *race) abort(call selection.CallID, runner int) {
	number := x.number
	if runner == firstRunner {
		number--
	}
	x.dogs[runner].cut(call, number)
}

// racing reports whether another attempt of the call may run beside this one.
func (c *call) racing() bool {
	return c.race != nil && (c.runner == secondRunner || c.race.started.Load())
}

// beaten reports whether the other attempt is known to go on. Who aborts an attempt may come
// before the attempt has begun, so it asks then.
func (c *call) beaten() bool {
	x := c.race
	if !c.racing() {
		return false
	}
	if s := int(x.speaker.Load()); s != nobody && s != c.runner {
		return true
	}
	select {
	case <-x.decided:
		return x.winner != c.answer.action.Attempt
	default:
		return false
	}
}

// wins asks for the client: whether this attempt's answer is the one to pass on.
func (c *call) wins() bool {
	x := c.race
	if x == nil {
		return true
	}
	if c.model.router.claim(c) {
		select {
		case <-x.decided:
			if x.winner != c.answer.action.Attempt {
				return false
			}
		case <-x.spoken: // the other one has ended the call, and no word may come
		case <-c.ctx.Done():
			return false
		}
	}
	return c.takes()
}

// takes makes this attempt the one that ends the call, and aborts the other one. It reports false
// where that one ends the call.
func (c *call) takes() bool {
	x := c.race
	if x == nil || int(x.speaker.Load()) == c.runner {
		return true
	}
	if !x.speaker.CompareAndSwap(nobody, int32(c.runner)) {
		return false
	}
	if x.started.Load() { // else who starts yet sees the speaker
		close(x.spoken)
		x.abort(c.request.ID, secondRunner-c.runner)
	}
	return true
}

// ended returns what is closed once the second attempt has ended; nil: there is none.
func (x *race) ended() <-chan struct{} {
	if x == nil || !x.started.Load() {
		return nil
	}
	return x.over
}

// join takes the second attempt, which has ended, into the call's record. It reports whether
// that one has ended the call.
func (c *call) join() bool {
	x := c.race
	<-x.over
	if x.joined {
		return false
	}
	x.joined = true
	if p := x.panicked; p != nil {
		panic(p)
	}
	s := &x.second
	c.record.Hedged = true
	takePlace(&c.record, &s.record)
	c.record.Attempts += s.record.Attempts
	if int(x.speaker.Load()) == secondRunner {
		c.become(s)
		return true
	}
	c.noteTried(&s.answer)
	return false
}

// become takes over what the second attempt's record says of the call, which has ended, and what
// it has read with: what there is to add to its answer follows that.
func (c *call) become(s *call) {
	r := s.record
	r.Hedged, r.Attempts, r.Tried, r.Pick = c.record.Hedged, c.record.Attempts, c.record.Tried, c.record.Pick
	takePlace(&r, &c.record)
	c.record = r
	c.try, s.try = s.try, c.try
	c.held, c.abort, c.leaked = false, s.abort, s.leaked
}

// takePlace says where a call was sent by its other attempt, where this one was not sent: the client
// had left by then.
func takePlace(r, other *telemetry.Call) {
	if r.Endpoint == "" {
		r.Pool, r.Endpoint, r.Policy, r.Sent = other.Pool, other.Endpoint, other.Policy, other.Sent
	}
}

// conclude ends a call with a failure after which no attempt follows: its own, or the second's.
func (c *call) conclude(s *call) {
	c.held = false
	c.model.router.forget(c)
	s.record.Attempts, s.record.Hedged = c.record.Attempts, c.record.Hedged
	s.finish(s.answer.outcome)
	s.tellFailure(flow.NoReason)
	if s != c {
		c.become(s)
	}
}

// endRace waits for the second attempt, if there was one, and gives back what it held. It
// returns what that one has panicked with. The machine has no word for the call any more.
func (c *call) endRace() (panicked any) {
	x := c.race
	if x == nil || !x.started.Load() {
		return nil
	}
	c.takes()
	defer func() {
		panicked = recover()
		s := &x.second
		s.dog.disarm()
		s.giveKept()
		s.bookEvent(0)
		if t := s.try; !t.big() {
			t.forget()
			tries.Put(t)
		}
	}()
	c.join()
	return nil
}
