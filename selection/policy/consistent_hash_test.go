package policy

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/selection"
)

// owners returns the endpoints' names by key, for so many keys in an idle pool.
func owners(p selection.Policy, v *selection.View, keys int) []string {
	out := make([]string, keys)
	for k := range out {
		q := &selection.Request{Head: kvblock.Hash(k + 1)} // keys as regular as can be
		out[k] = v.Endpoints[picked(p, v, q, k)].Name
	}
	return out
}

func TestConsistentHashMovesFewKeys(t *testing.T) {
	const keys = 20_000
	for _, n := range []int{3, 10, 40} {
		p := build("consistent-hash")
		before := owners(p, newView(n), keys)
		grown := newView(n + 1)
		grown.Version = 2
		after := owners(p, grown, keys)
		moved := 0
		for k := range before {
			if before[k] == after[k] {
				continue
			}
			moved++
			if after[k] != fmt.Sprintf("e%d", n) {
				t.Fatalf("key %d moved from %s to %s, not to the new endpoint", k, before[k], after[k])
			}
		}
		if share := float64(moved) / keys * float64(n+1); share < 0.75 || share > 1.25 {
			t.Errorf("from %d to %d endpoints %.2f/%d of the keys moved", n, n+1, share, n+1)
		}
	}
}

// TestConsistentHashGoesByName: a key's endpoint is the same in whichever slot it is.
func TestConsistentHashGoesByName(t *testing.T) {
	v := newView(6)
	w := permuted(v, []int{3, 0, 4, 2, 1, 5})
	if a, b := owners(build("consistent-hash"), v, 500), owners(build("consistent-hash"), w, 500); !slices.Equal(a, b) {
		t.Error("other slots, other owners")
	}
}

func TestConsistentHashSharesFollowWeights(t *testing.T) {
	counts := map[string]int{}
	for _, name := range owners(build("consistent-hash"), weighted(1, 2, 1), 20_000) {
		counts[name]++
	}
	for name, want := range map[string]int{"e0": 5000, "e1": 10_000, "e2": 5000} {
		if n := counts[name]; n < want*8/10 || n > want*12/10 {
			t.Errorf("%s owns %d of 20,000 keys, want about %d", name, n, want)
		}
	}
}

// TestConsistentHashIsBounded: whatever calls come and go, no endpoint ever gets a call
// that takes it above ⌈c·m/n⌉, or its weight's part of c·m.
func TestConsistentHashIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "endpoints")
		equal := rapid.Bool().Draw(t, "equal weights")
		v, total := newView(n), 0.0
		for i := range n {
			if !equal {
				v.Endpoints[i].Weight = float64(rapid.IntRange(1, 4).Draw(t, "weight"))
			}
			total += v.Endpoints[i].Weight
		}
		c := rapid.SampledFrom([]float64{1.0625, 1.25, 2}).Draw(t, "load_factor")
		p := (&ConsistentHash{Key: "prompt", Header: "x", Blocks: 4, LoadFactor: c}).New()
		var under []selection.Slot
		for draw := range rapid.IntRange(1, 80).Draw(t, "steps") {
			if len(under) > 0 && rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
				i := rapid.IntRange(0, len(under)-1).Draw(t, "call")
				v.Book[under[i]].Outstanding--
				under = slices.Delete(under, i, i+1)
				continue
			}
			q := newRequest(rapid.IntRange(0, 2).Draw(t, "key"), 4) // few keys, so that some are hot
			slot := picked(p, v, q, draw)
			charge(v, slot, 1)
			under = append(under, slot)
			bound := math.Ceil(c * float64(len(under)) * v.Endpoints[slot].Weight / total)
			if got := v.Book[slot].Outstanding; float64(got) > bound {
				t.Fatalf("an endpoint has %d of %d calls, its bound is %v", got, len(under), bound)
			}
			if equal && bound != math.Ceil(c*float64(len(under))/float64(n)) {
				t.Fatalf("with equal weights the bound is not ⌈c·m/n⌉ but %v", bound)
			}
		}
	})
}

// TestConsistentHashWalksTheRing: a key whose endpoint is full goes to the next one on
// the ring, always the same, and comes back when there is room.
func TestConsistentHashWalksTheRing(t *testing.T) {
	p, v, q := build("consistent-hash"), newView(5), newRequest(7, 20)
	home := pick(p, v, q, 0)
	if home.Reason != ReasonPrompt {
		t.Fatalf("in an idle pool: %+v", home)
	}
	v.Book[home.Index].Outstanding = 9
	next := pick(p, v, q, 1)
	if next.Index == home.Index || next.Reason != ReasonPromptOverflow {
		t.Fatalf("with a full endpoint: %+v after %+v", next, home)
	}
	if v.Scores[home.Index] != 9 || v.Scores[next.Index] != 0 {
		t.Errorf("scores %v", v.Scores)
	}
	// Out of rotation is not full: the next one on the ring takes over.
	v.Book[home.Index].Outstanding = 0
	restrict(v, func(s selection.Slot) bool { return s != selection.Slot(home.Index) })
	if c := pick(p, v, q, 2); v.Candidates[c.Index] != selection.Slot(next.Index) || c.Reason != ReasonPrompt {
		t.Errorf("without its endpoint: %+v", c)
	}
}

func TestConsistentHashKeys(t *testing.T) {
	prompt := newRequest(1, 20)
	longer, other := newRequest(1, 30), newRequest(2, 20)
	longer.Head, longer.Key = 12345, 777
	short, shorter := newRequest(1, 3), newRequest(1, 3)
	shorter.Head = 54321
	header := &ConsistentHash{Key: "header", Header: "x-session-id", Blocks: 16, LoadFactor: 1.25}
	byPrompt, byHeader := build("consistent-hash").(*consistentHash), header.New().(*consistentHash)
	place := func(p *consistentHash, q *selection.Request) (uint64, selection.Reason) {
		at, reason, _ := p.key(q, nil)
		return at, reason
	}
	same := func(p *consistentHash, a, b *selection.Request) bool {
		x, _ := place(p, a)
		y, _ := place(p, b)
		return x == y
	}
	if !same(byPrompt, prompt, longer) {
		t.Error("the next turn of a conversation has another key")
	}
	deep, deeper := newRequest(2, 20), newRequest(2, 20) // like prompt for 15 and 16 blocks
	copy(deep.Blocks[:15], prompt.Blocks)
	copy(deeper.Blocks[:16], prompt.Blocks)
	if same(byPrompt, prompt, deep) || !same(byPrompt, prompt, deeper) {
		t.Error("the key is not the first 16 blocks")
	}
	// 100 blocks end within the fifth of the coarse ones behind the 64th: four of them count.
	byMore := (&ConsistentHash{Key: "prompt", Header: "x-session-id", Blocks: 100, LoadFactor: 1.25}).New().(*consistentHash)
	long, unlike, like := newRequest(3, 80), newRequest(4, 80), newRequest(4, 80)
	copy(unlike.Blocks[:67], long.Blocks)
	copy(like.Blocks[:68], long.Blocks)
	if same(byMore, long, unlike) || !same(byMore, long, like) {
		t.Error("the key is not the blocks within the length of 100 fine ones")
	}
	if same(byPrompt, prompt, other) || same(byPrompt, short, shorter) {
		t.Error("two prompts have one key")
	}
	if same(byHeader, prompt, longer) {
		t.Error("two sessions have one key")
	}
	longer.Key = prompt.Key
	if !same(byHeader, prompt, longer) {
		t.Error("a session has two keys")
	}
	prompt.Key = 0
	if x, reason := place(byHeader, prompt); reason != ReasonHeaderAbsent {
		t.Errorf("without the header: %v", reason)
	} else if y, _ := place(byPrompt, prompt); x != y {
		t.Error("without the header the key is not the prompt's")
	}
	byConversation := (&ConsistentHash{Key: "conversation", Header: "x-session-id", Blocks: 16, LoadFactor: 1.25}).New().(*consistentHash)
	if _, reason := place(byConversation, prompt); reason != ReasonConversation {
		t.Errorf("with a conversation: %v", reason)
	}
	other.Conversation = prompt.Conversation
	if !same(byConversation, prompt, other) || byConversation.KeyHeader() != "" {
		t.Error("a conversation has two keys, or needs a header")
	}
	other.Conversation++
	if same(byConversation, prompt, other) {
		t.Error("two conversations have one key")
	}
	prompt.Conversation = 0
	if x, reason := place(byConversation, prompt); reason != ReasonNoConversation {
		t.Errorf("without a conversation: %v", reason)
	} else if y, _ := place(byPrompt, prompt); x != y {
		t.Error("without a conversation the key is not the prompt's")
	}
	if byPrompt.KeyHeader() != "" || byHeader.KeyHeader() != "x-session-id" {
		t.Errorf("headers %q and %q", byPrompt.KeyHeader(), byHeader.KeyHeader())
	}
}

// TestConsistentHashWithoutAnyKeySpreads: calls with neither header nor prompt are not
// all one key.
func TestConsistentHashWithoutAnyKeySpreads(t *testing.T) {
	p, v := build("consistent-hash"), newView(4)
	counts := map[int]int{}
	for draw := range 400 {
		c := pick(p, v, &selection.Request{}, draw)
		if c.Reason != ReasonNoKey {
			t.Fatalf("reason %v", c.Reason)
		}
		counts[c.Index]++
	}
	for i := range 4 {
		if counts[i] < 50 {
			t.Errorf("endpoint %d got %d of 400 calls", i, counts[i])
		}
	}
}

func TestRingIsSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := newView(rapid.IntRange(1, 12).Draw(t, "endpoints"))
		for i := range v.Endpoints {
			v.Endpoints[i].Weight = rapid.Float64Range(0.001, 500).Draw(t, "weight")
		}
		var g ring
		g.update(v)
		if !slices.IsSortedFunc(g.points, func(a, b point) int {
			if a.before(b) {
				return -1
			}
			return 1
		}) {
			t.Fatal("the ring is not sorted")
		}
		place := rapid.Uint64().Draw(t, "place")
		want := slices.IndexFunc(g.points, func(p point) bool { return p.at >= place })
		if got := g.find(place); got != max(want, 0) {
			t.Fatalf("find(%x) = %d, want %d", place, got, want)
		}
		g.points[0].at = 12345
		if g.update(v); g.points[0].at != 12345 {
			t.Fatal("the ring was rebuilt though nothing changed")
		}
	})
}

// TestRingIsBounded: large weights don't make a large ring, and still share it.
func TestRingIsBounded(t *testing.T) {
	var g ring
	g.update(weighted(100_000, 300_000))
	if n := len(g.points); n > maxPoints+2 || n < maxPoints-2 {
		t.Fatalf("the ring has %d points", n)
	}
	counts := [2]int{}
	for _, p := range g.points {
		counts[p.slot]++
	}
	if ratio := float64(counts[1]) / float64(counts[0]); ratio < 2.99 || ratio > 3.01 {
		t.Errorf("points %v", counts)
	}
}
