package workload

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/seed"
	"kvasir/internal/stats"
)

// drawLengths draws any valid lengths within the bounds.
func drawLengths(t *rapid.T, key string, least, most int) Lengths {
	low := rapid.IntRange(least, most).Draw(t, key+" least")
	high := rapid.IntRange(low, most).Draw(t, key+" most")
	mean, cv := rapid.Float64Range(0.5, float64(most)).Draw(t, key+" mean"), rapid.Float64Range(0, 3).Draw(t, key+" CV")
	d := distribution{kind: rapid.SampledFrom([]kind{fixed, uniform, normal, lognormal, exponential, quantiles}).Draw(t, key), low: float64(low), high: float64(high)}
	switch d.kind {
	case fixed:
		return Fixed(low)
	case normal, lognormal:
		d.mean, d.cv, d.bounded = mean, cv, true
	case exponential:
		d.mean, d.bounded = mean, true
	case quantiles:
		d.points = []float64{float64(low), float64((low + high) / 2), float64(high)}
	}
	return Lengths{d}
}

func TestLaw_LengthsStayWithinTheirBoundsAndAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLengths(t, "lengths", 0, maxLength)
		r := seed.New(rapid.Uint64().Draw(t, "seed"), seed.Workload, 0, 0)
		least, most := l.Bounds()
		for range 50 {
			if n := l.Draw(&r); n < least || n > most {
				t.Fatalf("%s drew %d", l.String(), n)
			}
		}
		back, err := ParseLengths(l.String())
		if err != nil || back.String() != l.String() || !slices.Equal(back.points, l.points) || back.low != l.low || back.high != l.high || back.mean != l.mean || back.cv != l.cv {
			t.Fatalf("%s is read as %s, %v", l.String(), back.String(), err)
		}
	})
}

func TestLengths_HaveTheirMoments(t *testing.T) {
	for text, want := range map[string]struct{ mean, std float64 }{
		"700":                          {700, 0},
		"uniform/100/300":              {200, math.Sqrt((201*201 - 1) / 12.0)},
		"normal/1000/0.1":              {1000, 100},
		"lognormal/1000/0.8":           {1000, 800},
		"exponential/500":              {500, 500},
		"quantiles/0/100/1000":         {300, math.Sqrt((100.0*100/3+(1000.0*1000*1000-100*100*100)/(3*900))/2 - 300*300)},
		"lognormal/1000/0.8/1000/1000": {1000, 0},
		"normal/10000.5/0.1":           {10000.5, 1000},
	} {
		l, err := ParseLengths(text)
		if err != nil {
			t.Fatal(err)
		}
		var means, squares []float64
		for root := range uint64(40) {
			r := seed.New(root, seed.Workload, 0, 0)
			values := make([]float64, 4000)
			for i := range values {
				values[i] = float64(l.Draw(&r))
			}
			s := stats.Summarize(values)
			means, squares = append(means, s.Mean), append(squares, s.Std*s.Std+s.Mean*s.Mean)
		}
		for _, m := range []struct {
			what string
			got  []float64
			want float64
		}{{"mean", means, want.mean}, {"mean square", squares, want.mean*want.mean + want.std*want.std}} {
			if mean, half := stats.Interval(m.got); math.Abs(mean-m.want) > 2*half+1e-3*m.want { // whole numbers
				t.Errorf("%s: %s is %v ± %v, want %v", text, m.what, mean, half, m.want)
			}
		}
	}
}

func TestDelays(t *testing.T) {
	for text, want := range map[string][2]time.Duration{
		"1.5s":                          {1500 * time.Millisecond, 1500 * time.Millisecond},
		"uniform/1s/2s":                 {time.Second, 2 * time.Second},
		"lognormal/30s/1/2s/10m":        {2 * time.Second, 10 * time.Minute},
		"exponential/1h":                {0, maxDelay},
		"quantiles/1ms/5ms/1s/2h0m0s":   {time.Millisecond, 2 * time.Hour},
		"normal/100ms/1000/0s/720h0m0s": {0, maxDelay},
	} {
		d, err := ParseDelays(text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseDelays(d.String())
		if err != nil || again.String() != d.String() {
			t.Errorf("%s is written as %s and read as %s, %v", text, d.String(), again.String(), err)
		}
		r, twin := seed.New(1, seed.Workload, 0, 0), seed.New(1, seed.Workload, 0, 0)
		for range 1000 {
			v := d.Draw(&r)
			if v < want[0] || v > want[1] || v != again.Draw(&twin) {
				t.Fatalf("%s drew %v", text, v)
			}
		}
	}
}

func TestAround_IsVLLMsRange(t *testing.T) {
	for _, test := range []struct {
		n     int
		ratio float64
		text  string
	}{{1024, 0, "1024"}, {1024, 0.5, "uniform/512/1536"}, {100, 0.333, "uniform/66/134"}, {128, 1, "uniform/0/256"}} {
		if l := Around(test.n, test.ratio); l.String() != test.text {
			t.Errorf("around %d, %v: %s, want %s", test.n, test.ratio, l.String(), test.text)
		}
	}
}

func TestDistributions_RefuseWhatIsNone(t *testing.T) {
	for _, text := range []string{
		"", "x", "-1", "1.5", "4194305", "uniform", "uniform/1", "uniform/2/1", "uniform/1/2/3", "normal/5", "normal/5/-1", "normal/5/NaN",
		"normal/0/1", "lognormal/5/1001", "lognormal/5/1/9", "lognormal/5/1/9/8", "exponential/0", "exponential", "quantiles/5", "quantiles/5/4",
		"fixed", "gamma/1/2", "/", "uniform//", "quantiles/" + strings.Repeat("1/", maxPoints) + "1",
	} {
		if l, err := ParseLengths(text); err == nil || !strings.Contains(err.Error(), "allowed: 256, uniform/MIN/MAX") || l.String() != "0" {
			t.Errorf("lengths %.40q: %s, %v", text, l.String(), err)
		}
	}
	for _, text := range []string{"5", "-1s", "721h", "uniform/1s/2", "lognormal/1s/1s"} {
		if d, err := ParseDelays(text); err == nil || !strings.Contains(err.Error(), "allowed: 1.5s, uniform/MIN/MAX") {
			t.Errorf("delays %q: %s, %v", text, d.String(), err)
		}
	}
}
