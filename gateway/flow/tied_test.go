package flow

import (
	"fmt"
	"testing"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
)

// BenchmarkHold_BesideTied is one call that comes, has its first token and ends beside a thousand
// that wait for the endpoint that stores the response from which they go on.
func BenchmarkHold_BesideTied(b *testing.B) {
	for _, order := range []admission.Order{admission.FIFO, admission.Fair} {
		b.Run(fmt.Sprint(order), func(b *testing.B) {
			m := holding(1, order, lightest{}, "a", "b")
			id := 0
			arrive := func(now mono.Time, tied bool, owner Action) (out Action) {
				id++
				q := request(id)
				if tied {
					q.Tenant, q.Owned, q.Owner = 1, true, owner.Slot
				}
				for _, a := range m.Step(now, Arrive(q)) {
					if a.Kind == Dispatch {
						out = a
					}
				}
				return out
			}
			first := arrive(1, false, Action{})
			second := arrive(2, false, Action{})
			now := mono.Time(10)
			for range 1000 {
				now++
				arrive(now, true, second)
			}
			for b.Loop() {
				now += 1000
				m.Step(now, FirstToken(first.Ticket, first.Attempt))
				now++
				m.Step(now, Done(first.Ticket, first.Attempt, attempt.Success, Usage{}))
				settle(m, now)
				now += 2000
				if first = arrive(now, false, Action{}); first.Kind != Dispatch {
					b.Fatal("it waits")
				}
				settle(m, now)
			}
		})
	}
}
