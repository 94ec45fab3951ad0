package engine

import (
	"cmp"
	"slices"

	"kvasir/accelerator"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// reference is the engine again, as plainly as can be: every step looks at every request,
// nothing is derived, skipped or indexed. The engine must do the same.
type reference struct {
	cfg      Config
	pace     float64
	inbox    []refCommand
	live     map[ID]*refRequest
	waiting  []*refRequest
	running  []*refRequest
	busy     bool
	asleep   bool
	end      instant // of the running step, or of the last one
	advanced mono.Time

	blocks []refBlock
	free   []int // the first is taken next
	index  map[kvblock.Hash][]int
	host   []kvblock.Hash // the latest used last
	loads  int            // of the step

	held               []kvblock.Hash // adapters at the host; of the idle ones the longest idle first
	slotted            []kvblock.Hash
	using              []kvblock.Hash // of requests, in the order in which they came into use
	fromHost, fromDisk int            // loads of the step
	shownAdapters      []AdapterUse

	outputs         []Output
	counters, shown Stats
}

type refBlock struct {
	hash   kvblock.Hash
	hashed bool
	refs   int
}

type refCommand struct {
	at   mono.Time
	kind commandKind
	id   ID
	req  *refRequest
	pace float64
}

type refRequest struct {
	Request
	generated, computed, scheduled, cached int
	started, aborting, over                bool
	decoding                               bool // had a token since it was last admitted
	drafted                                int
	queued, first                          mono.Time
	blocks                                 []int
	hashed                                 int
}

func newReference(c Config) *reference {
	e := &reference{cfg: c, pace: 1, live: map[ID]*refRequest{}, index: map[kvblock.Hash][]int{}, advanced: -1 << 63}
	e.blocks = make([]refBlock, c.NumBlocks)
	for i := range c.NumBlocks {
		e.free = append(e.free, i)
	}
	e.publish()
	return e
}

func (e *reference) post(c refCommand) {
	e.inbox = append(e.inbox, c)
	slices.SortStableFunc(e.inbox, func(a, b refCommand) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id), cmp.Compare(a.pace, b.pace))
	})
}

func (e *reference) submit(now mono.Time, q Request) {
	r := &refRequest{Request: q}
	e.live[q.ID] = r
	e.post(refCommand{at: now, kind: submit, id: q.ID, req: r})
}

func (e *reference) abort(now mono.Time, id ID) {
	if r := e.live[id]; r != nil && !r.aborting {
		r.aborting = true
		e.post(refCommand{at: max(now, e.advanced), kind: abort, id: id, req: r})
	}
}

func (e *reference) command(now mono.Time, kind commandKind, pace float64) {
	e.post(refCommand{at: max(now, e.advanced), kind: kind, pace: pace})
}

func (e *reference) next() (mono.Time, bool) {
	switch {
	case e.busy:
		return e.end.at, true
	case len(e.inbox) > 0:
		return e.inbox[0].at + 1, true
	}
	return mono.Never, false
}

func (e *reference) advance(now mono.Time) []Output {
	e.outputs = nil
	e.advanced = max(e.advanced, now)
	for {
		at, ok := e.next()
		if !ok || at > now {
			return e.outputs
		}
		start := instant{at: at}
		if e.busy {
			start = e.end
			e.endStep()
		}
		for len(e.inbox) > 0 && e.inbox[0].at < at {
			e.apply(at, e.inbox[0])
			e.inbox = e.inbox[1:]
		}
		e.startStep(start)
	}
}

func (e *reference) apply(at mono.Time, c refCommand) {
	switch c.kind {
	case submit:
		c.req.queued = at
		e.waiting = append(e.waiting, c.req)
		if a := c.req.Adapter; a != 0 && !slices.Contains(e.using, a) {
			e.using = append(e.using, a)
		}
	case abort:
		if c.req.over {
			return
		}
		if i := slices.Index(e.waiting, c.req); i >= 0 {
			e.waiting = slices.Delete(e.waiting, i, i+1)
		} else {
			i := slices.Index(e.running, c.req)
			e.running = slices.Delete(e.running, i, i+1)
			e.idle(c.req.Adapter)
		}
		e.finish(c.req, Abort)
	case throttle:
		e.pace = c.pace
	case sleep:
		e.asleep = true
		for _, b := range e.free {
			e.forget(b)
		}
	case wake:
		e.asleep = false
	}
}

func (r *refRequest) known() int   { return r.PromptTokens + r.generated }
func (r *refRequest) missing() int { return r.known() - r.computed }

func (r *refRequest) hash(i int) (kvblock.Hash, bool) {
	all := append(slices.Clone(r.Blocks), r.AnswerBlocks...)
	if i < len(all) {
		return all[i], true
	}
	return 0, false
}

func (e *reference) startStep(start instant) {
	var b accelerator.Batch
	e.loads, e.fromHost, e.fromDisk = 0, 0, 0
	if e.asleep {
		e.publish()
		return
	}
	budget, preempted, drafted := e.cfg.MaxBatchedTokens, false, 0
	for i := 0; i < len(e.running) && budget > 0; i++ {
		r := e.running[i]
		n := min(r.missing(), budget)
		r.drafted = 0
		if r.decoding {
			r.drafted = min(e.cfg.Speculation.Drafted, r.OutputTokens-r.generated-1)
		}
		for !e.extend(r, r.computed+n+r.drafted) && !preemptedItself(e, r) {
			preempted = true
		}
		if i >= len(e.running) {
			preempted = true
			break
		}
		drafted += r.drafted
		e.schedule(&b, r, n)
		budget -= n + r.drafted
	}
	if !preempted {
		e.admit(&b, start.at, budget)
	}
	if b.Tokens == 0 {
		e.publish()
		return
	}
	overhead := e.cfg.Overhead
	if drafted > 0 {
		overhead += e.cfg.Speculation.Overhead
	}
	cost := e.cfg.Profile.Cost(overhead, e.pace)
	length := cost.Step(b)
	for range e.loads {
		bytes := float64(e.cfg.BlockTokens) * float64(e.cfg.Profile.KVBytesPerToken)
		length = min(length+accelerator.FromSeconds(bytes/e.cfg.Host.Bandwidth), accelerator.MaxStep)
	}
	for range e.fromDisk {
		length += accelerator.FromSeconds(e.cfg.LoRA.LoadFromDisk.Seconds())
	}
	for range e.fromHost {
		length += accelerator.FromSeconds(e.cfg.LoRA.LoadFromHost.Seconds())
	}
	e.busy, e.end = true, start.add(length)
}

// preemptedItself takes the youngest running request's place away and tells whether that
// was r.
func preemptedItself(e *reference, r *refRequest) bool {
	last := len(e.running) - 1
	victim := e.running[last]
	e.running = e.running[:last]
	e.idle(victim.Adapter)
	e.release(victim)
	victim.computed, victim.decoding, victim.drafted = 0, false, 0
	e.waiting = slices.Insert(e.waiting, 0, victim)
	e.counters.Preemptions++
	return victim == r
}

func (e *reference) admit(b *accelerator.Batch, at mono.Time, budget int) {
	if e.cfg.Batching == Static && len(e.running) > 0 {
		return
	}
	for i := 0; budget > 0 && len(e.running) < e.cfg.MaxSeqs && i < len(e.waiting); {
		r := e.waiting[i]
		if r.Adapter != 0 && !e.runs(r.Adapter) && e.adaptersRunning() == e.cfg.LoRA.MaxLoRAs {
			i++
			continue
		}
		hits := e.lookup(r)
		loads := e.loadable(r, len(hits))
		n := r.known() - (len(hits)+loads)*e.cfg.BlockTokens
		if n > budget {
			if e.cfg.ChunkedPrefill {
				n = budget
			} else if n <= e.cfg.MaxBatchedTokens || len(b.Prefills) > 0 {
				return
			}
		}
		need := ceilDiv(r.known(), e.cfg.BlockTokens) - len(hits)
		for _, h := range hits {
			if e.blocks[h].refs == 0 {
				need++
			}
		}
		if need > len(e.free) {
			return
		}
		for _, h := range hits {
			if i := slices.Index(e.free, h); i >= 0 {
				e.free = slices.Delete(e.free, i, i+1)
			}
			e.blocks[h].refs++
		}
		r.blocks, r.hashed, r.computed = hits, len(hits), (len(hits)+loads)*e.cfg.BlockTokens
		for i := range loads {
			h, _ := r.hash(len(hits) + loads - 1 - i)
			e.store(h)
		}
		e.extend(r, r.computed+n)
		e.loads += loads
		e.waiting = slices.Delete(e.waiting, i, i+1)
		e.slot(r.Adapter)
		e.running = append(e.running, r)
		if !r.started {
			r.started, r.first, r.cached = true, at, r.computed
			if e.cfg.PrefixCaching {
				e.counters.PrefixQueries += int64(r.PromptTokens)
				e.counters.PrefixHits += int64(len(hits) * e.cfg.BlockTokens)
				e.counters.HostHits += int64(loads * e.cfg.BlockTokens)
			}
		}
		e.schedule(b, r, n)
		budget -= n
	}
}

func (e *reference) schedule(b *accelerator.Batch, r *refRequest, n int) {
	if r.generated > 0 && r.missing() == 1 {
		b.Decodes++
		b.Tokens += r.drafted
		b.DecodeContext += int64(r.known() + r.drafted)
	} else {
		b.Prefills = append(b.Prefills, accelerator.Prefill{Chunk: n, Context: r.computed})
	}
	b.Tokens += n
	r.scheduled = n
	r.computed += n
	for e.cfg.PrefixCaching && r.hashed < r.computed/e.cfg.BlockTokens {
		h, ok := r.hash(r.hashed)
		if !ok {
			break
		}
		id := r.blocks[r.hashed]
		e.blocks[id].hash, e.blocks[id].hashed = h, true
		e.index[h] = append(e.index[h], id)
		r.hashed++
	}
}

func (e *reference) endStep() {
	e.busy = false
	e.counters.Steps++
	for _, r := range slices.Clone(e.running) {
		worked := r.scheduled > 0
		r.scheduled = 0
		if !worked || r.missing() > 0 {
			continue
		}
		o := Output{ID: r.ID, At: e.end.at, First: r.generated == 0, Cached: r.cached, Queued: r.queued, Scheduled: r.first}
		if o.First {
			e.counters.PromptTokens += int64(r.PromptTokens)
		}
		if r.OutputTokens > 0 {
			s := &e.cfg.Speculation
			accepted := s.accepted(r.ID, s.acceptance(r.ID), r.generated, r.drafted)
			o.Tokens = 1 + accepted
			r.generated += o.Tokens
			r.computed += accepted
			e.counters.GenerationTokens += int64(o.Tokens)
			e.counters.DraftTokens += int64(r.drafted)
			e.counters.AcceptedTokens += int64(accepted)
		}
		r.decoding, r.drafted = true, 0
		if r.generated == r.OutputTokens {
			o.Finished, o.Reason = true, r.Reason
			i := slices.Index(e.running, r)
			e.running = slices.Delete(e.running, i, i+1)
			e.idle(r.Adapter)
			e.finish(r, r.Reason)
		}
		e.outputs = append(e.outputs, o)
	}
	e.publish()
}

func (e *reference) finish(r *refRequest, why FinishReason) {
	e.release(r)
	e.counters.Finished[why]++
	delete(e.live, r.ID)
	r.over = true
	uses := func(o *refRequest) bool { return o.Adapter == r.Adapter }
	if !slices.ContainsFunc(e.running, uses) && !slices.ContainsFunc(e.waiting, uses) {
		e.using = without(e.using, r.Adapter)
	}
}

func (e *reference) publish() {
	e.shown = e.counters
	e.shown.Running, e.shown.Waiting = len(e.running), len(e.waiting)
	e.shown.FreeBlocks, e.shown.TotalBlocks = len(e.free), e.cfg.NumBlocks
	e.shown.KVUsage = float64(e.cfg.NumBlocks-len(e.free)) / float64(e.cfg.NumBlocks)
	for _, r := range e.waiting {
		if r.Adapter != 0 && !e.runs(r.Adapter) && e.adaptersRunning() == e.cfg.LoRA.MaxLoRAs {
			e.shown.Deferred++
		}
	}
	e.shownAdapters = nil
	for _, a := range e.using {
		u := AdapterUse{Adapter: a}
		for _, r := range e.running {
			if r.Adapter == a {
				u.Running++
			}
		}
		for _, r := range e.waiting {
			if r.Adapter == a {
				u.Waiting++
			}
		}
		e.shownAdapters = append(e.shownAdapters, u)
	}
}

// runs reports whether a request of the adapter is in the batch.
func (e *reference) runs(a kvblock.Hash) bool {
	return slices.ContainsFunc(e.running, func(r *refRequest) bool { return r.Adapter == a })
}

// adaptersRunning returns how many adapters the batch uses.
func (e *reference) adaptersRunning() int {
	different := map[kvblock.Hash]bool{}
	for _, r := range e.running {
		if r.Adapter != 0 {
			different[r.Adapter] = true
		}
	}
	return len(different)
}

// slot loads the adapter of a request that joins the batch.
func (e *reference) slot(a kvblock.Hash) {
	if a == 0 {
		return
	}
	idle := func(a kvblock.Hash) bool { return !e.runs(a) }
	if !slices.Contains(e.held, a) {
		if len(e.held) == e.cfg.LoRA.MaxCPULoRAs {
			victim := e.held[slices.IndexFunc(e.held, idle)]
			e.held, e.slotted = without(e.held, victim), without(e.slotted, victim)
		}
		e.held = append(e.held, a)
		e.fromDisk++
	}
	if !slices.Contains(e.slotted, a) {
		if len(e.slotted) == e.cfg.LoRA.MaxLoRAs {
			slotted := func(a kvblock.Hash) bool { return idle(a) && slices.Contains(e.slotted, a) }
			e.slotted = without(e.slotted, e.held[slices.IndexFunc(e.held, slotted)])
		}
		e.slotted = append(e.slotted, a)
		e.fromHost++
	}
}

// idle notes that a request of the adapter has left the batch.
func (e *reference) idle(a kvblock.Hash) {
	if a != 0 && !e.runs(a) {
		e.held = append(without(e.held, a), a)
	}
}

func without(list []kvblock.Hash, a kvblock.Hash) []kvblock.Hash {
	return slices.DeleteFunc(list, func(b kvblock.Hash) bool { return a == b })
}

func (e *reference) lookup(r *refRequest) []int {
	var hits []int
	for i := range (r.known() - 1) / e.cfg.BlockTokens {
		h, ok := r.hash(i)
		if !ok || !e.cfg.PrefixCaching || len(e.index[h]) == 0 {
			break
		}
		hits = append(hits, e.index[h][0])
	}
	return hits
}

func (e *reference) extend(r *refRequest, tokens int) bool {
	more := ceilDiv(tokens, e.cfg.BlockTokens) - len(r.blocks)
	if more > len(e.free) {
		return false
	}
	for range more {
		id := e.free[0]
		e.free = e.free[1:]
		if e.blocks[id].hashed {
			e.store(e.blocks[id].hash)
		}
		e.forget(id)
		e.blocks[id].refs = 1
		r.blocks = append(r.blocks, id)
	}
	return true
}

func (e *reference) loadable(r *refRequest, hits int) int {
	n := 0
	for (hits+n+1)*e.cfg.BlockTokens < r.known() {
		if h, ok := r.hash(hits + n); !ok || !slices.Contains(e.host, h) {
			break
		}
		n++
	}
	return n
}

func (e *reference) store(h kvblock.Hash) {
	if i := slices.Index(e.host, h); i >= 0 {
		e.host = slices.Delete(e.host, i, i+1)
	}
	e.host = append(e.host, h)
	if len(e.host) > e.cfg.Host.Blocks {
		e.host = e.host[1:]
	}
}

func (e *reference) forget(id int) {
	b := &e.blocks[id]
	if !b.hashed {
		return
	}
	b.hashed = false
	ring := e.index[b.hash]
	i := slices.Index(ring, id)
	e.index[b.hash] = slices.Delete(ring, i, i+1)
}

func (e *reference) release(r *refRequest) {
	for _, id := range slices.Backward(r.blocks) {
		b := &e.blocks[id]
		b.refs--
		switch {
		case b.refs > 0:
		case b.hashed:
			e.free = append(e.free, id)
		default:
			e.free = slices.Insert(e.free, 0, id)
		}
	}
	r.blocks, r.hashed = nil, 0
}
