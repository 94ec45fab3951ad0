// Package scorer is layer 3 (endpoint selection), pure: the parts of which the policy
// weighted-scorers is made, after the plugins of llm-d's router and of the Gateway API
// Inference Extension (GIE) before it. Filters narrow the candidates, scorers judge each
// that is left by one thing alone, and the policy sums what they say by weight.
//
// A scorer says 1 for the best and 0 for the worst, whatever it measures. What an engine
// reports of itself is used while it is known, fresh, and neither negative nor NaN nor
// infinite; of an endpoint without that, the median of the others stands in. (In llm-d it
// counts as 0, so that an endpoint that never answered a scrape is the idlest of all, and
// gets the calls.)
//
// Parts may keep state and scratch memory. Nothing here is safe for concurrent use; a
// machine calls its policies, and they their parts, under its lock.
package scorer

import (
	"math"
	"slices"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// Scorer judges endpoints by one thing.
type Scorer interface {
	// Score sets out, which is parallel to left, to a number for each of these slots: 1 is
	// best, 0 worst. Numbers beyond are taken to be these.
	Score(v *selection.View, q *selection.Request, left []selection.Slot, out []float64)
}

// Filter narrows the candidates.
type Filter interface {
	// Keep returns the slots of left that may be picked, in the same order and at least one.
	// It may overwrite left.
	Keep(v *selection.View, q *selection.Request, left []selection.Slot, r *seed.Rand) []selection.Slot
}

// Witness is a Scorer that must know who was picked in the end, by whatever scorers.
type Witness interface {
	Picked(v *selection.View, q *selection.Request, slot selection.Slot)
}

// gauge reads one of the numbers that an engine reports.
type gauge func(l *signal.Load) *signal.Gauge

// readings holds a number for each of the endpoints that are left.
type readings struct {
	values []float64 // by position in left; NaN: none that can be used
	known  []float64 // scratch: those that can
}

// read returns what the endpoints report, with the median for those that don't; false
// where nobody does. It is valid until the next read.
func (x *readings) read(v *selection.View, left []selection.Slot, of gauge) ([]float64, bool) {
	x.values, x.known = x.values[:0], x.known[:0]
	for _, slot := range left {
		value, ok := of(&v.Endpoints[slot].Load).Fresh(v.Now, v.MaxAge)
		if !ok || !(0 <= value && value <= math.MaxFloat64) {
			x.values = append(x.values, math.NaN())
			continue
		}
		x.values, x.known = append(x.values, value), append(x.known, value)
	}
	if len(x.known) == 0 {
		return nil, false
	}
	if len(x.known) < len(left) {
		slices.Sort(x.known)
		median := x.known[(len(x.known)-1)/2] // the lower one
		for i, value := range x.values {
			if value != value {
				x.values[i] = median
			}
		}
	}
	return x.values, true
}

// fewest scores the lowest number 1, the highest 0 and those between by how far they are
// from both; where all are the same they score 1.
func fewest(values, out []float64) {
	least, most := values[0], values[0]
	for _, value := range values {
		least, most = min(least, value), max(most, value)
	}
	for i, value := range values {
		out[i] = 1
		if most > least {
			out[i] = (most - value) / (most - least)
		}
	}
}

// all sets every score to the same.
func all(out []float64, score float64) {
	for i := range out {
		out[i] = score
	}
}

// held returns how many of the request's blocks the slot is believed to hold.
func held(v *selection.View, slot selection.Slot) int32 {
	if int(slot) < len(v.Overlap) {
		return v.Overlap[slot]
	}
	return 0 // the machine keeps no index
}

// span is how long the first n blocks of a prompt are, in fine ones.
func span(n int) float64 { return float64(kvblock.Span(n)) }
