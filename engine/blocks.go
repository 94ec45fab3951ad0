package engine

import "kvasir/internal/kvblock"

// blockID is a physical KV block.
type blockID int32

// kvBlock is one physical block. A block is free when no request uses it; a free block
// that still has a hash is cached and can be taken into use again.
type kvBlock struct {
	hash   kvblock.Hash
	hashed bool
	refs   int32 // requests that use it

	prev, next   blockID // in the free list, when refs is 0
	older, newer blockID // ring of the blocks with the same hash, when hashed
}

// kvPool is the engine's KV blocks and its prefix cache, as vLLM's BlockPool: free
// blocks form a list, least recently used first, from whose head blocks are taken. A
// block that is taken loses its hash then, and not before.
type kvPool struct {
	tokens int       // a block
	blocks []kvBlock // the last one is the free list's head and tail, not a block
	free   int
	gains  int64 // changes that may make room for a request: a block was freed or got a hash, or free ones lost theirs

	// index has the oldest of the blocks with a hash. Two requests that compute the
	// same block apart each keep their own copy.
	index blockIndex

	hits []blockID // of the latest lookup

	host *kvPool // where hashed blocks go when they are taken; nil: they are lost
}

func (p *kvPool) init(blocks, blockTokens int) {
	p.tokens = blockTokens
	p.blocks = make([]kvBlock, blocks+1)
	p.index.init(blocks)
	p.blocks[blocks] = kvBlock{prev: blockID(blocks), next: blockID(blocks)}
	for i := range blocks {
		p.insertFree(blockID(i), blockID(blocks))
	}
}

// end is the free list's sentinel.
func (p *kvPool) end() blockID { return blockID(len(p.blocks) - 1) }

// insertFree puts a block into the free list before another one.
func (p *kvPool) insertFree(id, before blockID) {
	after := p.blocks[before].prev
	b := &p.blocks[id]
	b.prev, b.next = after, before
	p.blocks[after].next = id
	p.blocks[before].prev = id
	p.free++
}

func (p *kvPool) removeFree(id blockID) {
	b := &p.blocks[id]
	p.blocks[b.prev].next = b.next
	p.blocks[b.next].prev = b.prev
	p.free--
}

// lookup returns the leading blocks of the request's known tokens that are cached; the
// slice is valid until the next lookup. At least one token is left to compute, because
// a step's output comes from it: the hit of a prompt that is cached whole ends before
// its last block.
func (p *kvPool) lookup(r *request) []blockID {
	p.hits = p.hits[:0]
	for i := range (r.known() - 1) / p.tokens {
		h, ok := r.hash(i)
		if !ok {
			break
		}
		id := p.index.at(p.find(h))
		if id == none {
			break
		}
		p.hits = append(p.hits, id)
	}
	return p.hits
}

// admit gives a request its cached blocks and blocks for the n tokens after them, or
// nothing and false when its known tokens would not all fit. That is more than this
// step may need; without it, requests admitted together in chunks would preempt one
// another at once (vLLM: scheduler_reserve_full_isl). The first loads of its own blocks are
// copies of the host's, and can be found at once.
func (p *kvPool) admit(r *request, hits []blockID, loads, n int) bool {
	need := ceilDiv(r.known(), p.tokens) - len(hits)
	for _, id := range hits {
		if p.blocks[id].refs == 0 {
			need++ // free so far
		}
	}
	if need > p.free {
		return false
	}
	for _, id := range hits {
		if p.blocks[id].refs == 0 {
			p.removeFree(id)
		}
		p.blocks[id].refs++
	}
	r.blocks = append(r.blocks, hits...)
	r.hashed = len(hits)
	r.computed = (len(hits) + loads) * p.tokens
	p.load(r, loads)
	p.extend(r, r.computed+n)
	if loads > 0 {
		p.offer(r, r.computed)
	}
	return true
}

// extend gives the request blocks for so many tokens in all, or none and false when
// there are too few.
func (p *kvPool) extend(r *request, tokens int) bool {
	more := ceilDiv(tokens, p.tokens) - len(r.blocks)
	if more > p.free {
		return false
	}
	for range more {
		r.blocks = append(r.blocks, p.take())
	}
	return true
}

// take returns the free block whose content is the least worth keeping.
func (p *kvPool) take() blockID {
	id := p.blocks[p.end()].next
	p.removeFree(id)
	if b := &p.blocks[id]; b.hashed && p.host != nil {
		p.host.store(b.hash)
	}
	p.forget(id)
	p.blocks[id].refs = 1
	return id
}

// offer puts the request's blocks that so many computed tokens fill, those of the running
// step included, into the prefix cache.
func (p *kvPool) offer(r *request, computed int) {
	for full := computed / p.tokens; r.hashed < full; r.hashed++ {
		h, ok := r.hash(r.hashed)
		if !ok {
			return
		}
		p.remember(r.blocks[r.hashed], h)
	}
}

// release frees the request's blocks. Those that others use stay. The tail comes
// first, so that of a chain the end is evicted before what it continues; blocks without
// a hash, which nobody can find, are used up before all others.
func (p *kvPool) release(r *request) {
	for i := len(r.blocks) - 1; i >= 0; i-- {
		id := r.blocks[i]
		b := &p.blocks[id]
		b.refs--
		switch {
		case b.refs > 0:
		case b.hashed:
			p.insertFree(id, p.end())
		default:
			p.insertFree(id, p.blocks[p.end()].next)
		}
	}
	r.blocks = r.blocks[:0]
	r.hashed = 0
	p.gains++
}

// remember gives a block its hash.
func (p *kvPool) remember(id blockID, h kvblock.Hash) {
	p.gains++
	b := &p.blocks[id]
	b.hash, b.hashed = h, true
	slot := p.find(h)
	oldest := p.index.at(slot)
	if oldest == none {
		p.index.set(slot, id)
		b.older, b.newer = id, id
		return
	}
	newest := p.blocks[oldest].older // the ring closes here
	b.older, b.newer = newest, oldest
	p.blocks[newest].newer = id
	p.blocks[oldest].older = id
}

// forget takes a block's hash away, if it has one.
func (p *kvPool) forget(id blockID) {
	b := &p.blocks[id]
	if !b.hashed {
		return
	}
	b.hashed = false
	slot := p.find(b.hash)
	if b.newer == id {
		p.remove(slot)
		return
	}
	p.blocks[b.older].newer = b.newer
	p.blocks[b.newer].older = b.older
	if p.index.at(slot) == id {
		p.index.set(slot, b.newer)
	}
}

// forgetFree takes the hashes of all free blocks away. The order in which they are taken
// stays. Where the oldest copy of a block was free, a lookup finds one in use from then on,
// which takes no room.
func (p *kvPool) forgetFree() {
	p.gains++
	for id := p.blocks[p.end()].next; id != p.end(); id = p.blocks[id].next {
		p.forget(id)
	}
}
