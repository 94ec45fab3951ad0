package stats

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestHistogram_AgreesWithTheSortedValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var whole, left, right Histogram
		values := rapid.SliceOfN(rapid.Int64Range(0, 1<<rapid.IntRange(1, 62).Draw(t, "bits")), 1, 300).Draw(t, "values")
		var sum float64
		for i, v := range values {
			whole.Add(v)
			if i%3 == 0 {
				left.Add(v)
			} else {
				right.Add(v)
			}
			sum += float64(v)
		}
		left.Merge(&right)
		slices.Sort(values)
		for _, h := range []*Histogram{&whole, &left} {
			if h.Count() != int64(len(values)) || h.Min() != values[0] || h.Max() != values[len(values)-1] {
				t.Fatalf("count %d, min %d, max %d of %v", h.Count(), h.Min(), h.Max(), values)
			}
			if math.Abs(h.Mean()-sum/float64(len(values))) > 1e-9*sum {
				t.Fatalf("mean %v", h.Mean())
			}
			for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
				rank := max(int(math.Ceil(q*float64(len(values)))), 1)
				want := values[rank-1]
				if got := h.Quantile(q); math.Abs(float64(got-want)) > float64(want)/(1<<subBits) {
					t.Fatalf("quantile %v is %d, want %d", q, got, want)
				}
			}
			var n int64
			h.Each(func(low, high, c int64) {
				if low > high || bucketOf(low) != bucketOf(high) {
					t.Fatalf("bucket %d to %d", low, high)
				}
				n += c
			})
			if n != h.Count() {
				t.Fatalf("buckets have %d of %d", n, h.Count())
			}
		}
	})
}

func TestHistogram_BucketsAreSeamless(t *testing.T) {
	next := int64(0)
	for b := range 57 << subBits {
		low, high := bounds(b)
		if low != next || high < low || bucketOf(low) != b || bucketOf(high) != b {
			t.Fatalf("bucket %d is %d to %d; the one before ended at %d", b, low, high, next-1)
		}
		if next = high + 1; next < 0 {
			return // the last one ends with the greatest number
		}
	}
	t.Fatal("the greatest number is in no bucket")
}

func TestHistogram_AddNIsNTimesAdd(t *testing.T) {
	var one, many Histogram
	many.AddN(70, 5)
	many.AddN(9, 0)
	for range 5 {
		one.Add(70)
	}
	if many.Count() != one.Count() || many.Mean() != one.Mean() || many.Min() != 70 {
		t.Errorf("%+v", many)
	}
}

func TestSummarize(t *testing.T) {
	s := Summarize([]float64{3, 1, 2, 4})
	if s.Count != 4 || s.Mean != 2.5 || s.P50 != 2 || s.P99 != 4 || s.Min != 1 || s.Max != 4 || math.Abs(s.Std-math.Sqrt(1.25)) > 1e-12 {
		t.Errorf("%+v", s)
	}
	if !math.IsNaN(Summarize(nil).P50) {
		t.Error("nothing has a median")
	}
}

func TestInterval(t *testing.T) {
	mean, half := Interval([]float64{1, 2, 3})
	if mean != 2 || math.Abs(half-4.303/math.Sqrt(3)) > 1e-9 {
		t.Errorf("%v ± %v", mean, half)
	}
	if mean, half := Interval([]float64{7}); mean != 7 || !math.IsNaN(half) {
		t.Errorf("%v ± %v", mean, half)
	}
}

func TestHistogram_AddSeriesIsItsNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, step := rapid.Int64Range(0, 1<<40).Draw(t, "first"), rapid.Int64Range(-1<<20, 1<<30).Draw(t, "step")
		n, times := rapid.Int64Range(0, 400).Draw(t, "n"), rapid.Int64Range(0, 9).Draw(t, "times")
		if first+step*n < 0 {
			t.Skip()
		}
		var series, numbers Histogram
		series.AddSeries(first, step, n, times)
		for i := range n {
			numbers.AddN(first+step*i, times)
		}
		if !slices.Equal(series.counts, numbers.counts) || series.n != numbers.n || series.min != numbers.min || series.max != numbers.max {
			t.Fatalf("%+v, want %+v", series, numbers)
		}
		if math.Abs(series.sum-numbers.sum) > 1e-9*numbers.sum {
			t.Fatalf("sum %v, want %v", series.sum, numbers.sum)
		}
	})
}
