package flow

import (
	"time"

	"kvasir/internal/mono"
	"kvasir/selection"
)

// Who goes by what others told a while ago goes where they all go: each sees the same
// endpoint as the lightest, and none sees that the others have chosen it (Mitzenmacher, How
// useful is old information?). So what is told is believed as far as it can still be true. Of
// the calls that peers have placed there are some of which nothing has come yet,
//
//	unseen = peers' dispatches a second · age of what they tell
//
// and all of them would go to one endpoint. Up to one nothing is gained by caution; beyond,
// what peers tell counts by
//
//	share = 1 / unseen²
//
// Each endpoint's load by them is taken to be nearer to the pool's mean, told · share +
// mean · (1 - share). Of the prefill that their calls cost an endpoint the share counts as
// its being busy, but no less than what one of them gives it in the mean: the busier the pool seems,
// the more a rule keeps to what is cached, and where it does not see the queues there, as many
// gateways stand in line as there are. With very old news a gateway so tells endpoints apart by
// its own calls, as one that is alone, but for the prefixes: those that peers have sent
// somewhere are there, however late one hears of it.
//
// Gateways that see each other at once choose as one does. The number of gateways is in who
// tells and how much, and needs no setting. docs/decisions/0020 says what this is worth, and
// what was tried beside it.

// news measures how many peers' dispatches a pick does not see.
type news struct {
	from mono.Time // the beginning of the window
	sent int       // dispatches that were told in it
	rate float64   // a second, in the window before
	age  float64   // of a word when it comes, in seconds, smoothed
}

// newsWindow is over how long peers' dispatches are counted.
const newsWindow = 5 * time.Second

// hear counts a dispatch of a peer that comes at now and was told so long ago.
func (n *news) hear(now mono.Time, took time.Duration) {
	if n.sent == 0 && n.rate == 0 {
		n.from, n.age = now, took.Seconds() // the first
	}
	n.sent++
	n.age += float64(0.05 * (took.Seconds() - n.age))
}

// unseen returns how many dispatches of peers are not known of at now, where each is told
// every so often.
func (n *news) unseen(now mono.Time, every time.Duration) float64 {
	if d := now.Sub(n.from); d >= newsWindow {
		n.rate = float64(n.sent) / d.Seconds()
		n.sent, n.from = 0, now
	}
	rate := max(n.rate, float64(n.sent)/newsWindow.Seconds()) // it may have risen
	return float64(rate * (n.age + every.Seconds()/2))
}

// share says how much of what peers tell is believed, above 0, at most 1.
func (n *news) share(now mono.Time, every time.Duration) float64 {
	unseen := max(n.unseen(now, every), 1)
	return 1 / float64(unseen*unseen)
}

// found returns what a call finds at its endpoint, as far as is known: that is what its first
// token says how long it took. It is what the policy has seen. But tempered news leaves hardly
// an endpoint without work, and of a call that had others ahead nobody learns how long its own
// takes: as long as the policy does not know that, it is as peers have told it.
func (m *Machine) found(p *pool, slot selection.Slot) selection.Book {
	if !m.sharing.On {
		return m.books[slot]
	}
	if p.predictor != nil {
		if _, known := p.predictor.PrefillTime(slot, selection.Work{Tokens: 1}); !known {
			return m.merged(slot)
		}
	}
	return m.loads[slot]
}

// part returns a share of x, toward 0.
func part(share float64, x int64) int64 { return int64(float64(share * float64(x))) }

// temper takes what peers have at the pool's endpoints to be nearer to its mean, as far as
// what they told is old. Which call is at the head of an endpoint is then what this gateway
// knows of its own. Differences round toward none, so that old news does not decide between
// endpoints that are equal but for it.
func (m *Machine) temper(now mono.Time, p *pool) {
	share := m.news.share(now, m.sharing.Every)
	if share == 1 {
		return
	}
	var all Share
	for _, slot := range p.view.Members {
		all.add(&m.peers.sums[slot].Share)
	}
	n := int64(len(p.view.Members))
	mix := func(told, all int64) int64 { return all/n + part(share, told-all/n) }
	for _, slot := range p.view.Members {
		x, b := &m.peers.sums[slot].Share, m.books[slot]
		if b.Pending == 0 {
			b.HeadSince = now // of what peers have there nobody knows how far it is
		}
		told := Share{
			Outstanding:       int32(mix(int64(x.Outstanding), int64(all.Outstanding))),
			OutstandingTokens: mix(x.OutstandingTokens, all.OutstandingTokens),
			PendingTokens:     mix(x.PendingTokens, all.PendingTokens),
			Pending:           int32(mix(int64(x.Pending), int64(all.Pending))),
			PendingWork: selection.Work{
				Tokens:    mix(x.PendingWork.Tokens, all.PendingWork.Tokens),
				Attention: mix(x.PendingWork.Attention, all.PendingWork.Attention),
			},
			ActiveBlocks: mix(x.ActiveBlocks, all.ActiveBlocks),
		}
		told.addTo(&b)
		m.loads[slot] = b
	}
}
