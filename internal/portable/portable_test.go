package portable

import (
	"math"
	"math/big"
	"testing"
)

func TestExp(t *testing.T) {
	for x := -708.0; x <= 709; x += 0.0093 {
		if got, want := Exp(x), math.Exp(x); math.Abs(got-want) > 1e-14*want {
			t.Fatalf("Exp(%v) = %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float64]float64{
		0: 1, -1e300: 0, -708.1: 0, 710: math.Inf(1), math.Inf(1): math.Inf(1), math.Inf(-1): 0,
	} {
		if got := Exp(x); got != want {
			t.Errorf("Exp(%v) = %v, want %v", x, got, want)
		}
	}
	if got := Exp(math.NaN()); !math.IsNaN(got) {
		t.Errorf("Exp(NaN) = %v", got)
	}
}

// TestExpBits fixes results to the bit: they must be the same on every platform.
func TestExpBits(t *testing.T) {
	for _, test := range []struct {
		x    float64
		bits uint64
	}{{-1, 0x3fd78b56362cef38}, {-0.1, 0x3fecf46d99d52b37}, {-10, 0x3f07cd79b5647c99}, {2.5, 0x40285d6fd931e0b7}} {
		if got := math.Float64bits(Exp(test.x)); got != test.bits {
			t.Errorf("Exp(%v) = %#x, want %#x", test.x, got, test.bits)
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
		if got, want := Ln(x), math.Log(x); math.Abs(got-want) > 1e-15*max(want, 1) {
			t.Errorf("Ln(%v) = %v, want %v", x, got, want)
		}
		if Pow(x, 0) != 1 || Pow(x, 1) != x {
			t.Errorf("%v^0 = %v, %v^1 = %v", x, Pow(x, 0), x, Pow(x, 1))
		}
		for _, y := range []float64{0.001, 0.5, 0.99, 1.5, 2, 7} {
			if got, want := Pow(x, y), math.Pow(x, y); math.Abs(got-want) > 2e-13*want {
				t.Errorf("%v^%v = %v, want %v", x, y, got, want)
			}
		}
	}
}

func TestRound(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 0.4: 0, 0.6: 1, 1.5: 2, 2.5: 2, 1e12 + 0.3: 1e12, math.Inf(1): math.Inf(1)} {
		if got := Round(x); got != want {
			t.Errorf("Round(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestLn1p(t *testing.T) {
	for _, x := range []float64{0, 1e-300, -1e-300, 1e-17, 3e-9, -3e-9, 0.1, -0.1, 0.4099, 0.4101, -0.2899, -0.2901, -0.999, 1, 17, 1e12} {
		if got, want := Ln1p(x), math.Log1p(x); math.Abs(got-want) > 1e-15*math.Abs(want) {
			t.Errorf("ln(1+%v) = %v, want %v", x, got, want)
		}
	}
}

func TestTurn(t *testing.T) {
	for x := -3.0; x <= 3; x += 0.00037 {
		for what, pair := range map[string][2]float64{"sin": {SinTurn(x), math.Sin(2 * math.Pi * x)}, "cos": {CosTurn(x), math.Cos(2 * math.Pi * x)}} {
			if math.Abs(pair[0]-pair[1]) > 3e-15 { // 2πx is rounded on the right
				t.Fatalf("%s of %v turns is %v, want %v", what, x, pair[0], pair[1])
			}
		}
		if s, c := SinTurn(x), CosTurn(x); math.Abs(s*s+c*c-1) > 1e-15 {
			t.Fatalf("sin² + cos² of %v turns is %v", x, s*s+c*c)
		}
	}
	for quarters, want := range []float64{0, 1, 0, -1, 0, 1} {
		x := float64(quarters) / 4
		if s, c := SinTurn(x), CosTurn(x-0.25); s != want || c != want {
			t.Errorf("%v turns: %v and %v, want %v", x, s, c, want)
		}
	}
}
