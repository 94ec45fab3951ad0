package demand

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/mono"
)

// What is told of the last minute is what a list of its calls tells.
func TestMeter_AgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Meter
		type came struct {
			at     mono.Time
			tokens int64
		}
		var list []came
		now := mono.Time(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "start"))
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(8*time.Second)).Draw(t, "gap")))
			c := came{now, rapid.Int64Range(1, 100_000).Draw(t, "tokens")}
			list = append(list, c)
			m.Come(c.at, c.tokens)
			var n, sum, square float64
			cellOf := func(at mono.Time) int64 { return int64(at.Duration() / width) }
			for _, x := range list {
				if cellOf(now)-cellOf(x.at) < cells {
					n, sum, square = n+1, sum+float64(x.tokens), square+float64(x.tokens)*float64(x.tokens)
				}
			}
			seconds := min(float64(cells-1)*5+float64(now.Duration()%width)/1e9, now.Sub(list[0].at).Seconds())
			seconds = max(seconds, 5)
			a := m.Lately(now)
			mean := sum / n
			for what, x := range map[string][2]float64{
				"calls": {a.Calls, n / seconds}, "tokens": {a.Tokens, sum / seconds}, "variation": {1 + a.Variation, max(square/n/mean/mean, 1)},
			} {
				if math.Abs(x[0]-x[1]) > 1e-9*x[1] {
					t.Fatalf("%s are %v, want %v", what, x[0], x[1])
				}
			}
		}
		if a := m.Lately(now.Add(2 * time.Minute)); a != (Asked{}) {
			t.Fatalf("two minutes later %+v", a)
		}
	})
}

func TestOf_WorkedExamples(t *testing.T) {
	// 20 calls a second of 2,000 tokens, all alike, at 20,000 tokens a second: S = 0.1 s. With 2 s
	// to the first token x = 19 and the knee lies at 19/19.5.
	n := Of(Asked{Calls: 20, Tokens: 40_000}, Replica{Speed: 20_000}, 2*time.Second)
	if math.Abs(n.Knee-19/19.5) > 1e-12 || math.Abs(n.Prefill-2*19.5/19) > 1e-12 || n.Replicas != 3 {
		t.Errorf("even calls: %+v", n)
	}
	// Heavy tails need more: C² = 9 makes (1+C²)/2 = 5.
	n = Of(Asked{Calls: 20, Tokens: 40_000, Variation: 9}, Replica{Speed: 20_000}, 300*time.Millisecond)
	if math.Abs(n.Knee-2/7.0) > 1e-12 || n.Replicas != 7 {
		t.Errorf("heavy tails: %+v", n)
	}
	// 20 calls a second that stay 10 s are 200 in flight, and now and then 18 more: five replicas of 50
	// places, whatever the prefill.
	n = Of(Asked{Calls: 20, Tokens: 1000}, Replica{Speed: 20_000, Residence: 10 * time.Second, Places: 50}, 2*time.Second)
	if math.Abs(n.Places-(200+1.28*math.Sqrt(200))/50) > 1e-12 || n.Replicas != 5 {
		t.Errorf("long answers: %+v", n)
	}
	// Where nothing comes one is left: whoever wants none goes by the calls.
	if n := Of(Asked{}, Replica{Speed: 1}, time.Second); n.Replicas != 1 {
		t.Errorf("no calls: %+v", n)
	}
	// Who wants a first token sooner than the prefill takes can't be given it by more replicas.
	if n := Of(Asked{Calls: 1, Tokens: 1000}, Replica{Speed: 1000}, time.Second); n.Replicas != 0 {
		t.Errorf("a prefill as long as the SLO: %+v", n)
	}
	// What is not known asks for nothing.
	for _, x := range []Need{
		Of(Asked{}, Replica{Speed: 1, Residence: 1, Places: 1}, 0),
		Of(Asked{Calls: 1, Tokens: 1}, Replica{Residence: time.Hour, Places: 1}, time.Second),
		Of(Asked{Calls: 1, Tokens: 1}, Replica{}, time.Second),
		Of(Asked{Calls: 1, Tokens: 1}, Replica{Speed: 1}, 0),
	} {
		if x.Replicas != 0 {
			t.Errorf("nothing is known, and %+v is needed", x)
		}
	}
}

// More calls, or a shorter SLO, never need fewer replicas.
func TestLawMoreDemandNeedsNoLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Asked{Calls: rapid.Float64Range(0.1, 100).Draw(t, "calls"), Tokens: rapid.Float64Range(1, 1e5).Draw(t, "tokens"), Variation: rapid.Float64Range(0, 10).Draw(t, "variation")}
		r := Replica{Speed: rapid.Float64Range(100, 1e5).Draw(t, "speed"), Residence: time.Duration(rapid.Int64Range(0, 1e11).Draw(t, "residence")), Places: rapid.Float64Range(0, 500).Draw(t, "places")}
		slo := time.Duration(rapid.Int64Range(1e8, 1e10).Draw(t, "slo"))
		n := Of(a, r, slo)
		more := a
		more.Calls, more.Tokens = 2*a.Calls, 2*a.Tokens
		if m := Of(more, r, slo); m.Replicas < n.Replicas {
			t.Fatalf("twice the calls need %d, not %d", m.Replicas, n.Replicas)
		}
		if m := Of(a, r, slo/2); m.Prefill > 0 && m.Replicas < n.Replicas {
			t.Fatalf("half the time needs %d, not %d", m.Replicas, n.Replicas)
		}
	})
}
