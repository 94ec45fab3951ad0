package signal

import (
	"testing"
	"time"

	"kvasir/internal/mono"
)

func TestFresh_UnknownAndStaleAreNotZero(t *testing.T) {
	now := mono.Time(time.Minute)
	for name, x := range map[string]struct {
		gauge  Gauge
		maxAge time.Duration
		value  float64
		fresh  bool
	}{
		"unknown":         {Gauge{}, time.Second, 0, false},
		"unknown, value":  {Gauge{Value: 7}, 0, 0, false},
		"just fresh":      {Known(7, now.Add(-time.Second)), time.Second, 7, true},
		"just stale":      {Known(7, now.Add(-time.Second-1)), time.Second, 0, false},
		"any age":         {Known(7, 0), 0, 7, true},
		"fresh, and zero": {Known(0, now), time.Second, 0, true},
	} {
		if v, ok := x.gauge.Fresh(now, x.maxAge); v != x.value || ok != x.fresh {
			t.Errorf("%s: %v, %v", name, v, ok)
		}
	}
}

func TestLoad_MergeKeepsWhatIsNotTold(t *testing.T) {
	l := Load{Running: Known(1, 10), KVUsage: Known(0.5, 10)}
	l.Merge(Load{Running: Known(2, 0), Waiting: Known(3, 0)}.Stamped(20))
	want := Load{Running: Known(2, 20), Waiting: Known(3, 20), KVUsage: Known(0.5, 10), KVBlocks: Gauge{}}
	if l.Running != want.Running || l.Waiting != want.Waiting || l.KVUsage != want.KVUsage || l.KVBlocks.Known {
		t.Errorf("got %+v", l)
	}
	if age := l.Age(25); age != 5 {
		t.Errorf("the newest moving number is %d old, want 5", age)
	}
	if age := (&Load{KVBlocks: Known(9, 1)}).Age(25); age != -1 {
		t.Errorf("a constant gave the load an age of %d", age)
	}
}
