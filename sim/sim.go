// Package sim is pure and stands over all layers: routers, engines and clients on a
// virtual clock. It drives gateway/flow, the machine that the live gateway drives, and
// engine, the model that the live emulator drives; it has no rule of its own.
//
// A run is deterministic: the same configuration and workload give the same result,
// byte for byte. What happens at one instant happens in a fixed order: by rank, then in
// the order in which it was planned. Memory is bounded by the calls in flight, not by the
// workload.
package sim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/limit"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// Config is what is simulated. What it points to is the run's until that has ended.
type Config struct {
	Routers []Router
	Engines []Engine
	Feed    Feed      // the calls
	Until   mono.Time // scrapes stop here, or once there are no calls any more; 0: then

	// Ended, where set, hears of every call once it is over, in the order of their ends. The
	// record is valid during the call only.
	Ended func(*Record)

	// Decided, where set, hears of every decision of a machine that explains.
	Decided func(router int, d *selection.Decision)

	// Gaps, where set, hears of the times between outputs of requests that decode, as engines
	// tell them that do not tell every token (engine.Config); now is when the last of them
	// was over, or a moment after.
	Gaps func(e int, now mono.Time, g engine.Gap)

	// Sampled, where set, hears every Sample what each engine reports, while there are calls.
	Sampled func(e int, now mono.Time, s *engine.Stats)
	// Watched, where set, hears every Sample what each router knows, while there are calls.
	Watched func(router int, s *flow.Snapshot)
	Sample  time.Duration // default 1 s; at most flow.AliveEvery

	// Stopped, where set, is asked now and then whether to give up; the run then ends with
	// ErrStopped.
	Stopped func() bool

	// Strict refuses a run in which two decisions of one router share an instant, because a
	// live run would decide their order by chance.
	Strict bool
}

// Router is one gateway: its machine, and when it scrapes which engine.
type Router struct {
	Machine flow.Config
	Engines []int                                // of Config.Engines, by the order of the machine's endpoints over all pools; nil: all, in order
	Scrape  time.Duration                        // between two scrapes of an engine; 0: none
	Phases  []time.Duration                      // of the first scrape, by engine
	Delay   time.Duration                        // from the reading of a gauge until the router has it
	Loss    func(engine int, now mono.Time) bool // whether a scrape is lost; nil: none is

	Shadow *Shadow // nil: none
	Limits *Limits // what is let in; nil: everything

	// Of what other routers tell, where their machines do (flow.Sharing).
	PeerDelay time.Duration                      // until this one has it
	PeerLoss  func(peer int, now mono.Time) bool // whether this one does not get it; nil: it does
}

// Shadow is a policy that ranks a pool's calls beside the one that places them; see
// flow.Machine.Shadow.
type Shadow struct {
	Pool, PolicyName string
	Policy           selection.Policy
}

// Engine is one replica and what happens to it.
type Engine struct {
	Config engine.Config
	Down   []Outage // in the order of their instants, not overlapping
	Pace   []Pace   // in the order of their instants
	Faults []Fault  // answers that are failures

	// Joins is when the replica is ready and routers learn of it, its cache cold; 0: it is
	// there from the start.
	Joins mono.Time
}

// Outage is a time in which an engine is gone. It comes back empty.
type Outage struct{ From, To mono.Time }

// Pace makes the steps that start later than At take Factor times their time.
type Pace struct {
	At     mono.Time
	Factor float64
}

// Feed gives a run its calls, one after the other.
type Feed interface {
	// Next fills c with the next call that comes by itself, in the order of their instants,
	// and reports false when there is none. The run asks once the call before has come, so
	// that one is held at a time. c is empty but for the memory of its slices.
	Next(c *Call) bool

	// Ended hears that a call is over; follow adds one that comes because of it, no earlier
	// than now. What it returns is for Ended to fill.
	Ended(now mono.Time, r *Record, follow func() *Call)
}

// Call is one call of a workload.
type Call struct {
	At      mono.Time
	Router  int
	Request selection.Request // ID must be unique
	Prompt  engine.Request    // ID is filled in by the simulator
	LeaveAt mono.Time         // the client leaves then, unless the call has ended; 0: it stays
	TiresAt mono.Time         // likewise, unless its first content has come
	Since   mono.Time         // when its client first wanted it, of a call that is sent again; 0: At
	Tag     any               // the feed's own
}

// Record is what became of a call.
type Record struct {
	Call     selection.CallID
	At       mono.Time
	Since    mono.Time // when the first of its client's tries came; 0: this is the first
	Again    bool      // set by the feed: the client tries again, and what comes of that is what counts
	First    mono.Time // first content at the client; 0: none
	End      mono.Time
	Attempts int
	Held     time.Duration   // behind its conversation's other calls, and in the router's queue until the last attempt
	Engine   int             // of the last attempt; -1: none
	Outcome  attempt.Outcome // of the last attempt; meaningless when Refused
	Later    time.Duration   // Retry-After, where the call was refused; 0: none
	Refused  flow.Reason     // why the machine refused the call or gave it up; flow.NoReason: it did not
	Limited  limit.Limit     // which limit refused it; limit.NoLimit: none did
	Prompt   int             // prompt tokens
	Tokens   int             // answer tokens
	Cached   int             // prompt tokens found in the prefix cache by the last attempt
	Hedged   bool            // a second attempt ran beside another one
	Wasted   int             // prompt tokens that engines computed for attempts that were beaten
	Tag      any             // the call's
}

// Wanted returns when the client first asked for what the call is to bring.
func (r *Record) Wanted() mono.Time {
	if r.Since > 0 {
		return r.Since
	}
	return r.At
}

// Succeeded reports whether the client got the whole answer.
func (r *Record) Succeeded() bool { return r.Unfinished() == "" }

// Unfinished says in a word why the client did not get the whole answer; "": it did.
func (r *Record) Unfinished() string {
	switch {
	case r.Limited != limit.NoLimit:
		return "limit_" + r.Limited.String()
	case r.Refused != flow.NoReason:
		return r.Refused.String()
	case r.Outcome != attempt.Success:
		return r.Outcome.String()
	}
	return ""
}

// Final reports whether the gateway says that another try now would be of no use: a client that
// heeds x-should-retry makes none.
func (r *Record) Final() bool { return r.Refused.Final(r.Attempts) }

// Result is what a run leaves beside what its configuration's functions have heard.
type Result struct {
	Final  []flow.Snapshot // by router, after the last event
	Used   [][]limit.State // of its limits, likewise; nil: it has none
	Stats  []engine.Stats  // by engine, likewise; of those that are down, of their last moment
	Sent   []int           // attempts by engine
	Waited []int           // by engine: the most calls that waited in it at the end of a step
	Usage  float64         // mean share of KV blocks in use, over engines that are up and samples
	Events int             // that were handled
	End    mono.Time       // of the last event
}

// ErrSharedInstant is returned by a strict run of a workload in which two decisions share
// an instant.
var ErrSharedInstant = errors.New("two decisions of one router share an instant")

// ErrStopped is returned by a run that was told to give up.
var ErrStopped = errors.New("stopped")

// askEvery is after how many events a run asks whether to give up.
const askEvery = 1 << 12

// world is a run.
type world struct {
	cfg      Config
	queue    queue
	routers  []*router
	replicas []*replica
	coming   *life // whose arrival is planned and came from Feed.Next
	open     int   // calls that will come or have not ended
	usage    struct {
		sum float64
		n   int
	}
	spare  []*life // for reuse
	result Result
	err    error
}

// Run simulates the configuration to the end of its last call.
func Run(cfg Config) (*Result, error) {
	w := &world{cfg: cfg}
	if w.cfg.Sample == 0 {
		w.cfg.Sample = time.Second
	}
	if w.cfg.Sample < 0 || w.cfg.Sample > flow.AliveEvery {
		return nil, fmt.Errorf("sample is %v; allowed: above 0, at most %v", w.cfg.Sample, flow.AliveEvery)
	}
	w.result.Sent = make([]int, len(cfg.Engines))
	w.result.Waited = make([]int, len(cfg.Engines))
	for i := range cfg.Engines {
		if err := w.addReplica(i); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Routers {
		if err := w.addRouter(i); err != nil {
			return nil, err
		}
	}
	w.invite()
	now := mono.Time(math.MinInt64)
	for w.err == nil && len(w.queue.events) > 0 {
		e := w.queue.pop()
		if e.at < now {
			return nil, fmt.Errorf("an event of %d ns was made at %d ns: effect before cause", e.at, now)
		}
		now = e.at
		if w.result.Events++; w.result.Events%askEvery == 0 && cfg.Stopped != nil && cfg.Stopped() {
			return nil, ErrStopped
		}
		w.handle(&e)
	}
	if w.err != nil {
		return nil, w.err
	}
	w.result.End = now
	w.result.Usage = w.usage.sum / float64(w.usage.n)
	for _, r := range w.routers {
		w.result.Final = append(w.result.Final, r.machine.Snapshot(mono.Never-1))
		var used []limit.State
		if r.gate != nil {
			used = r.gate.book.States(now)
		}
		w.result.Used = append(w.result.Used, used)
	}
	for _, p := range w.replicas {
		w.result.Stats = append(w.result.Stats, p.stats())
	}
	return &w.result, nil
}

// invite plans the arrival of the feed's next call.
func (w *world) invite() {
	l := w.newLife()
	if !w.cfg.Feed.Next(&l.call) {
		w.coming = nil
		w.recycle(l)
		return
	}
	w.coming = l
	w.expect(l)
}

// follow plans the arrival of a call that another one's end brings.
func (w *world) follow(now mono.Time, r *Record) {
	var more []*life
	w.cfg.Feed.Ended(now, r, func() *Call {
		l := w.newLife()
		more = append(more, l)
		return &l.call
	})
	for _, l := range more {
		if l.call.At < now {
			w.err = fmt.Errorf("call %d follows one that ended at %d ns and comes at %d ns: effect before cause", l.call.Request.ID, now, l.call.At)
			return
		}
		w.expect(l)
	}
}

// expect plans a call's arrival.
func (w *world) expect(l *life) {
	c := &l.call
	if c.Router < 0 || c.Router >= len(w.routers) {
		w.err = fmt.Errorf("call %d: router is %d; allowed: 0 to %d", c.Request.ID, c.Router, len(w.routers)-1)
		return
	}
	w.open++
	l.router = w.routers[c.Router]
	l.record = Record{Call: c.Request.ID, At: c.At, Since: c.Since, Engine: -1, Prompt: c.Prompt.PromptTokens, Tag: c.Tag}
	w.queue.push(event{at: c.At, kind: arrives, life: l, serial: l.serial})
	if c.LeaveAt > 0 {
		w.queue.push(event{at: c.LeaveAt, kind: leaves, life: l, serial: l.serial})
	}
	if c.TiresAt > 0 {
		w.queue.push(event{at: c.TiresAt, kind: despairs, life: l, serial: l.serial})
	}
}
