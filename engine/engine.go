// Package engine is layer 4 (the inference engine), pure: one replica as vLLM's V1
// scheduler runs it. Requests are batched continuously (or, as before Orca, statically); a
// step has a token budget that running requests use first, one token a decode, and waiting
// ones afterwards, first come first served; prompts may be computed in chunks; KV blocks
// are shared by prefix and evicted least recently used first; when no block is free the
// youngest running request is preempted and computed again later. How long a step takes is
// layer 5's answer. The tokens' content does not exist here: an answer has a length.
//
// A request that fits into the blocks alone always ends: the oldest running one gets a
// token at least in every step and is never preempted.
//
// Sources: vllm-project/vllm v0.28, vllm/v1/core/{sched/scheduler,kv_cache_manager,
// block_pool}.py; vllm/lora/worker_manager.py. Left out: priorities, KV connectors, and asynchronous scheduling,
// which prepares a step while the one before it runs (its gain is in Config.Overhead).
//
// Steps in which nothing but decoding happens are not computed one by one: such a span has
// a closed form, because times are whole femtoseconds and a step's time is linear in the
// decode context. What comes out is the same to the last bit (see the differential tests).
// With speculative decoding every step is computed: how far each decode comes is drawn.
//
// The driver owns the clock. It calls Submit and Abort with the instant at which they
// happen, and Advance at Next or whenever it likes; what comes out depends on the
// commands and their instants alone, not on when Advance was called.
package engine

import (
	"fmt"
	"time"

	"kvasir/accelerator"
	"kvasir/internal/mono"
)

// Engine is one replica. It is not safe for concurrent use.
type Engine struct {
	cfg Config
	// At the pace of the latest Throttle: what a step costs, and what one that drafts does.
	cost, draftCost accelerator.Cost

	live     map[ID]*request // every request held, whatever its phase
	inbox    []command       // commands that have not taken effect, in the order in which they will
	waiting  queue
	running  queue // in the order of their admission
	admitted int64 // how many were so far
	kv       kvPool
	loads    int                      // blocks that are loaded from the host for the running step
	loadTime accelerator.Femtoseconds // of one
	spare    []*request               // ended ones, for reuse

	// Of those that run, all decode but the ones admitted to this step, and but the last,
	// which may be in the middle of its prefill: a budget that did not do for one did for
	// all before it, and every decode gets its token.
	agenda  agenda
	decodes int        // how many decode
	drafted int        // tokens that were drafted for them in this step
	lead    int64      // the sum of their known tokens, less the step's number each
	filling []*request // those that compute more than a decode's token in this step
	partial *request   // of those of the step before, the one whose prefill goes on

	lora     adapters
	passed   *request // the last of the waiting ones, from the head on, that lack a slot for their adapter …
	passedAt int64    // … when adapters had become idle so many times

	stuck      *request // the waiting request that did not fit …
	stuckGains int64    // … when so many blocks had been freed or filled

	busy     bool // a step is running
	asleep   bool
	step     int64         // steps that have ended
	span     span          // the running step and those that will follow it unchanged
	last     instant       // end of the latest step
	pause    time.Duration // between that and the running span's start
	batch    accelerator.Batch
	advanced mono.Time // latest Advance

	outputs  []Output
	gaps     []Gap
	counters Stats
	shown    Stats
}

// New returns an idle engine with an empty cache, or every mistake of the
// configuration (see Config.Validate).
func New(c Config) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: c, live: make(map[ID]*request), advanced: -1 << 63}
	e.setPace(1)
	e.kv.init(c.NumBlocks, c.BlockTokens)
	e.kv.behind(c.Host.Blocks)
	e.lora.cfg = c.LoRA
	e.loadTime = e.cfg.loadTime()
	e.publish()
	return e, nil
}

// setPace takes the costs of steps that take so many times as long as the profile says.
func (e *Engine) setPace(pace float64) {
	e.cost = e.cfg.Profile.Cost(e.cfg.Overhead, pace)
	e.draftCost = e.cfg.Profile.Cost(e.cfg.Overhead+e.cfg.Speculation.Overhead, pace)
}

// Submit hands the engine a request at the instant now, which must not be before the
// latest Advance. It takes effect in the first step that starts later than now. The
// error is a *RequestError and tells why the request was refused. Whether an id is free
// and whether there is room for another request are judged by what Advance has
// returned so far.
func (e *Engine) Submit(now mono.Time, q Request) error {
	if err := e.cfg.check(&q); err != nil {
		return err
	}
	refuse := func(err error, field string, value int64, allowed string) error {
		return &RequestError{ID: q.ID, Field: field, Value: value, Allowed: allowed, Err: err}
	}
	if now == mono.Never {
		return refuse(ErrField, "now", int64(now), "below mono.Never")
	}
	if now < e.advanced {
		return refuse(ErrPast, "now", int64(now), fmt.Sprintf("%d or later", e.advanced))
	}
	if e.live[q.ID] != nil {
		return refuse(ErrDuplicate, "requests with this id", 1, "0")
	}
	if len(e.live) >= e.cfg.MaxRequests {
		return refuse(ErrFull, "requests held", int64(len(e.live)), fmt.Sprintf("below %d", e.cfg.MaxRequests))
	}
	r := e.newRequest(q)
	e.live[q.ID] = r
	e.post(command{at: now, kind: submit, req: r})
	return nil
}

// Abort takes a request back at the instant now. Its blocks are free, and its place
// in the batch too, once the engine's time is later than now and no step runs; an
// output of the step that runs meanwhile still comes, none after that. Of several
// aborts the first counts, and one of an id that the engine does not hold does
// nothing. An instant before the latest Advance counts as that one: what was computed
// stays.
func (e *Engine) Abort(now mono.Time, id ID) {
	r := e.live[id]
	if r == nil || r.aborting {
		return
	}
	r.aborting = true
	e.post(command{at: e.stamp(now), kind: abort, req: r})
}

// Next returns the instant at which Advance has something to tell or to begin: the end of
// the running step, or of the last one of those that will follow it unchanged; or, when
// idle, the nanosecond after the first queued command. It returns false when there is
// nothing to wait for. A command may bring it forward.
func (e *Engine) Next() (mono.Time, bool) {
	if e.busy {
		return e.span.end(e.span.steps).at, true
	}
	if len(e.inbox) > 0 {
		return e.inbox[0].at + 1, true
	}
	return mono.Never, false
}

// Advance ends every step that ends at or before now and starts those that follow. It
// returns what came out, in the order of the steps and, within one, of admission; the
// slice is valid until the next call. Calling it late changes nothing but when the
// caller learns of it; an instant before the latest Advance does nothing.
func (e *Engine) Advance(now mono.Time) []Output {
	clear(e.outputs)
	e.outputs, e.gaps = e.outputs[:0], e.gaps[:0]
	e.advanced = max(e.advanced, now)
	for {
		at, ok := e.Next()
		if !ok || at > now {
			break
		}
		start := instant{at: at}
		if e.busy {
			e.endSpan()
			start = e.last
		}
		e.fold(at)
		e.startStep(start)
	}
	if e.busy {
		if n := e.span.ended(now); n > 0 {
			e.pass(n)
			e.publish()
		}
	}
	return e.outputs
}

// Gaps returns the times between outputs, over all requests, of the steps that the latest
// Advance ended; nothing where Config.EveryToken is set, because the outputs tell it then.
// The slice is valid until the next Advance.
func (e *Engine) Gaps() []Gap { return e.gaps }

// Generated returns how many tokens of its answer a request has by the latest Advance; 0 if
// the engine does not hold it.
func (e *Engine) Generated(id ID) int {
	r := e.live[id]
	if r == nil {
		return 0
	}
	return e.generated(r)
}

// Prefilled returns how many tokens of its prompt a request in the batch has had computed, those
// of the running step included and those found in a cache not; 0 if the engine does not hold it.
func (e *Engine) Prefilled(id ID) int {
	r := e.live[id]
	switch {
	case r == nil:
		return 0
	case r.phase == decoding:
		return r.PromptTokens - r.cached
	case r.phase == filling:
		return max(min(r.computed, r.PromptTokens)-r.cached, 0)
	default:
		return 0
	}
}
