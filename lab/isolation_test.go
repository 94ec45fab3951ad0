package lab

import (
	"slices"
	"testing"

	"kvasir/internal/kvblock"
)

// TestBorder_TellsWhatCanBeTold gives the classifier times that are apart, either way round,
// and times that say nothing.
func TestBorder_TellsWhatCanBeTold(t *testing.T) {
	low, high := []float64{1, 1, 2, 2, 1, 1}, []float64{8, 8, 9, 9, 8, 8}
	for name, c := range map[string]struct {
		sent, other        []float64
		accuracy, distance float64
	}{
		"hits are faster":  {low, high, 100, 1},
		"sent are slower":  {high, low, 100, 1},
		"all the same":     {low, low, 50, 0},
		"half of them hit": {[]float64{1, 1, 8, 8, 1, 1, 8, 8}, []float64{8, 8, 8, 8, 8, 8, 8, 8}, 75, 0.5},
	} {
		o := observed{sent: c.sent, other: c.other}
		if got, d := o.accuracy(), o.border().distance; got != c.accuracy || d != c.distance {
			t.Errorf("%s: accuracy %v, distance %v; want %v and %v", name, got, d, c.accuracy, c.distance)
		}
	}
}

// TestIsolation_KeysPartTenantsAlone checks what the four rows rest on: the same text of two
// tenants has the same chain unless the tenant is in its key, and of one tenant always.
func TestIsolation_KeysPartTenantsAlone(t *testing.T) {
	parts := []text{{0, 1024}, {1, 3072}, {2, questionLen}}
	of := func(tenant, routing, cache int) (router, engine []kvblock.Hash) {
		c := (&asked{tenant: tenant, parts: parts}).call(0, 16, routing, cache)
		return c.Request.Blocks, c.Prompt.Blocks
	}
	for keying := range 4 {
		routing, cache := keying&1, keying>>1
		r1, e1 := of(1, routing, cache)
		r2, e2 := of(2, routing, cache)
		again, _ := of(1, routing, cache)
		if slices.Equal(r1, r2) != (routing == 0) || slices.Equal(e1, e2) != (cache == 0) || !slices.Equal(r1, again) {
			t.Errorf("routing %d, cache %d: chains are wrong", routing, cache)
		}
		if len(r1) != 64 || len(e1) != (1024+3072+questionLen)/16 {
			t.Errorf("%d and %d blocks", len(r1), len(e1))
		}
	}
	other := (&asked{tenant: 1, parts: []text{{0, 1024}, {9, 3072}, {2, questionLen}}}).call(0, 16, 0, 0).Prompt.Blocks
	same := 0
	_, e := of(1, 0, 0)
	for same < len(e) && e[same] == other[same] {
		same++
	}
	if same != 1024/16 {
		t.Errorf("prompts that part behind the system prompt share %d blocks", same)
	}
}

// TestIsolation_GuessesAreFair: half of the guesses are of documents that another tenant has
// sent in the last time, the others of documents that nobody ever has; none is asked for twice.
func TestIsolation_GuessesAreFair(t *testing.T) {
	x := isolation{replicas: 4, tenants: 8, common: 1024, document: 3072, rate: 6, probes: 200}
	calls := x.draw(1)
	first := map[int]*asked{}
	kinds := map[bool]int{}
	for i := range calls {
		c := &calls[i]
		document := c.parts[1].id
		if i > 0 && c.at < calls[i-1].at {
			t.Fatal("calls are not in their order")
		}
		if !c.guess {
			if first[document] == nil {
				first[document] = c
			}
			if c.tenant == 0 {
				t.Fatal("the one that guesses sends as a tenant")
			}
			continue
		}
		kinds[c.sent]++
		before := first[document]
		if (before != nil && !before.guess) != c.sent || before != nil && before.guess {
			t.Fatalf("the guess at %v is of a document that was first sent by %+v", c.at, before)
		}
		if c.sent && (c.at.Sub(before.at) > oldestSecret || c.at.Sub(before.at) < newestSecret) {
			t.Errorf("a document of %v ago is guessed", c.at.Sub(before.at))
		}
		first[document] = c
	}
	if kinds[true] < 90 || kinds[false] != 100 {
		t.Errorf("guesses %v", kinds)
	}
}
