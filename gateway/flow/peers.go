package flow

import (
	"time"

	"kvasir/internal/mono"
	"kvasir/selection"
)

// peers is what the machine has heard of other gateways.
type peers struct {
	known    []peer
	sums     []peersLoad // by slot
	expireAt mono.Time   // before that nothing is to be forgotten
	refused  int64       // words of gateways beyond MostPeers
}

// peer is one other gateway.
type peer struct {
	id    PeerID
	heard mono.Time
	loads []peerLoad // by slot
}

// peerLoad is what one gateway has at an endpoint.
type peerLoad struct {
	Share
	number uint64
	at     mono.Time // when it was so
	heard  mono.Time
	known  bool // false: nothing was told, or it was forgotten
}

// peersLoad is what all other gateways have at an endpoint.
type peersLoad struct {
	Share               // the ages are not used
	at        mono.Time // when the oldest part was so
	headSent  mono.Time
	lastFirst mono.Time
}

func (p *peers) grow(slots int) {
	for len(p.sums) < slots {
		p.sums = append(p.sums, peersLoad{})
	}
}

// Heard reports a peer's word, which is of the endpoint that has this slot and generation
// here; one of an endpoint that has left is ignored. It was told took before the report, at
// the earliest. Several machines may be handed the same word.
func Heard(slot selection.Slot, generation uint32, w *Word, took time.Duration) Event {
	return Event{kind: reportPeer, slot: slot, generation: generation, word: w, took: took}
}

// hear takes a peer's word.
func (m *Machine) hear(r *report) {
	w := r.word
	if !m.sharing.On || w.Peer == m.sharing.Peer || !m.has(r.slot, r.generation) {
		return
	}
	p := m.peers.find(w.Peer, r.at, m.sharing.Expiry)
	if p == nil {
		m.peers.refused++
		return
	}
	p.heard = r.at
	switch w.Kind {
	case WordLoad:
		m.hearLoad(r, p)
	case WordSent:
		m.news.hear(r.at, r.took)
		if m.index != nil && len(w.Blocks) > 0 {
			m.index.Promise(r.at, r.slot, w.Blocks)
		}
	case WordHeld:
		if m.index != nil && len(w.Blocks) > 0 {
			m.index.Hold(r.at, r.slot, w.Blocks)
		}
		m.witness(r)
	}
}

// witness has the policy, and its shadow, take account of the prefill that a peer tells of.
func (m *Machine) witness(r *report) {
	p, w := m.state[r.slot].pool, r.word.Work
	x := p.shadow
	seen := x != nil && x.witness != nil
	if p.witness == nil && !seen {
		return
	}
	share := max(m.news.share(r.at, m.sharing.Every), 1/float64(m.peers.present(r.at, m.sharing.Expiry)))
	w = selection.Work{Tokens: part(share, w.Tokens), Attention: part(share, w.Attention)}
	if p.witness != nil {
		p.witness.Witness(since(r.at, r.took), r.slot, w)
	}
	if seen {
		x.witness.Witness(since(r.at, r.took), r.slot, w)
	}
}

func (m *Machine) hearLoad(r *report, p *peer) {
	for len(p.loads) <= int(r.slot) {
		p.loads = append(p.loads, peerLoad{})
	}
	l := &p.loads[r.slot]
	if r.word.Number <= l.number {
		return // a newer one has overtaken it
	}
	*l = peerLoad{Share: r.word.Share, number: r.word.Number, at: since(r.at, r.took), heard: r.at, known: true}
	m.peers.expireAt = min(m.peers.expireAt, r.at.Add(m.sharing.Expiry))
	m.peers.sum(r.slot)
}

// find returns a peer, which is a new one where there is room: one that has been silent for
// long enough to be forgotten gives up its place.
func (p *peers) find(id PeerID, now mono.Time, expiry time.Duration) *peer {
	silent := -1
	for i := range p.known {
		x := &p.known[i]
		if x.id == id {
			return x
		}
		if x.heard.Add(expiry) <= now && silent < 0 {
			silent = i
		}
	}
	if len(p.known) < MostPeers {
		p.known = append(p.known, peer{id: id})
		return &p.known[len(p.known)-1]
	}
	if silent < 0 {
		return nil
	}
	gone := p.known[silent].loads
	p.known[silent] = peer{id: id}
	for slot := range gone {
		p.sum(selection.Slot(slot))
	}
	return &p.known[silent]
}

// present returns how many of the peers have told anything lately.
func (p *peers) present(now mono.Time, expiry time.Duration) int {
	n := 0
	for i := range p.known {
		if p.known[i].heard.Add(expiry) > now {
			n++
		}
	}
	return n
}

// sum adds up anew what all peers have at the slot.
func (p *peers) sum(slot selection.Slot) {
	var s peersLoad
	for i := range p.known {
		if int(slot) >= len(p.known[i].loads) {
			continue
		}
		l := &p.known[i].loads[slot]
		if !l.known {
			continue
		}
		if l.Outstanding > 0 && (s.Outstanding == 0 || l.at < s.at) {
			s.at = l.at
		}
		if sent := since(l.at, l.HeadSent); l.Pending > 0 && (s.Pending == 0 || sent < s.headSent) {
			s.Head, s.HeadSilent, s.headSent = l.Head, l.HeadSilent, sent
		}
		if l.LastFirst >= 0 {
			s.lastFirst = max(s.lastFirst, since(l.at, l.LastFirst))
		}
		s.add(&l.Share)
	}
	p.sums[slot] = s
}

// expire forgets what was told long ago and not again.
func (p *peers) expire(now mono.Time, expiry time.Duration) {
	if now < p.expireAt {
		return
	}
	p.expireAt = mono.Never
	for i := range p.known {
		for slot := range p.known[i].loads {
			l := &p.known[i].loads[slot]
			switch until := l.heard.Add(expiry); {
			case !l.known:
			case until <= now:
				*l = peerLoad{number: l.number}
				p.sum(selection.Slot(slot))
			default:
				p.expireAt = min(p.expireAt, until)
			}
		}
	}
}

// freed forgets what was told of an endpoint that has left.
func (p *peers) freed(slot selection.Slot) {
	for i := range p.known {
		if int(slot) < len(p.known[i].loads) {
			p.known[i].loads[slot] = peerLoad{}
		}
	}
	p.sum(slot)
}

// add adds what another gateway has; ages are not added.
func (s *Share) add(o *Share) {
	s.Outstanding += o.Outstanding
	s.OutstandingTokens += o.OutstandingTokens
	s.PendingTokens += o.PendingTokens
	s.Pending += o.Pending
	s.PendingWork = s.PendingWork.Plus(o.PendingWork)
	s.ActiveBlocks += o.ActiveBlocks
}

// addTo adds it to what a gateway has itself; ages and heads are not added.
func (s *Share) addTo(b *selection.Book) {
	b.Outstanding += s.Outstanding
	b.OutstandingTokens += s.OutstandingTokens
	b.PendingTokens += s.PendingTokens
	b.Pending += s.Pending
	b.PendingWork = b.PendingWork.Plus(s.PendingWork)
	b.ActiveBlocks += s.ActiveBlocks
}

// gather writes the loads that the pool's policy sees: the own and the peers' together.
func (m *Machine) gather(now mono.Time, p *pool) {
	if !m.sharing.On {
		return // they are the own ones
	}
	m.peers.expire(now, m.sharing.Expiry)
	for _, slot := range p.view.Members {
		m.loads[slot] = m.merged(slot)
	}
	m.temper(now, p)
}

// merged adds what peers have at the slot to what the machine itself has. Of several
// gateways' oldest pending calls the one is worked on that was sent first, since its
// dispatch or the newest first token of any.
func (m *Machine) merged(slot selection.Slot) selection.Book {
	b, s, x := m.books[slot], &m.state[slot], &m.peers.sums[slot]
	sent := mono.Never
	if b.Pending > 0 {
		sent = m.calls[s.firstWait].dispatched
	}
	if x.Pending > 0 && x.headSent < sent {
		b.Head, b.HeadSilent, b.HeadSince = x.Head, x.HeadSilent, max(x.headSent, s.lastFirst)
	}
	if b.Pending > 0 || x.Pending > 0 {
		b.HeadSince = max(b.HeadSince, x.lastFirst)
	}
	x.addTo(&b)
	return b
}
