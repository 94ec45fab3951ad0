package lab

import (
	"math"
	"testing"

	"kvasir/internal/seed"
)

// TestThrow_LosesNoBall, and with as many choices as it takes the load is even.
func TestThrow_LosesNoBall(t *testing.T) {
	for _, d := range drawnChoices {
		r := seed.New(uint64(d), seed.Workload, 0, 0)
		loads := make([]int32, 1000)
		most := throw(900, d, &r, loads)
		sum, greatest := int32(0), int32(0)
		for _, n := range loads {
			sum, greatest = sum+n, max(greatest, n)
		}
		if sum != 900 || float64(greatest) != most || loads[950] != 0 {
			t.Errorf("%d choices: %d balls, at most %d, said to be %v", d, sum, greatest, most)
		}
	}
	r := seed.New(1, seed.Workload, 0, 0)
	if most := throw(20, 200, &r, make([]int32, 20)); most != 1 {
		t.Errorf("with 200 choices among 20 bins one has %v", most)
	}
}

// TestStay_OfOneChoice is that of M/M/1 queues, and more choices never make it longer.
func TestStay_OfOneChoice(t *testing.T) {
	x := choicesLab().settings().(*choices)
	x.rho, x.events = 0.5, 1_000_000
	if got := x.stay(1, 1); math.Abs(got-2) > 0.05 {
		t.Errorf("a call stays %v services at ρ = 0.5, want 2", got)
	}
	for _, rho := range []float64{0.1, 0.5, 0.9, 0.99} {
		before := math.Inf(1)
		for _, d := range drawnChoices {
			now := manyQueues(rho, d)
			if now > before || now < 1 {
				t.Errorf("ρ = %v: %v with %d choices, %v with fewer", rho, now, d, before)
			}
			before = now
		}
	}
	// 1 + ρ² + ρ⁶ + ρ¹⁴ + …, by hand for ρ = 1/2.
	if got, want := manyQueues(0.5, 2), 1+0.25+1.0/64+1.0/16384; math.Abs(got-want) > 1e-8 {
		t.Errorf("two choices: %v, want %v", got, want)
	}
}

// TestDeal_HasTheWorkItSays: mean 1 and the squared coefficient of variation that is set.
func TestDeal_HasTheWorkItSays(t *testing.T) {
	for _, cs2 := range []float64{1, 4, 25} {
		x := choicesLab().settings().(*choices)
		x.cs2 = cs2
		var runs []float64
		for s := range 4000 {
			spread := x.deal(x.replicas, uint64(s)) // a request each: the spread is C_s itself
			runs = append(runs, spread*spread)
		}
		if got := average(runs); math.Abs(got-cs2) > cs2/10 {
			t.Errorf("C_s² is %v, want %v", got, cs2)
		}
	}
}
