package seed

import (
	"math"
	"testing"
)

func TestNew_StreamsDependOnEveryPartOfTheirName(t *testing.T) {
	first := func(root uint64, p Purpose, a, b uint64) uint64 {
		r := New(root, p, a, b)
		return r.Uint64()
	}
	base := first(1, Pick, 2, 3)
	if base != first(1, Pick, 2, 3) {
		t.Error("the same name gives another stream")
	}
	for what, other := range map[string]uint64{
		"root": first(2, Pick, 2, 3), "purpose": first(1, Backoff, 2, 3), "a": first(1, Pick, 3, 3), "b": first(1, Pick, 2, 4), "swapped": first(1, Pick, 3, 2),
	} {
		if other == base {
			t.Errorf("another %s gives the same stream", what)
		}
	}
}

func TestIntn_IsUniform(t *testing.T) {
	const n, draws = 7, 70000
	var seen [n]float64
	r := New(1, Pick, 0, 0)
	for range draws {
		seen[r.Intn(n)]++
	}
	chi := 0.0
	for _, k := range seen {
		chi += (k - draws/n) * (k - draws/n) / (draws / n)
	}
	if chi > 22.5 { // 6 degrees of freedom, p < 0.001
		t.Errorf("chi-square %.1f over %v", chi, seen)
	}
}

// A bound that an int of 32 bits cannot hold is drawn below on every platform.
func TestInt64n_DrawsAsIntnDoes(t *testing.T) {
	a, b := New(1, Pick, 0, 0), New(1, Pick, 0, 0)
	for n := 1; n < 10000; n++ {
		if x, y := a.Intn(n), b.Int64n(int64(n)); int64(x) != y {
			t.Fatalf("Intn(%d) draws %d, Int64n %d", n, x, y)
		}
	}
	const bound = 2_999_000_000
	most := int64(0)
	for range 1000 {
		v := b.Int64n(bound)
		if v < 0 || v >= bound {
			t.Fatalf("drew %d", v)
		}
		most = max(most, v)
	}
	if most < bound/100*98 {
		t.Errorf("the greatest of 1000 draws below %d is %d", int64(bound), most)
	}
}

func TestFloat64_StaysBelowOne(t *testing.T) {
	r := New(1, Pick, 0, 0)
	sum := 0.0
	for range 10000 {
		f := r.Float64()
		if f < 0 || f >= 1 {
			t.Fatalf("drew %v", f)
		}
		sum += f
	}
	if math.Abs(sum/10000-0.5) > 0.02 {
		t.Errorf("mean is %v", sum/10000)
	}
}

// TestPinned pins the numbers: a simulation must give the same bytes tomorrow.
func TestPinned(t *testing.T) {
	r := New(42, Workload, 1, 2)
	if got := [3]uint64{r.Uint64(), r.Uint64(), r.Uint64()}; got != [3]uint64{0xb77328dc6a0d7985, 0x4f4480f4a1defe61, 0x36e5e1ea0a8d223} {
		t.Errorf("drew %#v", got)
	}
}
