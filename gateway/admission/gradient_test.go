package admission

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// station is an endpoint that slows down in proportion to what it has beyond its knee.
func station(knee, inFlight int) float64 { return max(1, float64(inFlight)/float64(knee)) }

// The limit settles near the knee of an endpoint that is always asked for more, wherever that
// is, and follows it when it moves.
func TestGradient_FindsTheKnee(t *testing.T) {
	c := DefaultGradient()
	c.Tolerance = 1.5
	var g Gradient
	for _, knee := range []int{30, 200, 12, 60} {
		for range 6000 {
			n := g.Limit(c)
			g.Learn(c, station(knee, n), n)
		}
		if n := g.Limit(c); n < knee*8/10 || n > knee*4 {
			t.Errorf("knee %d: limit %d", knee, n)
		}
	}
}

// An endpoint that is hardly used keeps its limit: nothing shows that it could do more.
func TestGradient_GrowsWhereItIsUsed(t *testing.T) {
	c := DefaultGradient()
	var g Gradient
	for range 1000 {
		g.Learn(c, 1, 2)
	}
	if n := g.Limit(c); n != start {
		t.Errorf("limit %d, want %d", n, start)
	}
}

// What halves at most does so: the limit never leaves its bounds, whatever comes, and a sample
// moves it by a tenth at most downwards.
func TestLawGradientStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := DefaultGradient()
		c.Min = rapid.IntRange(1, 50).Draw(t, "min")
		c.Max = c.Min + rapid.IntRange(0, 500).Draw(t, "more")
		var g Gradient
		for range rapid.IntRange(1, 300).Draw(t, "samples") {
			before := g.Limit(c)
			x := rapid.OneOf(rapid.Float64Range(0, 200), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), -1})).Draw(t, "slowdown")
			g.Learn(c, x, rapid.IntRange(0, 1000).Draw(t, "in flight"))
			n := g.Limit(c)
			if g.probing > 0 || before < n { // a look halves it for a while
				before = n
			}
			if n < c.Min || n > c.Max {
				t.Fatalf("limit %d, bounds %d to %d", n, c.Min, c.Max)
			}
			if float64(n) < 0.9*float64(before)-1 {
				t.Fatalf("from %d to %d by one sample", before, n)
			}
		}
	})
}

// After a spell of slowness the limit comes back.
func TestGradient_Recovers(t *testing.T) {
	c := DefaultGradient()
	var g Gradient
	for range 2000 {
		n := g.Limit(c)
		g.Learn(c, station(100, n), n)
	}
	well := g.Limit(c)
	for range 500 {
		g.Learn(c, 50, g.Limit(c))
	}
	if n := g.Limit(c); n > well/2 {
		t.Errorf("fifty times as slow, and the limit is %d of %d", n, well)
	}
	for range 4000 {
		n := g.Limit(c)
		g.Learn(c, station(100, n), n)
	}
	if n := g.Limit(c); n < well*8/10 {
		t.Errorf("well again, and the limit is %d of %d", n, well)
	}
}

func BenchmarkGradient(b *testing.B) {
	c := DefaultGradient()
	var g Gradient
	b.ReportAllocs()
	for b.Loop() {
		g.Learn(c, 1.3, g.Limit(c))
	}
}
