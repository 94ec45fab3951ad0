package trace

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
)

// changed returns the sessions of a file with changes.
func changed(t *testing.T, file string, c Transform) []workload.Session {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	tr, err := Open(testdata(t, file), Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	var all []workload.Session
	for s, err := range c.Apply(tr.Source).Sessions {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func TestTransform_OfNothing_ChangesNothing(t *testing.T) {
	_, want := read(t, testdata(t, "agents.jsonl"), Options{})
	for _, c := range []Transform{{}, {Rate: 1}, {Loops: 1}, {Sample: 1}} {
		if got := changed(t, "agents.jsonl", c); !slices.EqualFunc(want, got, sameSession) {
			t.Errorf("%+v changes sessions", c)
		}
	}
}

func TestTransform_Sample(t *testing.T) {
	const file = "mooncake_synthetic.jsonl"
	all := changed(t, file, Transform{})
	kept := map[string]int{}
	n := 0
	for seed := range uint64(200) {
		got := changed(t, file, Transform{Sample: 0.3, Seed: seed})
		n += len(got)
		for _, s := range got {
			kept[s.ID]++
		}
	}
	if mean := float64(n) / 200; mean < 11 || mean > 13 {
		t.Errorf("of %d sessions a sample of 0.3 keeps %v on average", len(all), mean)
	}
	for _, s := range all {
		if kept[s.ID] < 30 || kept[s.ID] > 95 {
			t.Errorf("session %s is kept by %d of 200 seeds", s.ID, kept[s.ID])
		}
	}
	c := Transform{Sample: 0.3, Seed: 4}
	if !slices.EqualFunc(changed(t, file, c), changed(t, file, c), sameSession) {
		t.Error("one seed keeps different sessions")
	}
}

func TestTransform_Cuts(t *testing.T) {
	const file = "azure_2023_code.csv"
	all := changed(t, file, Transform{})
	from, length := all[10].At, all[20].At-all[10].At
	got := changed(t, file, Transform{From: from, For: length})
	if len(got) != 10 || got[0].At != 0 || got[0].ID != all[10].ID || got[9].At != all[19].At-from {
		t.Errorf("%d sessions, the first is %s at %v", len(got), got[0].ID, got[0].At)
	}
	got = changed(t, file, Transform{From: from, Sessions: 3})
	if len(got) != 3 || got[2].ID != all[12].ID {
		t.Errorf("%d sessions of 3", len(got))
	}
}

func TestTransform_Rate(t *testing.T) {
	const file = "azure_2023_code.csv"
	all, got := changed(t, file, Transform{}), changed(t, file, Transform{Rate: 4})
	for i := range all {
		if d := got[i].At - all[i].At/4; d < -1 || d > 1 {
			t.Fatalf("session %d comes at %v, and at four times the rate at %v", i, all[i].At, got[i].At)
		}
	}
	// What happens within a session is as fast as before.
	a, b := changed(t, "agents.jsonl", Transform{}), changed(t, "agents.jsonl", Transform{Rate: 0.5})
	if b[2].At != 2*a[2].At || b[2].Calls[3].Gap != a[2].Calls[3].Gap || b[2].Calls[3].Offset != a[2].Calls[3].Offset {
		t.Error("times within a session change")
	}
}

func TestTransform_Loops(t *testing.T) {
	const file = "mooncake_conversation.jsonl"
	all := changed(t, file, Transform{})
	n := len(all)
	got := changed(t, file, Transform{Loops: 3})
	if len(got) != 3*n || got[2*n].Calls[0].Blocks[0] != all[0].Calls[0].Blocks[0] {
		t.Fatalf("%d sessions of 3 times %d", len(got), n)
	}
	if gap, mean := got[n].At-got[n-1].At, all[n-1].At/time.Duration(n-1); gap != mean {
		t.Errorf("the second loop begins %v behind the first, sessions are %v apart", gap, mean)
	}
	if d := got[n+7].At - got[7].At; d != got[2*n+7].At-got[n+7].At {
		t.Error("loops are not equally far apart")
	}
	fresh := changed(t, file, Transform{Loops: 2, Fresh: true})
	a, b := fresh[:n], fresh[n:]
	for i := range n {
		for j := range n {
			x, y := equal(a[i].Calls[0].Blocks, a[j].Calls[0].Blocks), equal(b[i].Calls[0].Blocks, b[j].Calls[0].Blocks)
			if x != y || equal(a[i].Calls[0].Blocks, b[j].Calls[0].Blocks) != 0 {
				t.Fatalf("calls %d and %d share %d blocks, in the second loop %d", i, j, x, y)
			}
		}
	}
}

// TestRenew_KeepsWhatIsShared: two hashes of a session are equal afterwards where they were
// before.
func TestRenew_KeepsWhatIsShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSession(t, 0, 4)
		before := slices.Clone(s.Calls)
		after := renew(s.Calls, 9)
		name := map[kvblock.Hash]kvblock.Hash{}
		back := map[kvblock.Hash]kvblock.Hash{}
		for i := range before {
			x := slices.Concat(before[i].Blocks, before[i].AnswerBlocks)
			y := slices.Concat(after[i].Blocks, after[i].AnswerBlocks)
			if len(x) != len(y) || len(before[i].Blocks) != len(after[i].Blocks) {
				t.Fatalf("call %d has %d blocks, then %d", i, len(x), len(y))
			}
			for k := range x {
				if was, ok := name[x[k]]; ok && was != y[k] {
					t.Fatalf("call %d, block %d: one hash becomes two", i, k)
				}
				if was, ok := back[y[k]]; ok && was != x[k] || x[k] == y[k] {
					t.Fatalf("call %d, block %d: two hashes become one, or stay", i, k)
				}
				name[x[k]], back[y[k]] = y[k], x[k]
			}
		}
	})
}

func TestTransform_SaysWhatIsNotAllowed(t *testing.T) {
	err := (&Transform{Sample: 2, From: -1, For: -1, Sessions: -1, Loops: -1, Fresh: true, Rate: -1}).Validate()
	for _, field := range []string{"Sample is 2", "From", "For", "Sessions is -1", "Loops is -1", "Fresh is true", "Rate is -1"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in: %v", field, err)
		}
	}
}
