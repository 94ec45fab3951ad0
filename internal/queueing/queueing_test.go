package queueing

import (
	"math"
	"testing"

	"kvasir/internal/portable"
	"kvasir/internal/seed"
	"kvasir/internal/stats"
)

// seeds is how often a simulated queue is repeated.
const seeds = 20

// draw returns times with mean 1 and the squared coefficient of variation in its name.
type draw func(*seed.Rand) float64

func deterministic(*seed.Rand) float64 { return 1 }

func exponential(r *seed.Rand) float64 { return -portable.Ln(1 - r.Float64()) }

// erlang4 is the sum of four exponential times: 1/4.
func erlang4(r *seed.Rand) float64 {
	return (exponential(r) + exponential(r) + exponential(r) + exponential(r)) / 4
}

// hyperexponential is one of two exponential times that contribute equally to the mean: 4.
func hyperexponential(r *seed.Rand) float64 {
	p := (1 + math.Sqrt(3.0/5)) / 2 // (c²-1)/(c²+1) = 3/5
	if r.Float64() < p {
		return exponential(r) / (2 * p)
	}
	return exponential(r) / (2 * (1 - p))
}

var draws = []struct {
	name string
	draw draw
	cv2  float64
}{{"deterministic", deterministic, 0}, {"Erlang", erlang4, 0.25}, {"exponential", exponential, 1}, {"hyperexponential", hyperexponential, 4}}

// TestDraws_HaveTheirMoments: the queues below are only as good as their inputs.
func TestDraws_HaveTheirMoments(t *testing.T) {
	for _, d := range draws {
		r := seed.New(1, seed.Workload, 0, 0)
		var sum, squares float64
		const n = 400_000
		for range n {
			x := d.draw(&r)
			sum += x
			squares += x * x
		}
		mean := sum / n
		if cv2 := squares/n/mean/mean - 1; math.Abs(mean-1) > 0.01 || math.Abs(cv2-d.cv2) > 0.05*max(d.cv2, 0.01) {
			t.Errorf("%s: mean %v, squared CV %v, want 1 and %v", d.name, mean, cv2, d.cv2)
		}
	}
}

// simulate returns the mean wait, in service times, of a first come, first served queue in
// each seed: a call starts when it is there and a server is free (Lindley 1952; Kiefer and
// Wolfowitz 1955).
func simulate(arrival, service draw, rho float64, servers, calls int) []float64 {
	var waits []float64
	for s := range seeds {
		arrivals, services := seed.New(uint64(s), seed.Arrival, 0, 0), seed.New(uint64(s), seed.Workload, 0, 0)
		free := make([]float64, servers)
		now, sum := 0.0, 0.0
		warm := calls / 10
		for n := range calls {
			now += arrival(&arrivals) / rho / float64(servers)
			first := 0
			for i := range free {
				if free[i] < free[first] {
					first = i
				}
			}
			start := max(now, free[first])
			free[first] = start + service(&services)
			if n >= warm {
				sum += start - now
			}
		}
		waits = append(waits, sum/float64(calls-warm))
	}
	return waits
}

// within reports a simulated mean that is further from want than its interval allows, or an
// interval that is too wide to say anything.
func within(t *testing.T, name string, waits []float64, want float64) {
	t.Helper()
	mean, half := stats.Interval(waits)
	if half > 0.06*want {
		t.Errorf("%s: half width %v says little about %v", name, half, want)
	}
	if math.Abs(mean-want) > 1.5*half { // 99 %: there are a dozen of these
		t.Errorf("%s: simulated %v ± %v, closed form %v", name, mean, half, want)
	}
}

func TestPollaczekKhinchine_IsWhatAnMG1QueueWaits(t *testing.T) {
	for _, rho := range []float64{0.3, 0.55, 0.75} {
		for _, s := range draws {
			within(t, s.name, simulate(exponential, s.draw, rho, 1, 40_000), PollaczekKhinchine(rho, s.cv2))
		}
	}
}

func TestErlangC_IsWhatAnMMcQueueWaits(t *testing.T) {
	for _, servers := range []int{2, 8} {
		within(t, "M/M/c", simulate(exponential, exponential, 0.8, servers, 60_000), AllenCunneen(servers, 0.8, 1, 1))
	}
}

// TestKingman_IsCloseInHeavyTrafficAndHighInLight: what its comment promises, for arrivals
// that are not Poisson.
func TestKingman_IsCloseInHeavyTrafficAndHighInLight(t *testing.T) {
	for _, a := range draws {
		if a.cv2 == 1 {
			continue
		}
		heavy, _ := stats.Interval(simulate(a.draw, exponential, 0.9, 1, 100_000))
		if want := Kingman(0.9, a.cv2, 1); math.Abs(heavy-want) > 0.15*want {
			t.Errorf("%s arrivals at 0.9: simulated %v, Kingman %v", a.name, heavy, want)
		}
		light, half := stats.Interval(simulate(a.draw, erlang4, 0.2, 1, 20_000))
		if got := Kingman(0.2, a.cv2, 0.25); got < light-half {
			t.Errorf("%s arrivals at 0.2: simulated %v ± %v, Kingman %v is below", a.name, light, half, got)
		}
	}
}

// TestAllenCunneen_IsCloseForManyServers: bursts in, bursts served.
func TestAllenCunneen_IsCloseForManyServers(t *testing.T) {
	mean, _ := stats.Interval(simulate(exponential, hyperexponential, 0.9, 8, 60_000))
	if want := AllenCunneen(8, 0.9, 1, 4); math.Abs(mean-want) > 0.15*want {
		t.Errorf("simulated %v, Allen–Cunneen %v", mean, want)
	}
}

func TestThinned_IsWhatARandomSplitLeaves(t *testing.T) {
	for _, a := range draws {
		const kept = 0.25
		var ratios []float64
		for s := range seeds {
			r := seed.New(uint64(s), seed.Arrival, 0, 0)
			var gap, sum, squares, n float64
			for range 50_000 {
				gap += a.draw(&r)
				if r.Float64() < kept {
					sum, squares, n, gap = sum+gap, squares+gap*gap, n+1, 0
				}
			}
			ratios = append(ratios, squares/n/(sum/n)/(sum/n)-1)
		}
		within(t, a.name, ratios, Thinned(a.cv2, kept))
	}
}

func TestEscalated_IsWhatTheLongestOfExponentialTimesAre(t *testing.T) {
	for _, share := range []float64{0.5, 0.1} {
		mean, cs2 := Escalated(share)
		threshold := -math.Log(share)
		r := seed.New(1, seed.Workload, 0, 0)
		var sum, squares, n float64
		for range 1_000_000 {
			if x := exponential(&r); x > threshold {
				sum, squares, n = sum+x, squares+x*x, n+1
			}
		}
		gotMean := sum / n
		gotCS2 := squares/n/gotMean/gotMean - 1
		if math.Abs(n/1e6-share) > 0.005 || math.Abs(gotMean-mean) > 0.01*mean || math.Abs(gotCS2-cs2) > 0.03*cs2 {
			t.Errorf("share %v: drawn %v of them with mean %v and squared CV %v, want %v and %v", share, n/1e6, gotMean, gotCS2, mean, cs2)
		}
	}
}

func TestErlangC_KnownValues(t *testing.T) {
	for _, test := range []struct {
		servers       int
		offered, want float64
	}{
		{1, 0.7, 0.7},        // M/M/1 waits with probability ρ
		{2, 1, 1.0 / 3},      // 2ρ²/(1+ρ)
		{3, 2, 4.0 / 9},      // by hand: 4/(1+2+2+4)
		{5, 0, 0},            // nobody comes
		{5, 5, 1}, {5, 7, 1}, // nobody finds a free server
		{4096, 1e-3, 0}, // underflows to nothing, not to NaN
	} {
		if got := ErlangC(test.servers, test.offered); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("ErlangC(%d, %v) = %v, want %v", test.servers, test.offered, got, test.want)
		}
	}
}

func TestWaits_AtTheEdges(t *testing.T) {
	for _, got := range []float64{PollaczekKhinchine(1, 0), Kingman(1.2, 1, 1), AllenCunneen(3, 1, 0, 0)} {
		if !math.IsInf(got, 1) {
			t.Errorf("a queue at its limit waits %v, want +Inf", got)
		}
	}
	for _, got := range []float64{Kingman(-1, 1, 1), Kingman(0.5, -1, 1), Kingman(0.5, 1, math.NaN()), AllenCunneen(0, 0.5, 1, 1)} {
		if !math.IsNaN(got) {
			t.Errorf("nonsense waits %v, want NaN", got)
		}
	}
	for _, wait := range []float64{0.5, 3, 20} {
		for _, cs2 := range []float64{0, 1, 4} {
			if got := PollaczekKhinchine(Knee(wait, 1, cs2), cs2); math.Abs(got-wait) > 1e-9*wait {
				t.Errorf("at the knee of %v and C_s² %v the wait is %v", wait, cs2, got)
			}
		}
	}
}

// TestPrefillSaving_CountsTheWork compares the formula with a sum over the tokens that are
// left: each costs c·d for what is linear and twice its position for attention.
func TestPrefillSaving_CountsTheWork(t *testing.T) {
	const c, d = 12, 4096
	work := func(from, to int) (sum float64) {
		for i := from; i < to; i++ {
			sum += c*d + 2*float64(i)
		}
		return sum
	}
	for _, n := range []int{1000, 8000, 50_000} {
		for _, m := range []int{0, n / 4, n / 2, n - 1, n} {
			want := 1 - work(m, n)/work(0, n)
			if got := PrefillSaving(float64(m)/float64(n), AttentionShare(float64(n), d, c)); math.Abs(got-want) > 1e-4 {
				t.Errorf("%d of %d tokens cached save %v, want %v", m, n, got, want)
			}
		}
	}
}
