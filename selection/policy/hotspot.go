package policy

import (
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// mostClasses bounds how many classes of calls a hotspots counts in half a window. Those that
// come once it is full are not watched until the next half begins.
const mostClasses = 1 << 12

// hotspots notices prefixes that more calls share than the endpoints that hold them can
// take (LMetric, arXiv 2603.15202, section 5.2). The calls whose longest overlap anywhere
// ends with the same block are a class, and those that hold it that far its holders:
//
//	alarm  calls of the class / other calls, of the last window  >  holders / other candidates
//	hot    while there is alarm, the last 2 · holders calls of the class, this one included,
//	       all scored no worse at a holder than anywhere else
//
// Who looks at the classes of the last window looks at what came between half a window and
// a whole one ago, and since.
type hotspots struct {
	window         time.Duration
	recent, former map[kvblock.Hash]class // by the last block that is shared
	calls, before  int                    // counted with recent and former
	since          mono.Time              // of recent
}

// class counts calls.
type class struct {
	calls int
	drawn int // of them, the last ones in a row that were drawn to a holder
}

// hot notes a call, whose overlap is longest with so many holders among the candidates, and
// reports whether it had better go elsewhere. drawn tells whether a holder scores no worse than
// all others.
func (h *hotspots) hot(v *selection.View, q *selection.Request, longest int32, holders int, drawn bool) bool {
	h.turn(v.Now)
	h.calls++
	others := len(v.Candidates) - holders
	if longest == 0 || int(longest) > len(q.Blocks) || others == 0 {
		return false
	}
	key := q.Blocks[longest-1]
	c, known := h.recent[key]
	old := h.former[key]
	if !known {
		if len(h.recent) == mostClasses {
			return false
		}
		c.drawn = old.drawn
	}
	c.calls++
	if drawn {
		c.drawn++
	} else {
		c.drawn = 0
	}
	of := c.calls + old.calls
	if alarm := of*others > holders*(h.calls+h.before-of); !alarm {
		c.drawn = 0
	}
	h.recent[key] = c
	return c.drawn >= 2*holders
}

// turn begins another half of a window when it is time.
func (h *hotspots) turn(now mono.Time) {
	age := now.Sub(h.since)
	if h.recent != nil && age < h.window/2 {
		return
	}
	if h.recent == nil {
		h.recent, h.former = map[kvblock.Hash]class{}, map[kvblock.Hash]class{}
	}
	clear(h.former)
	h.recent, h.former = h.former, h.recent
	h.calls, h.before, h.since = 0, h.calls, now
	if age >= h.window { // nothing came for so long
		clear(h.former)
		h.before = 0
	}
}
