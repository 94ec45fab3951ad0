package prefix

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
)

func overlapOf(x *Index, now mono.Time, slot selection.Slot, blocks []kvblock.Hash) int {
	overlap := make([]int32, slot+1)
	x.Match(now, blocks, overlap)
	return int(overlap[slot])
}

func TestPromise_WhenUnconfirmed_ExpiresWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(int64(minSpeculativeTTL), int64(time.Minute)).Draw(t, "ttl"))
		made := mono.Time(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "made"))
		age := time.Duration(rapid.Int64Range(0, 3*int64(ttl)).Draw(t, "age"))
		if rapid.Bool().Draw(t, "at a bound") {
			age = rapid.SampledFrom([]time.Duration{ttl / 2, ttl}).Draw(t, "bound")
		}
		x := New(Config{BudgetBytes: 1 << 20, SpeculativeTTL: ttl})
		blocks := chain(0, 3, 0, 3)
		x.Promise(made, 2, blocks)
		x.Hold(made, 3, blocks)
		// What others promise and hold later renews nothing of it.
		x.Promise(made.Add(age/2), 1, blocks)
		x.Hold(made.Add(age/2), 0, blocks)
		got := overlapOf(x, made.Add(age), 2, blocks)
		if age <= ttl/2 && got != 6 || age >= ttl && got != 0 {
			t.Fatalf("a promise aged %v with a TTL of %v: overlap %d", age, ttl, got)
		}
		if got := overlapOf(x, made.Add(age), 3, blocks); got != 6 {
			t.Fatalf("held blocks expired: overlap %d", got)
		}
	})
}

func TestHold_WhenPromised_OutlivesThePromise(t *testing.T) {
	x := New(Config{BudgetBytes: 1 << 20})
	blocks := chain(0, 4, 0, 4)
	x.Promise(0, 1, blocks)
	x.Hold(1, 1, blocks[:6])
	x.Promise(2, 1, blocks)
	later := mono.Time(0).Add(24 * time.Hour)
	if got := overlapOf(x, later, 1, blocks); got != 6 {
		t.Errorf("overlap %d after a day, want the 6 blocks that were confirmed", got)
	}
	x.Forget(1)
	if got := overlapOf(x, later, 1, blocks); got != 0 {
		t.Errorf("overlap %d of a forgotten endpoint", got)
	}
	x.Promise(later, 1, blocks[:2])
	if got := overlapOf(x, later, 1, blocks); got != 2 {
		t.Errorf("overlap %d after the endpoint came back, want the 2 blocks it was promised since", got)
	}
}

// TestCorrect_WhenTheHolderIsAnotherOne_ChangesNothing has a restarted endpoint get the
// column back that it had before.
func TestCorrect_WhenTheHolderIsAnotherOne_ChangesNothing(t *testing.T) {
	x := New(Config{BudgetBytes: 1 << 20})
	x.Hold(0, 0, chain(0, 0, 0, 100))
	x.Hold(0, 0, chain(0, 0, 1, 100))
	was := x.Promise(0, 0, chain(0, 0, 1, 100))
	x.Forget(0)
	for c := range 20 {
		x.Hold(0, 1, chain(0, 0, 2+c, 50))
	}
	blocks := chain(0, 0, 0, 20)
	x.Hold(0, 0, blocks)
	if x.first[0] != was.col || was.Held != 100 {
		t.Fatalf("column %d after %d, of %d blocks", x.first[0], was.col, was.Held)
	}
	x.Correct(0, was, chain(0, 0, 1, 100), 0)
	if got := overlapOf(x, 0, 0, blocks); got != 20 {
		t.Errorf("overlap %d of what the new process holds, want 20", got)
	}
}

// TestRecord_WhenFull_EvictsTailsOfTheOldest fills the index with chains and looks at
// what is left: of the chains named longest ago nothing, of one of them the head, of
// later ones all.
func TestRecord_WhenFull_EvictsTailsOfTheOldest(t *testing.T) {
	const chains, length = 300, 100
	x := New(Config{BudgetBytes: 1 << 20})
	room := x.roomBlocks()
	for c := range chains {
		x.Hold(0, 0, chain(0, 0, c, length))
		if c > 0 {
			x.Hold(0, 0, chain(0, 0, 0, length)) // the first chain stays in use
		}
	}
	if got := overlapOf(x, 0, 0, chain(0, 0, 0, length)); got != length {
		t.Errorf("overlap %d of the chain in use, want %d", got, length)
	}
	// A chain takes ten cells.
	cells := room/runBlocks - 10
	for c := chains - 1; c > 0; c-- {
		want := min(max(cells, 0)*runBlocks, length)
		if got := overlapOf(x, 0, 0, chain(0, 0, c, length)); got != want {
			t.Errorf("chain %d: overlap %d, want %d", c, got, want)
		}
		cells -= 10
	}
}

func TestRecord_WhenChainIsLongerThanTheIndex_KeepsItsHead(t *testing.T) {
	x := New(Config{BudgetBytes: 1 << 20})
	room := x.roomBlocks()
	x.Hold(0, 0, chain(0, 0, 1, 500))
	long := chain(0, 0, 2, room+500)
	for range 2 {
		x.Hold(0, 0, long)
		if got := overlapOf(x, 0, 0, long); got != room {
			t.Errorf("overlap %d, want all %d blocks", got, room)
		}
	}
	checkStructure(t, x, 0)
}

// TestRecord_WhenArgumentsAreNoChains_StaysSound feeds what no caller should: the same
// block twice, blocks without those before them, slots out of range.
func TestRecord_WhenArgumentsAreNoChains_StaysSound(t *testing.T) {
	x := New(Config{BudgetBytes: 1 << 20})
	x.cells = newCells(1)
	r := seed.New(1, seed.Workload, 0, 0)
	limit := x.limit / 2
	overlap := make([]int32, 3)
	given := make([]map[kvblock.Hash]bool, len(overlap))
	for s := range given {
		given[s] = map[kvblock.Hash]bool{}
	}
	for range 3000 {
		blocks := make([]kvblock.Hash, r.Intn(40))
		for i := range blocks {
			blocks[i] = kvblock.Chain(0, []byte{byte(r.Intn(6)), byte(r.Intn(256))})
		}
		if r.Intn(4) == 0 {
			blocks = slices.Concat(blocks, blocks)
		}
		slot := selection.Slot(r.Intn(len(overlap)))
		x.Hold(0, slot, blocks)
		for _, h := range blocks {
			given[slot][h] = true
		}
		out := selection.Slot(limit + r.Intn(10))
		x.Promise(0, out, blocks)
		x.Promise(0, -1-out, blocks)
		x.SetCapacity(out, 0, 1)
		x.SetCapacity(0, MostRanks, 1)
		x.HoldRank(0, 0, -1, blocks)
		x.Forget(out)
		x.Forget(-1 - out)
		for _, h := range blocks {
			x.Match(0, []kvblock.Hash{h}, overlap)
			for s := range overlap {
				if overlap[s] > 0 && !given[s][h] {
					t.Fatalf("slot %d never had block %x", s, h)
				}
			}
		}
	}
	x.Match(0, nil, overlap)
	if !slices.Equal(overlap, []int32{0, 0, 0}) {
		t.Errorf("overlap %v with no blocks", overlap)
	}
}

// TestForget_WhenEndpointsComeAndGo_ReusesColumnsAndCells lets every slot restart over
// and over: columns are bounded, and so must be what the restarts leave behind.
func TestForget_WhenEndpointsComeAndGo_ReusesColumnsAndCells(t *testing.T) {
	const slots, length = 214, 5
	x := New(Config{BudgetBytes: 1 << 20, Endpoints: slots})
	for round := range 20 {
		for s := range selection.Slot(slots) {
			blocks := chain(0, 0, round, length)
			if got := overlapOf(x, 0, s, blocks); got != 0 {
				t.Fatalf("round %d, slot %d: overlap %d after it was forgotten", round, s, got)
			}
			x.Hold(0, s, blocks)
			if got := overlapOf(x, 0, s, blocks); got != length {
				t.Fatalf("round %d, slot %d: overlap %d", round, s, got)
			}
		}
		for s := range selection.Slot(slots) {
			x.Forget(s)
		}
	}
	if got := len(x.columns); got > 2*slots {
		t.Errorf("%d columns for %d slots", got, slots)
	}
	for x.startSweep() {
		x.sweepSome(int(x.cells.fresh))
	}
	if n := beliefsOf(x); n != 0 {
		t.Errorf("%d beliefs left when all endpoints are forgotten", n)
	}
	checkStructure(t, x, 0)
}

// TestForget_WhenOthersAreRecorded_TakesBeliefsOut has four cells swept for a block, and
// the links that a system prompt's holders took made free.
func TestForget_WhenOthersAreRecorded_TakesBeliefsOut(t *testing.T) {
	x := New(Config{BudgetBytes: 1 << 20})
	for s := range selection.Slot(100) {
		x.Hold(0, s, chain(0, 110, 0, 0))
	}
	full := x.cells.fresh
	for s := range selection.Slot(99) {
		x.Forget(s)
	}
	x.Hold(0, 99, chain(0, 0, 1, 200))
	for s := range selection.Slot(100) {
		if got, want := overlapOf(x, 0, s, chain(0, 110, 0, 0)), 110*int(s/99); got != want {
			t.Errorf("slot %d: overlap %d, want %d", s, got, want)
		}
	}
	if n := beliefsOf(x); n != 10+19 {
		t.Errorf("%d beliefs, want one for each of 29 nodes", n)
	}
	x.Hold(0, 99, chain(0, 0, 2, 600))
	if x.cells.fresh > full+20 {
		t.Errorf("of %d cells that became free, none was used again", full)
	}
	checkStructure(t, x, 0)
}

func beliefsOf(x *Index) int {
	n := 0
	for i := x.cells.at(root).next(); i != root; i = x.cells.at(i).next() {
		for h := x.holdings(i); h.c != nil; h.next() {
			n += h.c.count()
		}
	}
	return n
}

// TestBytes_WhenGrowing_StaysWithinBudget counts old and new together at each step.
func TestBytes_WhenGrowing_StaysWithinBudget(t *testing.T) {
	for _, budget := range []int64{1 << 20, 1<<20 + 77777, 5 << 20, 20 << 20} {
		cfg := Config{BudgetBytes: budget}
		x := New(cfg)
		most := cfg.MaxEndpoints()
		blocks := 0
		step := func(do func()) {
			columns, first := cap(x.columns), cap(x.first)
			do()
			peak := x.Bytes()
			if cap(x.columns) != columns {
				peak += int64(columns) * columnBytes
			}
			if cap(x.first) != first {
				peak += int64(first) * 4
			}
			if peak > budget {
				t.Fatalf("budget %d: %d bytes at once after %d blocks", budget, peak, blocks)
			}
		}
		for c := 0; blocks < 2*x.roomBlocks(); c++ {
			b := chain(0, 0, c, 100)
			step(func() { x.Hold(0, selection.Slot(c%most), b) })
			blocks += len(b)
			// 128 bytes a cell and up to 25.6 of table for 10 blocks; chunks of both that are hardly used.
			if most := 16*int64(x.Len()) + 8<<10 + chunkBytes + 2*entryBytes*tableUnit + 4*columnBytes*int64(len(x.columns)); x.Bytes() > most {
				t.Fatalf("budget %d: %d bytes for %d blocks, want at most %d", budget, x.Bytes(), x.Len(), most)
			}
		}
		step(func() { x.Grow(1 << 30) })
		if got := x.Bytes(); got < budget*93/100 {
			t.Errorf("budget %d: only %d bytes in use when full", budget, got)
		}
		if !x.cells.full() {
			t.Errorf("budget %d: %d blocks, and there is room", budget, x.Len())
		}
		if x.table.size != x.table.full {
			t.Errorf("budget %d: the table is not at its full size", budget)
		}
		t.Logf("budget %d: %d bytes in use, %d blocks, %.1f bytes a block", budget, x.Bytes(), x.Len(), float64(x.Bytes())/float64(x.Len()))
	}
}

// roomBlocks is how many blocks there may be when all nodes are full of them and each is
// held by up to three.
func (x *Index) roomBlocks() int { return (cap(x.cells.chunks)*chunkCells - 1) * runBlocks }

// TestBytes_WhenMeasured_IsWhatTheHeapHolds compares Bytes with the runtime's count.
func TestBytes_WhenMeasured_IsWhatTheHeapHolds(t *testing.T) {
	const budget = 32 << 20
	blocks := make([]kvblock.Hash, 0, 400)
	before := heap()
	x := New(Config{BudgetBytes: budget, Endpoints: 512})
	next := func(c int) { // allocates nothing itself
		blocks = blocks[:0]
		h := kvblock.Hash(c)
		for range cap(blocks) {
			h = kvblock.Chain(h, nil)
			blocks = append(blocks, h)
		}
		x.Hold(0, selection.Slot(c%512), blocks)
	}
	for _, chains := range []int{0, 1, 10, 500, 3000} {
		for c := range chains {
			next(c)
		}
		held, counted := float64(heap()-before), float64(x.Bytes())
		if held > budget || held > counted*1.01+4096 || held < counted*0.99-4096 {
			t.Errorf("after %d chains: the heap holds %.0f bytes, Bytes says %.0f of %d", chains, held, counted, budget)
		}
		t.Logf("%d blocks: heap %.0f, Bytes %.0f", x.Len(), held, counted)
	}
	runtime.KeepAlive(x)
}

func TestIndex_WhenFull_DoesNotAllocate(t *testing.T) {
	x := New(Config{BudgetBytes: 1 << 20, Endpoints: 100})
	for c := range 200 {
		x.Hold(0, selection.Slot(c%100), chain(0, 10, c, 100))
	}
	fresh := make([][]kvblock.Hash, 300)
	for i := range fresh {
		fresh[i] = chain(0, 10, 1000+i, 50)
	}
	overlap := make([]int32, 100)
	o := Overlaps{Believed: overlap, Held: make([]int32, 100), Rank: make([]uint8, 100), Host: make([]int32, 100), Disk: make([]int32, 100)}
	for s := range selection.Slot(100) {
		x.HoldRank(0, s, 1, fresh[0]) // ranks have columns of their own
	}
	c, now := 0, mono.Time(0)
	allocs := testing.AllocsPerRun(200, func() {
		b := fresh[c%len(fresh)]
		slot := selection.Slot(c % 100)
		x.Match(now, b, overlap)
		x.Find(now, b, o)
		x.SetCapacity(slot, 0, 300+c%2)
		was := x.Promise(now, slot, b)
		x.Hold(now, slot, b)
		x.Correct(slot, was, b, 1)
		if c%3 == 0 && c > 100 {
			x.Store(now, slot, 1, Host, b)
			x.StoreShared(now, b)
			x.Drop(slot, 0, Device, b, c%len(b))
		}
		if c%7 == 0 {
			x.Forget(slot)
		}
		c, now = c+1, now.Add(time.Second)
	})
	if allocs != 0 {
		t.Errorf("%v allocations a call", allocs)
	}
}

func TestValidate_NamesFieldValueAndWhatIsAllowed(t *testing.T) {
	if errs := (Config{}).Validate(); errs != nil {
		t.Errorf("the zero Config: %v", errs)
	}
	bad := Config{BudgetBytes: 1<<20 - 1, SpeculativeTTL: time.Millisecond, Endpoints: 1 + Config{BudgetBytes: minBudgetBytes}.MaxEndpoints()}
	for _, c := range []Config{bad, {BudgetBytes: -1, SpeculativeTTL: -1, Endpoints: -1}, {BudgetBytes: 1 << 50, SpeculativeTTL: 1 << 60, Endpoints: 1 << 40}} {
		errs := c.Validate()
		if len(errs) != 3 || errs[0].Field != "budget_bytes" || errs[1].Field != "speculative_ttl" || errs[2].Field != "endpoints" {
			t.Errorf("%+v: %v", c, errs)
		}
		for _, e := range errs {
			if e.Allowed == "" || e.Value == nil || !strings.Contains(e.Error(), e.Field) {
				t.Errorf("%+v: says too little", e)
			}
		}
	}
}
