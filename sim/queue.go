package sim

import (
	"kvasir/internal/mono"
	"kvasir/selection/signal"
)

// kind is what an event is, and its rank among those of one instant: what engines finish
// comes first, then what happens to engines, then what clients and routers do.
type kind uint8

const (
	steps    kind = iota // an engine's step ends
	dies                 // an engine goes
	starts               // an engine comes, or comes back
	paces                // an engine becomes slower or faster
	scrapes              // a router reads an engine's gauges
	hears                // a router gets what was read
	learns               // a router gets what another one tells
	pulses               // a router sees that an engine's streams go on
	arrives              // a call comes
	leaves               // a client goes
	despairs             // it goes, unless content has come
	wakes                // a router's machine has asked for it
	tires                // a call has waited for its siblings as long as it may
)

// event is something that will happen. Which fields count depends on the kind.
type event struct {
	at       mono.Time
	sequence uint64
	kind     kind
	engine   int32
	router   int32
	index    int32        // which of the engine's paces
	serial   uint32       // of the life, when the event was planned
	life     *life        // arrives, leaves, tires
	load     *signal.Load // hears
	told     *told        // learns
}

func (e *event) before(f *event) bool {
	if e.at != f.at {
		return e.at < f.at
	}
	if e.kind != f.kind {
		return e.kind < f.kind
	}
	return e.sequence < f.sequence
}

// queue holds what will happen, in a heap with four children a node: a run spends much of
// its time here, and such a heap is half as deep as a binary one.
type queue struct {
	events  []event
	planned uint64
}

func (q *queue) push(e event) {
	e.sequence = q.planned
	q.planned++
	q.events = append(q.events, e)
	i := len(q.events) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&q.events[up]) {
			break
		}
		q.events[i] = q.events[up]
		i = up
	}
	q.events[i] = e
}

func (q *queue) pop() event {
	first := q.events[0]
	n := len(q.events) - 1
	last := q.events[n]
	q.events[n] = event{}
	q.events = q.events[:n]
	if n == 0 {
		return first
	}
	i := 0
	for {
		child := 4*i + 1
		if child >= n {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, n); c++ {
			if q.events[c].before(&q.events[least]) {
				least = c
			}
		}
		if !q.events[least].before(&last) {
			break
		}
		q.events[i] = q.events[least]
		i = least
	}
	q.events[i] = last
	return first
}

// handle lets an event happen.
func (w *world) handle(e *event) {
	switch e.kind {
	case steps:
		w.replicas[e.engine].step(e.at)
	case dies:
		w.replicas[e.engine].die(e.at)
	case starts:
		w.replicas[e.engine].start(e.at)
	case paces:
		w.replicas[e.engine].pace(e.at, int(e.index))
	case scrapes:
		w.routers[e.router].scrape(e.at, int(e.engine))
	case hears:
		w.routers[e.router].hear(e.at, int(e.engine), e.load)
	case learns:
		w.routers[e.router].learn(e.at, e.told)
	case pulses:
		w.replicas[e.engine].pulse(e.at)
	case arrives:
		if e.life.serial == e.serial && !e.life.over { // else its client has left while its turn came
			w.arrive(e.at, e.life)
		}
	case leaves:
		if e.life.serial == e.serial && !e.life.over {
			e.life.leave(e.at)
		}
	case despairs:
		if e.life.serial == e.serial && !e.life.over && e.life.winner == nil {
			e.life.leave(e.at)
		}
	case tires:
		if e.life.serial == e.serial && e.life.lined {
			e.life.tire(e.at)
		}
	case wakes:
		w.routers[e.router].wake(e.at)
	}
}
