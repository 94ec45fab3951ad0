package prefix

import (
	"container/list"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
)

// lru is a cache as the engines have it: what was used longest ago is evicted, the end of
// a chain before its beginning.
type lru struct {
	capacity, used int
	order          *list.List // of lruBlock, most recent first
	at             map[kvblock.Hash]*list.Element
}

type lruBlock struct {
	hash kvblock.Hash
	fine int
}

func newLRU(capacity int) *lru {
	return &lru{capacity: capacity, order: list.New(), at: map[kvblock.Hash]*list.Element{}}
}

// cached returns how many of the blocks, from the first on, are there.
func (l *lru) cached(blocks []kvblock.Hash) int {
	for i, h := range blocks {
		if l.at[h] == nil {
			return i
		}
	}
	return len(blocks)
}

func (l *lru) use(blocks []kvblock.Hash) {
	for i, h := range slices.Backward(blocks) {
		if e := l.at[h]; e != nil {
			l.order.MoveToFront(e)
			continue
		}
		b := lruBlock{h, kvblock.Span(i+1) - kvblock.Span(i)}
		l.at[h] = l.order.PushFront(b)
		l.used += b.fine
	}
	for l.used > l.capacity {
		e := l.order.Back()
		b := l.order.Remove(e).(lruBlock)
		delete(l.at, b.hash)
		l.used -= b.fine
	}
}

// traffic is conversations that go on or begin anew.
type traffic struct {
	name     string
	systems  int     // system prompts
	head     int     // blocks of each
	turn     int     // blocks that a turn adds, at most
	sessions int     // that are open at a time
	again    float64 // how often one of them goes on; else a new one takes its place
	recent   float64 // how often it is one of the last eight that were used
}

// next returns prompts one after the other.
func (w traffic) next(seedOf uint64) func() []kvblock.Hash {
	r := seed.New(seedOf, seed.Workload, 0, 0)
	open := make([][]kvblock.Hash, w.sessions)
	born := 0
	last := []int{}
	return func() []kvblock.Hash {
		s := r.Intn(w.sessions)
		if len(last) > 0 && r.Float64() < w.recent {
			s = last[r.Intn(len(last))]
		}
		if last = append(last, s); len(last) > 8 {
			last = last[1:]
		}
		if len(open[s]) == 0 || r.Float64() >= w.again {
			born++
			h := kvblock.Seed("system", string(rune('a'+r.Intn(w.systems))))
			open[s] = nil
			for range w.head {
				h = kvblock.Chain(h, nil)
				open[s] = append(open[s], h)
			}
		}
		for range 1 + r.Intn(w.turn) {
			parent := kvblock.Hash(born)
			if n := len(open[s]); n > 0 {
				parent = open[s][n-1]
			}
			open[s] = append(open[s], kvblock.Chain(parent, []byte{byte(born), byte(born >> 8), byte(s)}))
		}
		return slices.Clone(open[s])
	}
}

var traffics = []traffic{
	{name: "no reuse", systems: 1, head: 0, turn: 60, sessions: 1000, again: 0},
	{name: "one system prompt", systems: 1, head: 30, turn: 30, sessions: 400, again: 0.2},
	{name: "conversations", systems: 5, head: 10, turn: 10, sessions: 60, again: 0.9},
	{name: "agents", systems: 3, head: 40, turn: 4, sessions: 40, again: 0.97, recent: 0.7},
	{name: "uniform reuse", systems: 60, head: 50, turn: 1, sessions: 1000, again: 0},
	{name: "thrash", systems: 1, head: 2, turn: 10, sessions: 120, again: 0.95},
}

// wrong is how far beliefs are from the truth: blocks believed and not there, and blocks
// there and not believed, as shares of all blocks that were asked for.
type wrong struct{ over, under float64 }

// compare sends a workload through one cache and what an index believes of it.
func compare(w traffic, capacity int, bounded, corrected bool) wrong {
	const calls, warmup = 6000, 1000
	x, truth, next := New(Config{}), newLRU(capacity), w.next(1)
	if bounded {
		x.SetCapacity(0, 0, capacity)
	}
	var over, under, asked int
	o := Overlaps{Held: make([]int32, 1)}
	for c := range calls {
		blocks := next()
		x.Find(0, blocks, o)
		held, cached := int(o.Held[0]), truth.cached(blocks)
		if c >= warmup {
			over += max(kvblock.Span(held)-kvblock.Span(cached), 0)
			under += max(kvblock.Span(cached)-kvblock.Span(held), 0)
			asked += kvblock.Span(len(blocks))
		}
		b := x.Promise(0, 0, blocks)
		truth.use(blocks)
		x.Hold(0, 0, blocks)
		if corrected {
			x.Correct(selection.Slot(0), b, blocks, cached)
		}
	}
	return wrong{float64(over) / float64(asked), float64(under) / float64(asked)}
}

// TestCapacity_AgainstExactLRU measures what the odometer gets wrong, with -v, and bounds
// it: without a capacity up to nine tenths of the blocks asked for are believed wrongly.
func TestCapacity_AgainstExactLRU(t *testing.T) {
	for _, w := range traffics {
		for _, capacity := range []int{500, 1500, 4000} {
			forever := compare(w, capacity, false, false)
			told := compare(w, capacity, false, true)
			bounded := compare(w, capacity, true, false)
			both := compare(w, capacity, true, true)
			t.Logf("%-18s %5d fine blocks: believed too much and too little, %% of the blocks asked for: for ever %4.1f %4.1f; corrected %4.1f %4.1f; bounded %4.1f %4.1f; both %4.1f %4.1f", w.name, capacity,
				100*forever.over, 100*forever.under, 100*told.over, 100*told.under, 100*bounded.over, 100*bounded.under, 100*both.over, 100*both.under)
			if told.over > forever.over || bounded.over+bounded.under > 0.02 || both.over+both.under > 0.02 {
				t.Errorf("%s with %d fine blocks: more than 2 %% is wrong", w.name, capacity)
			}
		}
	}
}

// TestCorrect_WhenHoldStoredNothing_KeepsWhatHoldRecorded has an endpoint that was believed
// to hold a prompt, and was sent it again, find less: what it computed since, and what it
// computed of other prompts, is there.
func TestCorrect_WhenHoldStoredNothing_KeepsWhatHoldRecorded(t *testing.T) {
	for _, capacity := range []int{0, 4000} {
		for n := range 30 {
			x := New(Config{BudgetBytes: 1 << 20})
			x.SetCapacity(0, 0, capacity)
			prompt, beside, idle := chain(0, 10, 0, 20), chain(0, 10, 1, 20), chain(0, 10, 2, 20)
			for _, p := range [][]kvblock.Hash{idle, beside, prompt} {
				x.Hold(0, 0, p)
			}
			agree(x, 0, prompt, n)
			b := x.Promise(0, 0, prompt)
			x.Hold(0, 0, prompt)
			x.Hold(0, 0, beside)
			x.Correct(0, b, prompt, n)
			if got := overlapOf(x, 0, 0, prompt); got != 30 {
				t.Errorf("capacity %d: of a prompt that was held since, and of which %d blocks were found, %d of 30 are believed", capacity, n, got)
			}
			if got := overlapOf(x, 0, 0, beside); got != 30 {
				t.Errorf("capacity %d: of another that was held since %d of 30 are believed", capacity, got)
			}
			if got := overlapOf(x, 0, 0, idle); got > 10 {
				t.Errorf("capacity %d: when %d blocks were found of a prompt, %d are believed of one that was used before it, only the 10 of both may be", capacity, n, got)
			}
		}
	}
}

// TestCorrect_WhenItIsTheNewest_KeepsWhatWasHeldSince corrects promises in the order in
// which they were made.
func TestCorrect_WhenItIsTheNewest_KeepsWhatWasHeldSince(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := New(Config{BudgetBytes: 4 << 20})
		const slot = 3
		for range rapid.IntRange(1, 12).Draw(t, "calls") {
			for range rapid.IntRange(0, 3).Draw(t, "before") {
				x.Hold(0, slot, drawChain(t, 60))
			}
			prompt := drawChain(t, 60)
			agree(x, slot, prompt, rapid.IntRange(0, max(len(prompt)-1, 0)).Draw(t, "found by others"))
			b := x.Promise(0, slot, prompt)
			since := [][]kvblock.Hash{prompt}
			for range rapid.IntRange(0, 4).Draw(t, "since") {
				since = append(since, drawChain(t, 60))
			}
			for _, p := range since {
				x.Hold(0, slot, p)
			}
			if b.Held > 0 {
				x.Correct(slot, b, prompt, rapid.IntRange(0, int(b.Held)-1).Draw(t, "found"))
			}
			for _, p := range since {
				if got := overlapOf(x, 0, slot, p); got != len(p) {
					t.Fatalf("of a prompt of %d blocks that was held since the promise %d are believed", len(p), got)
				}
			}
		}
	})
}

// agree has two other chains be corrected as a chain may be next, of which block n is gone.
func agree(x *Index, slot selection.Slot, blocks []kvblock.Hash, n int) {
	for i := range 2 {
		other := slices.Clone(blocks)
		for k := range other {
			other[k] ^= kvblock.Hash(i+1) << 40
		}
		x.Hold(0, slot, other)
		x.Correct(slot, x.Promise(0, slot, other), other, n)
	}
}

// TestCorrect_TakesFewClaimsForTheirOwn has chains that were gone say so again and again: what
// others hold is there until three of them agree.
func TestCorrect_TakesFewClaimsForTheirOwn(t *testing.T) {
	x := New(Config{BudgetBytes: 1 << 20})
	idle := chain(0, 0, 9, 20)
	x.Hold(0, 0, idle)
	missed := func(c int) {
		p := chain(0, 0, c, 30)
		x.Hold(0, 0, p)
		b := x.Promise(0, 0, p)
		x.Hold(0, 0, p)
		x.Correct(0, b, p, 0)
		if got := overlapOf(x, 0, 0, p); got != 30 {
			t.Errorf("of what was just computed %d blocks of 30 are believed", got)
		}
	}
	for range 5 {
		missed(1)
		missed(2)
	}
	if got := overlapOf(x, 0, 0, idle); got != 20 {
		t.Errorf("two chains were gone, and of another one %d blocks of 20 are believed", got)
	}
	used := chain(0, 0, 8, 100)
	x.Hold(0, 0, used)
	missed(3)
	x.Hold(0, 0, used) // after the oldest claim of those that agree next
	missed(4)
	missed(5)
	if got := overlapOf(x, 0, 0, idle); got != 0 {
		t.Errorf("three chains were gone, and of one that was used before them %d blocks are believed", got)
	}
	if got := overlapOf(x, 0, 0, used); got != 100 {
		t.Errorf("three chains were gone, and of one that was used after the first of them %d blocks of 100 are believed", got)
	}
}

// TestCorrect_WhatIsFoundDisprovesClaims has a chain found that claims had gone, between them.
func TestCorrect_WhatIsFoundDisprovesClaims(t *testing.T) {
	x := New(Config{BudgetBytes: 1 << 20})
	idle, used := chain(0, 0, 8, 20), chain(0, 0, 9, 20)
	x.Hold(0, 0, idle)
	for c := range 9 {
		x.Hold(0, 0, used)
		for k := range 2 {
			p := chain(0, 0, (2*c+k)%5, 30)
			x.Hold(0, 0, p)
			x.Correct(0, x.Promise(0, 0, p), p, 0)
		}
		x.Correct(0, x.Promise(0, 0, used), used, 20)
	}
	if got := overlapOf(x, 0, 0, idle); got != 20 {
		t.Errorf("what claims had gone was found each time, and of another chain %d blocks of 20 are believed", got)
	}
}
