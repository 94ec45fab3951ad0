package prefix

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/selection"
)

// naiveActive is Active by plain maps.
type naiveActive map[selection.Slot]map[kvblock.Hash]int

func (n naiveActive) add(slot selection.Slot, blocks []kvblock.Hash, by int) {
	if n[slot] == nil {
		n[slot] = map[kvblock.Hash]int{}
	}
	for _, h := range blocks {
		if n[slot][h] += by; n[slot][h] == 0 {
			delete(n[slot], h)
		}
	}
}

func (n naiveActive) match(slot selection.Slot, blocks []kvblock.Hash) int32 {
	for i, h := range blocks {
		if n[slot][h] == 0 {
			return int32(i)
		}
	}
	return int32(len(blocks))
}

// TestLaw_ActiveIsANaiveCount: calls that come and go leave what plain maps say, in
// lengths, matches and memory.
func TestLaw_ActiveIsANaiveCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type call struct {
			slot   selection.Slot
			blocks []kvblock.Hash
		}
		slots := rapid.SampledFrom([]int{1, 3, 64, 65, 130}).Draw(t, "slots")
		var a Active
		naive, lengths := naiveActive{}, make([]int64, slots)
		var running []call
		trunk := chainOf(kvblock.Seed("trunk"), 100)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			if len(running) > 0 && rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
				i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				c := running[i]
				running = slices.Delete(running, i, i+1)
				lengths[c.slot] -= a.Remove(c.slot, c.blocks)
				naive.add(c.slot, c.blocks, -1)
			} else {
				c := call{slot: selection.Slot(rapid.IntRange(0, slots-1).Draw(t, "slot"))}
				shared := rapid.IntRange(0, len(trunk)).Draw(t, "shared")
				h := kvblock.Seed("root")
				if shared > 0 {
					h = trunk[shared-1]
				}
				branch := kvblock.Chain(h, []byte{byte(rapid.IntRange(0, 3).Draw(t, "branch"))})
				c.blocks = append(slices.Clone(trunk[:shared]), chainOf(branch, rapid.IntRange(0, 20).Draw(t, "own"))...)
				lengths[c.slot] += a.Add(c.slot, c.blocks)
				naive.add(c.slot, c.blocks, 1)
				running = append(running, c)
			}
			asked := trunk
			if len(running) > 0 {
				asked = running[rapid.IntRange(0, len(running)-1).Draw(t, "asked")].blocks
			}
			active := make([]int32, slots)
			for i := range active {
				active[i] = -7
			}
			a.Match(asked, active)
			total := 0
			for slot := range slots {
				if want := naive.match(selection.Slot(slot), asked); active[slot] != want {
					t.Fatalf("slot %d uses the first %d of %d blocks, want %d", slot, active[slot], len(asked), want)
				}
				length, depth := int64(0), map[kvblock.Hash]int{}
				for _, c := range running {
					for i, h := range c.blocks {
						depth[h] = i
					}
				}
				for h := range naive[selection.Slot(slot)] {
					length += int64(kvblock.Span(depth[h]+1) - kvblock.Span(depth[h]))
				}
				if lengths[slot] != length {
					t.Fatalf("the length of slot %d is %d, want %d", slot, lengths[slot], length)
				}
				total += len(naive[selection.Slot(slot)])
			}
			if a.Len() != total {
				t.Fatalf("%d blocks, want %d", a.Len(), total)
			}
		}
		for _, c := range running {
			a.Remove(c.slot, c.blocks)
		}
		if a.Len() != 0 || a.holders.used != 0 || len(a.calls.entries) > smallestTally || len(a.holders.entries) > smallestTally {
			t.Fatalf("after the calls' end %d blocks in %d entries are left", a.Len(), len(a.calls.entries))
		}
	})
}

// chainOf returns n chained blocks, the first of which is seed.
func chainOf(seed kvblock.Hash, n int) []kvblock.Hash {
	var out []kvblock.Hash
	for h := seed; len(out) < n; h = kvblock.Chain(h, []byte("block")) {
		out = append(out, h)
	}
	return out
}

// TestActiveLeavesOutSlots: those that are beyond what is asked for.
func TestActiveLeavesOutSlots(t *testing.T) {
	var a Active
	blocks := chainOf(1, 5)
	for slot := range selection.Slot(4) {
		a.Add(slot, blocks)
	}
	active := []int32{0, 0}
	if a.Match(blocks, active); !slices.Equal(active, []int32{5, 5}) {
		t.Errorf("of the first two slots: %v", active)
	}
}

// TestActiveDoesNotAllocate: a load that stays the same needs no memory.
func TestActiveDoesNotAllocate(t *testing.T) {
	var a Active
	var calls [][]kvblock.Hash
	for i := range 50 {
		calls = append(calls, chainOf(kvblock.Seed(fmt.Sprint(i)), 40))
		a.Add(selection.Slot(i%7), calls[i])
	}
	i, active := 0, make([]int32, 7)
	if got := testing.AllocsPerRun(500, func() {
		a.Remove(selection.Slot(i%7), calls[i])
		a.Match(calls[i], active)
		a.Add(selection.Slot(i%7), calls[i])
		i = (i + 1) % len(calls)
	}); got != 0 {
		t.Errorf("%v allocations a call", got)
	}
}

// BenchmarkActive is a call that comes and goes: 8 calls at each of so many endpoints,
// whose prompts of 78 blocks share the first 13.
func BenchmarkActive(b *testing.B) {
	for _, slots := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("endpoints=%d", slots), func(b *testing.B) {
			var a Active
			trunk := chainOf(kvblock.Seed("trunk"), 13)
			calls := make([][]kvblock.Hash, 8*slots)
			for i := range calls {
				calls[i] = append(slices.Clone(trunk), chainOf(kvblock.Chain(trunk[12], fmt.Append(nil, i)), 65)...)
				a.Add(selection.Slot(i%slots), calls[i])
			}
			active := make([]int32, slots)
			b.Run("match", func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					a.Match(calls[i%len(calls)], active)
				}
			})
			b.Run("replace", func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					c := i % len(calls)
					a.Remove(selection.Slot(c%slots), calls[c])
					a.Add(selection.Slot(c%slots), calls[c])
				}
			})
		})
	}
}
