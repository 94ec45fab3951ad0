package scorer

import (
	"slices"

	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// Utilization keeps the endpoints that are not above any of its bounds (llm-d's
// utilization-filter). A bound of 0 is none. Where nobody is left all of them stay: in
// llm-d the call is refused with 429, here that is for the gateway to decide.
type Utilization struct {
	MaxActive  int     // calls that this router has sent there and that have not finished
	MaxRunning float64 // calls in the engine's batch
	MaxWaiting float64 // calls that wait in the engine
	MaxKVUsage float64 // share of KV blocks in use

	readings readings
	busy     []bool // scratch, by position in left
}

// Keep returns those that stay.
func (f *Utilization) Keep(v *selection.View, _ *selection.Request, left []selection.Slot, _ *seed.Rand) []selection.Slot {
	f.busy = slices.Grow(f.busy[:0], len(left))[:len(left)]
	clear(f.busy)
	if f.MaxActive > 0 {
		for i, slot := range left {
			f.busy[i] = int(v.Book[slot].Outstanding) > f.MaxActive
		}
	}
	f.bound(v, left, f.MaxRunning, func(l *signal.Load) *signal.Gauge { return &l.Running })
	f.bound(v, left, f.MaxWaiting, func(l *signal.Load) *signal.Gauge { return &l.Waiting })
	f.bound(v, left, f.MaxKVUsage, func(l *signal.Load) *signal.Gauge { return &l.KVUsage })
	if !slices.Contains(f.busy, false) {
		return left
	}
	kept := left[:0]
	for i, slot := range left {
		if !f.busy[i] {
			kept = append(kept, slot)
		}
	}
	return kept
}

// bound marks those that report more than most.
func (f *Utilization) bound(v *selection.View, left []selection.Slot, most float64, of func(*signal.Load) *signal.Gauge) {
	if most == 0 {
		return
	}
	values, oldest := f.readings.begin(v, len(left))
	for i, slot := range left {
		values[i] = reading(of(&v.Endpoints[slot].Load), oldest)
	}
	f.readings.end() // where nothing is known nobody is above
	for i, value := range values {
		f.busy[i] = f.busy[i] || value > most
	}
}

var _ Filter = (*Utilization)(nil)
