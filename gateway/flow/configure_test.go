package flow

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/signal"
)

func TestReconfigure_KeepsWhatStays(t *testing.T) {
	policy := &overlapping{}
	c := newConfig(newTestPool("p", policy, "a", "b"))
	m := New(c)
	q := request(1)
	q.Blocks = blocks(4)
	a := only(t, m.Step(1, Arrive(q)))
	m.Step(2, FirstToken(a.Ticket, 0))
	m.Step(3, Signal(0, 0, signal.Load{Running: signal.Known(7, 0)}, 0))
	m.Step(4, Wake())

	c.Pools[0].Endpoints = []Endpoint{{Name: "c", Weight: 1}, {Name: "a", Weight: 3}}
	placed, _ := m.Reconfigure(5, c)
	if placed[1].Slot != 0 || placed[1].Generation != 0 || placed[0].Slot != 1 || placed[0].Generation != 1 {
		t.Fatalf("placed %+v; a keeps its slot, c takes the one of b", placed)
	}
	s := m.Snapshot(6).Pools[0]
	if len(s.Endpoints) != 2 || s.Endpoints[0].Weight != 3 || s.Endpoints[0].Book.Outstanding != 1 || s.Endpoints[0].Load.Running.Value != 7 {
		t.Errorf("state %+v", s.Endpoints)
	}
	q2 := request(2)
	q2.Blocks = blocks(4)
	b := only(t, m.Step(7, Arrive(q2)))
	if b.Decision.Candidates[0].Overlap != 4 || b.Decision.Candidates[1].Overlap != 0 {
		t.Errorf("overlap %+v", b.Decision.Candidates)
	}
}

func TestReconfigure_TheSameNameReturningIsNew(t *testing.T) {
	for _, how := range []string{"left and came", "another revision"} {
		t.Run(how, func(t *testing.T) {
			policy := &overlapping{}
			c := newConfig(newTestPool("p", policy, "a"))
			m := New(c)
			q := request(1)
			q.Blocks = blocks(4)
			a := only(t, m.Step(1, Arrive(q)))
			m.Step(2, FirstToken(a.Ticket, 0))
			m.Step(3, Done(a.Ticket, 0, attempt.Success, Usage{}))
			m.Step(4, Wake())
			if how == "another revision" {
				c.Pools[0].Endpoints[0].Revision++
				m.Reconfigure(5, c)
			} else {
				without := c
				without.Pools = []Pool{newTestPool("p", policy)}
				m.Reconfigure(5, without)
				if a := only(t, m.Step(6, Arrive(request(9)))); a.Kind != Refuse || a.Reason != NoEndpoint {
					t.Errorf("a pool of nobody: %+v", a)
				}
				m.Reconfigure(7, c)
			}
			q.ID = 2
			b := only(t, m.Step(8, Arrive(q)))
			if b.Generation == a.Generation && b.Slot == a.Slot {
				t.Error("slot and generation are those of the one that left")
			}
			if b.Decision.Candidates[0].Overlap != 0 {
				t.Error("it is believed to hold what the one that left held")
			}
		})
	}
}

func TestF36_ARemovedEndpointsCallsEndOrGoElsewhere(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	d := drive(t, c, nil)
	waiting := d.step(Arrive(request(1)))[0]
	d.step(Arrive(request(2)))
	streaming := d.step(Arrive(request(3)))[0]
	d.step(FirstToken(streaming.Ticket, 0))
	if waiting.Slot != 0 || streaming.Slot != 0 {
		t.Fatal("both must be at a")
	}
	c.Pools = []Pool{newTestPool("p", lightest{}, "b")}
	d.now++
	_, actions := d.m.Reconfigure(d.now, c)
	at, ok := wakeIn(actions)
	if !ok || at != d.now+1 {
		t.Fatalf("no wake-up at once: %+v", actions)
	}
	d.step(Wake())
	if len(d.recalls) != 1 || d.recalls[0].Ticket != waiting.Ticket {
		t.Fatalf("taken back: %+v", d.recalls)
	}
	d.step(Done(waiting.Ticket, 0, attempt.Recalled, Usage{}))
	d.step(Wake())
	d.now = d.now.Add(50 * time.Millisecond)
	if a := d.step(Wake()); len(a) != 1 || a[0].Kind != Dispatch || a[0].Slot != 1 {
		t.Fatalf("the call that was taken back: %+v", a)
	}
	if d.count(Freed) != 0 {
		t.Fatal("freed while a stream runs there")
	}
	d.step(Done(streaming.Ticket, 0, attempt.Success, Usage{}))
	d.step(Wake())
	if d.count(Freed) != 1 || d.notices[len(d.notices)-1].Slot != 0 {
		t.Errorf("notices %+v", d.notices)
	}
}

func TestDraining_GetsNoNewCallsAndLosesNone(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	m := New(c)
	a := only(t, m.Step(1, Arrive(request(1))))
	c.Pools[0].Endpoints[0].Draining = true
	m.Reconfigure(2, c)
	for i := range 20 {
		if b := only(t, m.Step(mono.Time(3+i), Arrive(request(2+i)))); b.Slot != 1 {
			t.Fatal("a draining endpoint got a call")
		}
	}
	for _, x := range m.Step(mono.Time(time.Hour), Wake()) {
		if x.Kind == Recall && x.Ticket == a.Ticket {
			t.Error("its call was taken back")
		}
	}
	if m.books[0].Outstanding != 1 {
		t.Error("its call is gone")
	}
	c.Pools[0].Endpoints[0].Draining = false
	m.Reconfigure(m.last+1, c)
	if b := only(t, m.Step(m.last+1, Arrive(request(100)))); b.Slot != 0 {
		t.Error("undrained, it gets no calls")
	}
}

// Whatever comes and goes, charges add up, and what has left and has no calls is gone.
func TestLaw_ChurnLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := &overlapping{}
		m := New(newConfig(newTestPool("p0", policy, "e0")))
		type running struct {
			a     Action
			first bool
		}
		calls := map[selection.CallID]*running{}
		now, id := mono.Time(0), 0
		do := func(actions []Action) {
			for _, a := range actions {
				switch a.Kind {
				case Dispatch:
					calls[a.Ticket.Call] = &running{a: a}
				case GiveUp, Refuse:
					delete(calls, a.Ticket.Call)
				case Recall:
					if r := calls[a.Ticket.Call]; r == nil || r.first || r.a.Attempt != a.Attempt {
						t.Fatalf("taken back: %+v, which runs as %+v", a, r)
					}
				}
			}
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(1, int64(40*time.Second)).Draw(t, "dt")))
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2, 3:
				id++
				q := request(id)
				q.Blocks = []kvblock.Hash{1, 2, kvblock.Hash(id)}
				do(slices.Clone(m.Step(now, Arrive(q))))
			case 4, 5, 6:
				if ids := slices.Sorted(maps.Keys(calls)); len(ids) > 0 {
					r := calls[rapid.SampledFrom(ids).Draw(t, "call")]
					o := rapid.SampledFrom([]attempt.Outcome{attempt.Success, attempt.Broken, attempt.Busy, attempt.Recalled, attempt.ClientGone}).Draw(t, "o")
					switch {
					case o == attempt.ClientGone:
						do(slices.Clone(m.Step(now, Left(r.a.Ticket))))
						delete(calls, r.a.Ticket.Call)
					case o == attempt.Success && !r.first:
						r.first = true
						do(slices.Clone(m.Step(now, FirstToken(r.a.Ticket, r.a.Attempt))))
					default:
						n := r.a.Attempt
						if r.first || !o.Retryable() {
							delete(calls, r.a.Ticket.Call)
						} else {
							r.a.Attempt = -1 // until the machine speaks
						}
						do(slices.Clone(m.Step(now, Done(r.a.Ticket, n, o, Usage{}))))
					}
				}
			case 7:
				do(slices.Clone(m.Step(now, Wake())))
			default:
				var pools []Pool
				for p := range rapid.IntRange(1, 3).Draw(t, "pools") {
					pool := newTestPool(fmt.Sprint("p", p), policy)
					for e := range rapid.IntRange(0, 5).Draw(t, "endpoints") {
						pool.Endpoints = append(pool.Endpoints, Endpoint{
							Name: fmt.Sprint("e", e), Weight: 1, Revision: uint64(rapid.IntRange(0, 1).Draw(t, "revision")),
							Draining: rapid.Bool().Draw(t, "draining"),
						})
					}
					pools = append(pools, pool)
				}
				placed, actions := m.Reconfigure(now, newConfig(pools...))
				do(slices.Clone(actions))
				seen := map[selection.Slot]bool{}
				for _, x := range placed {
					if seen[x.Slot] || m.endpoints[x.Slot].Name != pools[x.Pool].Endpoints[x.Endpoint].Name {
						t.Fatalf("placed %+v", placed)
					}
					seen[x.Slot] = true
				}
			}
			checkBooks(t, m)
		}
		for _, r := range calls {
			m.Step(now.Add(1), Left(r.a.Ticket))
		}
		m.Reconfigure(now.Add(2), newConfig(newTestPool("p0", policy)))
		for i := range m.calls { // those between two attempts
			if c := &m.calls[i]; c.phase != unused {
				m.Step(m.last+1, Left(Ticket{Call: c.request.ID, index: int32(i)}))
			}
		}
		m.Snapshot(m.last + 2)
		for i := range m.state {
			if m.state[i].pool != nil {
				t.Fatalf("slot %d is still taken: %+v, book %+v", i, m.state[i], m.books[i])
			}
		}
	})
}

// checkBooks compares the books with the calls.
func checkBooks(t *rapid.T, m *Machine) {
	outstanding, unanswered := make([]int32, len(m.books)), make([]int, len(m.books))
	for i := range m.calls {
		if c := &m.calls[i]; c.phase == running {
			outstanding[c.slot]++
			if !c.committed {
				unanswered[c.slot]++
			}
		}
	}
	for slot := range m.books {
		if m.books[slot].Outstanding != outstanding[slot] || m.state[slot].unanswered != unanswered[slot] {
			t.Fatalf("slot %d: book %+v and %d unanswered, calls say %d and %d",
				slot, m.books[slot], m.state[slot].unanswered, outstanding[slot], unanswered[slot])
		}
	}
	for slot, want := range activeBlocks(m) {
		if got := m.books[slot].ActiveBlocks; got != want {
			t.Fatalf("slot %d: %d blocks in use, calls say %d", slot, got, want)
		}
	}
}
