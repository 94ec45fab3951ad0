package flow

import (
	"slices"
	"testing"
	"time"

	"kvasir/internal/mono"
	"kvasir/selection"
)

// witness notes what it is told of the prefill of other gateways' calls.
type witness struct {
	lightest
	work  selection.Work
	order []int64
	knows bool
}

func (w *witness) Witness(_ mono.Time, _ selection.Slot, k selection.Work) {
	w.work = w.work.Plus(k)
	w.order = append(w.order, k.Tokens)
}

// PrefillTime makes it a selection.Predictor.
func (w *witness) PrefillTime(selection.Slot, selection.Work) (time.Duration, bool) {
	return time.Second, w.knows
}

// toldAgo returns a machine before three endpoints that hears of ten dispatches of five peers a
// second, each told so long ago, and an instant at which it knows that.
func toldAgo(t *testing.T, took time.Duration, policy selection.Policy) (*Machine, mono.Time) {
	t.Helper()
	c := newConfig(newTestPool("p", policy, "a", "b", "c"))
	c.Sharing = DefaultSharing(1)
	c.Sharing.Every = 0
	m := New(c)
	at := mono.Time(1)
	for k := range 101 {
		m.Step(at, Heard(0, 0, &Word{Kind: WordSent, Peer: PeerID(7 + k%5), Number: uint64(k + 1)}, took))
		at = at.Add(100 * time.Millisecond)
	}
	return m, at
}

// TestPeers_OldNewsIsTempered: what peers tell at once is believed as it is; of what is so
// old that many calls have been placed since, only the mean is left.
func TestPeers_OldNewsIsTempered(t *testing.T) {
	for _, test := range []struct {
		took   time.Duration
		want   []int32
		tokens int64
	}{
		{0, []int32{30, 0, 0}, 1000},
		{90 * time.Millisecond, []int32{30, 0, 0}, 1000},   // 0.9 calls unseen
		{200 * time.Millisecond, []int32{15, 8, 8}, 250},   // 2: a quarter of 30 and three quarters of 10
		{400 * time.Millisecond, []int32{11, 10, 10}, 200}, // 4: a sixteenth, of the prefill what one of five gives
		{10 * time.Second, []int32{10, 10, 10}, 200},
	} {
		p := &witness{}
		m, now := toldAgo(t, test.took, p)
		heardAt(m, now, Word{Peer: 7, Number: 1000, Share: Share{Outstanding: 30, LastFirst: -1}})
		m.gather(now+2, m.pools[0])
		got := []int32{m.loads[0].Outstanding, m.loads[1].Outstanding, m.loads[2].Outstanding}
		if !slices.Equal(got, test.want) {
			t.Errorf("told %v ago, 30 calls at one of three endpoints count as %v, want %v", test.took, got, test.want)
		}
		p.work = selection.Work{}
		m.Step(now+3, Heard(0, 0, &Word{Kind: WordHeld, Peer: 7, Number: 1001, Work: selection.Work{Tokens: 1000, Attention: 1000}}, test.took))
		m.Step(now+4, Wake())
		if d := p.work.Tokens - test.tokens; d < -5 || d > 5 || p.work.Attention != p.work.Tokens {
			t.Errorf("told %v ago, 1000 tokens of prefill count as %+v, want about %d", test.took, p.work, test.tokens)
		}
	}
}

// TestPeers_OldNewsBelievesTheRateAtOnce: of a burst that has just begun, too.
func TestPeers_OldNewsBelievesTheRateAtOnce(t *testing.T) {
	var n news
	now := mono.Time(time.Hour)
	for range 20 {
		n.hear(now, time.Second)
		now = now.Add(50 * time.Millisecond)
	}
	if got := n.unseen(now, 0); got < 3.9 || got > 4.1 { // 20 in 5 s, a second old
		t.Errorf("%v calls are taken to be unseen, want 4", got)
	}
}

// TestPeers_OldNewsDecidesNothing: endpoints of which the own book says the same are the same
// where all else that is known is old.
func TestPeers_OldNewsDecidesNothing(t *testing.T) {
	m, now := toldAgo(t, 2*time.Second, &lightest{})
	for slot, calls := range []int32{40, 31, 46} {
		heardAt(m, now, Word{Peer: 7, Number: uint64(1000 + slot), Slot: selection.Slot(slot), Share: Share{
			Outstanding: calls, Pending: calls / 2, OutstandingTokens: int64(calls), PendingTokens: int64(calls / 2), LastFirst: -1,
		}})
		now += 2
	}
	m.gather(now, m.pools[0])
	if m.loads[0] != m.loads[1] || m.loads[1] != m.loads[2] || m.loads[0].Outstanding != 39 {
		t.Errorf("endpoints are believed to have %+v", m.loads)
	}
}

// TestPeers_OldNewsLetsAPolicyLearn: until it knows how long prefill takes, calls to endpoints
// where peers have told of none have found none; later they are taken to have found the mean.
func TestPeers_OldNewsLetsAPolicyLearn(t *testing.T) {
	p := &witness{}
	m, now := toldAgo(t, 2*time.Second, p)
	heardAt(m, now, Word{Peer: 7, Number: 1000, Slot: 2, Share: Share{
		Outstanding: 3, Pending: 3, PendingTokens: 300, OutstandingTokens: 300, PendingWork: selection.Prefill(300, 0), LastFirst: -1,
	}})
	for i, want := range []int64{0, 100} {
		p.knows = i > 0
		a := m.Step(now.Add(time.Second)+mono.Time(i), Arrive(request(i)))
		c := &m.calls[a[0].Ticket.index]
		if got := c.ahead.Tokens; c.slot == 2 || got != want {
			t.Errorf("call %d is taken to have found %d tokens of prefill at endpoint %d, want %d", i, got, c.slot, want)
		}
	}
}

// TestPeers_WhoIsDeliveredFirstDoesNotMatter: words of one instant are folded in one order.
func TestPeers_WhoIsDeliveredFirstDoesNotMatter(t *testing.T) {
	words := []Word{
		{Kind: WordHeld, Peer: 8, Number: 2, Work: selection.Work{Tokens: 2}},
		{Kind: WordHeld, Peer: 9, Number: 1, Work: selection.Work{Tokens: 3}},
		{Kind: WordHeld, Peer: 8, Number: 1, Work: selection.Work{Tokens: 1}},
	}
	for range words {
		words = append(words[1:], words[0])
		p := &witness{}
		c := newConfig(newTestPool("p", p, "a"))
		c.Sharing = DefaultSharing(1)
		heardAt(New(c), 10, words...)
		if !slices.Equal(p.order, []int64{1, 2, 3}) {
			t.Errorf("folded as %v", p.order)
		}
	}
}
