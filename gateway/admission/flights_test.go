package admission

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// TestFlights_AgainstAList compares with a list of prefixes that is searched from end to end.
func TestFlights_AgainstAList(t *testing.T) {
	// Prompts are chains of one tree, in which they branch off at a few depths.
	chain := func(t *rapid.T) []kvblock.Hash {
		branch := kvblock.Hash(rapid.IntRange(1, 2).Draw(t, "branch"))
		common := rapid.SampledFrom([]int{3, 9, 14}).Draw(t, "common")
		var out []kvblock.Hash
		blocks := rapid.SampledFrom([]int{0, 5, 10, 20}).Draw(t, "blocks")
		for d := 1; d <= blocks; d++ {
			h := kvblock.Hash(d)
			if d > common {
				h |= branch<<24 | kvblock.Hash(common)<<16
			}
			out = append(out, h)
		}
		return out
	}
	depths := map[int]bool{}
	for d := 1; d < 100; d = deeper(d) {
		depths[d] = true
	}
	type known struct {
		hash      kvblock.Hash
		depth     int
		leader    int32
		followers []int32
	}
	rapid.Check(t, func(t *rapid.T) {
		f := NewFlights(FlightConfig{MinTokens: 1, MaxSiblings: 4})
		var list []*known
		leaders := map[int32][]kvblock.Hash{}
		until := map[int32]mono.Time{}
		now := mono.Time(0)
		find := func(h kvblock.Hash) *known {
			for _, k := range list {
				if k.hash == h {
					return k
				}
			}
			return nil
		}
		end := func(blocks []kvblock.Hash, leader int32) (freed []int32) {
			for d, h := range blocks {
				if k := find(h); k != nil && depths[d+1] && (leader == none || k.leader == leader) {
					freed = append(freed, k.followers...)
					list = slices.DeleteFunc(list, func(x *known) bool { return x == k })
				}
			}
			return freed
		}
		check := func(want []int32, by func(func(int32))) {
			var got []int32
			by(func(call int32) {
				got = append(got, call)
				f.Leave(call)
				delete(until, call)
			})
			if !slices.Equal(got, want) {
				t.Fatalf("freed %v, want %v", got, want)
			}
		}
		next := int32(0)
		t.Repeat(map[string]func(*rapid.T){
			"lead": func(t *rapid.T) {
				blocks, held := chain(t), rapid.IntRange(0, 5).Draw(t, "held")
				next++
				f.Lead(next, blocks, held)
				leaders[next] = blocks
				for d, h := range blocks {
					if depths[d+1] && d+1 > held && find(h) == nil {
						list = append(list, &known{h, d + 1, next, nil})
					}
				}
			},
			"follow": func(t *rapid.T) {
				blocks := chain(t)
				var want, first *known
				landed := 0
				for d, h := range blocks {
					if k := find(h); k != nil && depths[d+1] {
						if want = k; first == nil {
							first = k
						}
					} else if want == nil && depths[d+1] {
						landed = d + 1
					}
				}
				got, ok := f.Find(blocks)
				if ok != (want != nil && len(want.followers) < 4) {
					t.Fatalf("found: %v, want %+v", ok, want)
				}
				if !ok {
					return
				}
				if got.Depth != want.depth || got.Leader != want.leader || got.First != first.leader || got.Landed != landed {
					t.Fatalf("found %+v, want %+v and %d blocks that nobody computes", got, want, landed)
				}
				next++
				now++
				until[next] = now + mono.Time(rapid.IntRange(0, 20).Draw(t, "patience"))
				f.Follow(next, uint64(next), got.Number, now, until[next])
				want.followers = append(want.followers, next)
			},
			"leave": func(t *rapid.T) {
				call, at, ok := f.Next()
				if ok != (len(until) > 0) {
					t.Fatalf("somebody waits: %v, want %v", ok, len(until) > 0)
				}
				if !ok {
					return
				}
				for _, u := range until {
					if u < at {
						t.Fatalf("the first patience ends at %d, but one does at %d", at, u)
					}
				}
				f.Leave(call)
				delete(until, call)
				for _, k := range list {
					k.followers = slices.DeleteFunc(k.followers, func(c int32) bool { return c == call })
				}
			},
			"land": func(t *rapid.T) {
				blocks := chain(t)
				check(end(blocks, none), func(freed func(int32)) { f.Landed(blocks, freed) })
			},
			"lose": func(t *rapid.T) {
				call := int32(rapid.IntRange(0, int(next)).Draw(t, "call"))
				blocks := leaders[call]
				check(end(blocks, call), func(freed func(int32)) { f.Lost(call, blocks, freed) })
			},
			"": func(t *rapid.T) {
				if f.Waiting() != len(until) || len(f.byHash) != len(list) {
					t.Fatalf("%d calls wait for %d prefixes, want %d and %d", f.Waiting(), len(f.byHash), len(until), len(list))
				}
			},
		})
	})
}

// BenchmarkFlights is one call that leads a prompt of 100,000 tokens and lands it.
func BenchmarkFlights(b *testing.B) {
	f := NewFlights(FlightConfig{MinTokens: 1, MaxSiblings: 8})
	blocks := make([]kvblock.Hash, 256)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for d := range blocks {
			blocks[d] = kvblock.Hash(i*1000 + d)
		}
		f.Find(blocks)
		f.Lead(int32(i%100), blocks, 0)
		f.Landed(blocks, nil)
	}
}
