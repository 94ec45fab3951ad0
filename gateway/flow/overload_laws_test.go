package flow

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// TestOverload_Laws: whatever comes, bounds are kept, nobody of lower priority stays while one
// of higher priority is refused for a bound, nobody is held beyond his deadline, and in the end
// nobody's bill is open.
func TestOverload_Laws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const length, bytes = 4, 60
		most := rapid.SampledFrom([]int{9, 14}).Draw(t, "calls")
		pool := newTestPool("p", lightest{}, "a", "b")
		pool.Queue = admission.Default()
		pool.Queue.Order = rapid.SampledFrom([]admission.Order{admission.FIFO, admission.Deadline, admission.Fair, admission.FairLocal}).Draw(t, "order")
		pool.Queue.Tokens, pool.Queue.Length, pool.Queue.Bytes, pool.Queue.MaxWait = 150, length, bytes, 5*time.Millisecond
		pool.Queue.Turn = rapid.IntRange(0, 3).Draw(t, "turn")
		pool.Overload, pool.MaxAge = admission.DefaultOverload(), 3*time.Millisecond
		c := newConfig(pool)
		c.Calls, c.Health.Stall = most, 0
		m := New(c)
		type known struct {
			ticket  Ticket
			n       int
			running bool
			first   bool
		}
		calls := map[selection.CallID]*known{}
		now, id := mono.Time(1), 0
		lowest := func() int32 { // of those that are held
			low := int32(admission.MaxPriority + 1)
			for i := range m.calls {
				if c := &m.calls[i]; c.phase == held && c.queued != nil {
					low = min(low, admission.Band(c.request.Priority))
				}
			}
			return low
		}
		obey := func(actions []Action, asked *selection.Request) {
			for _, a := range actions {
				c := calls[a.Ticket.Call]
				switch a.Kind {
				case Dispatch:
					if c == nil {
						c = &known{}
						calls[a.Ticket.Call] = c
					}
					c.ticket, c.n, c.running, c.first = a.Ticket, a.Attempt, true, false
				case Hold:
					calls[a.Ticket.Call] = &known{ticket: a.Ticket}
				case Refuse:
					if slices.Contains([]Reason{TooManyCalls, QueueFull}, a.Reason) && lowest() < admission.Band(asked.Priority) {
						t.Fatalf("a call of priority %d is refused for %v while one of %d is held", asked.Priority, a.Reason, lowest())
					}
					if a.Reason == DeadlineUnmet && !asked.Firm {
						t.Fatalf("call %d has no deadline of its own", asked.ID)
					}
				case GiveUp:
					if c == nil {
						t.Fatalf("call %d was given up and nobody knows it", a.Ticket.Call)
					}
					if a.Reason == Shed && asked == nil {
						t.Fatalf("call %d was shed for nobody", a.Ticket.Call)
					}
					delete(calls, a.Ticket.Call)
				}
			}
		}
		later := func(d time.Duration) {
			until := now.Add(d)
			for m.wakeAt <= until {
				now = max(now, m.wakeAt)
				obey(m.Step(now, Wake()), nil)
			}
			now = until
		}
		pick := func(t *rapid.T, running bool) (selection.CallID, *known) {
			var ids []selection.CallID
			for id, c := range calls {
				if c.running == running {
					ids = append(ids, id)
				}
			}
			if len(ids) == 0 {
				t.Skip("there is none")
			}
			slices.Sort(ids)
			id := ids[rapid.IntRange(0, len(ids)-1).Draw(t, "which")]
			return id, calls[id]
		}
		ask := func(t *rapid.T) *selection.Request {
			id++
			q := request(id)
			q.InputTokens, q.Bytes = rapid.IntRange(1, 200).Draw(t, "tokens"), int64(rapid.IntRange(1, 25).Draw(t, "bytes"))
			q.Tenant, q.Share = kvblock.Hash(rapid.IntRange(0, 3).Draw(t, "tenant")), rapid.SampledFrom([]float64{0, 1, 2}).Draw(t, "share")
			q.Priority = int32(rapid.SampledFrom([]int{-1, 0, 0, 1, 50}).Draw(t, "priority"))
			q.Deadline, q.Firm = time.Duration(rapid.IntRange(1, 9).Draw(t, "deadline"))*time.Millisecond, rapid.Bool().Draw(t, "firm")
			return q
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				later(time.Duration(rapid.IntRange(2, 2000).Draw(t, "pause")))
				q := ask(t)
				obey(m.Step(now, Arrive(q)), q)
			},
			"signal": func(t *rapid.T) {
				load := signal.Load{Waiting: signal.Known(float64(rapid.IntRange(0, 9).Draw(t, "waiting")), now), Preemptions: signal.Known(float64(id/3), now)}
				obey(m.Step(now, Signal(selection.Slot(rapid.IntRange(0, 1).Draw(t, "slot")), 0, load, 0)), nil)
			},
			"first": func(t *rapid.T) {
				_, c := pick(t, true)
				c.first = true
				obey(m.Step(now, FirstToken(c.ticket, c.n)), nil)
			},
			"progress": func(t *rapid.T) {
				_, c := pick(t, true)
				obey(m.Step(now, Progress(c.ticket, c.n, rapid.IntRange(0, 99).Draw(t, "answer"))), nil)
			},
			"done": func(t *rapid.T) {
				id, c := pick(t, true)
				obey(m.Step(now, Done(c.ticket, c.n, attempt.Success, Usage{Known: true, Prompt: 90, Output: 20})), nil)
				delete(calls, id)
			},
			"fail": func(t *rapid.T) {
				_, c := pick(t, true)
				if c.first {
					t.Skip("it has content")
				}
				obey(m.Step(now, Done(c.ticket, c.n, attempt.ConnectFailed, Usage{})), nil)
				c.running = false
			},
			"leave": func(t *rapid.T) {
				id, c := pick(t, rapid.Bool().Draw(t, "running"))
				obey(m.Step(now, Left(c.ticket)), nil)
				delete(calls, id)
			},
			"pause": func(t *rapid.T) { later(time.Duration(rapid.IntRange(0, 8).Draw(t, "pause")) * time.Millisecond) },
			"": func(t *rapid.T) {
				later(100)
				m.Snapshot(now) // folds
				waiting, again := 0, 0
				for i := range m.calls {
					c := &m.calls[i]
					if c.phase == held {
						waiting++
						if c.attempt > 0 {
							again++
						}
						if c.due() < now-100 {
							t.Fatalf("call %d is held at %d, and its deadline was at %d", c.request.ID, now, c.due())
						}
					}
					if (c.bill.queue != nil) != (c.phase == running && m.pools[0].fair()) {
						t.Fatalf("call %d in phase %d has the bill %+v", c.request.ID, c.phase, c.bill)
					}
				}
				if m.inFlight > most || m.inFlight != len(calls) || waiting-again > length || m.holding != waiting {
					t.Fatalf("%d in flight, want %d; %d held", m.inFlight, len(calls), waiting)
				}
			},
		})
		for _, c := range calls {
			m.Step(now, Left(c.ticket))
		}
		later(time.Second)
		m.Snapshot(now)
		if m.inFlight != 0 || m.holding != 0 || m.pools[0].queue.Len() != 0 {
			t.Fatalf("%d in flight, %d held", m.inFlight, m.holding)
		}
		if !m.pools[0].fair() {
			return
		}
		q := m.pools[0].queue
		for b := int32(admission.MinPriority); b <= admission.MaxPriority; b++ { // who went last in each band is forgotten with the next one
			for range 2 {
				p := q.Enter(b, kvblock.Hash(1000+b))
				q.Charge(p, 1e9)
				q.End(p)
			}
		}
		if n := q.Principals(); n > admission.MaxPriority-admission.MinPriority+1 {
			t.Fatalf("%d principals are remembered", n)
		}
	})
}
