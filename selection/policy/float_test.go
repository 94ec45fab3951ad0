package policy

import (
	"math"
	"math/big"
	"testing"
)

func TestExp(t *testing.T) {
	for x := -708.0; x <= 709; x += 0.0093 {
		if got, want := exp(x), math.Exp(x); math.Abs(got-want) > 1e-14*want {
			t.Fatalf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float64]float64{
		0: 1, -1e300: 0, -708.1: 0, 710: math.Inf(1), math.Inf(1): math.Inf(1), math.Inf(-1): 0,
	} {
		if got := exp(x); got != want {
			t.Errorf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	if got := exp(math.NaN()); !math.IsNaN(got) {
		t.Errorf("exp(NaN) = %v", got)
	}
}

// TestExpBits fixes results to the bit: they must be the same on every platform.
func TestExpBits(t *testing.T) {
	for _, test := range []struct {
		x    float64
		bits uint64
	}{{-1, 0x3fd78b56362cef38}, {-0.1, 0x3fecf46d99d52b37}, {-10, 0x3f07cd79b5647c99}, {2.5, 0x40285d6fd931e0b7}} {
		if got := math.Float64bits(exp(test.x)); got != test.bits {
			t.Errorf("exp(%v) = %#x, want %#x", test.x, got, test.bits)
		}
	}
}

// TestExp32 checks the table against roots taken with 200 bits.
func TestExp32(t *testing.T) {
	root := new(big.Float).SetPrec(200).SetInt64(2)
	for range 5 {
		root.Sqrt(root)
	}
	power := new(big.Float).SetPrec(200).SetInt64(1)
	for j, got := range exp32 {
		if want, _ := power.Float64(); got != want {
			t.Errorf("exp32[%d] = %v, want %v", j, got, want)
		}
		power.Mul(power, root)
	}
}

func TestPow(t *testing.T) {
	for x := 1.0; x < 1e7; x = x*1.037 + 1 {
		if got, want := ln(x), math.Log(x); math.Abs(got-want) > 1e-15*max(want, 1) {
			t.Errorf("ln(%v) = %v, want %v", x, got, want)
		}
		if pow(x, 0) != 1 || pow(x, 1) != x {
			t.Errorf("%v^0 = %v, %v^1 = %v", x, pow(x, 0), x, pow(x, 1))
		}
		for _, y := range []float64{0.001, 0.5, 0.99, 1.5, 2, 7} {
			if got, want := pow(x, y), math.Pow(x, y); math.Abs(got-want) > 2e-13*want {
				t.Errorf("%v^%v = %v, want %v", x, y, got, want)
			}
		}
	}
}

func TestRound(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 0.4: 0, 0.6: 1, 1.5: 2, 2.5: 2, 1e12 + 0.3: 1e12, math.Inf(1): math.Inf(1)} {
		if got := round(x); got != want {
			t.Errorf("round(%v) = %v, want %v", x, got, want)
		}
	}
}
