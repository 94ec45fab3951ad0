package flow

import (
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// usual says of an endpoint that calls of 100 tokens take it 0.1 s each.
func usual(m *Machine, slot selection.Slot) {
	m.state[slot].speed.Learn(1000+9*admission.CallTokens, time.Second)
}

// What leaves the queue is measured while calls wait: an endpoint that is busy with more than
// prefill drains it slower than its prefill alone would let it, and the rate is never more than
// the endpoints in rotation can do.
func TestDrainRate_IsWhatWasSeen(t *testing.T) {
	const speed = 10_000 // tokens a second of prefill alone
	for gap, want := range map[time.Duration]float64{
		100 * time.Millisecond: (100 + admission.CallTokens) / 0.1,
		time.Millisecond:       speed + admission.CallTokens,
	} {
		m := holding(1, admission.FIFO, lightest{}, "a")
		p := m.pools[0]
		now := mono.Time(time.Second)
		running := only(t, m.Step(now, Arrive(request(1))))
		for i := range 300 { // calls of 100 tokens, one at a time; the next ones wait already
			now = now.Add(1)
			m.Step(now, Arrive(request(2*i+2)))
			now = now.Add(1)
			m.Step(now, Arrive(request(2*i+3)))
			now = now.Add(gap)
			m.Step(now, FirstToken(running.Ticket, 0))
			next := settle(m, now)
			if len(next) != 1 || next[0].Kind != Dispatch {
				t.Fatalf("call %d: %+v", i, next)
			}
			m.Step(now.Add(2000), Left(running.Ticket))
			now = now.Add(3000)
			running = next[0]
		}
		m.state[0].speed = admission.Speed{}
		m.state[0].speed.Learn(speed, time.Second)
		if got := m.drainRate(now, p); got < 0.95*want || got > 1.05*want {
			t.Errorf("a call each %v: %v tokens a second, want %v", gap, got, want)
		}
	}
}

// A held call whose deadline its first token can't make any more gives its place to the next one,
// though the deadline itself has not come.
func TestHold_DropsWhoCannotBeInTime(t *testing.T) {
	m := holding(150, admission.FIFO, lightest{}, "a")
	usual(m, 0)
	running := only(t, m.Step(1, Arrive(request(1))))
	m.Step(1, Arrive(request(9))) // has not begun yet when the other one has
	firm := func(id int, d time.Duration) *selection.Request {
		q := request(id)
		q.Deadline, q.Firm = d, true
		return q
	}
	m.Step(2, Arrive(firm(2, time.Second)))
	m.Step(3, Arrive(firm(3, time.Hour)))
	at := mono.Time(850 * time.Millisecond) // 150 ms are left, and 200 needed
	var said []Action
	for _, a := range m.Step(at, FirstToken(running.Ticket, 0)) {
		if a.Kind == GiveUp || a.Kind == Dispatch {
			said = append(said, a)
		}
	}
	said = append(said, settle(m, at)...)
	if len(said) != 2 || said[0].Kind != GiveUp || said[0].Reason != DeadlinePassed || said[0].Ticket.Call != 2 || said[1].Kind != Dispatch || said[1].Ticket.Call != 3 {
		t.Fatalf("%+v", said)
	}
}
