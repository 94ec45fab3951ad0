package accelerator

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawBatch makes a batch of any shape that an engine can have.
func drawBatch(t *rapid.T) Batch {
	n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	b := Batch{Decodes: n("decodes", 0, 1024)}
	b.Tokens = b.Decodes
	b.DecodeContext = int64(b.Decodes) * int64(n("context", 1, 1_000_000))
	for range n("prefills", 0, 3) {
		f := Prefill{Chunk: n("chunk", 1, 100_000), Context: n("before", 0, 1_000_000)}
		b.Prefills = append(b.Prefills, f)
		b.Tokens += f.Chunk
	}
	return b
}

// A step's time is linear in the decode context, to the last femtosecond: what an engine
// needs to skip steps.
func TestCost_GrowsEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(catalog).Draw(t, "profile").Profile
		pace := rapid.SampledFrom([]float64{1, 0.3, 2, 1.37}).Draw(t, "pace")
		c := p.Cost(time.Duration(rapid.IntRange(0, 5_000_000).Draw(t, "overhead")), pace)
		b := drawBatch(t)
		if b.Decodes == 0 {
			return
		}
		first, steps := c.Step(b), int64(rapid.IntRange(1, 5000).Draw(t, "steps"))
		b.DecodeContext += steps * int64(b.Decodes)
		if got, want := c.Step(b), first+Femtoseconds(steps)*c.Growth(b.Decodes); got != want && got < MaxStep {
			t.Fatalf("after %d steps one takes %d fs, want %d", steps, got, want)
		}
	})
}

// Pace stretches all of a step, the host's share included, and a step is as long as the
// formula says, but for the rounding of the coefficients to whole femtoseconds.
func TestCost_IsTheProfilesFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(catalog).Draw(t, "profile").Profile
		pace := rapid.Float64Range(0.01, 100).Draw(t, "pace")
		overhead := time.Duration(rapid.IntRange(0, 5_000_000).Draw(t, "overhead"))
		b := drawBatch(t)
		slack := 2.0
		us := float64(overhead)/1e3 + p.dense(b.Tokens) + p.Elementwise.Base + p.Elementwise.PerToken*float64(b.Tokens) + p.HeadMicros
		if b.Decodes > 0 {
			us += p.Decode.Base + p.Decode.PerSequence*float64(b.Decodes) + p.Decode.PerContextToken*float64(b.DecodeContext)
			slack += 0.5 * float64(b.DecodeContext)
		}
		for _, f := range b.Prefills {
			us += p.PrefillMicros * float64(f.Chunk) * (float64(f.Context) + float64(f.Chunk)/2)
			slack += 0.5 * float64(f.Chunk) * float64(2*f.Context+f.Chunk)
		}
		if b.Tokens == 0 {
			us = 0
		}
		c := p.Cost(overhead, pace)
		got, want := float64(c.Step(b)), math.Min(us*1e9*pace, float64(MaxStep))
		if math.Abs(got-want) > slack+1e-9*want {
			t.Fatalf("%g fs, want %g", got, want)
		}
	})
}

func TestCost_StaysInBounds(t *testing.T) {
	p := catalog[0].Profile
	b := Batch{Tokens: 1 << 30, Decodes: 1, DecodeContext: 1 << 62, Prefills: []Prefill{{Chunk: 1 << 30, Context: 1 << 30}}}
	slow := p.Cost(time.Minute, 1e4)
	if got := slow.Step(b); got != MaxStep {
		t.Errorf("%d fs, want MaxStep", got)
	}
	if got := slow.Growth(1 << 31); got < 0 || got > MaxStep {
		t.Errorf("growth %d fs", got)
	}
	for _, c := range []struct {
		each Femtoseconds
		n    int64
		want Femtoseconds
	}{{1, 5, MaxStep}, {1, 6, MaxStep}, {2, 2, MaxStep - 1}, {1 << 62, 1 << 62, MaxStep}, {1 << 62, 2, MaxStep}, {0, 9, MaxStep - 5}} {
		if got := (MaxStep - 5).Plus(c.each, c.n); got != c.want {
			t.Errorf("MaxStep - 5 and %d times %d are %d fs, want %d", c.n, c.each, got, c.want)
		}
	}
	p.DenseMicros = []float64{1e-9, 1e-9}
	p.DenseTokens = []int{1, 2}
	p.Elementwise, p.HeadMicros, p.Decode = Linear{}, 0, Decode{}
	fast := p.Cost(0, 1e-4)
	if got := fast.Step(Batch{Tokens: 1}); got != Nanosecond {
		t.Errorf("%d fs, want a nanosecond", got)
	}
	for s, want := range map[float64]Femtoseconds{0: 0, -1: 0, 1e-15: 1, 1.6e-15: 2, 1: 1e15, 1e9: MaxStep} {
		if got := FromSeconds(s); got != want {
			t.Errorf("%g s are %d fs, want %d", s, got, want)
		}
	}
}
