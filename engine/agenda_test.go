package engine

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The agenda gives what is due first, and of that the oldest, whatever was put in, moved
// and taken out.
func TestAgenda_IsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a agenda
		var in []*request
		for i := range rapid.IntRange(1, 60).Draw(t, "changes") {
			switch which := rapid.IntRange(0, 3).Draw(t, "change"); {
			case which < 2 || len(in) == 0:
				r := &request{order: int64(i), due: rapid.Int64Range(0, 9).Draw(t, "due")}
				a.put(r)
				in = append(in, r)
			case which == 2:
				r := rapid.SampledFrom(in).Draw(t, "moved")
				r.due = rapid.Int64Range(0, 9).Draw(t, "due")
				a.put(r)
			default:
				i := rapid.IntRange(0, len(in)-1).Draw(t, "removed")
				a.remove(in[i])
				in = slices.Delete(in, i, i+1)
			}
		}
		slices.SortFunc(in, func(a, b *request) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.order, b.order)) })
		for _, want := range in {
			if got := a.due(want.due - 1); got != nil {
				t.Fatalf("%+v is due at %d", got, want.due-1)
			}
			got := a.due(want.due)
			if got != want {
				t.Fatalf("%+v is due, want %+v", got, want)
			}
			a.remove(got)
		}
		if got := a.due(1 << 40); got != nil {
			t.Fatalf("%+v is left", got)
		}
	})
}
