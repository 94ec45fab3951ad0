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
	"kvasir/internal/mono"
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

// readings holds a number for each of the endpoints that are left: a begin, a
// reading of each, an end.
type readings struct {
	values []float64 // by position in left; NaN: none that can be used
	known  []float64 // scratch: those that can
}

// begin returns where n numbers go, and the instant before which a report is stale.
func (x *readings) begin(v *selection.View, n int) (values []float64, oldest mono.Time) {
	x.values = slices.Grow(x.values[:0], n)[:n]
	return x.values, v.Oldest()
}

const mostBits = 0x7fefffffffffffff // the bits of math.MaxFloat64

// reading returns what can be used of a gauge. The bits of numbers from 0 on are in the
// numbers' order, and all others are higher.
func reading(g *signal.Gauge, oldest mono.Time) float64 {
	if g.Known && g.At >= oldest && math.Float64bits(g.Value) <= mostBits {
		return g.Value
	}
	return math.NaN()
}

// end puts the lower median of the numbers that are known where one is missing. It returns
// false where none is known.
func (x *readings) end() bool {
	missing := 0
	for _, value := range x.values {
		if value != value {
			missing++
		}
	}
	switch missing {
	case 0:
		return true
	case len(x.values):
		return false
	}
	x.known = x.known[:0]
	for _, value := range x.values {
		if value == value {
			x.known = append(x.known, value)
		}
	}
	slices.Sort(x.known)
	median := x.known[(len(x.known)-1)/2]
	for i, value := range x.values {
		if value != value {
			x.values[i] = median
		}
	}
	return true
}

// fewest scores the lowest number 1, the highest 0 and those between by how far they are
// from both; where all are the same they score 1.
func fewest(values, out []float64) {
	least, most := values[0], values[0]
	for _, value := range values {
		if value < least {
			least = value
		} else if value > most {
			most = value
		}
	}
	if most == least {
		all(out, 1)
		return
	}
	for i, value := range values {
		out[i] = (most - value) / (most - least)
	}
}

// all sets every score to the same.
func all(out []float64, score float64) {
	for i := range out {
		out[i] = score
	}
}

// span is how long the first n blocks of a prompt are, in fine ones.
func span(n int) float64 { return float64(kvblock.Span(n)) }
