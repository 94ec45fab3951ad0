package sim

import (
	"cmp"

	"kvasir/internal/mono"
)

// rank orders what happens at one instant: what engines finish comes first, then what
// happens to engines, then what clients and routers do.
type rank uint8

const (
	rankEngine rank = iota
	rankOutage
	rankScrape
	rankArrival
	rankLeave
	rankWake
)

// event is something that will happen. handle returns the events that follow from it.
type event struct {
	at       mono.Time
	rank     rank
	sequence int
	handle   func(now mono.Time) []event
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	a, b := &q[i], &q[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank), cmp.Compare(a.sequence, b.sequence)) < 0
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
