package signal

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestRestarted(t *testing.T) {
	counter := func(set func(*Load, float64), v float64) Load {
		l := Load{Running: Known(1, 0)}
		set(&l, v)
		return l
	}
	for name, set := range map[string]func(*Load, float64){
		"queries":     func(l *Load, v float64) { l.PrefixQueries = Known(v, 0) },
		"hits":        func(l *Load, v float64) { l.PrefixHits = Known(v, 0) },
		"generated":   func(l *Load, v float64) { l.Generated = Known(v, 0) },
		"preemptions": func(l *Load, v float64) { l.Preemptions = Known(v, 0) },
	} {
		for _, c := range []struct {
			old, new Load
			want     bool
		}{
			{counter(set, 5), counter(set, 4), true},
			{counter(set, 5), counter(set, 0), true},
			{counter(set, 5), counter(set, 5), false},
			{counter(set, 5), counter(set, 6), false},
			{counter(set, 5), Load{Running: Known(0, 0)}, false},
			{Load{Running: Known(0, 0)}, counter(set, 5), false},
			{Load{}, Load{}, false},
		} {
			if got := Restarted(c.old, c.new); got != c.want {
				t.Errorf("%s: %v from %+v to %+v", name, got, c.old, c.new)
			}
		}
	}
	for _, c := range []struct {
		old, new Gauge
		want     bool
	}{
		{Known(100, 0), Known(101.5, 0), true},
		{Known(100, 0), Known(101, 0), false},
		{Known(100, 0), Known(100, 0), false},
		{Known(100, 0), Known(5, 0), false},
		{Known(100, 0), Gauge{}, false},
		{Gauge{}, Known(100, 0), false},
		{Known(100, 0), Gauge{Value: 500}, false},
	} {
		if got := Restarted(Load{Started: c.old}, Load{Started: c.new}); got != c.want {
			t.Errorf("started: %v from %+v to %+v", got, c.old, c.new)
		}
	}
	// What moves both ways with load, and what is constant, proves nothing.
	old := Load{Running: Known(5, 0), Waiting: Known(5, 0), KVUsage: Known(1, 0), WaitingTokens: Known(5, 0), KVBlocks: Known(5, 0), BlockTokens: Known(5, 0)}
	if Restarted(old, Load{Running: Known(0, 0), Waiting: Known(0, 0), KVUsage: Known(0, 0), WaitingTokens: Known(0, 0), KVBlocks: Known(1, 0), BlockTokens: Known(1, 0)}) {
		t.Error("an engine that drained was taken for a new one")
	}
}

// ranked returns a load whose counter Generated is told by rank; NaN is a rank that
// doesn't tell it, a negative number one that isn't there.
func ranked(parts ...float64) Load {
	l, sum, told := Load{Running: Known(1, 0)}, 0.0, false
	var ranks []Rank
	for id, v := range parts {
		if v < 0 {
			continue
		}
		ranks = append(ranks, rank(int32(id), func(r *Rank) { r.Generated = v }))
		if !math.IsNaN(v) {
			sum, told = sum+v, true
		}
	}
	l.Ranks = RanksOf(ranks, 0)
	if told {
		l.Generated = Known(sum, 0)
	}
	return l
}

func TestRestarted_LooksRankByRank(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name     string
		old, new []float64
		want     bool
	}{
		{"a rank stays away", []float64{100, 50, 70}, []float64{101, -1, 70}, false},
		{"all but one stay away", []float64{100, 50}, []float64{-1, 51}, false},
		{"all but one come back", []float64{-1, 51}, []float64{10, 52}, false},
		{"a rank isn't told", []float64{100, 50}, []float64{100, nan}, false},
		{"a rank is told again", []float64{100, nan}, []float64{100, 2}, false},
		{"no rank is told", []float64{100, 50}, []float64{nan, nan}, false},
		{"one of two fell, the sum grew", []float64{100, 50}, []float64{200, 1}, true},
		{"one fell, another one stays away", []float64{100, 50, 70}, []float64{1, -1, 71}, true},
		{"all fell", []float64{100, 50}, []float64{0, 0}, true},
		{"one rank, then another one", []float64{-1, 50}, []float64{1, -1}, false},
		{"rank 0, then another one", []float64{50, -1}, []float64{-1, 1}, false},
		{"rank 0 alone fell", []float64{50, -1}, []float64{1, -1}, true},
		{"rank 1 alone fell", []float64{-1, 50}, []float64{-1, 1}, true},
		{"other ranks altogether", []float64{100, 50, -1, -1}, []float64{-1, -1, 1, 1}, false},
	} {
		if got := Restarted(ranked(c.old...), ranked(c.new...)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	// A counter that no rank tells is looked at as a whole, ranks or not.
	old, now := ranked(nan, nan), ranked(nan, nan)
	old.Generated, now.Generated = Known(7, 0), Known(6, 0)
	if !Restarted(old, now) {
		t.Error("a sum that fell, of a counter without ranks")
	}
}

// TestRestarted_NeverWithoutARestart lets counters of ranks only grow while ranks come,
// go and fall silent, all but one at a time: whatever is merged, no restart is seen. Then
// one rank starts anew while it is seen, which is.
func TestRestarted_NeverWithoutARestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "ranks")
		count := make([]float64, n)
		var known Load
		for range rapid.IntRange(1, 20).Draw(t, "scrapes") {
			parts := make([]float64, n)
			told := rapid.IntRange(0, n-1).Draw(t, "told")
			for i := range parts {
				count[i] += float64(rapid.IntRange(0, 9).Draw(t, "growth"))
				parts[i] = count[i]
				if how := rapid.IntRange(0, 3).Draw(t, "how"); i != told && how < 2 {
					parts[i] = [...]float64{-1, math.NaN()}[how]
				}
			}
			report := ranked(parts...)
			if Restarted(known, report) {
				t.Fatalf("restart from %+v to %v", known, parts)
			}
			known.Merge(report)
		}
		for i := range count {
			count[i]++
		}
		known.Merge(ranked(count...))
		count[rapid.IntRange(0, n-1).Draw(t, "which")] = 0
		if !Restarted(known, ranked(count...)) {
			t.Fatalf("no restart from %+v to %v", known.Ranks.All(), count)
		}
	})
}
