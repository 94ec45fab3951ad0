// Package sim is pure and stands over all layers: routers, engines and clients on a
// virtual clock. It drives gateway/flow, the machine that the live gateway drives, and
// engine, the model that the live emulator drives; it has no rule of its own.
//
// A run is deterministic: the same configuration and workload give the same result,
// byte for byte. What happens at one instant happens in a fixed order (see rank), and a
// workload in which two decisions of one router share an instant is refused, because a
// live run would decide their order by chance.
package sim

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// Config is what is simulated.
type Config struct {
	Routers []Router
	Engines []Engine // by slot of every router's machine
	Calls   []Call
	Until   mono.Time // scrapes stop here; calls in flight run to their end
}

// Router is one gateway: its machine, and when it scrapes which engine.
type Router struct {
	Machine flow.Config
	Scrape  time.Duration   // between two scrapes of an engine; 0: none
	Phases  []time.Duration // of the first scrape, by slot
}

// Engine is one replica and what happens to it.
type Engine struct {
	Config engine.Config
	Down   []Outage // in the order of their instants, not overlapping
}

// Outage is a time in which an engine is gone. It comes back empty.
type Outage struct{ From, To mono.Time }

// Call is one call of the workload.
type Call struct {
	At      mono.Time
	Router  int
	Request selection.Request // ID must be unique
	Prompt  engine.Request    // ID is filled in by the simulator
	LeaveAt mono.Time         // the client leaves then, unless the call has ended; 0: it stays
}

// Record is what became of a call.
type Record struct {
	Call     selection.CallID
	At       mono.Time
	First    mono.Time // first content at the client; 0: none
	End      mono.Time
	Attempts int
	Outcome  attempt.Outcome // of the last attempt; meaningless when Refused
	Refused  flow.Reason     // why the machine refused the call or gave it up; flow.NoReason: it did not
	Tokens   int             // answer tokens
	Cached   int             // prompt tokens found in the prefix cache by the last attempt
}

// Result is a run's outcome.
type Result struct {
	Records   []Record             // in the order of Config.Calls
	Decisions []selection.Decision // in the order in which they were made; where machines explain
	Final     []flow.Snapshot      // by router, after the last event
	Steps     int                  // events handled
}

// ErrSharedInstant is returned for a workload in which two decisions share an instant.
var ErrSharedInstant = errors.New("two decisions of one router share an instant")

// rank orders what happens at one instant: what engines finish comes first, then what
// happens to engines, then what clients and routers do.
type rank uint8

const (
	rankEngine rank = iota
	rankOutage
	rankScrape
	rankArrival
	rankLeave
	rankWake
)

// event is something that will happen. handle returns the events that follow from it.
type event struct {
	at       mono.Time
	rank     rank
	sequence int
	handle   func(now mono.Time) []event
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	a, b := &q[i], &q[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank), cmp.Compare(a.sequence, b.sequence)) < 0
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

// world is a run.
type world struct {
	cfg      Config
	queue    eventQueue
	sequence int
	routers  []*router
	replicas []*replica
	result   Result
	err      error
}

// Run simulates the configuration to the end of its last call.
func Run(cfg Config) (*Result, error) {
	w := &world{cfg: cfg}
	for i := range cfg.Engines {
		if err := w.addReplica(i); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Routers {
		w.addRouter(i)
	}
	seen := map[selection.CallID]bool{}
	w.result.Records = make([]Record, len(cfg.Calls))
	for i := range cfg.Calls {
		c := &cfg.Calls[i]
		if seen[c.Request.ID] {
			return nil, fmt.Errorf("call %d: id %d is used twice", i, c.Request.ID)
		}
		if c.Router < 0 || c.Router >= len(w.routers) {
			return nil, fmt.Errorf("call %d: router is %d; allowed: 0 to %d", i, c.Router, len(w.routers)-1)
		}
		seen[c.Request.ID] = true
		w.addCall(i)
	}
	for w.queue.Len() > 0 && w.err == nil {
		e := heap.Pop(&w.queue).(event)
		w.result.Steps++
		w.schedule(e.handle(e.at)...)
	}
	if w.err != nil {
		return nil, w.err
	}
	for _, r := range w.routers {
		w.result.Final = append(w.result.Final, r.machine.Snapshot(mono.Never-1))
	}
	return &w.result, nil
}

func (w *world) schedule(events ...event) {
	for _, e := range events {
		e.sequence = w.sequence
		w.sequence++
		heap.Push(&w.queue, e)
	}
}

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

// output is what an engine's step brought for the call.
func (l *life) output(now mono.Time, out engine.Output) []event {
	l.record.Tokens += out.Tokens
	var events []event
	// An answer that is not streamed is content only once it is whole.
	if !l.started && (l.call.Request.Stream || out.Finished) {
		l.started = true
		l.record.First, l.record.Cached = now, out.Cached
		events = l.router.step(now, flow.FirstToken(l.ticket, l.attempt))
	}
	if !out.Finished {
		return events
	}
	l.end(now, attempt.Success)
	p := &l.call.Prompt
	u := flow.Usage{Known: true, Prompt: p.PromptTokens, Cached: out.Cached, Output: p.OutputTokens}
	return append(events, l.router.step(now, flow.Done(l.ticket, l.attempt, attempt.Success, u))...)
}

// router is one machine and its wake-up.
type router struct {
	world   *world
	machine *flow.Machine
	lives   map[selection.CallID]*life
	wakeAt  mono.Time
	decided mono.Time // instant of the last decision; -1: none yet
}

func (w *world) addRouter(i int) {
	c := &w.cfg.Routers[i]
	r := &router{world: w, machine: flow.New(c.Machine), lives: map[selection.CallID]*life{}, wakeAt: mono.Never, decided: -1}
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
		case flow.Ejected, flow.Returned:
			continue // for logs; the snapshot at the end has the state
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

// replica is one engine that lives and dies.
type replica struct {
	world *world
	cfg   *Engine
	eng   *engine.Engine // nil while it is down
	lives map[engine.ID]*life
	next  mono.Time // of the scheduled Advance
}

func (w *world) addReplica(i int) error {
	p := &replica{world: w, cfg: &w.cfg.Engines[i], next: mono.Never, lives: map[engine.ID]*life{}}
	w.replicas = append(w.replicas, p)
	for _, o := range p.cfg.Down {
		w.schedule(
			event{at: o.From, rank: rankOutage, handle: p.die},
			event{at: o.To, rank: rankOutage, handle: p.start},
		)
	}
	var err error
	if p.eng, err = engine.New(p.cfg.Config); err != nil {
		return fmt.Errorf("engine %d: %w", i, err)
	}
	return nil
}

func (p *replica) start(mono.Time) []event {
	// The configuration was accepted when the replica was added.
	p.eng, p.world.err = engine.New(p.cfg.Config)
	return nil
}

// die breaks every call that the engine worked on, in the order of their ids.
func (p *replica) die(now mono.Time) []event {
	p.eng, p.next = nil, mono.Never
	lost := make([]*life, 0, len(p.lives))
	for _, l := range p.lives {
		lost = append(lost, l)
	}
	slices.SortFunc(lost, func(a, b *life) int { return cmp.Compare(a.call.Request.ID, b.call.Request.ID) })
	clear(p.lives)
	var events []event
	for _, l := range lost {
		events = append(events, l.fail(now, attempt.Broken)...)
	}
	return events
}

// engineID names an attempt at an engine. A call never comes twice to one engine while
// its first visit lasts.
func engineID(l *life) engine.ID {
	return engine.ID(strconv.FormatUint(uint64(l.call.Request.ID), 10))
}

func (p *replica) submit(now mono.Time, l *life) []event {
	if p.eng == nil {
		return l.fail(now, attempt.ConnectFailed)
	}
	q := l.call.Prompt
	q.ID = engineID(l)
	if err := p.eng.Submit(now, q); err != nil {
		return l.fail(now, attempt.CallerFault)
	}
	p.lives[q.ID] = l
	return p.plan()
}

func (p *replica) abort(now mono.Time, l *life) []event {
	id := engineID(l)
	if p.lives[id] != l {
		return nil
	}
	delete(p.lives, id)
	p.eng.Abort(now, id)
	return p.plan()
}

// plan schedules the engine's next step end.
func (p *replica) plan() []event {
	at, ok := p.eng.Next()
	if !ok || at == p.next {
		return nil
	}
	p.next = at
	return []event{{at: at, rank: rankEngine, handle: func(now mono.Time) []event {
		if p.next != now {
			return nil // the engine died meanwhile, or has something to do before
		}
		p.next = mono.Never
		return append(p.advance(now), p.plan()...)
	}}}
}

func (p *replica) advance(now mono.Time) []event {
	var events []event
	for _, out := range slices.Clone(p.eng.Advance(now)) {
		l := p.lives[out.ID]
		if l == nil {
			continue // its client left; the running step still counted it
		}
		if out.Finished {
			delete(p.lives, out.ID)
		}
		events = append(events, l.output(now, out)...)
	}
	return events
}

// load is what a scrape at now reads.
func (p *replica) load(now mono.Time) (signal.Load, bool) {
	if p.eng == nil {
		return signal.Load{}, false
	}
	s := p.eng.Stats()
	c := &p.cfg.Config
	return signal.Load{
		Running:       signal.Known(float64(s.Running), now),
		Waiting:       signal.Known(float64(s.Waiting), now),
		KVUsage:       signal.Known(s.KVUsage, now),
		KVBlocks:      signal.Known(float64(c.NumBlocks), now),
		BlockTokens:   signal.Known(float64(c.BlockTokens), now),
		PrefixQueries: signal.Known(float64(s.PrefixQueries), now),
		PrefixHits:    signal.Known(float64(s.PrefixHits), now),
	}, true
}
