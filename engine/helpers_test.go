package engine

import (
	"slices"
	"testing"

	"kvasir/accelerator"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

const microsecond = mono.Time(1000)

// plainProfile makes a step of T tokens take 999+T microseconds.
func plainProfile() accelerator.Profile {
	return accelerator.Profile{
		Name: "test", Model: "test", Device: "test", TensorParallel: 1,
		DenseTokens: []int{1, 1001}, DenseMicros: []float64{1000, 2000},
		KVBytesPerToken: 1, KVBlocks: 64, MaxBatchedTokens: 64, MaxSeqs: 8, MaxModelLen: 1024,
	}
}

// small is an engine of 64 blocks of 4 tokens.
func small() Config {
	c := Defaults(plainProfile())
	c.BlockTokens, c.Overhead, c.EveryToken = 4, 0, true
	return c
}

func mustNew(t testing.TB, c Config) *Engine {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustSubmit(t testing.TB, e *Engine, at mono.Time, q Request) {
	t.Helper()
	if err := e.Submit(at, q); err != nil {
		t.Fatal(err)
	}
}

// step advances the engine to its next instant and returns a copy of what came out.
func step(t testing.TB, e *Engine) []Output {
	t.Helper()
	at, ok := e.Next()
	if !ok {
		t.Fatal("nothing to do")
	}
	return append([]Output(nil), e.Advance(at)...)
}

// drain advances until nothing is left to do.
func drain(e *Engine) []Output {
	var all []Output
	for {
		at, ok := e.Next()
		if !ok {
			return all
		}
		all = append(all, e.Advance(at)...)
	}
}

// text stands for tokens: its i-th token is the same for two texts of one family while
// i is below both their shared lengths, and differs from every other text's after that.
type text struct{ family, shared, own int }

func (x text) token(i int) uint64 {
	if i < x.shared {
		return uint64(x.family)<<32 | uint64(i)
	}
	return uint64(x.own+1)<<48 | uint64(i)
}

// Names that are longer than a letter.
const (
	held ID = 1001 + iota
	warm
	runs
	blocked
	never
	nobody
	whole
	more
)

// request makes a Request with the hashes of all blocks of the text.
func (x text) request(id ID, prompt, output, blockTokens int) Request {
	q := Request{ID: id, PromptTokens: prompt, OutputTokens: output}
	head := kvblock.Seed("test")
	for i := range (prompt + output) / blockTokens {
		var block []byte
		for j := range blockTokens {
			for v, k := x.token(i*blockTokens+j), 0; k < 8; k++ {
				block = append(block, byte(v>>(8*k)))
			}
		}
		head = kvblock.Chain(head, block)
		if i < prompt/blockTokens {
			q.Blocks = append(q.Blocks, head)
		} else {
			q.AnswerBlocks = append(q.AnswerBlocks, head)
		}
	}
	return q
}

// plain makes a Request without hashes.
func plain(id ID, prompt, output int) Request {
	return Request{ID: id, PromptTokens: prompt, OutputTokens: output}
}

// audit checks everything that must hold between two steps.
func audit(t testing.TB, e *Engine) {
	t.Helper()
	auditRequests(t, e)
	auditBlocks(t, e)
	auditAdapters(t, e)
	auditBatch(t, e)
}

// auditRequests: every request is in exactly one place.
func auditRequests(t testing.TB, e *Engine) {
	t.Helper()
	inQueue := 0
	for r, prev := e.waiting.head, (*request)(nil); r != nil; prev, r = r, r.next {
		if r.phase != waiting || r.prev != prev || len(r.blocks) != 0 || r.computed != 0 || e.live[r.ID] != r {
			t.Fatalf("waiting request %d is damaged: %+v", r.ID, r)
		}
		inQueue++
	}
	if inQueue != e.waiting.n {
		t.Fatalf("%d requests wait, counted %d", inQueue, e.waiting.n)
	}
	decodes, lead, drafted, others := 0, int64(0), 0, 0
	for r := e.running.head; r != nil; r = r.next {
		known, computed := r.PromptTokens+e.generated(r), r.computed
		spare := 0 // tokens that were drafted and rejected leave their room
		switch {
		case r.phase == decoding:
			decodes++
			lead += r.lead
			computed = known
			if !e.busy {
				computed--
			}
			if e.speculates() {
				if r.place != 0 || r.drafted > e.cfg.Speculation.Drafted || r.drafted > 0 && !e.busy {
					t.Fatalf("decoding request %d is damaged: %+v", r.ID, r)
				}
				drafted += r.drafted
				spare = e.cfg.Speculation.Drafted
				break
			}
			if r.place < 1 || r.place > len(e.agenda) || e.agenda[r.place-1] != r || r.due < atStart(e.step) {
				t.Fatalf("decoding request %d is not in the agenda: %+v", r.ID, r)
			}
		case r.phase != filling:
			t.Fatalf("running request %d is in phase %d", r.ID, r.phase)
		case e.busy && !slices.Contains(e.filling, r) || !e.busy && r != e.partial:
			t.Fatalf("request %d neither decodes nor computes its prompt", r.ID)
		default:
			others++
		}
		if e.live[r.ID] != r || computed > known || r.next != nil && r.next.order <= r.order ||
			len(r.blocks) < ceilDiv(computed+r.drafted, e.cfg.BlockTokens) ||
			len(r.blocks) > ceilDiv(computed+spare, e.cfg.BlockTokens) || r.hashed > computed/e.cfg.BlockTokens {
			t.Fatalf("running request %d is damaged: %+v", r.ID, r)
		}
	}
	due := decodes
	if e.speculates() {
		due = 0
	}
	if decodes != e.decodes || due != len(e.agenda) || lead != e.lead || drafted != e.drafted || decodes+others != e.running.n {
		t.Fatalf("%d decode, counted %d, in the agenda %d, others %d of %d", decodes, e.decodes, len(e.agenda), others, e.running.n)
	}
	if others > 1 && !e.busy {
		t.Fatalf("%d requests are in the middle of their prefill", others)
	}
	toCome := 0
	for i, c := range e.inbox {
		if i > 0 && e.inbox[i-1].compare(c) > 0 {
			t.Fatalf("inbox is out of order at %d", i)
		}
		if c.kind == submit {
			toCome++
		}
	}
	if n := inQueue + e.running.n + toCome; n != len(e.live) {
		t.Fatalf("%d requests are held, %d found", len(e.live), n)
	}
	for _, r := range e.spare {
		if r.ID != 0 || r.Blocks != nil || len(r.blocks) != 0 {
			t.Fatalf("spare request keeps %+v", r)
		}
	}
}

// auditBlocks: every block is used by as many requests as it counts, those of the host by
// none.
func auditBlocks(t testing.TB, e *Engine) {
	t.Helper()
	refs := make([]int32, e.cfg.NumBlocks)
	for r := e.running.head; r != nil; r = r.next {
		for _, id := range r.blocks {
			refs[id]++
		}
	}
	hashed := auditPool(t, &e.kv, refs)
	if !e.cfg.PrefixCaching && hashed > 0 {
		t.Fatalf("%d blocks are cached without prefix caching", hashed)
	}
	if e.kv.host != nil {
		auditPool(t, e.kv.host, make([]int32, e.cfg.Host.Blocks))
	}
}

// auditPool: every block is used as often as refs says, or free once; the index has every
// hashed block, and no other, in the ring of its hash.
func auditPool(t testing.TB, p *kvPool, refs []int32) (hashed int) {
	t.Helper()
	n := len(p.blocks) - 1
	free := make([]bool, n)
	count := 0
	for id := p.blocks[p.end()].next; id != p.end(); id = p.blocks[id].next {
		if free[id] {
			t.Fatalf("block %d is twice in the free list", id)
		}
		if p.blocks[p.blocks[id].next].prev != id {
			t.Fatalf("free list is broken at block %d", id)
		}
		free[id] = true
		count++
	}
	if count != p.free {
		t.Fatalf("%d blocks are free, counted %d", count, p.free)
	}
	for i := range n {
		b := &p.blocks[i]
		if b.refs != refs[i] || free[i] != (b.refs == 0) {
			t.Fatalf("block %d: %d references, counted %d, free %v", i, refs[i], b.refs, free[i])
		}
		if b.hashed {
			hashed++
		}
	}
	indexed := 0
	for slot := range p.index.slots {
		oldest := p.index.at(slot)
		if oldest == none {
			continue
		}
		h, id := p.blocks[oldest].hash, oldest
		if found := p.find(h); found != slot {
			t.Fatalf("hash %x is in slot %d, found in %d", h, slot, found)
		}
		for {
			b := &p.blocks[id]
			if !b.hashed || b.hash != h || p.blocks[b.newer].older != id {
				t.Fatalf("index of %x is broken at block %d: %+v", h, id, b)
			}
			indexed++
			if id = b.newer; id == oldest {
				break
			}
			if indexed > n {
				t.Fatalf("ring of %x does not close", h)
			}
		}
	}
	if indexed != hashed {
		t.Fatalf("%d blocks have a hash, %d are indexed", hashed, indexed)
	}
	return hashed
}

// auditAdapters: no more adapters are in slots and at the host than there is room for,
// every one that runs has a slot, and what is counted is what is there.
func auditAdapters(t testing.TB, e *Engine) {
	t.Helper()
	running, waits := map[kvblock.Hash]int{}, map[kvblock.Hash]int{}
	for r := e.running.head; r != nil; r = r.next {
		running[r.Adapter]++
	}
	for r := e.waiting.head; r != nil; r = r.next {
		waits[r.Adapter]++
	}
	a := &e.lora
	slotted, used := 0, 0
	for _, h := range a.held {
		if h.running != running[h.id] || h.running > 0 && !h.slotted {
			t.Fatalf("%d requests run with adapter %+v", running[h.id], h)
		}
		delete(running, h.id)
		if h.slotted {
			slotted++
		}
		if h.running > 0 {
			used++
		}
	}
	if delete(running, 0); len(running) > 0 {
		t.Fatalf("requests run with adapters that are not at the host: %v", running)
	}
	if slotted != a.slotted || used != a.used || slotted > a.cfg.MaxLoRAs || len(a.held) > a.cfg.MaxCPULoRAs {
		t.Fatalf("%d adapters in slots, counted %d, used %d, counted %d, at the host %d, of %+v", slotted, a.slotted, used, a.used, len(a.held), a.cfg)
	}
	for _, u := range a.inUse {
		if u.Waiting != waits[u.Adapter] || u.Running+u.Waiting == 0 {
			t.Fatalf("%d requests wait for %+v", waits[u.Adapter], u)
		}
		delete(waits, u.Adapter)
	}
	if delete(waits, 0); len(waits) > 0 {
		t.Fatalf("adapters are waited for and not counted: %v", waits)
	}
}

// auditBatch: work is done when there is any, within the budget.
func auditBatch(t testing.TB, e *Engine) {
	t.Helper()
	if e.running.n > e.cfg.MaxSeqs {
		t.Fatalf("%d requests run, allowed %d", e.running.n, e.cfg.MaxSeqs)
	}
	if !e.busy {
		if e.waiting.n+e.running.n > 0 && !e.asleep {
			t.Fatalf("idle with %d waiting and %d running", e.waiting.n, e.running.n)
		}
		return
	}
	tokens := e.batch.Decodes + e.drafted
	for _, f := range e.batch.Prefills {
		tokens += f.Chunk
	}
	if tokens != e.batch.Tokens || tokens < 1 {
		t.Fatalf("batch counts %d tokens, has %d", e.batch.Tokens, tokens)
	}
	whole := !e.cfg.ChunkedPrefill && len(e.batch.Prefills) == 1 && e.batch.Prefills[0].Chunk > e.cfg.MaxBatchedTokens
	if tokens > e.cfg.MaxBatchedTokens && !whole {
		t.Fatalf("step has %d tokens, budget %d", tokens, e.cfg.MaxBatchedTokens)
	}
}
