package sim

import (
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/mono"
)

// What happens first is taken first; of one instant by rank, then as planned.
func TestQueue_IsAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var last event
		have, now := 0, mono.Time(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if have == 0 || rapid.Bool().Draw(t, "push") {
				q.push(event{at: now + mono.Time(rapid.IntRange(0, 3).Draw(t, "in")), kind: kind(rapid.IntRange(int(steps), int(wakes)).Draw(t, "kind"))})
				have++
				last = event{at: -1}
				continue
			}
			e := q.pop()
			have--
			if e.at < now {
				t.Fatalf("an event of %d after %d", e.at, now)
			}
			if last.at >= 0 && e.before(&last) {
				t.Fatalf("%+v comes after %+v", e, last)
			}
			now, last = e.at, e
		}
		for ; have > 0; have-- {
			e := q.pop()
			if last.at >= 0 && e.before(&last) {
				t.Fatalf("%+v comes after %+v", e, last)
			}
			last = e
		}
		if len(q.events) != 0 {
			t.Fatalf("%d events are left", len(q.events))
		}
	})
}
