package flow

import (
	"slices"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// telling is what the machine has to tell its peers.
type telling struct {
	number    uint64 // of the newest word
	next      mono.Time
	refreshAt mono.Time
	changed   []bool // by slot: the load has changed since it was told
	again     []bool // by slot: since it was told again; a word that is lost must not be the last
	anything  bool   // of changed
	anyAgain  bool   // of again
	prompts   []Word
	blocks    []kvblock.Hash // that prompts point to
	words     []Word         // of the newest Tell
	untold    int64          // prompts that were too many at one instant
}

// grow makes room for so many slots.
func (t *telling) grow(slots int) {
	for len(t.changed) < slots {
		t.changed, t.again = append(t.changed, false), append(t.again, false)
	}
}

// touch notes that the load at the slot has changed.
func (m *Machine) touch(slot selection.Slot) {
	if m.sharing.On {
		t := &m.telling
		t.changed[slot], t.again[slot], t.anything, t.anyAgain = true, true, true, true
	}
}

// mention has the peers told of a prompt that was sent to the call's endpoint, or is held there.
func (m *Machine) mention(kind WordKind, c *call) {
	t := &m.telling
	if !m.sharing.On {
		return
	}
	if len(t.prompts) >= MostPrompts {
		t.untold++
		return
	}
	blocks := c.request.Blocks[:min(len(c.request.Blocks), MostWordBlocks)]
	if kind == WordHeld && !m.fits(c) {
		blocks = nil
	}
	from := len(t.blocks)
	t.blocks = append(t.blocks, blocks...)
	t.number++
	w := Word{
		Kind: kind, Peer: m.sharing.Peer, Number: t.number, Slot: c.slot, Generation: m.endpoints[c.slot].Generation,
		Blocks: t.blocks[from:len(t.blocks):len(t.blocks)],
	}
	if kind == WordHeld {
		w.Work = c.work
	}
	t.prompts = append(t.prompts, w)
}

// speak tells the peers what has changed, now or once it is time again. It ends every Step.
func (m *Machine) speak(now mono.Time) {
	t := &m.telling
	if !m.sharing.On {
		return
	}
	if (m.charged > 0 || t.anyAgain) && now >= t.refreshAt {
		for slot := range m.books {
			if m.books[slot].Outstanding > 0 || t.again[slot] {
				t.changed[slot], t.again[slot], t.anything = true, false, true
			}
		}
		t.anyAgain, t.refreshAt = false, now.Add(m.sharing.Refresh)
	}
	full := len(t.prompts) >= MostPrompts || len(t.blocks) >= MostBlocks
	switch {
	case (t.anything || len(t.prompts) > 0) && (now >= t.next || full):
		m.tell(now)
	case t.anything || len(t.prompts) > 0:
		m.requestWake(t.next)
	}
	if m.charged > 0 || t.anyAgain {
		m.requestWake(t.refreshAt)
	}
}

// tell makes words of what has changed.
func (m *Machine) tell(now mono.Time) {
	t := &m.telling
	t.words, t.prompts, t.blocks = t.prompts, nil, nil
	for slot := range m.books {
		if !t.changed[slot] {
			continue
		}
		t.changed[slot] = false
		t.number++
		t.words = append(t.words, Word{
			Kind: WordLoad, Peer: m.sharing.Peer, Number: t.number,
			Slot: selection.Slot(slot), Generation: m.endpoints[slot].Generation, Share: m.share(now, selection.Slot(slot)),
		})
	}
	t.anything, t.next = false, now.Add(m.sharing.Every)
	m.actions = append(m.actions, Action{Kind: Tell})
}

// share returns what this gateway has at the slot.
func (m *Machine) share(now mono.Time, slot selection.Slot) Share {
	b, s := &m.books[slot], &m.state[slot]
	x := Share{
		Outstanding: b.Outstanding, OutstandingTokens: b.OutstandingTokens, PendingTokens: b.PendingTokens,
		Pending: b.Pending, PendingWork: b.PendingWork, ActiveBlocks: b.ActiveBlocks, Head: b.Head, HeadSilent: b.HeadSilent, LastFirst: -1,
	}
	if s.firstWait != none {
		x.HeadSent = now.Sub(m.calls[s.firstWait].dispatched)
	}
	if s.answered {
		x.LastFirst = now.Sub(s.lastFirst)
	}
	return x
}

// Words hands out what the peers are to be told, after a Tell action and before the next
// one. They are the caller's.
func (m *Machine) Words() []Word {
	w := m.telling.words
	m.telling.words = nil
	return w
}

// retell gives the machine what its configuration says of peers. Whose words are new gets
// all of them again; a gateway that is alone forgets what it heard.
func (m *Machine) retell(c Sharing) {
	m.telling.grow(len(m.endpoints))
	m.peers.grow(len(m.endpoints))
	if !c.On {
		m.sharing, m.loads = c, m.books
		m.telling = telling{number: m.telling.number}
		m.peers = peers{}
		m.peers.grow(len(m.endpoints))
		m.telling.grow(len(m.endpoints))
		return
	}
	if !m.sharing.On || c.Peer != m.sharing.Peer {
		m.loads = slices.Clone(m.books)
		for slot := range m.books {
			m.telling.again[slot] = m.books[slot].Outstanding > 0
		}
		m.telling.anyAgain, m.telling.refreshAt = m.charged > 0, 0
	}
	for len(m.loads) < len(m.books) {
		m.loads = append(m.loads, selection.Book{})
	}
	m.sharing = c
}

// tellsOf reports whether a report changes what peers are told.
func (r *report) tellsOf() bool {
	return r.kind == reportFirst || r.kind == reportDone || r.kind == reportLeft
}

// since returns the instant that was so long before another one, no earlier than the epoch.
func since(at mono.Time, d time.Duration) mono.Time { return max(at.Add(-d), 0) }
