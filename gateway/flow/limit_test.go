package flow

import (
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// found returns a machine of one endpoint whose limit on calls in flight is found.
func found(least, most int) (*Machine, Config) {
	pool := newTestPool("p", lightest{}, "a")
	pool.Queue = admission.Default()
	pool.Queue.Adaptive, pool.Queue.Gradient.Min, pool.Queue.Gradient.Max = true, least, most
	c := newConfig(pool)
	return New(c), c
}

// serve sends a call and lets it have its first token after so long, and its end a nanosecond later.
func serve(t *testing.T, m *Machine, id int, at mono.Time, takes time.Duration) mono.Time {
	t.Helper()
	a := only(t, m.Step(at, Arrive(request(id))))
	if a.Kind != Dispatch {
		t.Fatalf("%+v", a)
	}
	at = at.Add(takes)
	m.Step(at, FirstToken(a.Ticket, 0))
	m.Step(at+1, Done(a.Ticket, 0, attempt.Success, Usage{}))
	return at + 2
}

func TestLimit_EndpointsHaveNoMoreCalls(t *testing.T) {
	m, _ := found(2, 3)
	var running []Action
	for i := range 3 {
		a := only(t, m.Step(mono.Time(i+1), Arrive(request(i+1))))
		if a.Kind != Dispatch {
			t.Fatalf("call %d: %+v", i+1, a)
		}
		running = append(running, a)
	}
	if a := only(t, m.Step(10, Arrive(request(4)))); a.Kind != Hold {
		t.Fatalf("a fourth call, where three are allowed: %+v", a)
	}
	if s := m.Snapshot(11); s.Pools[0].Endpoints[0].Limit != 3 {
		t.Errorf("limit %d", s.Pools[0].Endpoints[0].Limit)
	}
	// A first token makes no room: the call is in flight still. Its end does.
	m.Step(20, FirstToken(running[0].Ticket, 0))
	if got := settle(m, 20); len(got) != 0 {
		t.Fatalf("after a first token: %+v", got)
	}
	m.Step(2000, Done(running[0].Ticket, 0, attempt.Success, Usage{}))
	if a := only(t, m.Step(2001, Wake())); a.Kind != Dispatch || a.Ticket.Call != 4 {
		t.Errorf("after an end: %+v", a)
	}
}

// First tokens that are late, in multiples of their calls' own prefill, lower it; the same times for
// prompts that are as much longer do not.
func TestLimit_GoesByHowLateFirstTokensAre(t *testing.T) {
	limit := func(tokens int, takes time.Duration) int {
		m, _ := found(2, 100)
		at := mono.Time(1)
		for i := range 200 { // 100 tokens take 100 ms
			at = serve(t, m, i+1, at, 100*time.Millisecond)
		}
		slot := selection.Slot(0)
		for i := range 400 {
			q := request(1000 + i)
			q.InputTokens = tokens
			a := only(t, m.Step(at, Arrive(q)))
			at = at.Add(takes)
			m.state[slot].crammed = true // so that the endpoint's speed is what it was
			m.Step(at, FirstToken(a.Ticket, 0))
			m.Step(at+1, Done(a.Ticket, 0, attempt.Success, Usage{}))
			at += 2
		}
		if d, ok := m.alone(m.pools[0], slot, selection.Prefill(100, 0)); !ok || d != 100*time.Millisecond {
			t.Errorf("100 tokens alone take %v, for calls waited for KV blocks", d)
		}
		return m.Snapshot(at).Pools[0].Endpoints[0].Limit
	}
	late, long := limit(100, 2*time.Second), limit(20*100+19*admission.CallTokens, 2*time.Second)
	if late >= 10 || long < 20 {
		t.Errorf("calls that are 20 times as late: limit %d; calls that are 20 times as long: %d", late, long)
	}
}

func TestLimit_IsNotThereUnlessAskedFor(t *testing.T) {
	pool := newTestPool("p", lightest{}, "a")
	pool.Queue = admission.Default()
	pool.Queue.Work = time.Second
	m := New(newConfig(pool))
	serve(t, m, 2, serve(t, m, 1, 1, time.Second), 10*time.Second)
	if s := m.Snapshot(mono.Time(20 * time.Second)); s.Pools[0].Endpoints[0].Limit != 0 || m.state[0].limit != (admission.Gradient{}) {
		t.Errorf("%+v, %+v", s.Pools[0].Endpoints[0], m.state[0].limit)
	}
}

// Answers that come whole show no first token: nothing is learned of them.
func TestLimit_LearnsNothingOfWholeAnswers(t *testing.T) {
	m, _ := found(2, 100)
	at := serve(t, m, 1, 1, 100*time.Millisecond)
	before := m.state[0].limit
	q := request(2)
	q.Stream = false
	a := only(t, m.Step(at, Arrive(q)))
	m.Step(at.Add(time.Minute), FirstToken(a.Ticket, 0))
	m.Step(at.Add(2*time.Minute), Wake())
	if m.state[0].limit != before {
		t.Errorf("%+v", m.state[0].limit)
	}
}
