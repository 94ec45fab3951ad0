package sim

import (
	"testing"
	"time"

	"kvasir/client/workload"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection/health"
)

// newcomer runs calls that keep three engines busy on four, of which the last one joins after a
// minute, and returns what share of the calls of the ten seconds after that it got.
func newcomer(t *testing.T, slowStart, blackout time.Duration) float64 {
	s := testScenario(t, "least-kv", 4)
	s.Workload.Source = crowd(90, 1.5*knee, func(int, *seed.Rand) workload.Terms { return workload.Terms{} })
	s.Workload.Rate = 1
	s.Health = health.Default()
	s.Health.SlowStart, s.Health.Blackout = slowStart, blackout
	const joins = mono.Time(time.Minute)
	s.Engines[3].Joins = joins
	all, there := 0, 0
	s.Ended = func(_ *SessionRecord, _ int, r *Record) {
		if r.At >= joins && r.At < joins.Add(10*time.Second) {
			all++
			if r.Engine == 3 {
				there++
			}
		}
	}
	mustRun(t, s)
	return float64(there) / float64(all)
}

// TestNewcomer_IsNotStampeded: one that joins says that it has nothing to do. A rule that goes by
// what endpoints say sends it far more than its quarter, unless that is not believed for a while.
func TestNewcomer_IsNotStampeded(t *testing.T) {
	blackout := health.Default().Blackout
	for _, slowStart := range []time.Duration{0, health.Default().SlowStart} {
		believed, got := newcomer(t, slowStart, 0), newcomer(t, slowStart, blackout)
		t.Logf("slow start %v: %.2f of the calls, believed at once %.2f", slowStart, got, believed)
		if got > 0.3 || got < 0.05 {
			t.Errorf("slow start %v: a newcomer gets %.2f of the calls, want a quarter at most", slowStart, got)
		}
		if slowStart == 0 && believed < 0.4 {
			t.Errorf("believed at once it gets %.2f of the calls; the test says nothing", believed)
		}
	}
}
