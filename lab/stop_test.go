package lab

import (
	"errors"
	"testing"
	"time"
)

// TestRun_EndsWhereItIsStopped: every seeded lab, with settings that take long, at once and in
// the middle.
func TestRun_EndsWhereItIsStopped(t *testing.T) {
	for _, l := range Catalog() {
		if !l.Seeded {
			continue
		}
		t.Run(l.Name, func(t *testing.T) {
			for _, after := range []int{0, 1, 3} {
				asked := 0
				began := time.Now()
				r, err := l.Run(Options{Seeds: 20, Stopped: func() bool { asked++; return asked > after }})
				if !errors.Is(err, ErrStopped) || r != nil || asked != after+1 {
					t.Errorf("stopped the time it is asked that comes after %d: asked %d times, %v", after, asked, err)
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("it took %v to stop", took)
				}
			}
		})
	}
}

// TestRun_IsAskedOnOneSeed where that takes long.
func TestRun_IsAskedOnOneSeed(t *testing.T) {
	for _, of := range []struct {
		lab      string
		settings []Setting
		times    int
	}{
		{"choices", []Setting{{"events", "1000000"}}, 1000},
		{"hedging", nil, 9},
		{"isolation", []Setting{{"probes", "500"}}, 20},
		{"routing", []Setting{{"prefill_rate", "1"}, {"places", "1"}}, 150},
		{"duel", nil, 4},
		{"results", nil, 60},
	} {
		l, err := Lookup(of.lab)
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		_, err = l.Run(Options{Settings: of.settings, Seeds: 1, Stopped: func() bool { asked++; return asked == of.times }})
		if !errors.Is(err, ErrStopped) {
			t.Errorf("%s: asked %d times, %v", of.lab, asked, err)
		}
	}
}
