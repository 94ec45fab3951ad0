package flow

import (
	"testing"
	"time"

	"kvasir/internal/mono"
	"kvasir/selection/health"
	"kvasir/selection/signal"
)

// idle is a report of an engine that has nothing to do and a cache of so many blocks.
func idle(generated float64) signal.Load {
	return signal.Load{
		Running: signal.Known(0, 0), Waiting: signal.Known(0, 0), KVUsage: signal.Known(0, 0), WaitingTokens: signal.Known(0, 0),
		KVBlocks: signal.Known(1000, 0), Generated: signal.Known(generated, 0),
	}
}

// hears delivers a report that was true so long ago and returns what the machine makes of it.
func hears(m *Machine, at mono.Time, e Placed, l signal.Load, took time.Duration) EndpointState {
	m.Step(at, Signal(e.Slot, e.Generation, l, took))
	return m.Snapshot(at + 1).Pools[0].Endpoints[e.Slot]
}

func TestBlackout_ANewcomersLoadIsUnknown(t *testing.T) {
	c := newConfig(newTestPool("p", &turns{}, names(2)...))
	m := New(c)
	old := m.Placement(c)[0]
	if l := hears(m, 5, old, idle(10), 0).Load; !l.Running.Known || !l.KVUsage.Known {
		t.Fatalf("at the start all are new, and what one reports is not believed: %+v", l)
	}
	joins := mono.Time(time.Hour)
	c.Pools[0].Endpoints = append(c.Pools[0].Endpoints, Endpoint{Name: "new", Weight: 1})
	placed, _ := m.Reconfigure(joins, c)
	e := placed[2]
	ends := joins.Add(health.Default().Blackout)

	s := hears(m, joins.Add(time.Second), e, idle(0), 0)
	if l := s.Load; l.Running.Known || l.Waiting.Known || l.KVUsage.Known || l.WaitingTokens.Known || l.Age(m.last) >= 0 {
		t.Errorf("a second after it joined its load is believed: %+v", l)
	}
	if l := s.Load; !l.KVBlocks.Known || !l.Generated.Known {
		t.Errorf("what does not move with load is not believed: %+v", l)
	}
	if s.DarkFor <= 8*time.Second || s.DarkFor >= 9*time.Second {
		t.Errorf("the blackout lasts %v longer, want just below 9 s", s.DarkFor)
	}
	if l := hears(m, ends, e, idle(0), time.Millisecond).Load; l.Running.Known {
		t.Error("a report that was true within the blackout is believed because it came after it")
	}
	if s := hears(m, ends.Add(time.Second), e, idle(0), time.Second); !s.Load.Running.Known || s.DarkFor != 0 {
		t.Errorf("when it is over its load is not believed: %+v", s.Load)
	}
	if l := hears(m, ends.Add(2*time.Second), old, idle(10), 0).Load; !l.Running.Known {
		t.Error("nor is that of others")
	}
}

func TestBlackout_SoIsThatOfOneThatHasRestarted(t *testing.T) {
	c := newConfig(newTestPool("p", &turns{}, names(2)...))
	m := New(c)
	e := m.Placement(c)[0]
	at := mono.Time(time.Minute)
	busy := idle(10)
	busy.Running = signal.Known(7, 0)
	if l := hears(m, at, e, busy, 0).Load; l.Running.Value != 7 {
		t.Fatalf("%+v", l)
	}
	s := hears(m, at.Add(time.Second), e, idle(1), 0)
	if s.Restarts != 1 || s.Load.Running.Known || s.Load.KVUsage.Known || !s.Load.Generated.Known {
		t.Errorf("after %d restarts: %+v", s.Restarts, s.Load)
	}
	if s := hears(m, at.Add(time.Second).Add(health.Default().Blackout), e, idle(2), 0); s.Restarts != 1 || !s.Load.Running.Known {
		t.Errorf("when it is over, after %d restarts: %+v", s.Restarts, s.Load)
	}
}

func TestBlackout_CanBeOff(t *testing.T) {
	c := newConfig(newTestPool("p", &turns{}, names(2)...))
	c.Health.Blackout = 0
	m := New(c)
	c.Pools[0].Endpoints = append(c.Pools[0].Endpoints, Endpoint{Name: "new", Weight: 1})
	placed, _ := m.Reconfigure(mono.Time(time.Hour), c)
	if l := hears(m, mono.Time(time.Hour+time.Second), placed[2], idle(0), 0).Load; !l.Running.Known {
		t.Errorf("%+v", l)
	}
}
