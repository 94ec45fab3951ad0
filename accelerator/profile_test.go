package accelerator

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// workedMillis are step times before overhead that were computed apart from this code
// when the coefficients were fitted: decodes of 1, 32 and 128 sequences (contexts of
// 1k, 2k and 2k tokens), prefills of 1k, 2k and 8k tokens, and one of 32k in four
// chunks.
var workedMillis = []struct {
	name string
	want [7]float64
}{
	{"llama-3.1-8b/h100", [7]float64{6.41, 9.41, 17.94, 20.3, 42.1, 196.3, 1101.2}},
	{"llama-3.1-8b/2xh100", [7]float64{4.01, 5.64, 10.23, 13.4, 26.5, 112.8, 614.9}},
	{"qwen3-32b/h100", [7]float64{24.89, 29.97, 48.15, 86.1, 178.9, 814.6, 4517.2}},
	{"qwen3-32b/2xh100", [7]float64{13.68, 16.81, 26.73, 51.2, 102.3, 454.4, 2451.0}},
	{"qwen3-32b/4xh100", [7]float64{8.3, 10.4, 15.57, 31.1, 60.3, 256.5, 1351.0}},
	{"llama-3.1-70b/4xh100", [7]float64{15.27, 18.62, 25.57, 63.9, 119.8, 524.3, 2503.6}},
	{"llama-3.1-70b/8xh100", [7]float64{9.61, 11.61, 16.11, 41.7, 78.9, 304.4, 1444.2}},
	{"llama-3.1-8b/a100", [7]float64{11.29, 16.97, 35.59, 60.2, 117.7, 553.4, 3499.9}},
	{"llama-3.1-8b/2xa100", [7]float64{6.77, 9.94, 20.13, 38.9, 72.6, 321.1, 1982.1}},
	{"qwen3-32b/a100", [7]float64{45.49, 56.24, 98.41, 244.5, 482.2, 2226.2, 13740.9}},
	{"qwen3-32b/2xa100", [7]float64{25.29, 31.6, 55.07, 142.2, 265.8, 1211.0, 7370.4}},
	{"qwen3-32b/4xa100", [7]float64{14.34, 18.35, 32.22, 90.4, 162.1, 691.1, 4121.1}},
	{"llama-3.1-70b/4xa100", [7]float64{27.15, 34.9, 52.62, 174.1, 323.2, 1337.8, 7047.3}},
	{"llama-3.1-70b/8xa100", [7]float64{16.84, 22.13, 32.08, 118.1, 212.2, 798.4, 4129.3}},
}

func decode(seqs, context int) Batch {
	return Batch{Tokens: seqs, Decodes: seqs, DecodeContext: int64(seqs * context)}
}

func prefill(chunk, context int) Batch {
	return Batch{Tokens: chunk, Prefills: []Prefill{{Chunk: chunk, Context: context}}}
}

func TestStep_MatchesWorkedNumbers(t *testing.T) {
	for _, w := range workedMillis {
		t.Run(w.name, func(t *testing.T) {
			p, err := Lookup(w.name)
			if err != nil {
				t.Fatal(err)
			}
			chunked := time.Duration(0)
			for i := range 4 {
				chunked += p.Step(prefill(8192, 8192*i))
			}
			got := [7]time.Duration{
				p.Step(decode(1, 1024)), p.Step(decode(32, 2048)), p.Step(decode(128, 2048)),
				p.Step(prefill(1024, 0)), p.Step(prefill(2048, 0)), p.Step(prefill(8192, 0)), chunked,
			}
			for i, want := range w.want {
				ms := float64(got[i]) / 1e6
				// Decodes are given to 10 µs, prefills to 100 µs and from coefficients with
				// more digits.
				tolerance := 0.006
				if i >= 3 {
					tolerance = 0.05 + 0.0005*want
				}
				if math.Abs(ms-want) > tolerance {
					t.Errorf("case %d: %.3f ms, want %.2f", i, ms, want)
				}
			}
		})
	}
}

// The exact femtoseconds of a batch with every term: they must be the same on every
// platform, whether or not it fuses multiplications with additions.
func TestStep_IsExact(t *testing.T) {
	p, err := Lookup("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	b := Batch{Tokens: 3000, Decodes: 77, DecodeContext: 77 * 1003,
		Prefills: []Prefill{{Chunk: 2000, Context: 333}, {Chunk: 923}}}
	// dense: 37,400 + 35,428·952/2,048 µs between the points at 2,048 and 4,096 tokens.
	c := p.Cost(0, 1)
	if got, want := c.Step(b), Femtoseconds(64_132_904_717_500); got != want {
		t.Errorf("%d fs, want %d", got, want)
	}
	if got, want := p.Step(b), time.Duration(64_132_904); got != want {
		t.Errorf("%d ns, want %d", got, want)
	}
}

func TestStep_InterpolatesThroughEveryPoint(t *testing.T) {
	for _, e := range catalog {
		for i, tokens := range e.DenseTokens {
			if got := e.dense(tokens); got != e.DenseMicros[i] {
				t.Errorf("%s: dense(%d) = %g, want %g", e.Name, tokens, got, e.DenseMicros[i])
			}
		}
		n := len(e.DenseTokens)
		x, y := e.DenseTokens, e.DenseMicros
		if got, want := e.dense(2*x[n-1]-x[n-2]), 2*y[n-1]-y[n-2]; math.Abs(got-want) > 1e-6*want {
			t.Errorf("%s: beyond the table: %g, want %g", e.Name, got, want)
		}
	}
}

func TestStep_WhenBatchIsEmpty_TakesNoTime(t *testing.T) {
	p := catalog[0].Profile
	if d := p.Step(Batch{}); d != 0 {
		t.Errorf("%v, want 0", d)
	}
}

// More of anything never takes less time. Tokens alone are excepted below 128, where
// the measured matrix products scatter by some per cent.
func TestStep_IsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(catalog).Draw(t, "profile").Profile
		n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
		b := Batch{Decodes: n("decodes", 0, 512)}
		b.DecodeContext = int64(b.Decodes) * int64(n("context", 1, 100_000))
		b.Tokens = b.Decodes
		for range n("prefills", 0, 4) {
			f := Prefill{Chunk: n("chunk", 1, 4096), Context: n("before", 0, 100_000)}
			b.Prefills = append(b.Prefills, f)
			b.Tokens += f.Chunk
		}
		if b.Tokens == 0 {
			return
		}
		base := p.Step(b)
		if base <= 0 {
			t.Fatalf("step takes %v", base)
		}
		grew := func(what string, more Batch) {
			if d := p.Step(more); d < base {
				t.Errorf("%s: more %s takes %v, less than %v", p.Name, what, d, base)
			}
		}
		more := b
		more.DecodeContext += int64(n("more context", 1, 1_000_000))
		grew("decode context", more)
		more = b
		more.Decodes++
		grew("decodes for the same tokens", more)
		if b.Tokens >= 128 {
			more = b
			more.Tokens += n("more tokens", 1, 10_000)
			grew("tokens", more)
		}
		if len(b.Prefills) > 0 {
			more = b
			more.Prefills = append([]Prefill(nil), b.Prefills...)
			more.Prefills[0].Context += n("more before", 1, 10_000)
			grew("cached context of a prefill", more)
		}
	})
}

// Cutting a prefill into chunks computes the same attention: Σ c·(p + c/2) over the
// chunks is that of the whole, so only the weights are read once more a chunk.
func TestStep_ChunksHaveTheWholesAttention(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Profile{DenseTokens: []int{1, 2}, DenseMicros: []float64{1, 1}, PrefillMicros: 0.001}
		whole := rapid.IntRange(2, 100_000).Draw(t, "tokens")
		cut := rapid.IntRange(1, whole-1).Draw(t, "cut")
		got := p.Step(prefill(cut, 0)) + p.Step(prefill(whole-cut, cut)) - time.Microsecond
		if want := p.Step(prefill(whole, 0)); (got - want).Abs() > 2 {
			t.Errorf("in chunks %v, whole %v", got, want)
		}
	})
}

func TestStep_DoesNotAllocate(t *testing.T) {
	p := catalog[0].Profile
	b := prefill(1000, 24)
	if n := testing.AllocsPerRun(100, func() { p.Step(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkStep(b *testing.B) {
	p, err := Lookup("llama-3.1-8b/h100")
	if err != nil {
		b.Fatal(err)
	}
	batch := Batch{Tokens: 2255, Decodes: 255, DecodeContext: 255 * 2000, Prefills: []Prefill{{Chunk: 2000, Context: 48}}}
	b.ReportAllocs()
	for b.Loop() {
		p.Step(batch)
	}
}
