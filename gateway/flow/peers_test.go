package flow

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// mesh is several machines before the same endpoints, which hear each other late or not at all.
type mesh struct {
	t        rapid.TB
	now      mono.Time
	machines []*Machine
	wakeAt   []mono.Time
	running  []meshCall
	flying   []flight
	delay    func(from, to int) (d time.Duration, lost bool)
	calls    int
	tellings int
}

type meshCall struct {
	machine int
	action  Action
	first   bool
}

// flight is a word on its way.
type flight struct {
	at, told mono.Time
	to       int
	word     *Word
}

func newMesh(t rapid.TB, machines int, change func(*Config)) *mesh {
	x := &mesh{t: t, delay: func(int, int) (time.Duration, bool) { return 0, false }}
	for i := range machines {
		c := newConfig(newTestPool("p", &overlapping{}, "a", "b", "c"))
		c.Sharing = DefaultSharing(PeerID(i + 1))
		if change != nil {
			change(&c)
		}
		x.machines, x.wakeAt = append(x.machines, New(c)), append(x.wakeAt, mono.Never)
	}
	return x
}

func (x *mesh) step(i int, e Event) []Action {
	actions := slices.Clone(x.machines[i].Step(x.now, e))
	for _, a := range actions {
		switch a.Kind {
		case WakeAt:
			x.wakeAt[i] = a.At
		case Tell:
			x.tellings++
			words := x.machines[i].Words()
			for to := range x.machines {
				d, lost := x.delay(i, to)
				for k := range words {
					if to != i && !lost {
						x.flying = append(x.flying, flight{x.now.Add(d), x.now, to, &words[k]})
					}
				}
			}
		}
	}
	return actions
}

// pass lets time go by: words arrive and machines wake.
func (x *mesh) pass(d time.Duration) {
	for end := x.now.Add(d); ; {
		next := end
		for _, f := range x.flying {
			next = min(next, max(f.at, x.now))
		}
		for _, at := range x.wakeAt {
			next = min(next, max(at, x.now))
		}
		x.now = next
		busy := false
		for k := 0; k < len(x.flying); k++ {
			if f := x.flying[k]; f.at <= x.now {
				x.flying = slices.Delete(x.flying, k, k+1)
				k--
				x.step(f.to, Heard(f.word.Slot, f.word.Generation, f.word, x.now.Sub(f.told)))
				busy = true
			}
		}
		for i, at := range x.wakeAt {
			if at <= x.now {
				x.wakeAt[i] = mono.Never
				x.step(i, Wake())
				busy = true
			}
		}
		if x.now == end && !busy {
			return
		}
	}
}

func (x *mesh) arrive(i, tokens, blockCount int) meshCall { return x.call(i, tokens, blockCount, true) }

func (x *mesh) call(i, tokens, blockCount int, stream bool) meshCall {
	x.calls++
	q := request(x.calls)
	q.Stream = stream
	q.InputTokens, q.Blocks, q.BlockTokens = tokens, blocks(blockCount), 16
	for _, a := range x.step(i, Arrive(q)) {
		if a.Kind == Dispatch {
			x.running = append(x.running, meshCall{machine: i, action: a})
			return x.running[len(x.running)-1]
		}
	}
	x.t.Fatal("a call was not dispatched")
	return meshCall{}
}

// go on with a running call: its first token, or its end.
func (x *mesh) advance(k int) {
	c := &x.running[k]
	if !c.first {
		c.first = true
		x.step(c.machine, FirstToken(c.action.Ticket, c.action.Attempt))
		return
	}
	x.step(c.machine, Done(c.action.Ticket, c.action.Attempt, attempt.Success, Usage{}))
	x.running = slices.Delete(x.running, k, k+1)
}

// heard returns what machine i believes its peers to have at a slot, and what they have.
func (x *mesh) heard(i int, slot selection.Slot) (heard, true Share) {
	var s Share
	for k, m := range x.machines {
		if k != i {
			m.Snapshot(x.now + 1)
			b := m.books[slot]
			s.add(&Share{
				Outstanding: b.Outstanding, OutstandingTokens: b.OutstandingTokens, PendingTokens: b.PendingTokens,
				Pending: b.Pending, PendingWork: b.PendingWork, ActiveBlocks: b.ActiveBlocks,
			})
		}
	}
	x.machines[i].Snapshot(x.now + 1)
	got := x.machines[i].peers.sums[slot].Share
	got.Head, got.HeadSent, got.LastFirst = selection.Work{}, 0, 0
	return got, s
}

func (x *mesh) wantAgreement(when string) {
	for i := range x.machines {
		for slot := range selection.Slot(3) {
			if got, want := x.heard(i, slot); got != want {
				x.t.Fatalf("%s: machine %d believes of slot %d %+v, its peers have %+v", when, i, slot, got, want)
			}
		}
	}
}

// TestPeers_AgreeOnceTheyHaveHeard: whatever happened, and however words were lost and
// overtook each other, machines know of each other's loads once words come again, and when
// all calls are over nothing of them is left.
func TestPeers_AgreeOnceTheyHaveHeard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newMesh(t, rapid.IntRange(2, 4).Draw(t, "machines"), nil)
		loss := rapid.SampledFrom([]int{0, 30, 100}).Draw(t, "loss")
		x.delay = func(int, int) (time.Duration, bool) {
			d := time.Duration(rapid.IntRange(0, 50).Draw(t, "delay")) * time.Millisecond
			return d, loss > 0 && rapid.IntRange(1, 100).Draw(t, "lost") <= loss
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch k := rapid.IntRange(0, 3).Draw(t, "what"); {
			case k <= 1:
				x.arrive(rapid.IntRange(0, len(x.machines)-1).Draw(t, "at"), rapid.IntRange(1, 500).Draw(t, "tokens"), rapid.IntRange(0, 20).Draw(t, "blocks"))
			case k == 2 && len(x.running) > 0:
				x.advance(rapid.IntRange(0, len(x.running)-1).Draw(t, "call"))
			default:
				x.pass(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			}
		}
		x.delay = func(int, int) (time.Duration, bool) { return time.Millisecond, false }
		x.pass(4 * time.Second) // a refresh, and what is forgotten without one
		x.wantAgreement("with calls under way")
		for len(x.running) > 0 {
			x.advance(0)
		}
		x.pass(4 * time.Second)
		x.wantAgreement("at the end")
		for i, m := range x.machines {
			for slot := range m.books {
				if m.books[slot].Outstanding != 0 || m.peers.sums[slot].Outstanding != 0 {
					t.Fatalf("machine %d has %+v and believes %+v at the end", i, m.books[slot], m.peers.sums[slot])
				}
			}
		}
	})
}

// TestPeers_OnePolicySeesBothLoads: calls of two machines spread as those of one would.
func TestPeers_OnePolicySeesBothLoads(t *testing.T) {
	x := newMesh(t, 2, func(c *Config) { c.Sharing.Every = 0 })
	var slots []selection.Slot
	for k := range 6 {
		slots = append(slots, x.arrive(k%2, 100, 0).action.Slot)
		x.pass(time.Millisecond)
	}
	if want := []selection.Slot{0, 1, 2, 0, 1, 2}; !slices.Equal(slots, want) {
		t.Errorf("calls went to %v, want %v", slots, want)
	}
	x.pass(10 * time.Millisecond)
	m := x.machines[0]
	m.gather(x.now+1, m.pools[0])
	if b := m.loads[1]; b.Outstanding != 2 || b.PendingTokens != 200 {
		t.Errorf("the policy sees %+v; each machine has a call there", b)
	}
	if b := m.books[1]; b.Outstanding != 1 {
		t.Errorf("the machine's own book has %+v", b)
	}
}

// TestPeers_WhoFallsSilentIsForgotten, and only then.
func TestPeers_WhoFallsSilentIsForgotten(t *testing.T) {
	x := newMesh(t, 2, nil)
	x.arrive(0, 100, 0)
	x.pass(20 * time.Second)
	if got, _ := x.heard(1, 0); got.Outstanding != 1 {
		t.Fatalf("a call of 20 s that is told of again and again is known as %+v", got)
	}
	x.delay = func(int, int) (time.Duration, bool) { return 0, true }
	told := x.now
	for x.now < told.Add(10*time.Second) {
		x.pass(100 * time.Millisecond)
		if got, _ := x.heard(1, 0); got.Outstanding == 0 {
			break
		}
	}
	if silent := x.now.Sub(told); silent < 2500*time.Millisecond || silent > 3600*time.Millisecond {
		t.Errorf("it is forgotten after %v of silence; Expiry less Refresh is 2.5 s, Expiry 3.5 s", silent)
	}
	if b := x.machines[1].merged(0); b.Outstanding != 0 {
		t.Errorf("the policy still sees %+v", b)
	}
}

func heardAt(m *Machine, at mono.Time, words ...Word) {
	for i := range words {
		m.Step(at, Heard(words[i].Slot, words[i].Generation, &words[i], 0))
	}
	m.Step(at+1, Wake())
}

func TestPeers_WhatIsOvertakenIsIgnored(t *testing.T) {
	m := newMesh(t, 1, nil).machines[0]
	newer := Word{Peer: 7, Number: 9, Share: Share{Outstanding: 2, OutstandingTokens: 20, LastFirst: -1}}
	older := Word{Peer: 7, Number: 8, Share: Share{Outstanding: 5, OutstandingTokens: 50, LastFirst: -1}}
	heardAt(m, 10, newer)
	heardAt(m, 20, older)
	if got := m.peers.sums[0].Outstanding; got != 2 {
		t.Errorf("%d calls are believed after a word that was overtaken, want 2", got)
	}
	own := Word{Peer: 1, Number: 99, Share: older.Share}
	gone := Word{Peer: 7, Number: 99, Generation: 3, Share: older.Share}
	heardAt(m, 30, own, gone)
	if got := m.peers.sums[0].Outstanding; got != 2 {
		t.Errorf("%d calls are believed after its own word and one of an endpoint that is gone, want 2", got)
	}
}

// TestPeers_AreBounded: beyond MostPeers words are counted and not heard, until one of those
// who are known has been silent for long.
func TestPeers_AreBounded(t *testing.T) {
	m := newMesh(t, 1, nil).machines[0]
	for i := range MostPeers + 5 {
		heardAt(m, mono.Time(10*(i+1)), Word{Peer: PeerID(100 + i), Number: 1, Share: Share{Outstanding: 1}})
	}
	if got, s := m.peers.sums[0].Outstanding, m.Snapshot(10000); got != MostPeers || len(m.peers.known) != MostPeers || s.Unheard != 5 {
		t.Errorf("%d calls of %d peers are believed and %d words were refused; want %d and 5", got, len(m.peers.known), s.Unheard, MostPeers)
	}
	heardAt(m, mono.Time(5*time.Second), Word{Peer: 999, Number: 1, Share: Share{Outstanding: 3}})
	m.Snapshot(mono.Time(5*time.Second) + 2)
	if got := m.peers.sums[0].Outstanding; got != 3 || len(m.peers.known) != MostPeers {
		t.Errorf("%d calls are believed once one has taken the place of the silent, want 3", got)
	}
}

// TestPeers_TheOldestCallIsAtTheHead, whoever has sent it, since the newest first token of any.
func TestPeers_TheOldestCallIsAtTheHead(t *testing.T) {
	x := newMesh(t, 1, nil)
	m := x.machines[0]
	x.now = 1000
	x.arrive(0, 50, 0)
	head := selection.Prefill(80, 0)
	seen := func(at mono.Time) selection.Book {
		m.gather(at, m.pools[0])
		return m.loads[0]
	}
	share := Share{Outstanding: 2, Pending: 1, PendingWork: head, Head: head, HeadSent: 600, LastFirst: 300}
	heardAt(m, 1200, Word{Peer: 7, Number: 1, Share: share})
	if b := seen(1202); b.Head != head || b.HeadSince != 900 || b.PendingWork != head.Plus(selection.Prefill(50, 0)) || b.Pending != 2 {
		t.Errorf("the head is %+v since %d of %+v; want the peer's, sent at 600, since 900", b.Head, b.HeadSince, b.PendingWork)
	}
	share.HeadSent = 100 // at 1200: later than the own one
	heardAt(m, 1300, Word{Peer: 7, Number: 2, Share: share})
	if b := seen(1302); b.Head != selection.Prefill(50, 0) || b.HeadSince != 1000 {
		t.Errorf("the head is %+v since %d; want the own one since 1000", b.Head, b.HeadSince)
	}
}

// TestPeers_TellOfPrefixes: what one sends is promised to the other, and what it has seen
// answered is held for good.
func TestPeers_TellOfPrefixes(t *testing.T) {
	x := newMesh(t, 2, nil)
	overlap := func() int32 {
		m := x.machines[1]
		m.Snapshot(x.now)
		m.index.Match(x.now, blocks(10), m.overlap)
		return m.overlap[0]
	}
	x.arrive(0, 200, 10)
	x.pass(10 * time.Millisecond)
	if got := overlap(); got != 10 {
		t.Fatalf("%d blocks are believed to be on their way, want 10", got)
	}
	x.pass(time.Minute)
	if got := overlap(); got != 0 {
		t.Fatalf("%d blocks are believed a minute after a promise", got)
	}
	x.advance(0)
	x.pass(time.Minute)
	if got := overlap(); got != 10 {
		t.Errorf("%d blocks are believed after the first token, want 10", got)
	}
}

// TestPeers_TellOfPrefillOnceItIsDone: by a first token, of prompts without blocks, too; what is
// pending is in their loads.
func TestPeers_TellOfPrefillOnceItIsDone(t *testing.T) {
	var last *witness
	x := newMesh(t, 2, func(c *Config) {
		last = &witness{}
		c.Pools[0].Policy = last
	})
	pass := func() {
		x.pass(20 * time.Millisecond)
		x.machines[1].Snapshot(x.now)
	}
	x.arrive(0, 200, 0)
	pass()
	if last.work != (selection.Work{}) {
		t.Errorf("of a dispatch: %+v", last.work)
	}
	x.advance(0)
	pass()
	if want := selection.Prefill(200, 0); last.work != want {
		t.Errorf("of a first token: %+v, want %+v", last.work, want)
	}
	x.advance(0)
	pass()
	if len(last.order) != 1 {
		t.Errorf("it was told %d times", len(last.order))
	}
}

// TestPeers_HearOfEachChangeSoon: of a dispatch, a first token and an end, and not only when
// all is told again.
func TestPeers_HearOfEachChangeSoon(t *testing.T) {
	x := newMesh(t, 2, nil)
	x.pass(time.Second)
	x.arrive(0, 100, 4)
	for _, what := range []string{"a dispatch", "a first token", "an end"} {
		x.pass(20 * time.Millisecond)
		x.wantAgreement("after " + what)
		if len(x.running) > 0 {
			x.advance(0)
		}
	}
}

// TestPeers_WhatWasLostIsToldAgain, also that nothing is left, before it would be forgotten.
func TestPeers_WhatWasLostIsToldAgain(t *testing.T) {
	x := newMesh(t, 2, nil)
	x.arrive(0, 100, 0)
	x.pass(1500 * time.Millisecond)
	x.delay = func(int, int) (time.Duration, bool) { return 0, true }
	x.advance(0)
	x.advance(0)
	x.pass(100 * time.Millisecond)
	if got, _ := x.heard(1, 0); got.Outstanding != 1 {
		t.Fatalf("%+v is believed though all was lost", got)
	}
	x.delay = func(int, int) (time.Duration, bool) { return 0, false }
	x.pass(1100 * time.Millisecond)
	x.wantAgreement("after the next refresh")
}

// TestPeers_AreToldInBatches: however much happens, a machine tells at most once in Every.
func TestPeers_AreToldInBatches(t *testing.T) {
	x := newMesh(t, 2, func(c *Config) { c.Sharing.Every = 50 * time.Millisecond })
	for range 100 {
		x.arrive(0, 100, 2)
		x.pass(time.Millisecond)
	}
	if x.tellings < 2 || x.tellings > 3 {
		t.Errorf("100 calls in 100 ms were told in %d batches of 50 ms", x.tellings)
	}
	x.pass(50 * time.Millisecond)
	x.wantAgreement("after the last batch")
	for range MostPrompts + 1 { // the first is told at once, as it is time again
		x.arrive(0, 100, 1)
	}
	if len(x.machines[0].telling.prompts) >= MostPrompts {
		t.Errorf("%d prompts wait to be told", len(x.machines[0].telling.prompts))
	}
	if n := x.machines[0].Snapshot(x.now).Untold; n != 0 {
		t.Errorf("%d prompts were not told", n)
	}
}

// TestPeers_AWholeAnswerShowsNoStart: of a head that shows nothing until its answer is whole
// others know that, and its answer is no news of a first token.
func TestPeers_AWholeAnswerShowsNoStart(t *testing.T) {
	x := newMesh(t, 2, func(c *Config) { c.Sharing.Every = 0 })
	x.now = 1000
	x.call(0, 50, 0, false)
	x.pass(time.Millisecond)
	x.machines[1].Snapshot(x.now + 1)
	b := x.machines[1].merged(0)
	if !b.HeadSilent || b.HeadSince != 1000 || b.Pending != 1 {
		t.Errorf("the other machine believes %+v", b)
	}
	x.advance(0)
	x.pass(time.Millisecond)
	x.machines[1].Snapshot(x.now + 1)
	if l := x.machines[1].peers.sums[0].lastFirst; l != 0 {
		t.Errorf("a first token at %d is believed", l)
	}
	streamed := x.call(0, 50, 0, true).action.Slot
	x.pass(time.Millisecond)
	at := x.now
	x.advance(1)
	x.pass(time.Millisecond)
	x.machines[1].Snapshot(x.now + 1)
	if l := x.machines[1].peers.sums[streamed].lastFirst; l != at {
		t.Errorf("the newest first token is believed to have come at %d, it came at %d", l, at)
	}
}

// TestPeers_AreExplained: what others have told is shown apart from the own book, with its age.
func TestPeers_AreExplained(t *testing.T) {
	x := newMesh(t, 2, func(c *Config) { c.Sharing.Every = 0 })
	x.delay = func(int, int) (time.Duration, bool) { return 30 * time.Millisecond, false }
	x.arrive(0, 100, 0)
	x.arrive(1, 70, 0)
	x.pass(50 * time.Millisecond)
	x.arrive(1, 10, 0)
	d := x.running[2].action.Decision
	var got []selection.Reading
	for _, r := range d.Candidates[0].Signals {
		if r.Source == selection.FromPeers {
			got = append(got, r)
		}
	}
	want := []selection.Reading{{Name: "outstanding", Value: 1}, {Name: "pending", Value: 1}, {Name: "pending_tokens", Value: 100}, {Name: "outstanding_tokens", Value: 100}}
	for i := range want {
		want[i].Source, want[i].Age = selection.FromPeers, 50*time.Millisecond
	}
	if !slices.Equal(got, want) || d.Candidates[0].Outstanding != 2 {
		t.Errorf("of an endpoint with a call of each machine %+v and %v are shown, want %v", d.Candidates[0], got, want)
	}
	for _, r := range d.Candidates[1].Signals {
		if r.Source == selection.FromPeers {
			t.Errorf("of an endpoint of which no peer has told %v is shown", r)
		}
	}
}

// TestAlone_TellsNobody: a gateway that shares nothing has neither words nor wake-ups for them.
func TestAlone_TellsNobody(t *testing.T) {
	x := newMesh(t, 1, func(c *Config) { c.Sharing = Sharing{} })
	x.arrive(0, 100, 3)
	if x.tellings != 0 || x.wakeAt[0] != mono.Never {
		t.Errorf("%d tellings, a wake-up at %d", x.tellings, x.wakeAt[0])
	}
	heardAt(x.machines[0], 10, Word{Peer: 7, Number: 1, Share: Share{Outstanding: 1}})
	if b := x.machines[0].pools[0].view.Book[1]; b.Outstanding != 0 {
		t.Errorf("it has heard %+v", b)
	}
}
