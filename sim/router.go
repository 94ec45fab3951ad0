package sim

import (
	"fmt"
	"slices"
	"time"

	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// router is one machine and its wake-up.
type router struct {
	world   *world
	machine *flow.Machine
	lives   map[selection.CallID]*life
	wakeAt  mono.Time
	decided mono.Time   // instant of the last decision; -1: none yet
	heard   []mono.Time // by slot: when an endpoint was last reported alive
}

func (w *world) addRouter(i int) {
	c := &w.cfg.Routers[i]
	r := &router{world: w, machine: flow.New(c.Machine), lives: map[selection.CallID]*life{}, wakeAt: mono.Never, decided: -1}
	r.heard = make([]mono.Time, len(w.replicas))
	w.routers = append(w.routers, r)
	if c.Scrape <= 0 {
		return
	}
	for slot := range w.replicas {
		w.schedule(r.scrape(selection.Slot(slot), mono.Time(c.Phases[slot]), c.Scrape))
	}
}

// scrape reads an engine's gauges, and so on every interval.
func (r *router) scrape(slot selection.Slot, at mono.Time, every time.Duration) event {
	return event{at: at, rank: rankScrape, handle: func(now mono.Time) []event {
		var events []event
		if load, up := r.world.replicas[slot].load(now); up {
			events = r.step(now, flow.Signal(slot, 0, load, 0))
		}
		if next := at.Add(every); next <= r.world.cfg.Until {
			events = append(events, r.scrape(slot, next, every))
		}
		return events
	}}
}

// alive reports that an endpoint sends, as often as a gateway does.
func (r *router) alive(now mono.Time, slot selection.Slot) []event {
	if now.Sub(r.heard[slot]) < flow.AliveEvery {
		return nil
	}
	r.heard[slot] = now
	return r.step(now, flow.Alive(slot, 0))
}

// step drives the machine and does what it says.
func (r *router) step(now mono.Time, e flow.Event) []event {
	var events []event
	decided := false
	// The machine's slice lives until its next Step, which an action may cause.
	for _, a := range slices.Clone(r.machine.Step(now, e)) {
		switch a.Kind {
		case flow.WakeAt:
			events = append(events, r.wake(a.At))
			continue
		case flow.Ejected, flow.Returned, flow.Restarted, flow.Freed:
			continue // for logs; the snapshot at the end has the state
		case flow.Recall:
			events = append(events, r.lives[a.Ticket.Call].recall(now)...)
			continue
		case flow.Dispatch:
			events = append(events, r.dispatch(now, a)...)
		default:
			l := r.lives[a.Ticket.Call]
			l.record.Refused = a.Reason
			l.end(now, l.record.Outcome)
		}
		decided = true
	}
	if decided {
		if r.decided == now {
			r.world.err = fmt.Errorf("%w: %d ns", ErrSharedInstant, now)
		}
		r.decided = now
	}
	return events
}

func (r *router) wake(at mono.Time) event {
	r.wakeAt = at
	return event{at: at, rank: rankWake, handle: func(now mono.Time) []event {
		if r.wakeAt != now {
			return nil // a later WakeAt has replaced this one
		}
		r.wakeAt = mono.Never
		return r.step(now, flow.Wake())
	}}
}

func (r *router) dispatch(now mono.Time, a flow.Action) []event {
	if a.Decision != nil {
		r.world.result.Decisions = append(r.world.result.Decisions, *a.Decision)
	}
	l := r.lives[a.Ticket.Call]
	l.ticket, l.attempt, l.slot, l.running = a.Ticket, a.Attempt, a.Slot, true
	l.record.Attempts++
	l.record.Tokens = 0 // what an earlier attempt produced never reached the client
	return r.world.replicas[a.Slot].submit(now, l)
}
