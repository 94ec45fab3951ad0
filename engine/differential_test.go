package engine

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// trio is three engines that are told the same: the reference; one that tells every token;
// and one that tells firsts and lasts alone and so skips what lies between.
type trio struct {
	t    testing.TB
	ref  *reference
	each *Engine
	skip *Engine

	tokens  map[ID]int       // of the reference, since the latest output that skip tells
	last    map[ID]mono.Time // latest output of the reference
	gaps    []time.Duration
	longest int64 // steps that skip took at once
	passed  bool  // a request of skip was passed over for want of a slot
}

func newTrio(t testing.TB, c Config) *trio {
	c.EveryToken = true
	quiet := c
	quiet.EveryToken = false
	return &trio{
		t: t, ref: newReference(c), each: mustNew(t, c), skip: mustNew(t, quiet),
		tokens: map[ID]int{}, last: map[ID]mono.Time{},
	}
}

// advance advances all to the instant and compares everything that can be seen of them, and
// what is in their caches.
func (x *trio) advance(now mono.Time) {
	t := x.t
	want := x.ref.advance(now)
	if got := x.each.Advance(now); !slices.Equal(got, want) {
		t.Fatalf("at %d, every token:\n%+v\nwant\n%+v", now, got, want)
	}
	var ends []Output
	for _, o := range want {
		x.tokens[o.ID] += o.Tokens
		if !o.First {
			x.gaps = append(x.gaps, o.At.Sub(x.last[o.ID]))
		}
		x.last[o.ID] = o.At
		if o.First || o.Finished {
			o.Tokens = x.tokens[o.ID]
			x.tokens[o.ID] = 0
			ends = append(ends, o)
		}
	}
	if got := x.skip.Advance(now); !slices.Equal(got, ends) {
		t.Fatalf("at %d, firsts and lasts:\n%+v\nwant\n%+v", now, got, ends)
	}
	for _, e := range []*Engine{x.each, x.skip} {
		if got := e.Stats(); got != x.ref.shown {
			t.Fatalf("at %d, every token: %v, stats:\n%+v, want\n%+v", now, e.cfg.EveryToken, got, x.ref.shown)
		}
		if got := e.Adapters(); !slices.Equal(got, x.ref.shownAdapters) {
			t.Fatalf("at %d, every token: %v, adapters:\n%+v, want\n%+v", now, e.cfg.EveryToken, got, x.ref.shownAdapters)
		}
		for id, r := range x.ref.live {
			if got := e.Generated(id); got != r.generated {
				t.Fatalf("at %d request %d has %d tokens, want %d", now, id, got, r.generated)
			}
		}
		audit(t, e)
		x.sameCache(now, e)
	}
	x.sameGaps()
	x.longest = max(x.longest, x.skip.span.steps)
	x.passed = x.passed || x.skip.passed != nil
}

// sameCache: the same blocks are free in the same order, have the same content, and belong
// to the same requests, in the same order.
func (x *trio) sameCache(now mono.Time, e *Engine) {
	t, p := x.t, &e.kv
	var free []int
	for id := p.blocks[p.end()].next; id != p.end(); id = p.blocks[id].next {
		free = append(free, int(id))
	}
	if !slices.Equal(free, x.ref.free) {
		t.Fatalf("at %d free: %v, want %v", now, free, x.ref.free)
	}
	for id, want := range x.ref.blocks {
		got := p.blocks[id]
		if int(got.refs) != want.refs || got.hashed != want.hashed || want.hashed && got.hash != want.hash {
			t.Fatalf("at %d block %d: %+v, want %+v", now, id, got, want)
		}
	}
	for h, want := range x.ref.index {
		var ring []int
		if id := p.index.at(p.find(h)); id != none {
			for ring = append(ring, int(id)); p.blocks[id].newer != blockID(ring[0]); {
				id = p.blocks[id].newer
				ring = append(ring, int(id))
			}
		}
		if !slices.Equal(ring, want) {
			t.Fatalf("at %d copies of %x: %v, want %v", now, h, ring, want)
		}
	}
	var host []kvblock.Hash
	if h := p.host; h != nil {
		for id := h.blocks[h.end()].next; id != h.end(); id = h.blocks[id].next {
			if h.blocks[id].hashed {
				host = append(host, h.blocks[id].hash)
			}
		}
	}
	if !slices.Equal(host, x.ref.host) {
		t.Fatalf("at %d the host has %x, want %x", now, host, x.ref.host)
	}
	var idle, wantIdle []kvblock.Hash
	for _, a := range e.lora.held {
		if a.slotted != slices.Contains(x.ref.slotted, a.id) || a.running > 0 != x.ref.runs(a.id) {
			t.Fatalf("at %d adapter %+v; of the reference in slots: %x", now, a, x.ref.slotted)
		}
		if a.running == 0 {
			idle = append(idle, a.id)
		}
	}
	for _, a := range x.ref.held {
		if !x.ref.runs(a) {
			wantIdle = append(wantIdle, a)
		}
	}
	if !slices.Equal(idle, wantIdle) || len(e.lora.held) != len(x.ref.held) {
		t.Fatalf("at %d %d adapters are at the host, idle %x; want %d, idle %x", now, len(e.lora.held), idle, len(x.ref.held), wantIdle)
	}
	same := func(what string, first *request, want []*refRequest) {
		for _, w := range want {
			if first == nil || first.ID != w.ID {
				t.Fatalf("at %d %s: %+v, want %d", now, what, first, w.ID)
			}
			if !slices.EqualFunc(first.blocks, w.blocks, func(a blockID, b int) bool { return int(a) == b }) {
				t.Fatalf("at %d blocks of %d: %v, want %v", now, w.ID, first.blocks, w.blocks)
			}
			first = first.next
		}
		if first != nil {
			t.Fatalf("at %d %s: %d more than the reference has", now, what, first.ID)
		}
	}
	same("running", e.running.head, x.ref.running)
	same("waiting", e.waiting.head, x.ref.waiting)
}

// sameGaps: skip tells the gaps that the outputs of every token show. What is derived
// differs from what is seen by the rounding of both ends and of the series.
func (x *trio) sameGaps() {
	var told []time.Duration
	for _, g := range x.skip.Gaps() {
		for i := range g.Steps {
			d := g.First
			if g.Steps > 1 {
				d += time.Duration(float64(g.Last-g.First) * float64(i) / float64(g.Steps-1))
			}
			for range g.Sequences {
				told = append(told, d)
			}
		}
	}
	slices.Sort(told)
	slices.Sort(x.gaps)
	near := func(a, b time.Duration) bool { return (a - b).Abs() <= 2 }
	if !slices.EqualFunc(told, x.gaps, near) {
		x.t.Fatalf("gaps %v, want %v", told, x.gaps)
	}
	x.gaps = x.gaps[:0]
}

// drawDifferential makes small engines under pressure, with answers long enough to skip
// through.
func drawDifferential(t *rapid.T) Config {
	n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	c := small()
	c.Profile.Decode.Base = float64(n("decode base", 0, 3)) * 17.25
	c.Profile.Decode.PerSequence = float64(n("per sequence", 0, 3)) * 1.37
	c.Profile.Decode.PerContextToken = rapid.SampledFrom([]float64{0, 0.03891, 1e-7, 7.7}).Draw(t, "per context token")
	c.Profile.PrefillMicros = rapid.SampledFrom([]float64{0, 0.000785, 0.3}).Draw(t, "per pair")
	c.BlockTokens = rapid.SampledFrom([]int{1, 2, 3, 4, 6, 16, 64}).Draw(t, "block tokens")
	c.NumBlocks = n("blocks", 4, max(8, 240/c.BlockTokens))
	c.MaxBatchedTokens = n("budget", 3, 60)
	c.MaxSeqs = n("seqs", 1, min(8, c.MaxBatchedTokens))
	c.MaxModelLen = 250
	c.ChunkedPrefill = rapid.Bool().Draw(t, "chunked")
	if !c.ChunkedPrefill {
		c.Batching = Batching(n("batching", 0, 1))
	}
	c.PrefixCaching = n("caching", 0, 3) > 0
	if c.PrefixCaching && n("host", 0, 2) == 0 {
		c.Host = HostTier{Blocks: n("host blocks", 1, 2*c.NumBlocks), Bandwidth: rapid.SampledFrom([]float64{1e6, 3.3e9}).Draw(t, "bandwidth")}
	}
	if most := c.MaxBatchedTokens/c.MaxSeqs - 1; most > 0 && n("speculation", 0, 2) == 0 {
		c.Speculation = Speculation{
			Drafted: n("drafted", 1, min(most, 5)), Acceptance: rapid.SampledFrom([]float64{0, 0.25, 0.8, 1}).Draw(t, "acceptance"),
			Overhead: time.Duration(n("drafting", 0, 1)) * 123457, Seed: 7,
		}
		c.Speculation.Spread = min(c.Speculation.Acceptance, 1-c.Speculation.Acceptance) / 2
	}
	if n("lora", 0, 1) == 0 {
		c.LoRA = drawLoRA(t)
	}
	return c
}

// drawLoRA makes a few slots.
func drawLoRA(t *rapid.T) LoRA {
	n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	slots := n("slots", 1, 3)
	return LoRA{
		MaxLoRAs: slots, MaxCPULoRAs: slots + n("more at the host", 0, 2),
		LoadFromHost: time.Duration(n("from host", 0, 2)) * 1234567, LoadFromDisk: time.Duration(n("from disk", 0, 1)) * 7654321,
	}
}

// adaptersDrawn is how many different ones the tests draw from, the base model for one.
const adaptersDrawn = 6

func TestDifferential(t *testing.T) {
	longest, preempted, waited, passed := int64(0), 0, 0, 0
	for range 20 { // of rapid's hundred
		rapid.Check(t, func(r *rapid.T) {
			x := newTrio(testingTB{TB: t, t: r}, drawDifferential(r))
			x.play(r)
			longest = max(longest, x.longest)
			if x.ref.counters.Preemptions > 0 {
				preempted++
			}
			if x.ref.counters.Finished[Abort] > 0 {
				waited++
			}
			if x.passed {
				passed++
			}
		})
	}
	t.Logf("longest span %d steps; %d workloads with preemptions, %d with aborts, %d with requests that lack a slot", longest, preempted, waited, passed)
	if longest < 50 || preempted < 100 || waited < 100 || passed < 100 {
		t.Errorf("the workloads are too tame")
	}
}

// A waiting request whose hits are free copies needs blocks for them; when the engine
// sleeps it finds the newer copies, which are in use, and fits.
func TestDifferential_SleepForgetsTheOlderCopy(t *testing.T) {
	c := small()
	c.Profile.Decode.PerContextToken = 7.7
	c.BlockTokens, c.NumBlocks, c.MaxBatchedTokens, c.MaxSeqs, c.ChunkedPrefill = 16, 6, 3, 2, false
	x := newTrio(t, c)
	shared := text{family: 1, shared: 32}
	submit := func(at mono.Time, q Request) {
		x.ref.submit(at, q)
		mustSubmit(t, x.each, at, q)
		mustSubmit(t, x.skip, at, q)
	}
	submit(0, shared.request('a', 1, 51, 16))
	b := shared.request('b', 32, 32, 16)
	b.AnswerBlocks = nil
	submit(microsecond, b)
	const now = 70_001 * microsecond
	x.advance(now)
	if x.ref.counters.Preemptions != 1 || len(x.ref.waiting) != 1 {
		t.Fatalf("b does not wait: %+v", x.ref.counters)
	}
	x.ref.command(now, sleep, 0)
	x.ref.command(now, wake, 0)
	for _, e := range []*Engine{x.each, x.skip} {
		e.Sleep(now)
		e.Wake(now)
	}
	x.advance(now + 1000*microsecond)
	if len(x.ref.waiting) != 0 {
		t.Fatal("b still waits")
	}
	x.advance(mono.Never)
}

// play gives the three a random stream of commands. Instants are close to what the engines
// are doing: on the ends of steps and spans, and a nanosecond beside them.
func (x *trio) play(r *rapid.T) {
	n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(r, name) }
	cfg := &x.each.cfg
	room := min(cfg.MaxModelLen, cfg.NumBlocks*cfg.BlockTokens)
	now := mono.Time(0)
	for i := range n("commands", 1, 60) {
		near := func(at mono.Time, ok bool) {
			if at += mono.Time(n("beside", -1, 1)); ok && at >= now {
				now = at
			}
		}
		switch n("pace of time", 0, 5) {
		case 0:
			near(x.each.Next())
		case 1:
			near(x.skip.Next())
		case 2:
			if at, ok := x.skip.Next(); ok {
				near(now+(at-now)/mono.Time(n("share", 1, 5)), true)
			}
		case 3:
			now += microsecond * mono.Time(rapid.SampledFrom([]int{1, 500, 1000, 9000, 70000, 900000}).Draw(r, "gap"))
		}
		switch n("command", 0, 11) {
		case 0, 1, 2, 3:
			prompt := n("prompt", 1, room)
			answer := n("answer", 0, room-prompt)
			text := text{family: n("family", 0, 2), shared: n("shared", 0, 200), own: i}
			q := text.request(ID(n("name", 0, 4)*100+i), prompt, answer, cfg.BlockTokens)
			q.Reason = FinishReason(n("reason", 0, 1))
			if cfg.LoRA.MaxLoRAs > 0 {
				q.Adapter = kvblock.Hash(n("adapter", 0, adaptersDrawn-1))
			}
			if n("hashes", 0, 3) == 0 {
				q.AnswerBlocks = nil
			}
			x.ref.submit(now, q)
			mustSubmit(x.t, x.each, now, q)
			mustSubmit(x.t, x.skip, now, q)
		case 4, 5:
			ids := make([]ID, 0, len(x.ref.live))
			for id := range x.ref.live {
				ids = append(ids, id)
			}
			if slices.Sort(ids); len(ids) > 0 {
				id := rapid.SampledFrom(ids).Draw(r, "aborted")
				x.ref.abort(now, id)
				x.each.Abort(now, id)
				x.skip.Abort(now, id)
			}
		case 6:
			pace := rapid.SampledFrom([]float64{1, 0.5, 3, 1e-4, 1.37}).Draw(r, "throttle")
			x.ref.command(now, throttle, pace)
			x.each.Throttle(now, pace)
			x.skip.Throttle(now, pace)
		case 7:
			x.ref.command(now, sleep, 0)
			x.each.Sleep(now)
			x.skip.Sleep(now)
			until := now + microsecond*mono.Time(n("asleep", 0, 20000))
			x.ref.command(until, wake, 0)
			x.each.Wake(until)
			x.skip.Wake(until)
		default:
			x.advance(now)
		}
	}
	for at, ok := x.skip.Next(); ok; at, ok = x.skip.Next() {
		x.advance(at)
	}
	x.advance(mono.Never)
	if len(x.ref.live) != 0 {
		x.t.Fatalf("%d requests never end", len(x.ref.live))
	}
}
