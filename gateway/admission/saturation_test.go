package admission

import (
	"testing"
	"time"

	"kvasir/internal/mono"
)

func TestRise_IsBetweenTheNewestTwoReadings(t *testing.T) {
	var r Rise
	at := func(s float64) mono.Time { return mono.Time(mono.FromSeconds(s)) }
	for _, x := range []struct {
		count, at float64
		rate      float64
		known     bool
	}{
		{10, 1, 0, false}, // one reading says nothing
		{14, 3, 2, true},
		{14, 3, 2, true}, // it is no newer
		{14, 4, 0, true},
		{3, 5, 0, false}, // another process
		{4, 6, 1, true},
	} {
		r.Read(x.count, at(x.at))
		if rate, known := r.Rate(at(x.at), 0); rate != x.rate || known != x.known {
			t.Errorf("%v at %v s: %v a second, known: %v; want %v, %v", x.count, x.at, rate, known, x.rate, x.known)
		}
	}
	if _, known := r.Rate(at(8), time.Second); known {
		t.Error("a reading of 2 s ago is known where 1 s is the most")
	}
}

func TestRamp(t *testing.T) {
	for _, x := range []struct {
		ramp            Ramp
		predicted, left time.Duration
		least           float64 // draws below it are refused
	}{
		{Ramp{0.5, 1}, 4, 10, 0}, {Ramp{0.5, 1}, 5, 10, 0}, {Ramp{0.5, 1}, 6, 10, 0.2}, {Ramp{0.5, 1}, 9, 10, 0.8}, {Ramp{0.5, 1}, 10, 10, 1}, {Ramp{0.5, 1}, 99, 10, 1},
		{Ramp{0.5, 1}, 0, 0, 1},
		{Ramp{1, 1}, 9, 10, 0}, {Ramp{1, 1}, 10, 10, 1},
		{Ramp{}, 99, 10, 0},
	} {
		for _, draw := range []float64{0, 0.1, 0.3, 0.7, 0.9, 0.999} {
			if got := x.ramp.Refuses(x.predicted*time.Second, x.left*time.Second, draw); got != (draw < x.least) {
				t.Errorf("%v: %d of %d, draw %v: refused %v", x.ramp, x.predicted, x.left, draw, got)
			}
		}
	}
}

func TestGauge_WhatIsUnknownDoesNotCount(t *testing.T) {
	var g Gauge
	if s := g.Saturation(); s.Known || s.Saturated() {
		t.Errorf("of nobody: %+v", s)
	}
	g.Add(Reading{})
	if s := g.Saturation(); s.Known {
		t.Errorf("of one of whom nothing is known: %+v", s)
	}
	g.Add(Reading{KVUsage: AtLevel(0), Waiting: AtLevel(0)})
	g.Add(Reading{KVUsage: AtLevel(3), Preemptions: AtLevel(1)})
	s := g.Saturation()
	if s.Level != AtLevel(1.5) || !s.Saturated() || s.Leads != KVUsage || s.Axes[KVUsage] != AtLevel(1.5) || s.Axes[Waiting] != AtLevel(0) || s.Axes[TTFT].Known {
		t.Errorf("%+v", s)
	}
}

func TestServiceTime(t *testing.T) {
	var s ServiceTime
	if s.Mean() != 0 {
		t.Error("it is known before a call has ended")
	}
	s.Learn(2 * time.Second)
	if s.Mean() != 2*time.Second {
		t.Errorf("of one call: %v", s.Mean())
	}
	for range 1000 {
		s.Learn(time.Second)
	}
	if d := s.Mean(); d < 999*time.Millisecond || d > 1001*time.Millisecond {
		t.Errorf("long after a slower one: %v", d)
	}
}

func TestParsePrincipal(t *testing.T) {
	for _, p := range []Principal{ByTenant, ByConversation} {
		if got, err := ParsePrincipal(p.String()); got != p || err != nil {
			t.Errorf("%v: got %v, %v", p, got, err)
		}
	}
	if _, err := ParsePrincipal("key"); err == nil {
		t.Error("key is a principal")
	}
}
