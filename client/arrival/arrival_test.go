package arrival

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/mono"
	"kvasir/internal/stats"
)

// take returns the first n instants.
func take(seq iter.Seq[time.Duration], n int) []time.Duration {
	instants := make([]time.Duration, 0, n)
	for at := range seq {
		if instants = append(instants, at); len(instants) == n {
			break
		}
	}
	return instants
}

// until returns the instants before end.
func until(seq iter.Seq[time.Duration], end time.Duration) []time.Duration {
	var instants []time.Duration
	for at := range seq {
		if at >= end {
			break
		}
		instants = append(instants, at)
	}
	return instants
}

// gaps returns the gaps before each of the instants, in seconds.
func gaps(instants []time.Duration) []float64 {
	out := make([]float64, len(instants))
	last := time.Duration(0)
	for i, at := range instants {
		out[i], last = (at - last).Seconds(), at
	}
	return out
}

// near fails unless want lies within twice the 95 % confidence interval of the seeds'
// results, about four standard errors.
func near(t *testing.T, what string, results []float64, want float64) {
	t.Helper()
	mean, half := stats.Interval(results)
	if math.Abs(mean-want) > max(2*half, 1e-9*want) {
		t.Errorf("%s is %.5f ± %.5f, want %.5f", what, mean, half, want)
	}
}

// drawProcess draws a valid process of any kind.
func drawProcess(t *rapid.T) Process {
	rate := func(key string) float64 {
		return rapid.OneOf(rapid.Float64Range(0.01, 1000), rapid.SampledFrom([]float64{minRate, 1, maxRate})).Draw(t, key)
	}
	span := func(key string) time.Duration {
		return time.Duration(rapid.Int64Range(int64(time.Microsecond), int64(maxSpan)).Draw(t, key))
	}
	b := rapid.OneOf(rapid.Float64Range(0.001, 20), rapid.SampledFrom([]float64{0.001, 1, math.Inf(1)})).Draw(t, "burstiness")
	switch rapid.SampledFrom([]string{"constant", "poisson", "gamma", "ramp", "surge", "diurnal", "on-off", "list"}).Draw(t, "kind") {
	case "constant":
		return Constant{rate("rate")}
	case "poisson":
		return Poisson{rate("rate"), rapid.IntRange(0, 50).Draw(t, "exactly")}
	case "gamma":
		return Gamma{rate("rate"), b, rapid.IntRange(0, 50).Draw(t, "exactly")}
	case "surge":
		return Surge{rate("rate"), rapid.Float64Range(0.01, 100).Draw(t, "factor"), span("from"), span("for"), b}
	case "ramp":
		r := Ramp{rate("start"), rate("end"), span("over"), Exponential, b}
		if rapid.Bool().Draw(t, "linear") {
			r.Strategy = Linear
			r.Start *= float64(rapid.IntRange(0, 1).Draw(t, "from zero"))
		}
		return r
	case "diurnal":
		return Diurnal{rate("rate"), rapid.OneOf(rapid.Float64Range(0, 1), rapid.Just(1.0)).Draw(t, "amplitude"), span("period"), rapid.Float64Range(0, 1).Draw(t, "phase"), b}
	case "on-off":
		o := OnOff{rate("on-rate"), rate("off-rate") * float64(rapid.IntRange(0, 1).Draw(t, "any")), span("on"), span("off"), b}
		o.On = max(o.On, mono.FromSeconds(10*minCycle/o.OnRate))
		return o
	default:
		at := rapid.SliceOf(rapid.Int64Range(0, 30)).Draw(t, "at")
		slices.Sort(at)
		l := List{}
		for _, a := range at {
			l.At = append(l.At, time.Duration(a))
		}
		return l
	}
}

// TestLaw_InstantsAscendAndRepeat holds for every process: instants are never negative,
// none equals another, and one seed gives one sequence, however often it is asked.
func TestLaw_InstantsAscendAndRepeat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, root := drawProcess(t), rapid.Uint64().Draw(t, "seed")
		if err := p.Validate(); err != nil {
			t.Fatalf("%+v is refused: %v", p, err)
		}
		seq := p.Instants(root)
		first := take(seq, 200)
		last := time.Duration(-1)
		for i, at := range first {
			if at <= last {
				t.Fatalf("%+v: instant %d is %v after %v", p, i, at, last)
			}
			last = at
		}
		if !slices.Equal(first, take(seq, 200)) || !slices.Equal(first, take(p.Instants(root), 200)) {
			t.Fatalf("%+v gives other instants the second time", p)
		}
	})
}

func TestLaw_SeedsDiffer(t *testing.T) {
	for _, p := range []Process{Poisson{3, 0}, Gamma{3, 0.2, 0}, OnOff{5, 0, time.Second, time.Second, even}, Diurnal{1, 1, time.Minute, 0, 1}} {
		if slices.Equal(take(p.Instants(1), 10), take(p.Instants(2), 10)) {
			t.Errorf("%+v is the same for two seeds", p)
		}
	}
}

func TestConstant_IsExact(t *testing.T) {
	for i, at := range take(Constant{3}.Instants(0), 10000) {
		if want := time.Duration(math.Round(float64(i+1) / 3 * 1e9)); at != want {
			t.Fatalf("call %d comes at %d, want %d", i+1, at, want)
		}
	}
}

// TestRenewal_HasItsRateAndCV checks the mean and the coefficient of variation of gaps,
// 1/√burstiness, over 40 seeds.
func TestRenewal_HasItsRateAndCV(t *testing.T) {
	for _, b := range []float64{0.1, 0.5, 1, 4, 50} {
		var means, squares []float64
		for root := range uint64(40) {
			s := stats.Summarize(gaps(take(Gamma{Rate: 20, Burstiness: b}.Instants(root), 5000)))
			means, squares = append(means, s.Mean), append(squares, s.Std*s.Std+s.Mean*s.Mean)
		}
		near(t, fmt.Sprintf("burstiness %v: mean gap", b), means, 1.0/20)
		near(t, fmt.Sprintf("burstiness %v: mean square of a gap", b), squares, (1+1/b)/400)
	}
}

func TestPoisson_IsGammaOfBurstinessOne(t *testing.T) {
	if !slices.Equal(take(Poisson{Rate: 7}.Instants(5), 100), take(Gamma{Rate: 7, Burstiness: 1}.Instants(5), 100)) {
		t.Error("they differ")
	}
}

// TestPoisson_CountsArePoisson checks that the variance of counts equals their mean.
func TestPoisson_CountsArePoisson(t *testing.T) {
	var means, dispersion []float64
	for root := range uint64(40) {
		s := counts(Poisson{Rate: 5}.Instants(root), 2*time.Second, 500)
		means, dispersion = append(means, s.Mean), append(dispersion, s.Std*s.Std/10)
	}
	near(t, "calls in 2 s", means, 10)
	near(t, "their variance over their mean", dispersion, 1)
}

// counts summarises how many instants fall into each of n windows.
func counts(seq iter.Seq[time.Duration], window time.Duration, n int) stats.Summary {
	values := make([]float64, n)
	for at := range seq {
		w := int(at / window)
		if w >= n {
			break
		}
		values[w]++
	}
	return stats.Summarize(values)
}

// TestSuperposition checks two theorems. Poisson processes together are one, with the sum
// of the rates: their gaps have a CV of 1. Many independent processes together come near
// to one, however even each of them is (Palm and Khinchin).
func TestSuperposition(t *testing.T) {
	together := func(root uint64, parts int, part Process) []time.Duration {
		var all []time.Duration
		for i := range parts {
			all = append(all, until(part.Instants(root*1000+uint64(i)), 2000*time.Second)...)
		}
		slices.Sort(all)
		return all[len(all)/10:] // the even ones start in step
	}
	for _, test := range []struct {
		parts  int
		part   Process
		rate   float64
		cv, by float64
	}{
		{2, Poisson{Rate: 3}, 6, 1, 0},
		{50, Gamma{Rate: 0.1, Burstiness: 4}, 5, 1, 0.03},
	} {
		var rates, cvs []float64
		for root := range uint64(20) {
			all := together(root, test.parts, test.part)
			g := gaps(all)[1:]
			s := stats.Summarize(g)
			rates, cvs = append(rates, 1/s.Mean), append(cvs, s.Std/s.Mean)
		}
		near(t, fmt.Sprintf("rate of %d times %+v", test.parts, test.part), rates, test.rate)
		if mean, half := stats.Interval(cvs); math.Abs(mean-test.cv) > test.by+2*half {
			t.Errorf("CV of %d times %+v is %v ± %v", test.parts, test.part, mean, half)
		}
	}
}

// TestExactly checks vLLM's rule: a schedule of n lasts exactly n/rate. What follows is a
// renewal process again.
func TestExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 500).Draw(t, "n")
		g := Gamma{rapid.Float64Range(0.1, 1000).Draw(t, "rate"), rapid.Float64Range(0.2, 10).Draw(t, "burstiness"), n}
		root := rapid.Uint64().Draw(t, "seed")
		at := take(g.Instants(root), n+5)
		if want := time.Duration(math.Round(float64(n) / g.Rate * 1e9)); at[n-1] < want || at[n-1] > want+1 {
			t.Fatalf("call %d of %+v comes at %d, want %d", n, g, at[n-1], want)
		}
		free := g
		free.Exactly = 0
		raw := take(free.Instants(root), n+5)
		scale := float64(at[n-1]) / float64(raw[n-1])
		for i := range n {
			rounding := 2 + scale + 1e-9*float64(at[i]) + float64(at[i])/float64(raw[n-1])
			if want := float64(raw[i]) * scale; math.Abs(float64(at[i])-want) > rounding {
				t.Fatalf("call %d comes at %d, want %.1f", i+1, at[i], want)
			}
		}
		for i := n; i < n+5; i++ {
			if got, want := at[i]-at[i-1], raw[i]-raw[i-1]; max(got-want, want-got) > 3 {
				t.Fatalf("the gap before call %d is %v, want %v", i+1, got, want)
			}
		}
	})
}

// TestRamp_IsExact puts even ramps' instants into Λ, computed by package math: the i-th
// arrival comes when i are expected, to within what a nanosecond's rounding makes.
func TestRamp_IsExact(t *testing.T) {
	for _, r := range []Ramp{
		{1, 50, time.Minute, Linear, even}, {0, 50, time.Minute, Linear, even}, {50, 1, time.Minute, Linear, even},
		{10, 10, time.Minute, Linear, even}, {1, 50, time.Minute, Exponential, even}, {50, 1, time.Minute, Exponential, even},
		{10, 10, time.Minute, Exponential, even}, {10, 10.000001, time.Minute, Exponential, even},
		{1e6, minRate, time.Second, Linear, even},
	} {
		over := r.Over.Seconds()
		lambda := func(t float64) float64 {
			past := max(t-over, 0) * r.End
			t = min(t, over)
			if r.Strategy == Linear {
				return r.Start*t + (r.End-r.Start)*t*t/(2*over) + past
			}
			g := math.Log1p((r.End - r.Start) / r.Start)
			if g == 0 {
				return r.Start*t + past
			}
			return r.Start*over/g*math.Expm1(g*t/over) + past
		}
		inside := 0
		for i, at := range take(r.Instants(0), 3000) {
			s := at.Seconds()
			rate := max(r.Start, r.End)
			if got, want := lambda(s), float64(i+1); math.Abs(got-want) > 1e-9*rate+1e-10*want {
				t.Fatalf("%+v: %v arrivals are expected until %v, when the %v. comes", r, got, at, want)
			}
			if at < r.Over {
				inside++
			}
		}
		if inside == 0 {
			t.Errorf("%+v: no arrival on the ramp", r)
		}
	}
}

// TestSurge_IsExact counts even arrivals before, within and after the surge.
func TestSurge_IsExact(t *testing.T) {
	s := Surge{Rate: 10, Factor: 3, From: 20 * time.Second, For: 40 * time.Second, Burstiness: even}
	at := until(s.Instants(1), 100*time.Second)
	counts := [3]int{}
	for _, x := range at {
		switch {
		case x < s.From:
			counts[0]++
		case x < s.From+s.For:
			counts[1]++
		default:
			counts[2]++
		}
	}
	for i, want := range []int{200, 1200, 400} {
		if d := counts[i] - want; d < -1 || d > 1 {
			t.Errorf("part %d has %d arrivals, want %d", i, counts[i], want)
		}
	}
}

// TestRamp_CountsFollowItsRate checks a bursty ramp's counts, which only have their means.
func TestRamp_CountsFollowItsRate(t *testing.T) {
	r := Ramp{2, 30, 100 * time.Second, Exponential, 0.5}
	var first, second, after []float64
	for root := range uint64(40) {
		at := until(r.Instants(root), 120*time.Second)
		half, _ := slices.BinarySearch(at, 50*time.Second)
		end, _ := slices.BinarySearch(at, 100*time.Second)
		first, second, after = append(first, float64(half)), append(second, float64(end-half)), append(after, float64(len(at)-end))
	}
	g := math.Log(15)
	middle := 2 * math.Exp(g/2)
	near(t, "arrivals in the first half", first, (middle-2)/g*100)
	near(t, "arrivals in the second half", second, (30-middle)/g*100)
	near(t, "arrivals in 20 s behind the ramp", after, 600)
}

func TestRamp_Lasting(t *testing.T) {
	for _, r := range []Ramp{{2, 30, 0, Linear, even}, {2, 30, 0, Exponential, even}, {5, 5, 0, Exponential, even}} {
		r = r.Lasting(1000)
		at := take(r.Instants(0), 1000)
		if d := at[999] - r.Over; max(d, -d) > time.Microsecond {
			t.Errorf("%+v: call 1000 comes %v from the ramp's end", r, d)
		}
	}
}

// TestDiurnal_IsExact puts an even day's instants into Λ, computed by package math.
func TestDiurnal_IsExact(t *testing.T) {
	for _, d := range []Diurnal{
		{5, 0.8, time.Minute, 0, even}, {5, 1, time.Minute, 0.25, even}, {5, 0, time.Minute, 0, even},
		{1000, 1, time.Second, 0.75, even}, {0.01, 0.9, time.Minute, 0.4, even},
	} {
		period := d.Period.Seconds()
		for i, at := range take(d.Instants(0), 3000) {
			u := at.Seconds() / period
			got := d.Rate * period * (u + d.Amplitude/(2*math.Pi)*(math.Cos(2*math.Pi*d.Phase)-math.Cos(2*math.Pi*(u+d.Phase))))
			if want := float64(i + 1); math.Abs(got-want) > 1e-8*d.Rate+1e-11*want {
				t.Fatalf("%+v: %v arrivals are expected until %v, when the %v. comes", d, got, at, want)
			}
		}
	}
}

func TestDiurnal_SwingsAsItSays(t *testing.T) {
	var peak, trough []float64
	for root := range uint64(40) {
		at := until(Diurnal{20, 0.9, 100 * time.Second, 0, 1}.Instants(root), 100*time.Second)
		half, _ := slices.BinarySearch(at, 50*time.Second)
		peak, trough = append(peak, float64(half)), append(trough, float64(len(at)-half))
	}
	near(t, "arrivals in the half with the peak", peak, 20*(50+0.9*100/math.Pi))
	near(t, "arrivals in the half with the trough", trough, 20*(50-0.9*100/math.Pi))
}

// TestOnOff_HasItsRateAndDispersion checks the mean rate, and the index of dispersion of
// counts in long windows against Fischer and Meier-Hellstern 1993:
//
//	1 + 2·(a−b)²·p·q / ((p+q)²·(a·q + b·p))
//
// for rates a, b that are left at the rates p, q.
func TestOnOff_HasItsRateAndDispersion(t *testing.T) {
	o := OnOff{30, 2, 3 * time.Second, 7 * time.Second, 1}
	var early, means, dispersion []float64
	for root := range uint64(2000) {
		early = append(early, float64(len(until(o.Instants(root+1000), time.Second))))
	}
	for root := range uint64(60) {
		s := counts(o.Instants(root), 300*time.Second, 100)
		means, dispersion = append(means, s.Mean/300), append(dispersion, s.Std*s.Std/s.Mean)
	}
	near(t, "rate", means, o.Rate())
	near(t, "arrivals in the first second", early, o.Rate())
	p, q := 1/3.0, 1/7.0
	limit := 1 + 2*28*28*p*q/((p+q)*(p+q)*(30*q+2*p))
	if mean, half := stats.Interval(dispersion); math.Abs(mean-limit) > 2*half+0.03*limit { // windows are not endless
		t.Errorf("dispersion is %v ± %v, want %v", mean, half, limit)
	}
}

func TestOnOff_IsSilentWhileOff(t *testing.T) {
	o := OnOff{1000, 0, time.Second, 10 * time.Second, even}
	silent := 0
	for _, g := range gaps(take(o.Instants(4), 50000))[1:] {
		if g > 0.0011 {
			silent++
		}
	}
	if silent < 25 || silent > 80 { // 50,000 arrivals take 50 s of being on
		t.Errorf("%d silences in 50 s of being on", silent)
	}
}

func TestInstants_EndWhereTimeDoes(t *testing.T) {
	n := 0
	for at := range (Constant{minRate}).Instants(0) {
		if n++; at < 0 || n > 10 {
			t.Fatalf("instant %d is %v", n, at)
		}
	}
	if n != 9 { // 9.2 times 10^9 seconds
		t.Errorf("%d instants in 292 years, want 9", n)
	}
}

func TestValidate_NamesEveryMistake(t *testing.T) {
	nan := math.NaN()
	for _, test := range []struct {
		process Process
		want    string
	}{
		{Constant{0}, "rate is 0; allowed: 1e-09 to 1e+09 sessions a second"},
		{Poisson{nan, -1}, "rate is NaN; allowed: 1e-09 to 1e+09 sessions a second\nexactly is -1; allowed: 0 to 10000000"},
		{Gamma{math.Inf(1), 0, 0}, "rate is +Inf; allowed: 1e-09 to 1e+09 sessions a second\nburstiness is 0; allowed: 0.001 or more, or inf"},
		{Surge{1, 0, 0, time.Second, 1}, "factor is 0; allowed: above 0, at most 1e+06\nfrom is 0s; allowed: 1µs to 87840h0m0s"},
		{Ramp{0, 5, time.Second, Exponential, 1}, "start is 0; allowed: 1e-09 to 1e+09 sessions a second"},
		{Ramp{-1, nan, 0, "steep", nan}, "start is -1; allowed: 1e-09 to 1e+09 sessions a second\nend is NaN; allowed: 1e-09 to 1e+09 sessions a second\nover is 0s; allowed: 1µs to 87840h0m0s\nstrategy is \"steep\"; allowed: linear or exponential\nburstiness is NaN; allowed: 0.001 or more, or inf"},
		{Diurnal{1, 1.5, -1, 2, 1}, "amplitude is 1.5; allowed: 0 to 1\nperiod is -1ns; allowed: 1µs to 87840h0m0s\nphase is 2; allowed: 0 to 1"},
		{OnOff{0, -2, time.Second, 0, 1}, "on-rate is 0; allowed: 1e-09 to 1e+09 sessions a second\noff-rate is -2; allowed: 1e-09 to 1e+09 sessions a second\noff is 0s; allowed: 1µs to 87840h0m0s"},
		{OnOff{1, 0, time.Microsecond, time.Second, 1}, "on-rate · on + off-rate · off is 1e-06 sessions; allowed: 0.001 or more"},
		{List{[]time.Duration{-1}}, "at[0] is -1ns; allowed: 0s or later, the instant before it"},
		{List{[]time.Duration{3, 2}}, "at[1] is 2ns; allowed: 3ns or later, the instant before it"},
	} {
		if err := test.process.Validate(); err == nil || err.Error() != test.want {
			t.Errorf("%+v: %v\nwant %s", test.process, err, test.want)
		}
	}
}

func BenchmarkInstants(b *testing.B) {
	for _, p := range []Process{
		Constant{10}, Poisson{10, 0}, Gamma{10, 0.3, 0}, Ramp{1, 1e6, time.Hour, Linear, 1}, Ramp{1, 1e6, time.Hour, Exponential, 1},
		Diurnal{10, 0.9, time.Hour, 0, 1}, OnOff{30, 1, time.Second, time.Second, 1},
	} {
		b.Run(fmt.Sprintf("%T", p), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for range p.Instants(1) {
				if n++; n >= b.N {
					break
				}
			}
		})
	}
}
