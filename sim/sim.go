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
	"container/heap"
	"errors"
	"fmt"
	"math"
	"time"

	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/internal/mono"
	"kvasir/selection"
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
	now := mono.Time(math.MinInt64)
	for w.queue.Len() > 0 && w.err == nil {
		e := heap.Pop(&w.queue).(event)
		if e.at < now {
			return nil, fmt.Errorf("an event of %d ns was made at %d ns: effect before cause", e.at, now)
		}
		now = e.at
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
