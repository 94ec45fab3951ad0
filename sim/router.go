package sim

import (
	"fmt"
	"slices"

	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// router is one machine, its wake-up, and who answers behind its slots.
type router struct {
	world    *world
	cfg      *Router
	index    int
	machine  *flow.Machine
	arriving *life   // the call that the machine is being asked about
	lives    []*life // by ticket
	wakeAt   mono.Time
	decided  mono.Time // instant of the last decision; -1: none yet
	gate     *gate     // nil: everybody is let in

	slots   []slot      // by engine; of those that the machine does not know: none
	engines []int       // by slot
	heard   []mono.Time // by engine: when it was last reported alive
}

// slot is an endpoint's place in the machine.
type slot struct {
	at         selection.Slot // selection.None: it has none
	generation uint32
}

func (w *world) addRouter(i int) error {
	c := &w.cfg.Routers[i]
	if c.Engines == nil {
		c.Engines = make([]int, len(w.replicas))
		for e := range c.Engines {
			c.Engines[e] = e
		}
	}
	n := 0
	for _, p := range c.Machine.Pools {
		n += len(p.Endpoints)
	}
	if n != len(c.Engines) {
		return fmt.Errorf("router %d: its machine has %d endpoints and %d engines stand behind it", i, n, len(c.Engines))
	}
	if c.Scrape > 0 && len(c.Phases) != len(w.replicas) {
		return fmt.Errorf("router %d: %d phases for %d engines", i, len(c.Phases), len(w.replicas))
	}
	r := &router{
		world: w, cfg: c, index: i, wakeAt: mono.Never, decided: -1,
		slots: make([]slot, len(w.replicas)), heard: make([]mono.Time, len(w.replicas)),
	}
	r.gate = newGate(c.Limits)
	present := r.present(0)
	r.machine = flow.New(present)
	if x := c.Shadow; x != nil && !r.machine.Shadow(x.Pool, x.PolicyName, x.Policy) {
		return fmt.Errorf("router %d: its machine has no pool %q to shadow", i, x.Pool)
	}
	r.place(present, r.machine.Placement(present), 0)
	w.routers = append(w.routers, r)
	if c.Scrape > 0 {
		for _, e := range c.Engines {
			at := max(w.cfg.Engines[e].Joins, 0)
			w.queue.push(event{at: at.Add(c.Phases[e]), kind: scrapes, router: int32(i), engine: int32(e)})
		}
	}
	return nil
}

// present is the machine's configuration with the endpoints that have joined by now.
func (r *router) present(now mono.Time) flow.Config {
	c := r.cfg.Machine
	c.Pools = slices.Clone(c.Pools)
	n := 0
	for i := range c.Pools {
		p := &c.Pools[i]
		var here []flow.Endpoint
		for _, e := range p.Endpoints {
			if r.world.cfg.Engines[r.cfg.Engines[n]].Joins <= now {
				here = append(here, e)
			}
			n++
		}
		p.Endpoints = here
	}
	return c
}

// place notes which slots the endpoints have that have joined by now.
func (r *router) place(c flow.Config, placed []flow.Placed, now mono.Time) {
	for e := range r.slots {
		r.slots[e] = slot{at: selection.None}
	}
	r.engines = r.engines[:0]
	n := 0
	for _, e := range r.cfg.Engines {
		if r.world.cfg.Engines[e].Joins > now {
			continue
		}
		p := placed[n]
		n++
		r.slots[e] = slot{at: p.Slot, generation: p.Generation}
		for len(r.engines) <= int(p.Slot) {
			r.engines = append(r.engines, -1)
		}
		r.engines[p.Slot] = e
	}
}

// grow tells the machine of a replica that has joined.
func (r *router) grow(now mono.Time) {
	c := r.present(now)
	placed, actions := r.machine.Reconfigure(now, c)
	r.place(c, placed, now)
	r.do(now, actions)
}

// scrape reads an engine's gauges, and so on every interval.
func (r *router) scrape(now mono.Time, e int) {
	w := r.world
	if r.cfg.Loss == nil || !r.cfg.Loss(e, now) {
		if load, up := w.replicas[e].load(now); up {
			if r.cfg.Delay > 0 {
				w.queue.push(event{at: now.Add(r.cfg.Delay), kind: hears, router: int32(r.index), engine: int32(e), load: &load})
			} else {
				r.signal(now, e, &load)
			}
		}
	}
	if next := now.Add(r.cfg.Scrape); w.cfg.Until > 0 && next <= w.cfg.Until || w.cfg.Until == 0 && w.open > 0 {
		w.queue.push(event{at: next, kind: scrapes, router: int32(r.index), engine: int32(e)})
	}
}

func (r *router) hear(now mono.Time, e int, load *signal.Load) { r.signal(now, e, load) }

func (r *router) signal(now mono.Time, e int, load *signal.Load) {
	if s := r.slots[e]; s.at != selection.None {
		r.step(now, flow.Signal(s.at, s.generation, *load, r.cfg.Delay))
	}
}

// alive reports that an endpoint sends, as often as a gateway does.
func (r *router) alive(now mono.Time, e int) {
	if now.Sub(r.heard[e]) < flow.AliveEvery {
		return
	}
	r.heard[e] = now
	if s := r.slots[e]; s.at != selection.None {
		r.step(now, flow.Alive(s.at, s.generation))
	}
}

// step drives the machine and does what it says.
func (r *router) step(now mono.Time, e flow.Event) { r.do(now, r.machine.Step(now, e)) }

// do carries out actions. The machine's slice lives until its next Step, which an action may
// cause: those are taken off it first.
func (r *router) do(now mono.Time, actions []flow.Action) {
	if len(actions) == 0 {
		return
	}
	var few [4]flow.Action
	actions = append(few[:0], actions...)
	for _, a := range actions { // first of all: a Step that another action causes may ask for another wake-up
		if a.Kind == flow.WakeAt {
			r.wakeAt = a.At
			r.world.queue.push(event{at: a.At, kind: wakes, router: int32(r.index)})
		}
	}
	decided := false
	for _, a := range actions {
		switch a.Kind {
		case flow.WakeAt:
			continue
		case flow.Tell:
			r.tell(now)
			continue
		case flow.Ejected, flow.Returned, flow.Restarted, flow.TrustChanged, flow.Freed:
			continue // for logs; the snapshot at the end has the state
		case flow.Recall:
			r.of(a.Ticket).recall(now, a.Attempt)
			continue
		case flow.Won:
			r.of(a.Ticket).won(now, a.Attempt)
			continue
		case flow.Dispatch:
			decided = true
			r.dispatch(now, &a)
		case flow.Hold:
			decided = true
			r.know(&a)
		default:
			decided = true
			l := r.of(a.Ticket)
			l.refused(&a)
			l.end(now, l.record.Outcome)
			l.close(now)
		}
	}
	if !decided {
		return
	}
	if r.decided == now && r.world.cfg.Strict {
		r.world.err = fmt.Errorf("%w: %d ns", ErrSharedInstant, now)
	}
	r.decided = now
}

// of returns the call that a ticket names: the one that is arriving has none yet.
func (r *router) of(t flow.Ticket) *life {
	if l := r.arriving; l != nil && l.call.Request.ID == t.Call {
		return l
	}
	return r.lives[t.Index()]
}

func (r *router) wake(now mono.Time) {
	if r.wakeAt != now {
		return // a later WakeAt has replaced this one
	}
	r.wakeAt = mono.Never
	r.step(now, flow.Wake())
}

// know notes the ticket of the call that an action is about, and returns the call.
func (r *router) know(a *flow.Action) *life {
	l := r.of(a.Ticket)
	l.ticket = a.Ticket
	for len(r.lives) <= a.Ticket.Index() {
		r.lives = append(r.lives, nil)
	}
	r.lives[a.Ticket.Index()] = l
	return l
}

func (r *router) dispatch(now mono.Time, a *flow.Action) {
	if a.Decision != nil && r.world.cfg.Decided != nil {
		r.world.cfg.Decided(r.index, a.Decision)
	}
	l := r.know(a)
	l.record.Attempts++
	l.record.Held = a.Wait
	l.record.Hedged = l.record.Hedged || a.Hedge
	e := r.engines[a.Slot]
	l.record.Engine = e
	r.world.result.Sent[e]++
	r.world.replicas[e].submit(now, l.begin(a, e))
}

// drop forgets a call that is over.
func (r *router) drop(l *life) {
	if i := l.ticket.Index(); i < len(r.lives) && r.lives[i] == l {
		r.lives[i] = nil
	}
}
