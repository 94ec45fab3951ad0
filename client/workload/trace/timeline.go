package trace

import (
	"container/heap"
	"iter"
	"time"

	"kvasir/client/workload"
)

// sent is a call at the time at which it was sent, by the recorded clock.
type sent struct {
	at   time.Duration
	call *workload.Call
}

// timeline returns the calls of all sessions in the order of their times. It holds the
// sessions that are under way.
func timeline(s workload.Source) iter.Seq2[sent, error] {
	return func(yield func(sent, error) bool) {
		var open underWay
		n := 0
		// due hands out the calls up to an instant.
		due := func(now time.Duration) bool {
			for len(open) > 0 && open[0].at() <= now {
				o := &open[0]
				call := sent{at: o.at(), call: &o.calls[o.next]}
				if o.next++; o.next == len(o.calls) {
					heap.Pop(&open)
				} else {
					heap.Fix(&open, 0)
				}
				if !yield(call, nil) {
					return false
				}
			}
			return true
		}
		for s, err := range s.Sessions {
			if err != nil {
				yield(sent{}, err)
				return
			}
			if !due(s.At - 1) {
				return
			}
			heap.Push(&open, opened{number: n, begun: s.At, calls: s.Calls})
			n++
		}
		due(1<<63 - 1)
	}
}

// opened is a session that has calls left.
type opened struct {
	number int
	begun  time.Duration
	calls  []workload.Call
	next   int
}

func (o *opened) at() time.Duration { return plus(o.begun, o.calls[o.next].Offset) }

// underWay is a heap of sessions by their next call; of one instant the earlier session's
// comes first.
type underWay []opened

func (u underWay) Len() int      { return len(u) }
func (u underWay) Swap(i, j int) { u[i], u[j] = u[j], u[i] }
func (u underWay) Less(i, j int) bool {
	if a, b := u[i].at(), u[j].at(); a != b {
		return a < b
	}
	return u[i].number < u[j].number
}

// Push is for package heap.
func (u *underWay) Push(x any) { *u = append(*u, x.(opened)) }

// Pop is for package heap.
func (u *underWay) Pop() any {
	last := len(*u) - 1
	o := (*u)[last]
	(*u)[last] = opened{}
	*u = (*u)[:last]
	return o
}
