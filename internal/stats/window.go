package stats

import (
	"math"
	"slices"
)

// Window keeps the newest values that were added, and tells exact quantiles of them. Adding
// takes two binary searches and a move of at most as many values as it keeps; it allocates
// nothing. Not safe for concurrent use.
type Window struct {
	ring   []int64 // in the order of coming, the oldest at next
	sorted []int64
	next   int
}

// NewWindow returns a window of the n newest values; n must be above 0.
func NewWindow(n int) *Window {
	return &Window{ring: make([]int64, 0, n), sorted: make([]int64, 0, n)}
}

// Add adds a value, in place of the oldest one where the window is full.
func (w *Window) Add(v int64) {
	if len(w.ring) < cap(w.ring) {
		w.ring = append(w.ring, v)
	} else {
		at, _ := slices.BinarySearch(w.sorted, w.ring[w.next])
		w.sorted = slices.Delete(w.sorted, at, at+1)
		w.ring[w.next] = v
		w.next = (w.next + 1) % len(w.ring)
	}
	at, _ := slices.BinarySearch(w.sorted, v)
	w.sorted = slices.Insert(w.sorted, at, v)
}

// Len returns how many values there are.
func (w *Window) Len() int { return len(w.ring) }

// Quantile returns the q-quantile by nearest rank: the smallest value that is not below a part
// q of all. There must be a value, and q lies between 0 and 1.
func (w *Window) Quantile(q float64) int64 {
	rank := int(math.Ceil(q * float64(len(w.sorted))))
	return w.sorted[min(max(rank, 1), len(w.sorted))-1]
}
