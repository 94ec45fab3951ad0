package stats

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestWindow_IsWhatSortingTheNewestSays compares with the plain way.
func TestWindow_IsWhatSortingTheNewestSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "n")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		w := NewWindow(n)
		var all []int64
		for range rapid.IntRange(1, 60).Draw(t, "values") {
			v := rapid.Int64Range(-5, 5).Draw(t, "v")
			w.Add(v)
			all = append(all, v)
			newest := slices.Clone(all[max(len(all)-n, 0):])
			slices.Sort(newest)
			rank := max(int(math.Ceil(q*float64(len(newest)))), 1)
			if got, want := w.Quantile(q), newest[rank-1]; w.Len() != len(newest) || got != want {
				t.Fatalf("of %d: the %v quantile is %d, want %d of %v", w.Len(), q, got, want, newest)
			}
		}
	})
}

func BenchmarkWindow(b *testing.B) {
	w := NewWindow(512)
	b.ReportAllocs()
	v := int64(1)
	for b.Loop() {
		v = v*6364136223846793005 + 1442695040888963407
		w.Add(v >> 32)
	}
}
