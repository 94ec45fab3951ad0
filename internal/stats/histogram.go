// Package stats is pure: distributions in bounded memory, quantiles, and intervals over
// seeds. All programs of this project that print a latency print it by these definitions.
package stats

import (
	"math"
	"math/bits"
)

// subBits is the number of buckets, as a power of two, that each doubling is cut into: a
// quantile is off by less than 1/2^subBits of itself, 0.8 %.
const subBits = 7

// Histogram is a distribution of whole numbers from 0, for example nanoseconds. Buckets
// grow with the values (as HdrHistogram's do), so its size is bounded by the range of the
// values and not by their number: at most 58 KiB. Below 256 values are exact. The zero
// Histogram is empty. It is not safe for concurrent use.
type Histogram struct {
	counts   []int64 // by bucket
	n        int64
	sum      float64
	min, max int64
}

// Add counts v once. A negative v counts as 0.
func (h *Histogram) Add(v int64) { h.AddN(v, 1) }

// AddN counts v n times; n below 1 is no count.
func (h *Histogram) AddN(v, n int64) {
	if n < 1 {
		return
	}
	v = max(v, 0)
	b := bucketOf(v)
	if b >= len(h.counts) {
		h.counts = append(h.counts, make([]int64, b+1-len(h.counts))...)
	}
	h.counts[b] += n
	if h.n == 0 || v < h.min {
		h.min = v
	}
	h.max = max(h.max, v)
	h.n += n
	h.sum += float64(v) * float64(n)
}

// Merge adds what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	if len(o.counts) > len(h.counts) {
		h.counts = append(h.counts, make([]int64, len(o.counts)-len(h.counts))...)
	}
	for b, n := range o.counts {
		h.counts[b] += n
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
}

// Count returns how many values were counted.
func (h *Histogram) Count() int64 { return h.n }

// Mean returns the exact mean; NaN where nothing was counted.
func (h *Histogram) Mean() float64 { return h.sum / float64(h.n) }

// Min returns the smallest value, exactly; 0 where nothing was counted.
func (h *Histogram) Min() int64 { return h.min }

// Max returns the greatest value, exactly; 0 where nothing was counted.
func (h *Histogram) Max() int64 { return h.max }

// Quantile returns the value of rank ⌈q·n⌉ (nearest rank; q from 0 to 1), to within the
// width of a bucket and never outside Min and Max; 0 where nothing was counted.
func (h *Histogram) Quantile(q float64) int64 {
	if h.n == 0 {
		return 0
	}
	rank := max(int64(math.Ceil(min(max(q, 0), 1)*float64(h.n))), 1)
	if rank == h.n {
		return h.max
	}
	for b, n := range h.counts {
		if rank -= n; rank <= 0 {
			low, high := bounds(b)
			return min(max(low+(high-low)/2, h.min), h.max)
		}
	}
	return h.max
}

// Each calls f for every bucket that has counts: values from low to high, both included.
func (h *Histogram) Each(f func(low, high, n int64)) {
	for b, n := range h.counts {
		if n > 0 {
			low, high := bounds(b)
			f(low, high, n)
		}
	}
}

// bucketOf returns the bucket of a value: each is its own below 2^subBits, and above each
// doubling has 2^subBits of them.
func bucketOf(v int64) int {
	shift := max(bits.Len64(uint64(v))-1-subBits, 0)
	return shift<<subBits + int(v>>shift)
}

// bounds returns the least and the greatest value of a bucket.
func bounds(b int) (low, high int64) {
	shift := max(b>>subBits-1, 0)
	low = int64(b-shift<<subBits) << shift
	return low, low + 1<<shift - 1
}

// AddSeries counts each of first, first + step, … (n numbers) times times. step may be
// negative; numbers below 0 count as 0. It costs a bucket's work for each bucket that the
// series passes, however many numbers there are.
func (h *Histogram) AddSeries(first, step, n, times int64) {
	for n > 0 && times > 0 {
		in := int64(1) // numbers of the series that lie in first's bucket
		low, high := bounds(bucketOf(max(first, 0)))
		switch {
		case step == 0:
			in = n
		case step > 0 && first >= 0:
			in = min(n, (high-first)/step+1)
		case step < 0 && first >= 0:
			in = min(n, (first-low)/-step+1)
		}
		last := first + step*(in-1)
		h.AddN(first, times*in)
		if in > 1 {
			// AddN took them for equal: the sum and the extremes are put right.
			h.sum += float64(step) * float64(in*(in-1)/2) * float64(times)
			h.min, h.max = min(h.min, max(last, 0)), max(h.max, last)
		}
		first, n = last+step, n-in
	}
}
