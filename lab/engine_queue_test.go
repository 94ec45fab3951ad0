package lab

import (
	"math"
	"testing"
	"time"

	"kvasir/accelerator"
	"kvasir/engine"
	"kvasir/internal/mono"
	"kvasir/internal/queueing"
	"kvasir/internal/seed"
	"kvasir/internal/stats"
)

// TestEngine_IsTheQueueOfTheClosedForms runs the simulator's engine in settings that the
// closed forms describe: every step takes 1 ms whatever is in it, prompts have one token,
// nothing is cached. With one place it is an M/G/1 queue; with four, whose decodes don't
// slow each other down, an M/G/4 queue, but that a call waits for the end of a step.
func TestEngine_IsTheQueueOfTheClosedForms(t *testing.T) {
	const calls, mean = 5000, 20.0
	for _, test := range []struct {
		name    string
		places  int
		rho     float64
		service func(*seed.Rand) float64 // in units of the mean
		off     float64                  // by which part the means may differ, beside the interval
	}{
		{"M/D/1", 1, 0.7, func(*seed.Rand) float64 { return 1 }, 0.01},
		{"M/M/1", 1, 0.6, exponential, 0.01},
		{"M/H/1", 1, 0.5, heavyTail, 0.01},
		{"M/M/4", 4, 0.8, exponential, 0.1},
	} {
		var ratios []float64
		for root := range uint64(DefaultSeeds) {
			wait, rho, cs2 := serveByEngine(t, root, calls, test.places, test.rho, mean, test.service)
			ratios = append(ratios, wait/queueing.AllenCunneen(test.places, rho, 1, cs2))
		}
		ratio, half := stats.Interval(ratios)
		if half > 0.06 || math.Abs(ratio-1) > half+test.off {
			t.Errorf("%s: the engine's mean wait is %v ± %v of the closed form's", test.name, ratio, half)
		}
	}
}

// heavyTail draws one of two exponential times: mean 1, squared coefficient of variation 4.
func heavyTail(r *seed.Rand) float64 {
	p := (1 + math.Sqrt(3.0/5)) / 2
	if r.Float64() < p {
		return exponential(r) / (2 * p)
	}
	return exponential(r) / (2 * (1 - p))
}

// serveByEngine returns the mean wait in mean services, and the utilization and the squared
// coefficient of variation of service that the drawn calls had.
func serveByEngine(t *testing.T, root uint64, calls, places int, rho, mean float64, service func(*seed.Rand) float64) (wait, utilization, cs2 float64) {
	t.Helper()
	c := engine.Defaults(accelerator.Profile{
		Name: "constant", Model: "constant", Device: "constant", TensorParallel: 1,
		DenseTokens: []int{1, 1 << 20}, DenseMicros: []float64{1000, 1000},
		KVBytesPerToken: 1, KVBlocks: 1 << 16, MaxBatchedTokens: 4096, MaxSeqs: places, MaxModelLen: 1 << 16,
	})
	c.Overhead, c.PrefixCaching = 0, false
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	services, arrivals := seed.New(root, seed.Workload, 0, 0), seed.New(root, seed.Arrival, 0, 0)
	var sum, squares float64
	tokens := make([]int, calls)
	for i := range tokens {
		tokens[i] = max(1, int(math.Ceil(mean*service(&services)-0.5)))
		sum += float64(tokens[i])
		squares += float64(tokens[i] * tokens[i])
	}
	average := sum / float64(calls)
	gap := average / rho / float64(places) // ms
	came := map[engine.ID]mono.Time{}
	var waited time.Duration
	take := func(out []engine.Output) {
		for _, o := range out {
			if o.First {
				waited += o.Scheduled.Sub(came[o.ID])
			}
		}
	}
	now := mono.Time(0)
	for i, n := range tokens {
		now = now.Add(mono.FromSeconds(gap * exponential(&arrivals) / 1000))
		for at, ok := e.Next(); ok && at <= now; at, ok = e.Next() {
			take(e.Advance(at))
		}
		id := engine.ID(i)
		came[id] = now
		if err := e.Submit(now, engine.Request{ID: id, PromptTokens: 1, OutputTokens: n, Reason: engine.Stop}); err != nil {
			t.Fatal(err)
		}
	}
	for at, ok := e.Next(); ok; at, ok = e.Next() {
		take(e.Advance(at))
	}
	return waited.Seconds() * 1000 / float64(calls) / average, sum / float64(places) / (float64(now) / 1e6), squares/float64(calls)/average/average - 1
}
