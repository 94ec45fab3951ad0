package flow

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// spy is lightest that uses everything and writes down what it is shown and told.
type spy struct {
	lightest
	seen []string
}

func (*spy) UsesOverlap()  {}
func (*spy) UsesActive()   {}
func (*spy) UsesAdapters() {}

func (s *spy) note(format string, values ...any) {
	s.seen = append(s.seen, fmt.Sprintf(format, values...))
}

func (s *spy) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	s.note("pick %d %v %d %v %v %v %v", q.ID, v.Now, v.Version, v.Members, v.Candidates, v.Position, v.SLO)
	for _, slot := range v.Candidates {
		s.note("%+v %v %v %v %v %v %+v", v.Book[slot], v.Overlap[slot], v.Held[slot], v.Active[slot], v.AdapterCalls[slot], v.Adapters[slot], v.Endpoints[slot])
	}
	return s.lightest.Pick(v, q, r)
}

func (s *spy) Learn(x *selection.Sample)  { s.note("learn %+v", *x) }
func (s *spy) LearnEnd(x *selection.End)  { s.note("end %+v", *x) }
func (s *spy) Forget(slot selection.Slot) { s.note("forget %d", slot) }
func (s *spy) Witness(at mono.Time, slot selection.Slot, w selection.Work) {
	s.note("witness %v %d %+v", at, slot, w)
}

// shadowDay gives a machine a random day: calls of some prompts and adapters that share
// beginnings, answers that fail, clients that leave, a restart, an endpoint that comes and one
// that goes, a peer that tells.
func shadowDay(m *Machine, c Config, random uint64) {
	r := seed.New(random, seed.Workload, 0, 0)
	now := mono.Time(1)
	var running []Action
	step := func(e Event) {
		now += mono.Time(1 + r.Intn(int(20*time.Millisecond)))
		for _, a := range m.Step(now, e) {
			switch a.Kind {
			case Dispatch:
				running = append(running, a)
			case Recall:
				m.Step(now, Done(a.Ticket, a.Attempt, attempt.Recalled, Usage{}))
			}
		}
	}
	for n := range 400 {
		q := request(n + 1)
		q.Blocks, q.BlockTokens, q.InputTokens = ofSession(r.Intn(5), 3+r.Intn(30)), 64, 2000
		q.Adapter, q.Stream = kvblock.Hash(r.Intn(3)), r.Intn(4) > 0
		step(Arrive(q))
		for len(running) > 6 {
			i := r.Intn(len(running))
			a := running[i]
			running = slices.Delete(running, i, i+1)
			switch r.Intn(8) {
			case 0:
				step(Done(a.Ticket, a.Attempt, attempt.Broken, Usage{}))
			case 1:
				step(Left(a.Ticket))
			default:
				step(FirstToken(a.Ticket, a.Attempt))
				step(Done(a.Ticket, a.Attempt, attempt.Success, Usage{Known: true, CachedKnown: true, Prompt: 2000, Cached: 64 * r.Intn(20), Output: 9}))
			}
		}
		step(Wake())
		switch n {
		case 100, 101: // the process of an endpoint is a new one
			step(Signal(0, 0, signal.Load{PrefixQueries: signal.Known(float64(1000-9*n), now)}, 0))
		case 150:
			c.Pools[0].Endpoints = append(slices.Clone(c.Pools[0].Endpoints), Endpoint{Name: "late", Weight: 1})
			m.Reconfigure(now, c)
		case 250:
			c.Pools[0].Endpoints = c.Pools[0].Endpoints[1:]
			m.Reconfigure(now, c)
		}
		if n%5 == 0 {
			step(Heard(1, 0, &Word{Kind: WordHeld, Peer: 9, Number: uint64(2*n + 1), Work: selection.Work{Tokens: 900, Attention: 90_000}, Blocks: ofSession(3, 9)}, 0))
			step(Heard(1, 0, &Word{Kind: WordLoad, Peer: 9, Number: uint64(2*n + 2), Share: Share{
				Outstanding: 1, Pending: 1, PendingWork: selection.Work{Tokens: 77, Attention: 7}, ActiveBlocks: 5, Head: selection.Work{Tokens: 77, Attention: 7}, LastFirst: -1,
			}}, 0))
		}
	}
}

func shadowConfig(p selection.Policy, sharing bool) Config {
	c := newConfig(newTestPool("p", p, "a", "b", "c"))
	if sharing {
		c.Sharing = DefaultSharing(1)
	}
	return c
}

// TestShadow_IsShownAndToldAllThatThePolicyWouldBe: beside a policy that places calls alike and
// uses nothing, a shadow that uses everything sees and hears to the letter what it would as the
// pool's own policy.
func TestShadow_IsShownAndToldAllThatThePolicyWouldBe(t *testing.T) {
	for random := range uint64(20) {
		for _, sharing := range []bool{false, true} {
			own, beside := &spy{}, &spy{}
			c := shadowConfig(own, sharing)
			shadowDay(New(c), c, random)
			c = shadowConfig(lightest{}, sharing)
			m := New(c)
			m.Shadow("p", "spy", beside)
			shadowDay(m, c, random)
			for i := range own.seen {
				if i >= len(beside.seen) || own.seen[i] != beside.seen[i] {
					t.Fatalf("day %d, sharing %v, %d of %d and %d:\n%s\n%s", random, sharing, i, len(own.seen), len(beside.seen), own.seen[i], beside.seen[min(i, len(beside.seen)-1)])
				}
			}
			if kinds := len(own.seen); kinds < 1000 || len(beside.seen) != kinds {
				t.Fatalf("%d and %d notes", kinds, len(beside.seen))
			}
		}
	}
}

// TestShadow_MayBeTurnedOnAndOff at any time: what is counted for it is what a shadow has that
// was on from the start, its tally begins anew, and nothing is left of it.
func TestShadow_MayBeTurnedOnAndOff(t *testing.T) {
	c := shadowConfig(lightest{}, false)
	m := New(c)
	if m.Shadow("q", "spy", &spy{}) {
		t.Error("there is no pool q")
	}
	arrive := func(id int) *selection.Decision {
		q := request(id)
		q.Blocks, q.BlockTokens, q.InputTokens = ofSession(1, 10), 64, 641
		return only(t, m.Step(m.last+1, Arrive(q))).Decision
	}
	if d := arrive(1); d.Shadow != nil || m.Snapshot(m.last).Pools[0].Shadow != nil {
		t.Error("a shadow where there is none")
	}
	m.Shadow("p", "spy", &spy{})
	if m.index == nil || m.adapters == nil {
		t.Error("what the shadow uses is not kept")
	}
	arrive(2)
	d := arrive(3)
	x := d.Shadow
	if x == nil || x.Policy != "spy" || x.Chosen != d.Chosen || x.Reason != "lightest" || len(x.Scores) != 3 {
		t.Fatalf("got %+v", x)
	}
	if want := []int{0, 640, 0}; !slices.Equal(x.OverlapTokens, want) {
		t.Errorf("overlap %v, want %v: the index is empty where the shadow begins", x.OverlapTokens, want)
	}
	for slot, want := range []int64{10, 10, 10} { // the call before the shadow counts, too
		if got := m.pools[0].shadow.blocks[slot]; got != want {
			t.Errorf("%d blocks in use at %d, want %d", got, slot, want)
		}
	}
	m.Reconfigure(m.last+1, c)
	s := m.Snapshot(m.last).Pools[0].Shadow
	if s == nil || s.Picks != 2 || s.Agreed != 2 || len(s.Reasons) != 1 || s.Reasons[0].Reason != "lightest" || s.Since != 1 {
		t.Errorf("tally %+v", s)
	}
	m.Shadow("p", "", nil)
	if m.index != nil || m.adapters != nil || m.pools[0].shadow != nil {
		t.Error("what the shadow used is kept")
	}
	if d := arrive(4); d.Shadow != nil {
		t.Error("a shadow that is off chooses")
	}
	m.Shadow("p", "spy", &spy{})
	if s := m.Snapshot(m.last).Pools[0].Shadow; s.Picks != 0 || s.Reasons != nil {
		t.Errorf("tally %+v", s)
	}
	for i := range m.calls {
		if cl := &m.calls[i]; cl.phase == running {
			m.Step(m.last+1, Left(Ticket{Call: cl.request.ID, index: int32(i)}))
		}
	}
	m.Step(m.last+1, Wake())
	if p := m.pools[0].shadow; p.active.Len() != 0 || slices.Max(p.blocks) != 0 || p.pending[0] != (selection.Work{}) {
		t.Errorf("after the calls' end: %v, %v", p.blocks, p.pending)
	}
}

// contrary likes the last candidate best, for a reason of its own each time.
type contrary struct{}

func (contrary) Pick(v *selection.View, q *selection.Request, r *seed.Rand) selection.Choice {
	for i := range v.Scores {
		v.Scores[i] = float64(-i)
	}
	return selection.Choice{Index: len(v.Candidates) - 1, Reason: selection.Reason(fmt.Sprint("reason ", q.ID))}
}

// TestShadow_ReasonsAreBounded, and what is summed is the difference between the choices.
func TestShadow_ReasonsAreBounded(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a", "b")))
	m.Shadow("p", "contrary", contrary{})
	for id := 1; id <= 3*mostShadowReasons; id++ {
		q := request(id)
		q.Blocks, q.BlockTokens = ofSession(1, 4), 64
		m.Step(m.last+1, Arrive(q))
	}
	s := m.Snapshot(m.last).Pools[0].Shadow
	last := s.Reasons[len(s.Reasons)-1]
	if len(s.Reasons) != mostShadowReasons+1 || last.Reason != otherReason || last.Picks != 2*mostShadowReasons {
		t.Errorf("%d reasons, the last %+v", len(s.Reasons), last)
	}
	// a and b in turn: where a is chosen both are equally loaded. The first call is a's, so that
	// b holds nothing when the first two calls are placed.
	want := ShadowCount{Picks: 3 * mostShadowReasons, Agreed: 3 * mostShadowReasons / 2}
	if s.ShadowCount != want {
		t.Errorf("tally %+v, want %+v", s.ShadowCount, want)
	}
	q := request(1000)
	q.Blocks, q.BlockTokens = ofSession(2, 4), 64
	a := only(t, m.Step(m.last+1, Arrive(q)))
	q.ID = 1001
	m.Step(m.last+1, FirstToken(a.Ticket, 0))
	m.Step(m.last+1, Done(a.Ticket, 0, attempt.Success, Usage{}))
	m.Step(m.last+1, Arrive(q)) // to a again, which holds it; b holds one block of four
	m.Step(m.last+1, Wake())
	got := m.Snapshot(m.last).Pools[0].Shadow.ShadowCount
	if want := (ShadowCount{Picks: want.Picks + 2, Agreed: want.Agreed, OverlapTokens: -3 * 64}); got != want {
		t.Errorf("tally %+v, want %+v", got, want)
	}
}

// indifferent likes all candidates alike, and chooses the last one.
type indifferent struct{}

func (indifferent) Pick(v *selection.View, _ *selection.Request, _ *seed.Rand) selection.Choice {
	clear(v.Scores)
	return selection.Choice{Index: len(v.Candidates) - 1, Reason: "any"}
}

// TestShadow_OfEqualsAnotherOneIsNoDisagreement: what neither policy tells apart they draw, each
// for itself.
func TestShadow_OfEqualsAnotherOneIsNoDisagreement(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	c.Explain = true
	m := New(c)
	m.Shadow("p", "indifferent", indifferent{})
	// To a, as both are free; to b; to a again, as both have a call.
	for id, to := range []int{0, 1, 0} {
		a := only(t, m.Step(m.last+1, Arrive(request(id+1))))
		if x := a.Decision.Shadow; !x.Agrees || x.Chosen != 1 || a.Decision.Chosen != to {
			t.Errorf("call %d: to %d, %+v", id+1, a.Decision.Chosen, x)
		}
	}
	m.Shadow("p", "contrary", contrary{})
	if a := only(t, m.Step(m.last+1, Arrive(request(20)))); a.Decision.Chosen != 1 || !a.Decision.Shadow.Agrees {
		t.Errorf("the lighter one is its choice: %+v", a.Decision)
	}
	if a := only(t, m.Step(m.last+1, Arrive(request(21)))); a.Decision.Chosen != 0 || a.Decision.Shadow.Agrees {
		t.Errorf("scores differ: %+v", a.Decision)
	}
}

// TestShadow_DoesNotAllocate where no explanation is asked for.
func TestShadow_DoesNotAllocate(t *testing.T) {
	c := newConfig(newTestPool("p", lightest{}, "a", "b"))
	c.Explain = false
	m := New(c)
	quiet := &overlapping{}
	m.Shadow("p", "overlapping", struct {
		selection.Policy
		selection.OverlapUser
		selection.ActiveUser
	}{quiet, quiet, quiet})
	q := request(1)
	q.Blocks, q.BlockTokens = ofSession(1, 40), 64
	now := mono.Time(1)
	call := func() {
		now++
		a := m.Step(now, Arrive(q))[0]
		now++
		m.Step(now, FirstToken(a.Ticket, 0))
		now++
		m.Step(now, Done(a.Ticket, 0, attempt.Success, Usage{}))
		q.ID++
	}
	call()
	if n := testing.AllocsPerRun(100, call); n > 0 {
		t.Errorf("%v allocations a call", n)
	}
}
