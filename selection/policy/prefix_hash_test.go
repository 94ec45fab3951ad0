package policy

import (
	"math"
	"slices"
	"testing"

	"kvasir/selection"
)

// TestPrefixHashKeysByTheBeginning: prompts that share their first four blocks, which are
// 256 tokens, have one owner, whatever follows; those that don't are spread.
func TestPrefixHashKeysByTheBeginning(t *testing.T) {
	v := newView(8)
	owners := map[selection.Slot]bool{}
	for id := range 60 {
		q := newRequest(id, 4)
		owner := picked(build("prefix-hash"), v, q, 0)
		owners[owner] = true
		for _, blocks := range []int{5, 64, 100} {
			if got := picked(build("prefix-hash"), v, newRequest(id, blocks), 1); got != owner {
				t.Errorf("a prompt of %d blocks goes to %d, its beginning to %d", blocks, got, owner)
			}
		}
	}
	if len(owners) != 8 {
		t.Errorf("60 prompts went to %d of 8 endpoints", len(owners))
	}
	long := (&PrefixHash{PrefixTokenCount: 64 * 72, LoadFactor: 1.25}).New() // 65 blocks
	apart := 0
	for id := range 40 {
		a, b := newRequest(id, 65), newRequest(id, 66)
		if picked(long, v, a, 0) != picked(long, v, b, 0) {
			t.Errorf("two prompts that share 65 blocks are apart")
		}
		b.Blocks[64]++
		if picked(long, v, a, 0) != picked(long, v, b, 0) {
			apart++
		}
	}
	if apart < 25 {
		t.Errorf("%d of 40 prompts that differ in the 65th block are apart", apart)
	}
}

func TestPrefixHashOfAShortPrompt(t *testing.T) {
	v := newView(8)
	owners := map[selection.Slot]bool{}
	for id := range 40 {
		q := newRequest(id, 3)
		c := pick(build("prefix-hash"), v, q, 0)
		if c.Reason != ReasonPrompt {
			t.Fatalf("chose %+v", c)
		}
		owners[v.Candidates[c.Index]] = true
	}
	if len(owners) < 6 {
		t.Errorf("40 short prompts went to %d of 8 endpoints", len(owners))
	}
	v = loaded(3, 1, 2)
	if c := pick(build("prefix-hash"), v, &selection.Request{}, 0); c != (selection.Choice{Index: 1, Reason: ReasonNoKey}) {
		t.Errorf("without a prompt: chose %+v", c)
	}
}

// TestPrefixHashSpills: the owner gets the call up to its bound, and above it whoever has
// the fewest.
func TestPrefixHashSpills(t *testing.T) {
	q := newRequest(1, 4)
	owner := picked(build("prefix-hash"), newView(4), q, 0)
	least := (owner + 1) % 4
	view := func(own, others int32) *selection.View {
		v := newView(4)
		for i := range v.Book {
			v.Book[i].Outstanding = others
		}
		v.Book[owner].Outstanding, v.Book[least].Outstanding = own, others-1
		return v
	}
	for _, test := range []struct {
		own  int32
		abs  int
		want selection.Reason
	}{
		// With 11, 11 and 10 calls elsewhere the mean is (own + 33) / 4: the bound of 15 calls is
		// 15, and that of 16 is 15.3. Of 10 calls above the mean it is 24.25 of 24 and 24.5 of 25.
		{15, 0, ReasonPrompt}, {16, 0, ReasonPromptOverflow}, {24, 10, ReasonPrompt}, {25, 10, ReasonPromptOverflow},
	} {
		v := view(test.own, 11)
		p := (&PrefixHash{PrefixTokenCount: 256, LoadFactor: 1.25, BalanceAbsThreshold: test.abs}).New()
		c := pick(p, v, q, 0)
		slot, scores := owner, []float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
		scores[owner] = float64(test.own)
		if test.want == ReasonPromptOverflow {
			slot, scores = least, []float64{11, 11, 11, 11}
			scores[owner], scores[least] = float64(test.own), 10
		}
		if c.Reason != test.want || v.Candidates[c.Index] != slot || !sameScores(v.Scores, scores) {
			t.Errorf("%d calls, %d above: chose %+v by %v, want %s", test.own, test.abs, c, v.Scores, test.want)
		}
	}
}

// TestPrefixHashWithoutItsOwner: while the owner is no candidate its keys have another one,
// and nobody else's keys move.
func TestPrefixHashWithoutItsOwner(t *testing.T) {
	v, gone := newView(6), selection.Slot(2)
	before := make([]selection.Slot, 100)
	for id := range before {
		before[id] = picked(build("prefix-hash"), v, newRequest(id, 4), 0)
	}
	restrict(v, func(s selection.Slot) bool { return s != gone })
	var heirs []selection.Slot
	for id, owner := range before {
		now := picked(build("prefix-hash"), v, newRequest(id, 4), 0)
		switch {
		case owner == gone:
			heirs = append(heirs, now)
		case now != owner:
			t.Errorf("prompt %d moved from %d to %d", id, owner, now)
		}
	}
	if slices.Contains(heirs, gone) || len(slices.Compact(slices.Sorted(slices.Values(heirs)))) < 3 {
		t.Errorf("the heirs of the prompts are %v", heirs)
	}
}
