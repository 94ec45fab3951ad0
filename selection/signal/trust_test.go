package signal

import (
	"testing"

	"pgregory.net/rapid"
)

// compare takes n equal predictions of which so many percent were found, and returns after
// which of them the state changed last; 0: it did not.
func compare(c *CacheTrust, n int, percent int64) int {
	changed := 0
	for i := range n {
		if _, ok := c.Compare(1000, 10*percent); ok {
			changed = i + 1
		}
	}
	return changed
}

func TestCacheTrust_IsLostAndWonByWindows(t *testing.T) {
	var c CacheTrust
	if c.State() != Approximate {
		t.Fatalf("it begins %v", c.State())
	}
	steps := []struct {
		percent int64
		n       int
		changed int
		want    Trust
	}{
		{0, TrustWindow - 1, 0, Approximate},
		{0, 1, 1, LoadOnly},
		{0, 3 * TrustWindow, 0, LoadOnly},            // there is nothing below
		{TrustWon - 1, 3 * TrustWindow, 0, LoadOnly}, // enough to stay, not to return
		{100, 1, 1, Approximate},
		{TrustLost, 3 * TrustWindow, 0, Approximate}, // enough to stay
		{TrustLost - 1, 1, 1, LoadOnly},
		{TrustWon, TrustWindow, TrustWindow, Approximate}, // a window of its own
		{100, 10 * TrustWindow, 0, Approximate},           // there is nothing above without events
	}
	for i, s := range steps {
		if got := compare(&c, s.n, s.percent); got != s.changed || c.State() != s.want {
			t.Fatalf("step %d: changed at %d, %v; want %d, %v", i, got, c.State(), s.changed, s.want)
		}
	}
}

func TestCacheTrust_TellsWhatLedToAChange(t *testing.T) {
	var c CacheTrust
	for range TrustWindow - 1 {
		c.Compare(100, 10)
	}
	if led, ok := c.Compare(200, 10); !ok || led != (Tokens{100*(TrustWindow-1) + 200, 10*(TrustWindow-1) + 10}) {
		t.Errorf("%+v %v", led, ok)
	}
}

func TestCacheTrust_NoPredictionCountsForMoreThanItsShare(t *testing.T) {
	var c CacheTrust
	c.Compare(1<<40, 0) // one prompt of which everything was lost
	if compare(&c, 4*TrustWindow, 100) != 0 {
		t.Error("one prediction decided")
	}
	for range TrustWindow { // many that all count the same, whatever their length
		c.Compare(1<<40, 1<<40*(TrustLost-1)/100)
	}
	if c.State() != LoadOnly {
		t.Error("long prompts count for nothing")
	}
}

func TestCacheTrust_WithEvents_GoesThroughEveryState(t *testing.T) {
	var c CacheTrust
	if !c.Feed(true) || c.State() != Exact || c.Feed(true) {
		t.Fatalf("events feed it: %v", c.State())
	}
	for _, want := range []Trust{Approximate, LoadOnly, LoadOnly} {
		if compare(&c, TrustWindow, 0); c.State() != want {
			t.Fatalf("%v, want %v", c.State(), want)
		}
	}
	for _, want := range []Trust{Approximate, Exact, Exact} {
		if compare(&c, TrustWindow, 100); c.State() != want {
			t.Fatalf("%v, want %v", c.State(), want)
		}
	}
	compare(&c, TrustWindow, 0)
	if c.Feed(false) || c.State() != Approximate {
		t.Errorf("without events %v", c.State())
	}
	compare(&c, TrustWindow, 0)
	if c.Feed(true) || c.State() != LoadOnly {
		t.Errorf("what was load-only is %v once there are events", c.State())
	}
	if compare(&c, TrustWindow, 100); c.State() != Approximate {
		t.Errorf("it won %v", c.State())
	}
	if c.Forget(); c.State() != Exact {
		t.Errorf("a new process is %v", c.State())
	}
}

// TestCacheTrust_KeepsItsLaws compares anything in any order: no two changes are nearer than a
// window, no state is beyond the best, and the sums are those of the window.
func TestCacheTrust_KeepsItsLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c CacheTrust
		var window []Tokens
		best := Approximate
		since := 0
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			before := c.State()
			switch rapid.IntRange(0, 60).Draw(t, "what") {
			case 0:
				events := rapid.Bool().Draw(t, "events")
				if best = Approximate; events {
					best = Exact
				}
				if changed := c.Feed(events); changed != (c.State() != before) {
					t.Fatalf("Feed says %v: %v to %v", changed, before, c.State())
				}
				if c.count == 0 {
					window, since = nil, 0
				}
			case 1:
				c.Forget()
				window, since = nil, 0
				if c.State() != best {
					t.Fatalf("after Forget %v, best %v", c.State(), best)
				}
			default:
				p := rapid.Int64Range(-10, 3*TrustMost).Draw(t, "predicted")
				f := rapid.Int64Range(-10, 4*TrustMost).Draw(t, "found")
				if rapid.Bool().Draw(t, "nothing") {
					f = 0
				}
				led, changed := c.Compare(p, f)
				if changed != (c.State() != before) || changed != (led != Tokens{}) {
					t.Fatalf("Compare says %v, %+v: %v to %v", changed, led, before, c.State())
				}
				if p > 0 {
					since++
					f = min(max(f, 0), p)
					if p > TrustMost {
						p, f = TrustMost, f*TrustMost/p
					}
					window = append(window, Tokens{p, f})
					window = window[max(len(window)-TrustWindow, 0):]
				}
				if changed {
					var sum Tokens
					for _, w := range window {
						sum.Predicted, sum.Found = sum.Predicted+w.Predicted, sum.Found+w.Found
					}
					if since < TrustWindow || led != sum {
						t.Fatalf("after %d predictions; %+v led to it, want %+v", since, led, sum)
					}
					down := 100*sum.Found < TrustLost*sum.Predicted
					up := 100*sum.Found >= TrustWon*sum.Predicted
					if down && c.State() != before-1 || up && c.State() != before+1 || !down && !up {
						t.Fatalf("%+v: %v to %v", sum, before, c.State())
					}
					window, since = nil, 0
				}
			}
			if c.State() > best {
				t.Fatalf("%v is beyond %v", c.State(), best)
			}
		}
	})
}
