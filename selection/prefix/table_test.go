package prefix

import (
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
)

// TestTable_WhenTagsCollideAndWrap_EqualsMap has tables grow while entries come and go.
func TestTable_WhenTagsCollideAndWrap_EqualsMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tb := newTable(tableUnit)
		tb.full = uint32(rapid.SampledFrom([]int{128, 1000, 1024, tableUnit}).Draw(t, "full"))
		tb.size = min(tb.full, uint32(rapid.IntRange(leastSlots, 2*leastSlots).Draw(t, "size")))
		tb.next, tb.split = tb.size, tb.size
		want := map[uint32]uint32{} // node to tag
		tag := rapid.OneOf(
			rapid.Uint32Range(1<<32-1<<20, 1<<32-1), // these wrap
			rapid.SampledFrom([]uint32{0, 1, 5 << 20}),
			rapid.Uint32Range(0, 1<<28),
			rapid.Uint32())
		entries := min(uint32(rapid.SampledFrom([]int{10, 100, 600, 2500}).Draw(t, "entries")), tb.full/ofSlots*mostUsed)
		removes := rapid.IntRange(0, 4).Draw(t, "removes")
		for node := uint32(1); node <= entries; node++ {
			want[node] = tag.Draw(t, "tag")
			tb.add(want[node], node)
			if rapid.IntRange(0, 5).Draw(t, "remove") < removes {
				gone := uint32(rapid.IntRange(1, int(node)).Draw(t, "which"))
				if tag, there := want[gone]; there {
					tb.remove(tag, gone)
					delete(want, gone)
				}
			}
			if node%64 == 0 || node == entries {
				checkTable(t, &tb, want)
			}
		}
	})
}

// checkTable looks for each entry as a search does, and for entries that none would find.
func checkTable(t interface{ Fatalf(string, ...any) }, tb *table, want map[uint32]uint32) {
	for node, tag := range want {
		p := tb.home(tag)
		for tb.at(p) != entry(tag)<<32|entry(node) {
			if tb.at(p) == 0 {
				t.Fatalf("node %d with tag %x is lost", node, tag)
			}
			p = tb.after(p)
		}
	}
	n := 0
	for p := range tb.full {
		if tb.at(p) != 0 {
			n++
		}
	}
	if tb.used != len(want) || n != len(want) {
		t.Fatalf("%d entries counted, %d there, want %d", tb.used, n, len(want))
	}
}

// TestTable_WhenGrowing_IsNeverCrowded fills a table with uniform tags up to the last node
// and counts what a single entry costs: slots that move, chunks that are allocated, and
// runs that a search must read.
func TestTable_WhenGrowing_IsNeverCrowded(t *testing.T) {
	tb := newTable(16 * tableUnit)
	h := kvblock.Hash(1)
	doublings, longest := 0, 0
	for node := uint32(1); int(node) <= int(tb.full)/ofSlots*mostUsed; node++ {
		h = kvblock.Chain(h, nil)
		tag := uint32(h >> 32)
		next, split, bytes := tb.next, tb.split, tb.bytes
		tb.add(tag, node)
		switch {
		case tb.next != next:
			doublings++
			if tb.next < 2*next || tb.next > 2*next+1 {
				t.Fatalf("grows from %d to %d slots", next, tb.next)
			}
		case tb.split < split && split-tb.split > moveSlots:
			t.Fatalf("%d slots moved for one entry", split-tb.split)
		}
		if most := int64(2 * entryBytes * tableUnit); tb.bytes-bytes > most {
			t.Fatalf("%d bytes allocated for one entry", tb.bytes-bytes)
		}
		run := 0
		for p := tb.home(tag); tb.at(p) != 0; p = tb.after(p) {
			run++
		}
		longest = max(longest, run)
		if most := int64(len(tb.chunks))*8 + 26*int64(tb.used) + 2*entryBytes*tableUnit; tb.bytes > most {
			t.Fatalf("%d bytes for %d entries", tb.bytes, tb.used)
		}
	}
	if doublings != 11 || tb.size != tb.full {
		t.Errorf("%d doublings to %d of %d slots", doublings, tb.size, tb.full)
	}
	if longest > 200 {
		t.Errorf("a run of %d slots", longest)
	}
	t.Logf("the longest run was of %d slots", longest)
}
