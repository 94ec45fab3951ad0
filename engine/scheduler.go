package engine

import "kvasir/accelerator"

// startStep fills a batch at the instant and starts computing it. When there is
// nothing to compute the engine becomes idle.
func (e *Engine) startStep(start instant) {
	e.batch = accelerator.Batch{Prefills: e.batch.Prefills[:0]}
	e.loads, e.lora.fromHost, e.lora.fromDisk = 0, 0, 0
	clear(e.filling)
	e.filling = e.filling[:0]
	if e.asleep {
		e.publish()
		return
	}
	// In a step that has to take blocks away none are given to anyone else.
	settled := e.grow()
	e.batch.Decodes, e.batch.Tokens = e.decodes, e.decodes+e.drafted
	e.batch.DecodeContext = e.lead + int64(e.decodes)*e.step + int64(e.drafted)
	if settled && e.partial != nil {
		settled = e.resume(e.partial)
	}
	if settled {
		e.admit(start)
	}
	if e.batch.Tokens == 0 {
		e.publish()
		return
	}
	e.busy = true
	cost := &e.cost
	if e.drafted > 0 {
		cost = &e.draftCost
	}
	length := e.lora.loading(cost.Step(e.batch).Plus(e.loadTime, int64(e.loads)))
	e.span = span{start: start, first: length, growth: cost.Growth(e.decodes), steps: 1}
	e.pause = 0
	if e.decodes > 0 {
		e.pause = start.at.Sub(e.last.at)
	}
	if settled && len(e.filling) == 0 && !e.cfg.EveryToken && !e.speculates() {
		e.prolong()
	}
}

// prolong lets the running span go on while nothing changes: until a decode needs
// something or ends, or a command comes. A waiting request that has no room or no slot now
// has none before that.
func (e *Engine) prolong() {
	// What is due when a step starts ends the span before it, else the span ends with it.
	steps := min((e.agenda[0].due+1)/2-e.step, maxSpan)
	if e.span.fits(steps) {
		e.span.steps = steps
		e.cut()
	}
}

// grow gives the decodes that need a block in this step theirs, oldest first, and offers
// the blocks that it fills to the prefix cache. It reports false when a request had to be
// preempted.
func (e *Engine) grow() bool {
	if e.speculates() {
		return e.draft()
	}
	settled := true
	for r := e.agenda.due(atStart(e.step)); r != nil; r = e.agenda.due(atStart(e.step)) {
		preempted, in := e.lengthen(r, 0)
		settled = settled && !preempted
		if in {
			e.await(r)
		}
	}
	return settled
}

// lengthen gives a decode the blocks that it lacks for its known tokens and so many drafted
// ones, and offers those that the known ones fill to the prefix cache. Where no block is
// free the youngest running requests are preempted; in tells whether this one was not
// among them.
func (e *Engine) lengthen(r *request, drafted int) (preempted, in bool) {
	known := int(r.lead + e.step)
	for !e.kv.extend(r, known+drafted) {
		victim := e.running.tail
		e.preempt(victim)
		preempted = true
		if victim == r {
			return true, false
		}
	}
	if e.cfg.PrefixCaching {
		e.kv.offer(r, known)
	}
	return preempted, true
}

// await enters into the agenda when a decoding request next needs attention. With
// speculative decoding each does in every step, and nothing is in the agenda.
func (e *Engine) await(r *request) {
	if e.speculates() {
		return
	}
	full := len(r.blocks) * e.cfg.BlockTokens // a token more needs a block
	start := int64(full) + 1 - r.lead
	if _, ok := r.hash(r.hashed); ok && e.cfg.PrefixCaching {
		start = min(start, int64((r.hashed+1)*e.cfg.BlockTokens)-r.lead)
	}
	end := int64(r.PromptTokens+r.OutputTokens) - r.lead - 1
	r.due = min(atStart(start), atEnd(end))
	e.agenda.put(r)
}

// resume continues the prefill that the step before left off. It reports false when there
// are too few blocks: the request is then preempted.
func (e *Engine) resume(r *request) bool {
	n := min(r.missing(), e.cfg.MaxBatchedTokens-e.batch.Tokens)
	if !e.kv.extend(r, r.computed+n) {
		e.preempt(r)
		return false
	}
	e.schedule(r, n)
	return true
}

// admit moves waiting requests into the batch, first come first served, while budget,
// places and blocks allow. One that lacks a slot for its adapter is passed over; the first
// other that does not fit blocks those behind it.
func (e *Engine) admit(start instant) {
	if e.cfg.Batching == Static && e.running.n > 0 {
		return
	}
	budget := e.cfg.MaxBatchedTokens - e.batch.Tokens
	for budget > 0 && e.running.n < e.cfg.MaxSeqs {
		r := e.eligible()
		if r == nil || r == e.stuck && e.kv.gains == e.stuckGains {
			return
		}
		var hits []blockID
		loads := 0
		if e.cfg.PrefixCaching {
			hits = e.kv.lookup(r)
			loads = e.kv.loadable(r, len(hits))
		}
		n := r.known() - (len(hits)+loads)*e.cfg.BlockTokens
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
		if !e.kv.admit(r, hits, loads, n) {
			e.stuck, e.stuckGains = r, e.kv.gains
			return
		}
		e.waiting.remove(r)
		e.running.pushBack(r)
		e.lora.run(r.Adapter)
		r.phase, r.order = filling, e.admitted
		e.admitted++
		e.loads += loads
		e.begin(start, r, len(hits), loads)
		e.schedule(r, n)
		budget -= n
	}
}

// begin notes when a request is first scheduled and counts its prefix lookup; computing
// it again after a preemption is no lookup of the client's.
func (e *Engine) begin(start instant, r *request, hits, loads int) {
	if r.started {
		return
	}
	r.started, r.first = true, start.at
	r.cached = (hits + loads) * e.cfg.BlockTokens
	if e.cfg.PrefixCaching {
		e.counters.PrefixQueries += int64(r.PromptTokens)
		e.counters.PrefixHits += int64(hits * e.cfg.BlockTokens)
		e.counters.HostHits += int64(loads * e.cfg.BlockTokens)
	}
}

// schedule puts n missing tokens of r into the batch. The blocks that these fill can be
// found by others from here on, those admitted to the same step included: a layer writes
// the keys and values of the whole batch before any of it attends to them.
func (e *Engine) schedule(r *request, n int) {
	if r.generated > 0 && r.missing() == 1 {
		e.batch.Decodes++
		e.batch.DecodeContext += int64(r.known())
	} else {
		e.batch.Prefills = append(e.batch.Prefills, accelerator.Prefill{Chunk: n, Context: r.computed})
	}
	e.batch.Tokens += n
	r.computed += n
	e.filling = append(e.filling, r)
	if e.cfg.PrefixCaching {
		e.kv.offer(r, r.computed)
	}
}

// preempt takes the youngest running request out of the batch: its blocks are freed,
// and it is computed again, its answer so far included, from the head of the queue.
func (e *Engine) preempt(r *request) {
	if r.phase == decoding {
		r.last = e.last.at
	}
	e.leave(r)
	e.kv.release(r)
	r.phase, r.computed = waiting, 0
	e.waiting.pushFront(r)
	e.passed = nil
	e.lora.count(r.Adapter, 0, 1)
	e.counters.Preemptions++
}

// join makes a request decode from the next step on.
func (e *Engine) join(r *request) {
	r.phase = decoding
	r.lead = int64(r.known()) - e.step
	e.decodes++
	e.lead += r.lead
	e.await(r)
}

// leave takes a request out of the running ones.
func (e *Engine) leave(r *request) {
	e.running.remove(r)
	e.lora.stop(r.Adapter)
	if r == e.partial {
		e.partial = nil
	}
	if r.phase == decoding {
		r.generated = e.generated(r)
		e.decodes--
		e.lead -= r.lead
		e.drafted -= r.drafted
		r.drafted = 0
		if r.place > 0 {
			e.agenda.remove(r)
		}
	}
}

// generated returns the tokens of the request's answer so far.
func (e *Engine) generated(r *request) int {
	if r.phase == decoding {
		return int(r.lead+e.step) - r.PromptTokens
	}
	return r.generated
}
