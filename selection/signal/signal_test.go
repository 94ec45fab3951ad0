package signal

import (
	"reflect"
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

// TestLoad_EveryGaugeIsMergedAndStamped sets each Gauge of a Load in turn.
func TestLoad_EveryGaugeIsMergedAndStamped(t *testing.T) {
	kind := reflect.TypeFor[Load]()
	gauges := 0
	for i := range kind.NumField() {
		if kind.Field(i).Type != reflect.TypeFor[Gauge]() {
			continue
		}
		gauges++
		var newer, l Load
		reflect.ValueOf(&newer).Elem().Field(i).Set(reflect.ValueOf(Known(3, 0)))
		newer = newer.Stamped(9)
		l.Merge(newer)
		if got := reflect.ValueOf(l).Field(i).Interface(); got != Known(3, 9) {
			t.Errorf("%s: %+v", kind.Field(i).Name, got)
		}
		l.Merge(Load{})
		if got := reflect.ValueOf(l).Field(i).Interface(); got != Known(3, 9) {
			t.Errorf("%s is gone: %+v", kind.Field(i).Name, got)
		}
	}
	if l := (&Load{}); gauges != len(l.gauges()) {
		t.Errorf("%d gauges, %d are merged", gauges, len(l.gauges()))
	}
}

func TestLoad_RanksAreOfTheNewestReport(t *testing.T) {
	two := RanksOf([]Rank{UnknownRank(0), UnknownRank(1)}, 0)
	l := Load{}
	l.Merge(Load{Running: Known(2, 0), Ranks: two}.Stamped(20))
	if l.Ranks.Len() != 2 || l.Ranks.At != 20 || two.At != 0 {
		t.Errorf("ranks of %d at %d", l.Ranks.Len(), l.Ranks.At)
	}
	l.Merge(Load{Generated: Known(2, 30)}) // says nothing of load
	if l.Ranks.Len() != 2 || l.Ranks.At != 20 {
		t.Errorf("ranks of %d at %d after a report of a counter", l.Ranks.Len(), l.Ranks.At)
	}
	l.Merge(Load{Waiting: Known(2, 40)})
	if l.Ranks != (Ranks{}) {
		t.Errorf("ranks of %d at %d after a report without", l.Ranks.Len(), l.Ranks.At)
	}
	if s := (Load{}).Stamped(5); s.Ranks != (Ranks{}) {
		t.Errorf("no ranks at %d", s.Ranks.At)
	}
}

// TestLoad_CostsNoAllocation holds for what happens to a report under a lock.
func TestLoad_CostsNoAllocation(t *testing.T) {
	var known Load
	report := Load{Running: Known(1, 0), Generated: Known(1, 0), Ranks: RanksOf([]Rank{UnknownRank(0), UnknownRank(1)}, 0)}
	restarts := 0
	if n := testing.AllocsPerRun(100, func() {
		if Restarted(known, report) {
			restarts++
		}
		known.Merge(report.Stamped(7))
		restarts += int(known.Age(8)) + int(known.KVUsageMax().Value)
	}); n != 0 || restarts == 0 {
		t.Errorf("%v allocations", n)
	}
}
