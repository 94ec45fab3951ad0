package flow

import (
	"slices"

	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/prefix"
)

// A shadow is a second policy of a pool. It ranks the same calls among the same candidates,
// learns from the same answers and decides nothing: a canary that no call pays for (article
// section 15). What it says holds for the calls as the pool's own policy places them. Where it
// would have placed them otherwise, caches and queues would have come to be others; how that
// ends, a simulation of both tells.

// mostShadowReasons bounds the reasons that are counted apart; what is beyond is otherReason.
const mostShadowReasons = 16

const otherReason selection.Reason = "other"

// ShadowState is what has come of a shadow since it was turned on.
type ShadowState struct {
	Policy string
	Since  mono.Time
	ShadowCount
	Reasons []ShadowReason // by the shadow's reason, in the order in which they first came
}

// ShadowReason is what has come of the picks for which the shadow gave a reason.
type ShadowReason struct {
	Reason selection.Reason
	ShadowCount
}

// ShadowCount counts picks. The sums are over those that differ: what the shadow's endpoint had
// more than the real one, negative where it had less.
type ShadowCount struct {
	Picks, Agreed int64
	OverlapTokens int64 // believed to be there of the call's prompt; 0 unless one of the two policies uses overlap
	Outstanding   int64 // calls accepted and not finished
}

func (c *ShadowCount) add(agreed bool, overlap, outstanding int64) {
	c.Picks++
	if agreed {
		c.Agreed++
		return
	}
	c.OverlapTokens += overlap
	c.Outstanding += outstanding
}

// shadow is the policy and what is counted for it alone, so that nothing the pool's own policy
// or the peers see depends on it.
type shadow struct {
	ranker
	view   selection.View
	random seed.Rand
	tally  ShadowState

	// By slot.
	scores  []float64
	books   []selection.Book // View.Book where it differs from the pool's
	pending []selection.Work // of the pool's own calls, as the shadow believes it
	inUse   []int32          // View.Active
	blocks  []int64          // Book.ActiveBlocks

	active prefix.Active // where the shadow uses it
	calls  []shadowed    // by the machine's record
}

// shadowed is what a pool's shadow goes by of a call that was sent.
type shadowed struct {
	work, ahead selection.Work // as call has them
	occupies    bool           // its blocks are counted among the shadow's
}

// Shadow has a second policy rank the pool's calls beside its own, from the next pick on; nil
// ends that. It reports whether there is a pool of that name. p must be the machine's alone and
// is called as the pool's own policy is, so a pick takes about the sum of both.
//
// The shadow sees the View that the pool's policy sees, with what it uses and that one does
// not: overlap, blocks in use, adapters. It draws from a stream of its own. It begins with
// nothing learned, and where no policy uses overlap, with an empty prefix index, which is kept
// for as long as the shadow is on. A reconfiguration keeps the shadow of a pool that stays.
func (m *Machine) Shadow(name, policyName string, p selection.Policy) bool {
	i := slices.IndexFunc(m.pools, func(x *pool) bool { return x.name == name })
	if i < 0 {
		return false
	}
	at := m.pools[i]
	at.shadow = nil
	if p != nil {
		at.shadow = &shadow{ranker: newRanker(policyName, p), tally: ShadowState{Policy: policyName, Since: m.last}}
		at.shadow.begin(m, at)
	}
	m.reindex(m.prefixing)
	m.rebook()
	return true
}

// begin counts the calls that run in the pool.
func (x *shadow) begin(m *Machine, p *pool) {
	x.bind(m)
	for i := range m.calls {
		c := &m.calls[i]
		if c.phase != running || m.state[c.slot].pool != p {
			continue
		}
		s := x.call(int32(i))
		*s = shadowed{work: c.work, ahead: c.ahead}
		if c.pending {
			x.pending[c.slot] = x.pending[c.slot].Plus(c.work)
		}
		x.occupy(s, c)
	}
}

// bind makes room for all slots.
func (x *shadow) bind(m *Machine) {
	n := len(m.endpoints)
	x.scores = make([]float64, n)
	x.books = make([]selection.Book, n)
	x.inUse = make([]int32, n)
	for len(x.pending) < n {
		x.pending, x.blocks = append(x.pending, selection.Work{}), append(x.blocks, 0)
	}
}

// look writes the view: the pool's, with what the shadow alone uses.
func (x *shadow) look(m *Machine, p *pool, c *call) {
	x.view = p.view
	v := &x.view
	v.Scores = x.scores[:len(v.Candidates)]
	if x.usesOverlap && !p.usesOverlap {
		m.index.Find(v.Now, c.request.Blocks, prefix.Overlaps{Believed: m.overlap, Held: m.held})
		m.mistrust()
		v.Overlap, v.Held = m.overlap, m.held
	}
	if x.usesActive && !p.usesActive {
		x.active.Match(c.request.Blocks, x.inUse)
		v.Active = x.inUse
	}
	if x.usesAdapters && !p.usesAdapters {
		m.adapters.match(c.request.Adapter)
		v.AdapterCalls, v.Adapters = m.adapters.calls, m.adapters.distinct
	}
	if x.usesOverlap && !p.usesOverlap || x.usesActive && !p.usesActive {
		for _, slot := range v.Members {
			x.books[slot] = x.book(m, slot)
		}
		v.Book = x.books
	}
}

// book is what the pool's policy sees of the slot's load, with the work and the blocks of the
// own calls as the shadow counts them.
func (x *shadow) book(m *Machine, slot selection.Slot) selection.Book {
	b, own, s := m.loads[slot], &m.books[slot], &m.state[slot]
	if b.Head == own.Head && s.firstWait != none { // it is no peer's
		b.Head = x.call(s.firstWait).work
	}
	b.PendingWork = b.PendingWork.Minus(own.PendingWork).Plus(x.pending[slot])
	b.ActiveBlocks += x.blocks[slot] - own.ActiveBlocks
	return b
}

// pick lets the shadow choose for a call that is about to go to the real candidate, and notes
// its choice in the decision, which is nil where nobody asked for one.
func (x *shadow) pick(m *Machine, p *pool, c *call, real int, d *selection.Decision) {
	x.look(m, p, c)
	v := &x.view
	var parts [][]selection.Part
	if d != nil { // before the policy books what it picks
		if e, ok := selection.As[selection.Explainer](x.policy); ok {
			parts = e.Explain(v, &c.request)
		}
	}
	x.random = seed.New(m.seed, seed.Shadow, uint64(c.request.ID), uint64(c.attempt))
	choice := x.policy.Pick(v, &c.request, &x.random)
	agreed := x.count(v, &c.request, choice, real)
	if d == nil {
		return
	}
	d.Shadow = &selection.Shadow{
		Policy: x.policyName, Reason: choice.Reason, Chosen: choice.Index, Agrees: agreed, Predicted: choice.Predicted,
		Scores: slices.Clone(v.Scores), OverlapTokens: make([]int, len(v.Candidates)), Parts: parts,
	}
	for i, slot := range v.Candidates {
		d.Shadow.OverlapTokens[i] = c.request.Tokens(int(selection.OverlapAt(v.Overlap, slot)))
	}
}

// count adds a pick to the tally and reports whether the two agree: of equals each draws its own.
func (x *shadow) count(v *selection.View, q *selection.Request, choice selection.Choice, real int) bool {
	mine, its := v.Candidates[choice.Index], v.Candidates[real]
	overlap := int64(q.Tokens(int(selection.OverlapAt(v.Overlap, mine)))) - int64(q.Tokens(int(selection.OverlapAt(v.Overlap, its))))
	outstanding := int64(v.Book[mine].Outstanding) - int64(v.Book[its].Outstanding)
	agreed := mine == its || overlap == 0 && outstanding == 0 && v.Scores[choice.Index] == v.Scores[real]
	t := &x.tally
	t.add(agreed, overlap, outstanding)
	reason := choice.Reason
	i := slices.IndexFunc(t.Reasons, func(r ShadowReason) bool { return r.Reason == reason })
	if i < 0 && len(t.Reasons) >= mostShadowReasons {
		reason = otherReason
		i = slices.IndexFunc(t.Reasons, func(r ShadowReason) bool { return r.Reason == reason })
	}
	if i < 0 {
		i = len(t.Reasons)
		t.Reasons = append(t.Reasons, ShadowReason{Reason: reason})
	}
	t.Reasons[i].add(agreed, overlap, outstanding)
	return agreed
}

// call returns what is known of the call with the record.
func (x *shadow) call(i int32) *shadowed {
	for len(x.calls) <= int(i) {
		x.calls = append(x.calls, shadowed{})
	}
	return &x.calls[i]
}

// charge counts a call that is sent. own is this gateway's pending work at the endpoint and
// found what the call finds there, both without it.
func (x *shadow) charge(i int32, c *call, own, found *selection.Book) {
	s := x.call(i)
	*s = shadowed{
		work:  c.request.Work(selection.OverlapAt(x.view.Overlap, c.slot)),
		ahead: found.PendingWork.Minus(own.PendingWork).Plus(x.pending[c.slot]),
	}
	x.pending[c.slot] = x.pending[c.slot].Plus(s.work)
	x.occupy(s, c)
}

// served takes a call out of those that wait for their first content.
func (x *shadow) served(i int32, c *call) {
	x.pending[c.slot] = x.pending[c.slot].Minus(x.call(i).work)
}

// occupy counts a running call's blocks among those in use.
func (x *shadow) occupy(s *shadowed, c *call) {
	if x.usesActive {
		s.occupies = true
		x.blocks[c.slot] += x.active.Add(c.slot, c.request.Blocks)
	}
}

// release takes an attempt's blocks out again.
func (x *shadow) release(i int32, c *call) {
	if s := x.call(i); s.occupies {
		s.occupies = false
		x.blocks[c.slot] -= x.active.Remove(c.slot, c.request.Blocks)
	}
}

// sample is the call's as the shadow believes it.
func (x *shadow) sample(i int32, c *call) selection.Sample {
	s := c.sample()
	s.Own, s.Ahead = x.call(i).work, x.call(i).ahead
	return s
}

// describe returns what has come of the shadow.
func (x *shadow) describe() *ShadowState {
	s := x.tally
	s.Reasons = slices.Clone(s.Reasons)
	return &s
}
