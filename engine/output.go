package engine

// pass counts the first steps of the running span as ended.
func (e *Engine) pass(steps int64) {
	if e.decodes > 0 && !e.cfg.EveryToken {
		e.gap(steps)
	}
	e.step += steps
	e.counters.Steps += steps
	e.counters.GenerationTokens += steps * int64(e.decodes)
	e.last = e.span.end(steps)
	e.span.drop(steps)
	e.pause = 0
}

// gap notes the times between the decodes' outputs of the span's first steps.
func (e *Engine) gap(steps int64) {
	from := int64(0)
	if e.pause > 0 { // the engine slept before the first of them
		d := e.span.length(0).Duration() + e.pause
		e.gaps = append(e.gaps, Gap{First: d, Last: d, Steps: 1, Sequences: int64(e.decodes)})
		from = 1
	}
	if steps > from {
		first, last := e.span.length(from).Duration(), e.span.length(steps-1).Duration()
		e.gaps = append(e.gaps, Gap{First: first, Last: last, Steps: steps - from, Sequences: int64(e.decodes)})
	}
}

// endSpan ends the running span and makes the outputs of its last step: those of decodes,
// and a token more of every request whose known tokens are then all computed; others are
// in the middle of their prefill.
func (e *Engine) endSpan() {
	e.pass(e.span.steps)
	e.busy = false
	if e.cfg.EveryToken || e.speculates() {
		var next *request
		for r := e.running.head; r != nil && r.phase == decoding; r = next {
			next = r.next
			e.verify(r)
			e.settle(r, false)
		}
	} else {
		for r := e.agenda.due(atEnd(e.step - 1)); r != nil; r = e.agenda.due(atEnd(e.step - 1)) {
			e.settle(r, false)
		}
	}
	e.partial = nil
	for _, r := range e.filling {
		if r.missing() > 0 {
			e.partial = r // the last of them
			continue
		}
		first := r.generated == 0
		if first {
			e.counters.PromptTokens += int64(r.PromptTokens)
		} else if !e.cfg.EveryToken {
			d := e.last.at.Sub(r.last)
			e.gaps = append(e.gaps, Gap{First: d, Last: d, Steps: 1, Sequences: 1})
		}
		if r.OutputTokens > 0 {
			r.generated++
			e.counters.GenerationTokens++
		}
		e.settle(r, first)
	}
	e.publish()
}

// settle tells the output of a request that has one, if it is to be told, and lets the
// request end or decode.
func (e *Engine) settle(r *request, first bool) {
	generated := e.generated(r)
	finished := generated == r.OutputTokens
	if first || finished || e.cfg.EveryToken {
		o := Output{
			ID: r.ID, At: e.last.at, Tokens: generated - r.told, First: first, Finished: finished,
			Cached: r.cached, Queued: r.queued, Scheduled: r.first,
		}
		if finished {
			o.Reason = r.Reason
		}
		r.told = generated
		e.outputs = append(e.outputs, o)
	}
	switch {
	case finished:
		e.leave(r)
		e.finish(r, r.Reason)
	case r.phase == filling:
		e.join(r)
	}
}

// finish ends a request that is in no list any more.
func (e *Engine) finish(r *request, why FinishReason) {
	e.kv.release(r)
	e.lora.settle(r.Adapter)
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
		if r == e.passed {
			e.passed = r.prev
		}
		e.waiting.remove(r)
		e.lora.count(r.Adapter, 0, -1)
	case filling, decoding:
		e.leave(r)
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
	r.acceptance = e.cfg.Speculation.acceptance(q.ID)
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
