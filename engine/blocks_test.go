package engine

import (
	"testing"

	"kvasir/internal/mono"
)

// serve submits a request when the engine is idle, lets it end, and returns how many
// prompt tokens it found in the cache.
func serve(t *testing.T, e *Engine, at mono.Time, q Request) int {
	t.Helper()
	mustSubmit(t, e, at, q)
	cached := -1
	for {
		next, ok := e.Next()
		if !ok {
			return cached
		}
		for _, o := range e.Advance(next) {
			cached = o.Cached
		}
		audit(t, e)
	}
}

const second = mono.Time(1_000_000_000)

func TestPrefix_HitsAreWholeBlocksAndLeaveAToken(t *testing.T) {
	chat := text{family: 1, shared: 1000}
	for _, c := range []struct {
		name           string
		prompt, output int // served first
		next           text
		nextPrompt     int
		want           int
		cachingOff     bool
	}{
		{name: "the same prompt leaves its last token, so its last block", prompt: 16, next: chat, nextPrompt: 16, want: 12},
		{name: "the same prompt with a partial block", prompt: 18, next: chat, nextPrompt: 18, want: 16},
		{name: "one token beyond the cached blocks", prompt: 16, next: chat, nextPrompt: 17, want: 16},
		{name: "a shorter prompt", prompt: 16, next: chat, nextPrompt: 9, want: 8},
		{name: "less than a block", prompt: 3, next: chat, nextPrompt: 100, want: 0},
		{name: "the next turn finds the answer", prompt: 10, output: 7, next: chat, nextPrompt: 30, want: 16},
		{name: "the answer's last token has no KV", prompt: 10, output: 6, next: chat, nextPrompt: 30, want: 12},
		{name: "texts that part inside a block", prompt: 16, next: text{family: 1, shared: 11, own: 7}, nextPrompt: 16, want: 8},
		{name: "another family", prompt: 16, next: text{family: 2, shared: 1000}, nextPrompt: 16, want: 0},
		{name: "no caching", prompt: 16, next: chat, nextPrompt: 16, want: 0, cachingOff: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := small()
			cfg.PrefixCaching = !c.cachingOff
			e := mustNew(t, cfg)
			serve(t, e, 0, chat.request('a', c.prompt, c.output, 4))
			if got := serve(t, e, second, c.next.request('b', c.nextPrompt, 1, 4)); got != c.want {
				t.Errorf("%d tokens cached, want %d", got, c.want)
			}
			queries := int64(c.prompt + c.nextPrompt)
			if c.cachingOff {
				queries = 0
			}
			if s := e.Stats(); s.PrefixQueries != queries || s.PrefixHits != int64(c.want) {
				t.Errorf("%d queries, %d hits, want %d, %d", s.PrefixQueries, s.PrefixHits, queries, c.want)
			}
		})
	}
}

// A block can be found as soon as the step that fills it is scheduled: requests that
// are admitted together share already.
func TestPrefix_IsSharedWithinAStep(t *testing.T) {
	e := mustNew(t, small())
	chat := text{family: 1, shared: 12}
	for i := range 3 {
		chat.own = i
		mustSubmit(t, e, 0, chat.request(ID(i), 14, 1, 4))
	}
	step(t, e)
	if e.batch.Tokens != 14+2+2 {
		t.Errorf("the step computes %d tokens, want 18", e.batch.Tokens)
	}
	if used := 64 - e.kv.free; used != 4+1+1 {
		t.Errorf("%d blocks used, want 6", used)
	}
	drain(e)
	if s := e.Stats(); s.PrefixHits != 24 || s.PrefixQueries != 42 {
		t.Errorf("%+v", s)
	}
}

// Of what is cached, the least recently used request's blocks go first, and of one
// request the tail goes first: its head is what others are likely to share.
func TestEviction_LeastRecentlyUsedTailFirst(t *testing.T) {
	c := small()
	c.NumBlocks = 10
	a, b := text{family: 1, shared: 1000}, text{family: 2, shared: 1000}
	x := text{family: 3, shared: 1000}
	cachedOf := func(e *Engine, of text) int {
		q := of.request(0, 17, 1, 4)
		r := &request{Request: q}
		return len(e.kv.lookup(r))
	}
	e := mustNew(t, c)
	serve(t, e, 0, a.request('a', 16, 1, 4))
	serve(t, e, second, b.request('b', 16, 1, 4))
	// 8 blocks are cached, 2 never were: those are used first.
	serve(t, e, 2*second, x.request('x', 8, 1, 4))
	if na, nb := cachedOf(e, a), cachedOf(e, b); na != 4 || nb != 4 {
		t.Fatalf("a has %d blocks, b %d: blocks without content were not used first", na, nb)
	}
	serve(t, e, 3*second, a.request('a', 9, 1, 4)) // uses a's first two blocks again, and one more
	if na, nb := cachedOf(e, a), cachedOf(e, b); na != 3 || nb != 4 {
		t.Fatalf("a has %d blocks, b %d, want 3 (its tail was the oldest), 4", na, nb)
	}
	// The block that a's ninth token used is free and without a hash. After it the
	// oldest are a's third block (not touched since its first use), b's tail, …
	serve(t, e, 4*second, text{family: 4, shared: 1000}.request('y', 12, 1, 4))
	if na, nb := cachedOf(e, a), cachedOf(e, b); na != 2 || nb != 3 {
		t.Fatalf("a has %d blocks, b %d, want 2 (touched later), 3", na, nb)
	}
}

// Blocks in use are never taken, whatever else must give way.
func TestEviction_LeavesSharedBlocksInUse(t *testing.T) {
	c := small()
	c.NumBlocks = 8
	e := mustNew(t, c)
	chat := text{family: 1, shared: 8}
	mustSubmit(t, e, 0, chat.request('a', 9, 12, 4))
	step(t, e)
	step(t, e)
	chat.own = 1
	mustSubmit(t, e, e.advanced, chat.request('b', 10, 1, 4))
	step(t, e)
	step(t, e) // b ended; the shared blocks are still a's
	audit(t, e)
	shared := e.running.head.blocks[:2]
	for i := range 3 {
		mustSubmit(t, e, e.advanced, text{family: 5 + i}.request(ID('x'+i), 12, 1, 4))
		step(t, e)
		audit(t, e)
		for _, id := range shared {
			if e.kv.blocks[id].refs < 1 {
				t.Fatalf("block %d is free while a runs", id)
			}
		}
	}
	drain(e)
}

// Copies of a block: each request that computed it has its own, and the hash is found
// until the last copy is gone.
func TestDuplicates_HashIsFoundUntilItsLastCopyGoes(t *testing.T) {
	var p kvPool
	p.init(4, 4)
	var ids []blockID
	for range 3 {
		id := p.take()
		p.remember(id, 42)
		ids = append(ids, id)
	}
	for i, id := range []blockID{ids[1], ids[0], ids[2]} {
		if p.index.at(p.find(42)) == none {
			t.Fatalf("after %d copies went the hash is gone", i)
		}
		p.forget(id)
	}
	if id := p.index.at(p.find(42)); id != none {
		t.Errorf("the index keeps block %d", id)
	}
}

func TestPreempted_LookupIsNotCountedTwice(t *testing.T) {
	c := small()
	c.NumBlocks = 5
	e := mustNew(t, c)
	mustSubmit(t, e, 0, text{family: 1, own: 1}.request('a', 8, 8, 4))
	mustSubmit(t, e, 1, text{family: 2, own: 2}.request('b', 7, 8, 4))
	drain(e)
	s := e.Stats()
	if s.Preemptions == 0 {
		t.Fatal("nothing was preempted")
	}
	if s.PrefixQueries != 15 || s.PromptTokens != 15 || s.GenerationTokens != 16 {
		t.Errorf("%+v", s)
	}
}
