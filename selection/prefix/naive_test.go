package prefix

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// naive is the index as one would write it without a thought for memory or time: maps,
// a recency list that is a slice, and a match that walks block by block.
type naive struct {
	half  time.Duration
	cap   int // nodes; 0: no bound
	nodes map[nodeName]map[selection.Slot]belief
	order []nodeName // most recent first
}

type nodeName struct {
	hash  kvblock.Hash
	group int
}

type belief struct {
	held     bool
	promised int64 // the half TTL of the newest promise; -1: none
}

func newNaive(ttl time.Duration, capacity int) *naive {
	return &naive{half: ttl / 2, cap: capacity, nodes: map[nodeName]map[selection.Slot]belief{}}
}

func (m *naive) record(now mono.Time, slot selection.Slot, group int, blocks []kvblock.Hash, held bool) {
	for depth, h := range blocks {
		name := nodeName{h, group}
		if m.nodes[name] == nil {
			if m.cap > 0 && len(m.order) == m.cap {
				if depth == m.cap {
					return
				}
				last := m.order[len(m.order)-1]
				delete(m.nodes, last)
				m.order = m.order[:len(m.order)-1]
			}
			m.nodes[name] = map[selection.Slot]belief{}
		} else {
			for i, n := range m.order {
				if n == name {
					m.order = append(m.order[:i], m.order[i+1:]...)
					break
				}
			}
		}
		// The chain is the front of the list, in its own order.
		m.order = append(m.order, nodeName{})
		copy(m.order[depth+1:], m.order[depth:])
		m.order[depth] = name

		b, known := m.nodes[name][slot]
		if !known {
			b.promised = -1
		}
		switch {
		case held:
			b = belief{held: true, promised: -1}
		case !b.held:
			b.promised = int64(now.Duration() / m.half)
		}
		m.nodes[name][slot] = b
	}
}

func (m *naive) forget(slot selection.Slot) {
	for _, holders := range m.nodes {
		delete(holders, slot)
	}
}

func (m *naive) overlap(now mono.Time, slot selection.Slot, group int, blocks []kvblock.Hash) int32 {
	for i, h := range blocks {
		b, known := m.nodes[nodeName{h, group}][slot]
		if !known || !b.held && (b.promised < 0 || int64(now.Duration()/m.half)-b.promised > 1) {
			return int32(i)
		}
	}
	return int32(len(blocks))
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
		rapid.SampledFrom([]int{0, 1, 7, 40}).Draw(t, "system blocks"),
		rapid.IntRange(0, 9).Draw(t, "conversation"),
		rapid.IntRange(0, longest).Draw(t, "conversation blocks"))
}

// TestMatch_WhenNothingIsEvicted_EqualsNaive has promises, confirmations, expiry and
// forgotten endpoints, on more slots than fit one group.
func TestMatch_WhenNothingIsEvicted_EqualsNaive(t *testing.T) {
	rapid.Check(t, propertyEqualsNaive)
}

func FuzzMatchEqualsNaive(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(propertyEqualsNaive))
}

func propertyEqualsNaive(t *rapid.T) {
	const ttl = time.Second
	slots := rapid.SampledFrom([]int{1, 5, 64, 65, 200}).Draw(t, "slots")
	x := New(Config{BudgetBytes: 1 << 20, SpeculativeTTL: ttl, Endpoints: rapid.IntRange(0, slots).Draw(t, "at start")})
	m := newNaive(ttl, 0)
	now := mono.Time(0)
	overlap := make([]int32, slots)
	anySlot := rapid.Custom(func(t *rapid.T) selection.Slot {
		return selection.Slot(rapid.IntRange(0, slots-1).Draw(t, "slot"))
	})
	t.Repeat(map[string]func(*rapid.T){
		"promise": func(t *rapid.T) {
			s, b := anySlot.Draw(t, "to"), drawChain(t, 30)
			x.Promise(now, s, b)
			m.record(now, s, 0, b, false)
		},
		"hold": func(t *rapid.T) {
			s, b := anySlot.Draw(t, "to"), drawChain(t, 30)
			x.Hold(now, s, b)
			m.record(now, s, 0, b, true)
		},
		"forget": func(t *rapid.T) {
			s := anySlot.Draw(t, "slot")
			x.Forget(s)
			m.forget(s)
		},
		"wait": func(t *rapid.T) {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "wait")))
		},
		"": func(t *rapid.T) {
			blocks := drawChain(t, 30)
			for i := range overlap {
				overlap[i] = 99 // Match clears it
			}
			x.Match(now, blocks, overlap)
			for s := range overlap {
				if want := m.overlap(now, selection.Slot(s), 0, blocks); overlap[s] != want {
					t.Fatalf("slot %d: overlap %d, the naive index says %d", s, overlap[s], want)
				}
			}
			checkStructure(t, x)
		},
	})
}

// TestMatch_WhenFull_EqualsNaive compares what is evicted, and when, with a naive
// recency list of the same number of nodes.
func TestMatch_WhenFull_EqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ttl = time.Second
		x := New(Config{BudgetBytes: 1 << 20, SpeculativeTTL: ttl})
		x.nodes = newNodes(1)
		for s := range selection.Slot(70) {
			x.column(s) // columns are given in the order of first use; so a slot's group is known
		}
		m := newNaive(ttl, chunkNodes-1)
		now := mono.Time(0)
		overlap := make([]int32, 70)
		t.Repeat(map[string]func(*rapid.T){
			"record": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(ttl/8)).Draw(t, "wait")))
				s := selection.Slot(rapid.SampledFrom([]int{0, 1, 68}).Draw(t, "slot"))
				b := drawChain(t, 1100)
				held := rapid.Bool().Draw(t, "held")
				x.record(now, s, b, held)
				m.record(now, s, int(s)/64, b, held)
			},
			"": func(t *rapid.T) {
				blocks := drawChain(t, 1100)
				x.Match(now, blocks, overlap)
				for _, s := range []selection.Slot{0, 1, 68} {
					if want := m.overlap(now, s, int(s)/64, blocks); overlap[s] != want {
						t.Fatalf("slot %d: overlap %d, the naive index says %d", s, overlap[s], want)
					}
				}
				i := x.nodes.at(root).next
				for _, name := range m.order {
					if n := x.nodes.at(i); n.key != keyOf(name.hash, int32(name.group)) {
						t.Fatal("the recency lists differ")
					}
					i = x.nodes.at(i).next
				}
				if x.Len() != len(m.order) {
					t.Fatalf("%d nodes, the naive index has %d", x.Len(), len(m.order))
				}
			},
		})
	})
}

// checkStructure walks everything.
func checkStructure(t interface{ Fatalf(string, ...any) }, x *Index) {
	listed := 0
	for i := x.nodes.at(root).next; i != root; i = x.nodes.at(i).next {
		n := x.nodes.at(i)
		if x.nodes.at(n.next).prev != i {
			t.Fatalf("node %d: the list is torn", i)
		}
		if got := x.find(n.key, n.group); got != i {
			t.Fatalf("node %d is found as %d", i, got)
		}
		if listed++; listed > x.Len() {
			t.Fatalf("more nodes in the list than the %d of the table", x.Len())
		}
	}
	entered := 0
	for p := range x.table.full {
		if x.table.at(p) != 0 {
			entered++
		}
	}
	if listed != x.Len() || entered != x.Len() {
		t.Fatalf("%d nodes in the list, %d in the table, %d counted", listed, entered, x.Len())
	}
	for i := range x.groups {
		g := &x.groups[i]
		if g.live&g.retired != 0 || g.sweeping&^g.retired != 0 {
			t.Fatalf("group %d: live %x, retired %x, sweeping %x overlap", i, g.live, g.retired, g.sweeping)
		}
	}
}
