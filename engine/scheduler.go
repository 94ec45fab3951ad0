package engine

import (
	"slices"

	"kvasir/accelerator"
	"kvasir/internal/mono"
)

// startStep fills a batch at the instant and starts computing it. When there is
// nothing to compute the engine becomes idle.
func (e *Engine) startStep(at mono.Time) {
	e.batch = accelerator.Batch{Prefills: e.batch.Prefills[:0]}
	if e.asleep {
		e.publish()
		return
	}
	budget, preempted := e.continueRunning(e.cfg.MaxBatchedTokens)
	if !preempted {
		// In a step that had to take blocks away none are given to anyone else.
		e.admit(at, budget)
	}
	if e.batch.Tokens == 0 {
		e.publish()
		return
	}
	d := e.cfg.Profile.Step(e.batch) + e.cfg.Overhead
	e.busy, e.end = true, at.Add(e.stretch(d))
}

// continueRunning gives the running requests their tokens, oldest first: what is
// missing of their KV, which is one token for a decode. It returns what is left of the
// budget and whether a request had to be preempted.
func (e *Engine) continueRunning(budget int) (left int, preempted bool) {
	for i := 0; i < len(e.running) && budget > 0; i++ {
		r := e.running[i]
		n := min(r.missing(), budget)
		for !e.kv.extend(r, r.computed+n) {
			victim := e.running[len(e.running)-1]
			e.preempt(victim)
			preempted = true
			if victim == r {
				return budget, preempted
			}
		}
		e.schedule(r, n)
		budget -= n
	}
	return budget, preempted
}

// admit moves waiting requests into the batch, first come first served, while budget,
// places and blocks allow. The head that does not fit blocks those behind it.
func (e *Engine) admit(at mono.Time, budget int) {
	for budget > 0 && len(e.running) < e.cfg.MaxSeqs && e.waiting.head != nil {
		r := e.waiting.head
		var hits []blockID
		if e.cfg.PrefixCaching {
			hits = e.kv.lookup(r)
		}
		cached := len(hits) * e.cfg.BlockTokens
		n := r.known() - cached
		if n > budget {
			switch {
			case e.cfg.ChunkedPrefill:
				n = budget
			case n > e.cfg.MaxBatchedTokens && len(e.batch.Prefills) == 0:
				// It fits no step's budget: the only prefill of this one.
			default:
				return
			}
		}
		if !e.kv.admit(r, hits, n) {
			return
		}
		e.waiting.remove(r)
		r.phase = running
		e.running = append(e.running, r)
		e.begin(at, r, cached)
		e.schedule(r, n)
		budget -= n
	}
}

// begin notes when a request is first scheduled and counts its prefix lookup; computing
// it again after a preemption is no lookup of the client's.
func (e *Engine) begin(at mono.Time, r *request, hit int) {
	if r.started {
		return
	}
	r.started, r.first = true, at
	r.cached = hit
	if e.cfg.PrefixCaching {
		e.counters.PrefixQueries += int64(r.PromptTokens)
		e.counters.PrefixHits += int64(hit)
	}
}

// schedule puts n tokens of r into the batch. The blocks that these fill can be found
// by others from here on, those admitted to the same step included: a layer writes the
// keys and values of the whole batch before any of it attends to them.
func (e *Engine) schedule(r *request, n int) {
	if r.generated > 0 && r.missing() == 1 {
		e.batch.Decodes++
		e.batch.DecodeContext += int64(r.known())
	} else {
		e.batch.Prefills = append(e.batch.Prefills, accelerator.Prefill{Chunk: n, Context: r.computed})
	}
	e.batch.Tokens += n
	r.scheduled = n
	r.computed += n
	if e.cfg.PrefixCaching {
		e.kv.offer(r)
	}
}

// preempt takes the youngest running request out of the batch: its blocks are freed,
// and it is computed again, its answer so far included, from the head of the queue.
func (e *Engine) preempt(r *request) {
	e.running = e.running[:len(e.running)-1]
	e.kv.release(r)
	r.phase, r.computed = waiting, 0
	e.waiting.pushFront(r)
	e.counters.Preemptions++
}

// endStep makes the outputs of the running step. A request whose known tokens are all
// computed has one more answer token; others are in the middle of their prefill.
func (e *Engine) endStep() {
	e.busy = false
	e.counters.Steps++
	kept := e.running[:0]
	for _, r := range e.running {
		worked := r.scheduled > 0
		r.scheduled = 0
		if !worked || r.missing() > 0 {
			kept = append(kept, r)
			continue
		}
		if e.emit(r) {
			e.finish(r, r.Reason)
		} else {
			kept = append(kept, r)
		}
	}
	clear(e.running[len(kept):])
	e.running = kept
	e.publish()
}

// emit appends the request's output of the step that ends and tells whether it is the
// last one.
func (e *Engine) emit(r *request) (finished bool) {
	o := Output{ID: r.ID, At: e.end, First: r.generated == 0, Cached: r.cached, Queued: r.queued, Scheduled: r.first}
	if o.First {
		e.counters.PromptTokens += int64(r.PromptTokens)
	}
	if r.OutputTokens > 0 {
		o.Tokens = 1
		r.generated++
		e.counters.GenerationTokens++
	}
	if o.Finished = r.generated == r.OutputTokens; o.Finished {
		o.Reason = r.Reason
	}
	e.outputs = append(e.outputs, o)
	return o.Finished
}

// finish ends a request that is in no list any more.
func (e *Engine) finish(r *request, why FinishReason) {
	e.kv.release(r)
	e.counters.Finished[why]++
	delete(e.live, r.ID)
	r.phase = ended
	if why == Abort || !r.aborting {
		e.recycle(r)
	} // else the queued abort still points to it; see drop
}

// drop lets an abort take effect.
func (e *Engine) drop(r *request) {
	switch r.phase {
	case ended: // by itself, after the abort was queued
		e.recycle(r)
		return
	case waiting:
		e.waiting.remove(r)
	case running:
		i := slices.Index(e.running, r)
		e.running = slices.Delete(e.running, i, i+1)
	case queued: // an abort sorts behind its own submit
		panic("engine: abort before submit")
	}
	e.finish(r, Abort)
}

// newRequest returns an object for the request, a used one if there is one.
func (e *Engine) newRequest(q Request) *request {
	r := new(request)
	if n := len(e.spare); n > 0 {
		r, e.spare[n-1] = e.spare[n-1], nil
		e.spare = e.spare[:n-1]
	}
	r.reset(q)
	return r
}

// recycle keeps an ended request's object for the next one, without the caller's
// slices. As many are kept as can run at once.
func (e *Engine) recycle(r *request) {
	if len(e.spare) < e.cfg.MaxSeqs {
		r.reset(Request{})
		e.spare = append(e.spare, r)
	}
}
