package engine

import (
	"cmp"
	"fmt"
	"slices"

	"kvasir/internal/mono"
)

// command is something asked of the engine that has not taken effect.
type command struct {
	at   mono.Time
	kind commandKind
	req  *request // of submit and abort
	pace float64  // of throttle
}

type commandKind uint8

// The kinds, in the order in which they take effect at one instant.
const (
	submit commandKind = iota
	abort
	throttle
	sleep
	wake
)

// compare orders commands by instant, kind and what they say: the order of the calls is
// no part of it.
func (c command) compare(d command) int {
	return cmp.Or(cmp.Compare(c.at, d.at), cmp.Compare(c.kind, d.kind),
		cmp.Compare(c.id(), d.id()), cmp.Compare(c.pace, d.pace))
}

// id returns the request's, 0 where there is none.
func (c command) id() ID {
	if c.req == nil {
		return 0
	}
	return c.req.ID
}

// post queues a command in its place. Commands mostly come in the order of their
// instants, so the place is at or near the end. A span ends with the step in which the
// first command comes.
func (e *Engine) post(c command) {
	i, _ := slices.BinarySearchFunc(e.inbox, c, command.compare)
	e.inbox = slices.Insert(e.inbox, i, c)
	if e.busy {
		e.cut()
	}
}

// cut shortens the running span to the step that runs when the first command comes.
func (e *Engine) cut() {
	if len(e.inbox) > 0 && e.span.steps > 1 {
		e.span.steps = min(e.span.steps, e.span.ended(e.inbox[0].at)+1)
	}
}

// stamp returns the instant of a command given at now: the latest Advance's where that
// is later, because what was computed stays.
func (e *Engine) stamp(now mono.Time) mono.Time { return min(max(now, e.advanced), mono.Never-1) }

// MaxPace bounds Throttle, either way.
const MaxPace = 1e4

// Throttle makes every step that starts later than now take pace times as long as the
// profile says, but never more than accelerator.MaxStep: 1 is the profile's own time, 2 half
// the speed. It panics when pace is not above 0 and at most MaxPace. Of two at one instant
// the greater counts. An instant before the latest Advance counts as that one.
func (e *Engine) Throttle(now mono.Time, pace float64) {
	if !(pace > 0 && pace <= MaxPace) {
		panic(fmt.Sprintf("engine: pace is %v; allowed: above 0, at most %g", pace, float64(MaxPace)))
	}
	e.post(command{at: e.stamp(now), kind: throttle, pace: pace})
}

// Sleep stops the engine: no step starts later than now until Wake, and the cached blocks
// that no request uses are forgotten. What is held stays and what is submitted waits
// (vLLM's sleep with mode "keep"; its mode "abort" is an Abort of every request before).
// An instant before the latest Advance counts as that one.
func (e *Engine) Sleep(now mono.Time) { e.post(command{at: e.stamp(now), kind: sleep}) }

// Wake undoes Sleep. Of both at one instant Wake counts.
func (e *Engine) Wake(now mono.Time) { e.post(command{at: e.stamp(now), kind: wake}) }

// fold lets the commands stamped before the instant take effect.
func (e *Engine) fold(at mono.Time) {
	n := 0
	for n < len(e.inbox) && e.inbox[n].at < at {
		c := e.inbox[n]
		n++
		switch c.kind {
		case submit:
			c.req.phase, c.req.queued = waiting, at
			e.waiting.pushBack(c.req)
			e.lora.count(c.req.Adapter, 0, 1)
		case abort:
			// The request may have ended by itself in the meantime; see finish.
			e.drop(c.req)
		case throttle:
			e.setPace(c.pace)
		case sleep:
			e.asleep = true
			e.kv.forgetFree()
		case wake:
			e.asleep = false
		}
	}
	e.inbox = slices.Delete(e.inbox, 0, n)
}
