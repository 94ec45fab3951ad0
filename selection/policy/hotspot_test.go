package policy

import (
	"testing"
	"time"

	"kvasir/selection"
)

// shared returns a call whose first 9 blocks are those of the class; its tenth is its own.
func shared(class, id int) *selection.Request {
	q := newRequest(class, 9)
	q.Blocks = append(q.Blocks, newRequest(1_000_000+id, 1).Blocks[0])
	return q
}

// holders returns a view of eight idle endpoints of which the first n hold nine blocks.
func holders(n int) *selection.View {
	v := newView(8)
	for slot := range n {
		v.Overlap[slot] = 9
	}
	return v
}

// TestLMetricTurnsHotspotsAway: of calls that share a prefix which two of eight endpoints hold,
// and nothing else comes, the fourth in a row that would go there goes elsewhere.
func TestLMetricTurnsHotspotsAway(t *testing.T) {
	p, v := build("lmetric"), holders(2)
	for i := range 6 {
		c := pick(p, v, shared(1, i), i)
		if hot := c.Reason == ReasonHotspot; hot != (i >= 3) || hot != (c.Index >= 2) {
			t.Errorf("call %d goes to %d: %s", i+1, c.Index, c.Reason)
		}
		if hot := c.Reason == ReasonHotspot; hot && (v.Scores[0] == v.Scores[0] || v.Scores[1] == v.Scores[1]) {
			t.Errorf("call %d: who is left out has scores: %v", i+1, v.Scores)
		}
	}
	if c := pick((&LMetric{}).New(), v, shared(1, 9), 9); c.Reason != ReasonLeastProduct {
		t.Errorf("without a window: %+v", c)
	}
}

// TestLMetricLeavesThoseAloneWhoTakeTheirShare: calls of a class are turned away when they
// are more of all than their holders are of all endpoints, a quarter here, and only after a
// row of them that were all drawn to a holder.
func TestLMetricLeavesThoseAloneWhoTakeTheirShare(t *testing.T) {
	for _, test := range []struct {
		name   string
		others int // calls of other classes to each of this one
		busy   int // of the class, one in so many finds its holders busy; 0: none
		hot    bool
	}{
		{"one in two", 1, 0, true},
		{"one in three", 2, 0, true},
		{"one in four: exactly their share", 3, 0, false},
		{"one in six", 5, 0, false},
		{"one in two, every fifth goes elsewhere anyway", 1, 5, true},
		{"one in two, every fourth", 1, 4, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, id, hot := build("lmetric"), 0, false
			for i := range 40 {
				v := holders(2)
				if test.busy > 0 && (i+1)%test.busy == 0 {
					waits(v, 0, 9, 9000)
					waits(v, 1, 9, 9000)
				}
				for range test.others {
					id++
					pick(p, newView(8), newRequest(1000+id, 10), id)
				}
				hot = pick(p, v, shared(1, i), i).Reason == ReasonHotspot || hot
			}
			if hot != test.hot {
				t.Errorf("turned away: %v, want %v", hot, test.hot)
			}
		})
	}
}

// TestLMetricForgetsOldHotspots: a class counts for a window, and no longer.
func TestLMetricForgetsOldHotspots(t *testing.T) {
	for _, test := range []struct {
		pause time.Duration
		hot   bool
	}{{0, true}, {20 * time.Second, true}, {40 * time.Second, true}, {2 * time.Minute, false}} {
		p, v := build("lmetric"), holders(2)
		for i := range 3 {
			pick(p, v, shared(1, i), i)
		}
		v.Now = v.Now.Add(test.pause)
		if c := pick(p, v, shared(1, 9), 9); (c.Reason == ReasonHotspot) != test.hot {
			t.Errorf("a fourth call %v after the third: %s", test.pause, c.Reason)
		}
	}
}

// TestHotspotsAreBounded whatever classes come.
func TestHotspotsAreBounded(t *testing.T) {
	h, v := hotspots{window: time.Minute}, holders(2)
	for i := range 3 * mostClasses {
		h.hot(v, shared(i, i), 9, 2, true)
	}
	if n := len(h.recent) + len(h.former); n > 2*mostClasses {
		t.Errorf("%d classes are kept", n)
	}
	for i := range 4 {
		if hot := h.hot(v, shared(0, i), 9, 2, true); hot {
			t.Errorf("call %d of a class of a few in thousands is turned away", i)
		}
	}
}
