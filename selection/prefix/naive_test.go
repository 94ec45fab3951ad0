package prefix

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// naive is the index as one would write it without a thought for memory or time: a map of
// blocks for each holder, and a match that walks block by block. It evicts nothing for
// want of room; when each block was last named tells what an index that does must keep.
type naive struct {
	half    time.Duration
	records int
	holders map[holder]*naiveHolder
	named   map[kvblock.Hash]naming
	shared  map[kvblock.Hash]bool
}

type holder struct {
	slot selection.Slot
	rank int
}

const naiveRanks = 3 // of a slot, at most

type naming struct{ record, position int }

type naiveHolder struct {
	capacity int64
	finite   bool  // it has had a capacity
	odometer int64 // in units of 1/2^32 fine blocks
	floor    int64
	strict   int64 // the floor for stamps up to horizon, where higher
	horizon  int64
	claims   []naiveClaim // newest first
	blocks   map[kvblock.Hash]naiveBelief
	host     map[kvblock.Hash]bool
	disk     map[kvblock.Hash]bool
}

type naiveClaim struct {
	missing     kvblock.Hash
	floor, made int64
}

type naiveBelief struct {
	held  bool
	value int64 // stamp, or the half TTL of the newest promise; -9: neither
	said  int64 // the half TTL of the newest promise, also of what was held; -9: none
}

func newNaive(ttl time.Duration) *naive {
	return &naive{half: ttl / 2, holders: map[holder]*naiveHolder{}, named: map[kvblock.Hash]naming{}, shared: map[kvblock.Hash]bool{}}
}

func (m *naive) holder(h holder) *naiveHolder {
	if m.holders[h] == nil {
		m.holders[h] = &naiveHolder{floor: noFloor, strict: noFloor, blocks: map[kvblock.Hash]naiveBelief{}, host: map[kvblock.Hash]bool{}, disk: map[kvblock.Hash]bool{}}
	}
	return m.holders[h]
}

// has says whether the holder's cache has a block, the last one of the first n of a chain.
func (o *naiveHolder) has(h kvblock.Hash, n int) bool {
	b, known := o.blocks[h]
	last := b.value - int64(kvblock.Span(n)) // as if it had been used then
	return known && b.held && last >= o.floor && (last >= o.strict || b.value > o.horizon)
}

func (o *naiveHolder) run(whole, part int64) {
	o.odometer += whole << 32
	if o.capacity > 0 {
		o.odometer += part/o.capacity<<32 + part%o.capacity<<32/o.capacity
		o.floor = max(o.floor, o.odometer>>32-o.capacity)
	}
}

func (m *naive) record(now mono.Time, h holder, blocks []kvblock.Hash, held bool) (had int, stamp, made int64) {
	if len(blocks) == 0 {
		return 0, 0, 0
	}
	o := m.holder(h)
	reused := int64(0)
	for had < len(blocks) && o.has(blocks[had], had+1) {
		stamp = o.blocks[blocks[had]].value
		reused += min(o.odometer>>32-stamp, max(o.capacity, 1)) * int64(kvblock.Span(had+1)-kvblock.Span(had))
		had++
	}
	stored := 0
	if held {
		stored = max(kvblock.Span(len(blocks))-kvblock.Span(had), 1)
	}
	o.run(int64(stored), reused)
	m.records++
	for i, b := range blocks {
		m.named[b] = naming{m.records, i}
		said := int64(-9)
		if old, known := o.blocks[b]; known {
			said = old.said
		}
		if !held {
			said = int64(now.Duration() / m.half)
		}
		if held || o.has(b, i+1) {
			o.blocks[b] = naiveBelief{true, o.odometer >> 32, said}
		} else {
			o.blocks[b] = naiveBelief{false, said, said}
		}
	}
	return had, stamp, o.odometer >> 32
}

func (m *naive) correct(s said, n int) {
	o := m.holder(s.holder)
	if s.had == 0 {
		return
	}
	if n >= s.had {
		o.claims = slices.DeleteFunc(o.claims, func(k naiveClaim) bool {
			return s.made > k.made && s.stamp-int64(kvblock.Span(s.had)) < k.floor
		})
		return
	}
	k := naiveClaim{s.blocks[n], s.stamp - int64(kvblock.Span(n+1)) + 1, s.made}
	before := len(o.claims)
	o.claims = slices.DeleteFunc(o.claims, func(other naiveClaim) bool { return other.missing == k.missing })
	if before == 2 && len(o.claims) == 2 {
		o.strict = max(o.strict, min(k.floor, o.claims[0].floor, o.claims[1].floor))
		o.horizon = max(o.horizon, min(k.made, o.claims[0].made, o.claims[1].made))
		o.claims = o.claims[:1]
	}
	o.claims = append([]naiveClaim{k}, o.claims...)
	o.run(int64(kvblock.Span(s.had)-kvblock.Span(n)), 0)
}

func (m *naive) setCapacity(h holder, fine int) {
	o := m.holder(h)
	o.capacity, o.finite = int64(fine), o.finite || fine > 0
	o.run(0, 0)
}

func (m *naive) withdraw(h holder, blocks []kvblock.Hash, from int) {
	for _, b := range blocks[from:] {
		if known, there := m.holder(h).blocks[b]; there && !known.held {
			m.holder(h).blocks[b] = naiveBelief{false, -9, known.said}
		}
	}
}

// store and drop say of tiers other than Device what the set has and no longer has.
func (m *naive) store(set map[kvblock.Hash]bool, blocks []kvblock.Hash) {
	if len(blocks) > 0 {
		m.records++
	}
	for i, b := range blocks {
		m.named[b] = naming{m.records, i}
		set[b] = true
	}
}

func (m *naive) tier(h holder, t Tier) map[kvblock.Hash]bool {
	if t == Host {
		return m.holder(h).host
	}
	return m.holder(h).disk
}

func (m *naive) drop(h holder, t Tier, blocks []kvblock.Hash, from int) {
	for _, b := range blocks[from:] {
		switch {
		case t != Device:
			delete(m.tier(h, t), b)
		case m.holder(h).blocks[b].held:
			m.holder(h).blocks[b] = naiveBelief{false, -9, m.holder(h).blocks[b].said}
		}
	}
}

// loadable returns how many of the blocks, from the first on, slot's best rank has or can
// load, from its host and from any storage.
func (m *naive) loadable(now mono.Time, slot selection.Slot, blocks []kvblock.Hash) (host, disk int32) {
	for _, b := range blocks {
		if !m.shared[b] {
			break
		}
		disk++
	}
	for rank := range naiveRanks {
		o := m.holders[holder{slot, rank}]
		if o == nil {
			continue
		}
		var there [2]int32
		for k := range there {
			for i, b := range blocks {
				if !o.has(b, i+1) && !m.promised(o, now, b) && !o.host[b] && (k == 0 || !o.disk[b] && !m.shared[b]) {
					break
				}
				there[k]++
			}
		}
		host, disk = max(host, there[0]), max(disk, there[1])
	}
	return host, disk
}

func (m *naive) forget(slot selection.Slot) {
	for rank := range naiveRanks {
		delete(m.holders, holder{slot, rank})
	}
}

// overlap returns how many of the blocks slot's best rank holds or was promised, and how
// many one holds.
func (m *naive) overlap(now mono.Time, slot selection.Slot, blocks []kvblock.Hash) (believed, held int32) {
	for rank := range naiveRanks {
		b, k := m.overlapOf(now, holder{slot, rank}, blocks)
		believed, held = max(believed, b), max(held, k)
	}
	return believed, held
}

func (m *naive) overlapOf(now mono.Time, h holder, blocks []kvblock.Hash) (believed, held int32) {
	o := m.holders[h]
	if o == nil {
		return 0, 0
	}
	there := func(promises bool) (n int32) {
		for i := range blocks {
			if !o.has(blocks[i], i+1) && (!promises || !m.promised(o, now, blocks[i])) {
				break
			}
			n++
		}
		return n
	}
	return there(true), there(false)
}

func (m *naive) promised(o *naiveHolder, now mono.Time, h kvblock.Hash) bool {
	b, known := o.blocks[h]
	return known && !b.held && int64(now.Duration()/m.half)-b.value <= 1
}

// deepest returns how many blocks there are up to the last one that slot's best rank has.
// Where an endpoint's cache has lost blocks while those behind them were on their way to
// it, that is more than the overlap.
func (m *naive) deepest(now mono.Time, slot selection.Slot, blocks []kvblock.Hash) (deepest int32) {
	for rank := range naiveRanks {
		deepest = max(deepest, m.deepestOf(now, holder{slot, rank}, blocks))
	}
	return deepest
}

func (m *naive) deepestOf(now mono.Time, h holder, blocks []kvblock.Hash) (deepest int32) {
	o := m.holders[h]
	for i := range blocks {
		if o != nil && (o.has(blocks[i], i+1) || m.promised(o, now, blocks[i])) {
			deepest = int32(i + 1)
		}
	}
	return deepest
}

// torn says whether there is a holder whose cache has lost blocks while those behind them
// were on their way to it.
func (m *naive) torn(now mono.Time, blocks []kvblock.Hash) bool {
	for h := range m.holders {
		if believed, _ := m.overlapOf(now, h, blocks); believed != m.deepestOf(now, h, blocks) {
			return true
		}
	}
	return false
}

// most returns the most that an index may believe which had no room for some of what it
// was told: it may know of a promise of what was held.
func (m *naive) most(now mono.Time, slot selection.Slot, blocks []kvblock.Hash) int32 {
	most := 0
	for rank := range naiveRanks {
		o := m.holders[holder{slot, rank}]
		if o == nil {
			continue
		}
		for i, b := range blocks {
			known, there := o.blocks[b]
			if there && (o.has(b, i+1) || int64(now.Duration()/m.half)-known.said <= 1) {
				most = max(most, i+1)
			}
		}
	}
	return int32(most)
}

// finite says whether a cache of the slot has had a capacity.
func (m *naive) finite(slot selection.Slot) bool {
	for rank := range naiveRanks {
		if o := m.holders[holder{slot, rank}]; o != nil && o.finite {
			return true
		}
	}
	return false
}

// chain returns the blocks of a prompt: so many of a system prompt, then so many of a
// conversation.
func chain(system, systemBlocks, conversation, conversationBlocks int) []kvblock.Hash {
	h := kvblock.Seed("test")
	var blocks []kvblock.Hash
	add := func(a, b, n int) {
		for i := range n {
			h = kvblock.Chain(h, []byte{byte(a), byte(b), byte(b >> 8), byte(i), byte(i >> 8)})
			blocks = append(blocks, h)
		}
	}
	add(system, 0, systemBlocks)
	add(255, conversation, conversationBlocks)
	return blocks
}

func drawChain(t *rapid.T, longest int) []kvblock.Hash {
	return chain(
		rapid.IntRange(0, 2).Draw(t, "system"),
		rapid.SampledFrom([]int{0, 1, 7, 11, 40, 70}).Draw(t, "system blocks"),
		rapid.IntRange(0, 9).Draw(t, "conversation"),
		rapid.IntRange(0, longest).Draw(t, "conversation blocks"))
}

// TestFind_WhenNothingIsEvicted_EqualsNaive has promises, confirmations, expiry, capacity,
// corrections and forgotten endpoints, on slots with one rank and with several.
func TestFind_WhenNothingIsEvicted_EqualsNaive(t *testing.T) {
	rapid.Check(t, propertyEqualsNaive)
}

func FuzzFindEqualsNaive(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(propertyEqualsNaive))
}

// said is a Belief as both have it.
type said struct {
	holder holder
	blocks []kvblock.Hash
	index  Belief
	had    int
	stamp  int64
	made   int64
}

func propertyEqualsNaive(t *rapid.T) {
	const ttl = time.Second
	slots := rapid.SampledFrom([]int{1, 5, 65, 130}).Draw(t, "slots")
	p := pair{
		x:     New(Config{BudgetBytes: 4 << 20, SpeculativeTTL: ttl, Endpoints: rapid.IntRange(0, slots).Draw(t, "at start")}),
		m:     newNaive(ttl),
		slots: slots, ranks: rapid.SampledFrom([]int{1, 3}).Draw(t, "ranks"), longest: 90,
	}
	p.run(t, func(t *rapid.T, blocks []kvblock.Hash) {
		p.find(blocks)
		torn := p.m.torn(p.now, blocks)
		for s := range slots {
			believed, held := p.m.overlap(p.now, selection.Slot(s), blocks)
			if torn {
				if p.o.Believed[s] < held || p.o.Believed[s] > p.m.deepest(p.now, selection.Slot(s), blocks) || p.o.Held[s] != held {
					t.Fatalf("slot %d: overlap %d, %d of it held; the naive index says %d, %d", s, p.o.Believed[s], p.o.Held[s], believed, held)
				}
				continue
			}
			best := holder{selection.Slot(s), int(p.o.Rank[s])}
			if one, _ := p.m.overlapOf(p.now, best, blocks); one != believed {
				t.Fatalf("slot %d: rank %d has %d blocks of %d", s, best.rank, one, believed)
			}
			if p.o.Believed[s] != believed || p.o.Held[s] != held {
				t.Fatalf("slot %d: overlap %d, %d of it held; the naive index says %d, %d", s, p.o.Believed[s], p.o.Held[s], believed, held)
			}
		}
		checkStructure(t, p.x, 0)
	})
}

// TestFind_WhenTiersAreTold_EqualsNaive has endpoints say what they keep where, and drop
// what they like.
func TestFind_WhenTiersAreTold_EqualsNaive(t *testing.T) {
	rapid.Check(t, propertyTiersEqualNaive)
}

func FuzzTiersEqualNaive(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(propertyTiersEqualNaive))
}

func propertyTiersEqualNaive(t *rapid.T) {
	const slots = 4
	p := pair{
		x: New(Config{BudgetBytes: 4 << 20, SpeculativeTTL: time.Second}), m: newNaive(time.Second),
		slots: slots, ranks: 2, longest: 40, tiers: true,
	}
	p.run(t, func(t *rapid.T, blocks []kvblock.Hash) {
		p.find(blocks)
		for s := range selection.Slot(slots) {
			believed, held := p.m.overlap(p.now, s, blocks)
			host, disk := p.m.loadable(p.now, s, blocks)
			if !p.x.tiered {
				host, disk = p.o.Believed[s], p.o.Believed[s]
				if p.m.torn(p.now, blocks) {
					continue
				}
			}
			if got := [4]int32{p.o.Held[s], p.o.Believed[s], p.o.Host[s], p.o.Disk[s]}; got != [4]int32{held, believed, host, disk} {
				t.Fatalf("slot %d: held, believed, with host, with disk %d; the naive index says %d", s, got, [4]int32{held, believed, host, disk})
			}
		}
		checkStructure(t, p.x, 0)
	})
}

// pair is an index and a naive one to which the same happens.
type pair struct {
	x                     *Index
	m                     *naive
	now                   mono.Time
	slots, ranks, longest int
	tiers                 bool
	full                  bool // x forgets for want of room
	said                  []said
	o                     Overlaps
}

func (p *pair) run(t *rapid.T, check func(*rapid.T, []kvblock.Hash)) {
	anyHolder := func(t *rapid.T) holder {
		return holder{selection.Slot(rapid.IntRange(0, p.slots-1).Draw(t, "slot")), rapid.IntRange(0, p.ranks-1).Draw(t, "rank")}
	}
	actions := map[string]func(*rapid.T){
		"promise": func(t *rapid.T) {
			h, b := anyHolder(t), drawChain(t, p.longest)
			s := said{holder: h, blocks: b, index: p.x.PromiseRank(p.now, h.slot, h.rank, b)}
			s.had, s.stamp, s.made = p.m.record(p.now, h, b, false)
			p.said = append(p.said, s)
		},
		"hold": func(t *rapid.T) {
			h, b := anyHolder(t), drawChain(t, p.longest)
			p.x.HoldRank(p.now, h.slot, h.rank, b)
			p.m.record(p.now, h, b, true)
		},
		"withdraw": func(t *rapid.T) {
			h, b := holder{slot: anyHolder(t).slot}, drawChain(t, p.longest)
			from := rapid.IntRange(0, len(b)).Draw(t, "from")
			p.x.Withdraw(h.slot, b, from)
			p.m.withdraw(h, b, from)
		},
		"all hold": func(t *rapid.T) {
			b := drawChain(t, p.longest)
			for s := range selection.Slot(p.slots) {
				p.x.Hold(p.now, s, b)
				p.m.record(p.now, holder{slot: s}, b, true)
			}
		},
		"all promise": func(t *rapid.T) {
			b := drawChain(t, p.longest)
			for s := range selection.Slot(p.slots) {
				p.x.Promise(p.now, s, b)
				p.m.record(p.now, holder{slot: s}, b, false)
			}
		},
		"correct": func(t *rapid.T) {
			if len(p.said) == 0 {
				return
			}
			i := rapid.IntRange(0, len(p.said)-1).Draw(t, "which")
			s := p.said[i]
			n := rapid.IntRange(0, s.had+2).Draw(t, "cached")
			if int(s.index.Held) != s.had || int64(s.index.made) != s.made {
				// An index that has forgotten chains counts them twice: the two no longer mean the
				// same by a stamp.
				if !p.full {
					t.Fatalf("believed of slot %d: %+v, the naive index %d blocks at %d", s.holder.slot, s.index, s.had, s.made)
				}
				return
			}
			p.x.Correct(s.holder.slot, s.index, s.blocks, n)
			p.m.correct(s, n)
		},
		"capacity": func(t *rapid.T) {
			h, c := anyHolder(t), rapid.SampledFrom([]int{0, 1, 30, 100, 400}).Draw(t, "capacity")
			p.x.SetCapacity(h.slot, h.rank, c)
			p.m.setCapacity(h, c)
		},
		"forget": func(t *rapid.T) {
			s := anyHolder(t).slot
			p.x.Forget(s)
			p.m.forget(s)
			kept := p.said[:0]
			for _, said := range p.said {
				if said.holder.slot == s {
					p.x.Correct(s, said.index, said.blocks, 0) // what was said of the endpoint before is nothing to this one
					continue
				}
				kept = append(kept, said)
			}
			p.said = kept
		},
		"wait": func(t *rapid.T) {
			p.now = p.now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "wait")))
		},
		"": func(t *rapid.T) { check(t, drawChain(t, p.longest)) },
	}
	if p.tiers {
		actions["store"] = func(t *rapid.T) {
			h, tier, b := anyHolder(t), rapid.SampledFrom([]Tier{Device, Host, Disk}).Draw(t, "tier"), drawChain(t, p.longest)
			p.x.Store(p.now, h.slot, h.rank, tier, b)
			if tier == Device {
				p.m.record(p.now, h, b, true)
			} else {
				p.m.store(p.m.tier(h, tier), b)
			}
		}
		actions["drop"] = func(t *rapid.T) {
			h, tier, b := anyHolder(t), rapid.SampledFrom([]Tier{Device, Host, Disk}).Draw(t, "tier"), drawChain(t, p.longest)
			from := rapid.IntRange(0, len(b)).Draw(t, "from")
			p.x.Drop(h.slot, h.rank, tier, b, from)
			p.m.drop(h, tier, b, from)
		}
		actions["store shared"] = func(t *rapid.T) {
			b := drawChain(t, p.longest)
			p.x.StoreShared(p.now, b)
			p.m.store(p.m.shared, b)
		}
		actions["drop shared"] = func(t *rapid.T) {
			b := drawChain(t, p.longest)
			from := rapid.IntRange(0, len(b)).Draw(t, "from")
			p.x.DropShared(b, from)
			for _, b := range b[from:] {
				delete(p.m.shared, b)
			}
		}
	}
	t.Repeat(actions)
}

func (p *pair) find(blocks []kvblock.Hash) {
	if p.o.Believed == nil {
		p.o = Overlaps{
			Believed: make([]int32, p.slots), Held: make([]int32, p.slots), Rank: make([]uint8, p.slots),
			Host: make([]int32, p.slots), Disk: make([]int32, p.slots),
		}
	}
	for i := range p.slots {
		p.o.Believed[i], p.o.Held[i], p.o.Rank[i], p.o.Host[i], p.o.Disk[i] = 99, 99, 99, 99, 99 // Find clears it
	}
	p.x.Find(p.now, blocks, p.o)
}

// TestFind_WhenFull_EqualsNaiveOfWhatIsLeft has an index that evicts all the time: of what
// it still knows it must say what the naive one says, and what it knows must be what was
// named most recently, the beginning of each chain ahead of its end.
func TestFind_WhenFull_EqualsNaiveOfWhatIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pair{x: New(Config{BudgetBytes: 1 << 20, SpeculativeTTL: time.Second}), m: newNaive(time.Second), slots: 120, ranks: 2, longest: 300, full: true, tiers: rapid.Bool().Draw(t, "tiers")}
		p.x.cells = newCells(1)
		withheld := rapid.SampledFrom([]int{0, chunkCells - 100, chunkCells - 150}).Draw(t, "withheld")
		p.x.cells.fresh += uint32(withheld)
		p.run(t, func(t *rapid.T, blocks []kvblock.Hash) {
			p.find(blocks)
			known := int32(p.x.knows(blocks))
			for s := range p.slots {
				_, held := p.m.overlap(p.now, selection.Slot(s), blocks)
				most := p.m.most(p.now, selection.Slot(s), blocks)
				if p.m.finite(selection.Slot(s)) {
					// By how much a use moves the odometer depends on what is known of the chain, so
					// the two need not believe the same of a cache that is full.
					most, held = known, known
				}
				// A correction may rest on what was forgotten since: then less is believed.
				if p.o.Believed[s] > min(most, known) || p.o.Held[s] > min(held, known) {
					t.Fatalf("slot %d: overlap %d, %d of it held; the naive index says %d held, and %d blocks are known", s, p.o.Believed[s], p.o.Held[s], held, known)
				}
			}
			checkStructure(t, p.x, withheld)
			checkRecency(t, p.x, p.m)
		})
	})
}

// knows returns how many of the blocks, from the first on, are in the index.
func (x *Index) knows(blocks []kvblock.Hash) int {
	d := 0
	for d < len(blocks) {
		i := x.find(blocks[d])
		if i == root {
			break
		}
		d += x.cells.at(i).shares(blocks[d:])
	}
	return d
}

// checkRecency looks for blocks that stand before others that were named more recently.
func checkRecency(t interface{ Fatalf(string, ...any) }, x *Index, m *naive) {
	before := naming{record: 1 << 60}
	for i := x.cells.at(root).next(); i != root; i = x.cells.at(i).next() {
		c := x.cells.at(i)
		for _, h := range c[:c.length()] {
			n := m.named[kvblock.Hash(h)]
			if cmp.Or(cmp.Compare(before.record, n.record), cmp.Compare(n.position, before.position)) <= 0 {
				t.Fatalf("a block named in record %d at %d stands behind one of record %d at %d; sizes %v", n.record, n.position, before.record, before.position, x.Len())
			}
			before = n
		}
	}
}

// checkStructure walks everything. Of the cells so many are withheld by the test.
func checkStructure(t interface{ Fatalf(string, ...any) }, x *Index, withheld int) {
	cells, nodes, blocks := 1, 0, 0
	for i := x.cells.at(root).next(); i != root; i = x.cells.at(i).next() {
		c := x.cells.at(i)
		if x.cells.at(c.next()).prev() != i {
			t.Fatalf("node %d: the list is torn", i)
		}
		if got := x.find(c.head()); got != i {
			t.Fatalf("node %d is found as %d", i, got)
		}
		if c.length() < 1 || c.length() > runBlocks {
			t.Fatalf("node %d has %d blocks", i, c.length())
		}
		nodes++
		blocks += c.length()
		seen := map[belief]bool{}
		if c.wide() {
			cells++
		}
		for h := x.holdings(i); h.c != nil; h.next() {
			cells++
			for _, w := range h.c.beliefs() {
				b := belief(w)
				if b.column() < 0 || int(b.column()) >= len(x.columns) || x.columns[b.column()].state == vacant {
					t.Fatalf("node %d has a belief of column %d", i, b.column())
				}
				alike := b >> 32
				if b.kind() <= device {
					alike = b >> 33 << 1
				}
				if seen[alike] {
					t.Fatalf("node %d believes twice of column %d", i, b.column())
				}
				seen[alike] = true
				if got, known := x.believed(i, b); !known || got != b {
					t.Fatalf("node %d: the belief of column %d is not found", i, b.column())
				}
			}
			if h.c.more() != 0 && !h.c.wide() && h.c.room() > 0 || h.c.length() == 0 && h.c.count() == 0 {
				t.Fatalf("node %d has room before its last link, or an empty one", i)
			}
		}
		if cells > int(x.cells.fresh) {
			t.Fatalf("more cells than there are")
		}
	}
	for i := x.cells.spare; i != 0; i = x.cells.at(i).more() {
		cells++
	}
	entered := 0
	for p := range x.table.full {
		if x.table.at(p) != 0 {
			entered++
		}
	}
	if nodes != x.table.used || entered != nodes || blocks != x.Len() {
		t.Fatalf("%d nodes in the list, %d in the table, %d counted there; %d blocks, %d counted", nodes, entered, x.table.used, blocks, x.Len())
	}
	if lost := int(x.cells.fresh) - cells; lost != withheld {
		t.Fatalf("%d cells are neither in use nor vacant", lost)
	}
	vacancies, waiting := 0, 0
	for col := x.vacant; col != selection.None; col = x.columns[col].sibling {
		vacancies++
	}
	for i := range x.columns {
		c := &x.columns[i]
		switch c.state {
		case vacant:
			vacancies--
		case retired, sweeping:
			waiting++
		case live:
			if int32(i) != x.shared && x.columnOf(c.slot, int(c.rank)) != int32(i) {
				t.Fatalf("column %d is not its slot's", i)
			}
		}
		if c.any != 0 || c.held != 0 || c.host != 0 || c.disk != 0 || c.met {
			t.Fatalf("column %d: a match has left something", i)
		}
	}
	if vacancies != 0 || waiting != x.retired {
		t.Fatalf("%d columns wait, %d counted; the list of vacant ones differs by %d", waiting, x.retired, vacancies)
	}
}
