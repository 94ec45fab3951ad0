// Package flow is layer 2 (gateway), pure: the life of a model's calls as one state
// machine over all the model's pools. Step takes what happened and returns what must be
// done; the gateway, the Envoy picker and the simulator drive the same machine.
//
// Two rules make a live run and a simulated one the same. First, whatever depends on
// order is decided at an instant of its own: an arrival, the end of a backoff, or a
// wake-up that the machine asks for one nanosecond after a failure. Second, a report
// (a signal, a first token, an end) is only queued by Step; it is folded into the state
// once the clock is past the report's instant, in the order (instant, kind, slot,
// call, attempt, sequence). So it does not matter in which order goroutines deliver what
// happened at the same moment.
package flow

import (
	"cmp"
	"slices"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/health"
	"kvasir/selection/prefix"
	"kvasir/selection/signal"
)

// Config describes one model. Pools are in order of preference: a lower one is used
// when no higher one has an endpoint in rotation that the call has not tried, and that
// does not want to be left alone. Where there is such a one, and the pool has a queue and no
// endpoint with room, the call waits there. A call that finds nobody in rotation, or has found dead
// everyone who is, may then go to an endpoint that is not: what was ejected a while ago
// may be well again, and there is nobody else to ask.
type Config struct {
	Seed    uint64 // root of all randomness
	Calls   int    // most calls in flight; 0: no bound
	Retry   attempt.Config
	Total   Purse               // of the retries of all models together; nil: each pool's own budget alone bounds them
	Hedge   attempt.HedgeConfig // a hedge counts among the attempts that Retry allows
	Health  health.Config
	Prefix  prefix.Config // used where a policy uses overlap
	SLO     selection.SLO // for the policies
	Sharing Sharing       // with other gateways; off by default
	Pools   []Pool

	// Explain attaches a full Decision to every dispatch, not only where a request asks.
	Explain bool
}

// Pool is one pool of a model.
type Pool struct {
	Name       string // unique within the model
	PolicyName string // as the catalogue has it; shown in decisions
	Policy     selection.Policy
	Queue      admission.Config       // of calls that wait for an endpoint with room; off: none does
	Overload   admission.Overload     // when calls are shed, and refused for their deadlines; zero: never
	Flights    admission.FlightConfig // of calls that wait for a sibling; off: none does, nor where the policy does not use overlap
	MaxAge     time.Duration          // signals older than this are unknown; 0: any age counts
	Breaker    []health.Rule          // the pool's own rules of what takes an endpoint out; see health.Config.Rules
	Misses     int                    // requests to the health path that must fail in a row; 0 as 1
	Endpoints  []Endpoint
}

// Endpoint is one endpoint of a pool.
type Endpoint struct {
	Name     string  // unique within the pool
	Weight   float64 // > 0
	Revision uint64  // another value under the same name is another endpoint
	Draining bool    // it gets no new calls; those that it has run to their end
}

// Machine holds the calls of one model. It is not safe for concurrent use: a driver
// that has several goroutines puts it under one lock, and reads its clock inside.
type Machine struct {
	seed      uint64
	bound     int
	retry     attempt.Config
	hedging   attempt.HedgeConfig
	health    health.Config
	prefixing prefix.Config
	explain   bool

	sharing Sharing
	telling telling
	peers   peers
	news    news

	pools []*pool
	index *prefix.Index // nil unless a policy or a shadow uses overlap

	active   prefix.Active // of the running calls of pools whose policies use it
	adapters *adapterBook  // nil unless a policy uses adapters

	// By slot.
	endpoints []selection.Endpoint
	books     []selection.Book // this gateway's own
	loads     []selection.Book // View.Book: with what peers have; books itself where there are none
	overlap   []int32
	inUse     []int32 // View.Active
	held      []int32
	state     []endpointState
	free      []selection.Slot // whose endpoints are gone

	calls    []call // records; free ones are linked through next
	freeCall int32  // head of the free list
	inFlight int
	charged  int // of those, with an attempt that is charged

	total     Purse
	hedges    *attempt.Budget
	pending   []report // of one instant, not folded yet
	verdicts  []Ticket // failed calls whose fate the next wake-up decides, in fold order
	backoffs  []backoff
	silenceAt mono.Time // when an endpoint may next be found silent; Never: none
	hedgeAt   mono.Time // when a call may next be hedged; Never: none is watched
	recallAt  mono.Time // when the recall of calls goes on; Never: none waits
	loadOnly  int       // endpoints whose beliefs are not relied on
	holding   int       // calls that wait in queues
	following int       // calls that wait for others that compute what they need
	followAt  mono.Time // when the patience of one of those may end; Never: none waits
	freedAt   mono.Time // when the one goes that was freed last
	admitAt   mono.Time // when a call that waits in a queue may be able to go; Never: nothing is known to come
	wakeAt    mono.Time // earliest wake-up asked for and not delivered; Never: none
	last      mono.Time
	random    seed.Rand     // of the pick under way; here, so that it need not be allocated
	end       selection.End // likewise
	actions   []Action
	carried   int // of actions, those that a Snapshot left for the next Step
}

// endpointState is what the machine alone knows of an endpoint.
type endpointState struct {
	pool       *pool // nil: the slot is free
	weight     float64
	revision   uint64
	draining   bool // no new calls
	leaving    bool // out of the configuration; gone once its calls are
	breaker    health.Breaker
	busyUntil  mono.Time // it is left alone till then
	asked      bool      // it has asked for that: it has no room
	fresh      bool      // it has not its whole share yet
	freshSince mono.Time
	darkUntil  mono.Time // what it reports of its load till then is not believed
	newest     int32     // of the running attempts, linked through calls in dispatch order
	firstWait  int32     // of those without content, the oldest; linked likewise
	lastWait   int32     // the newest
	unanswered int       // of the running attempts, those without content
	life       mono.Time // its last sign of life, or when it got the first of the unanswered
	unheard    int       // attempts in a row that were beaten and had brought nothing; of streams
	unheardAt  mono.Time // when the first of those was sent
	promptSeen int64     // prompt tokens of answers that reported how many were cached
	cachedSeen int64     // of those, found in the prefix cache
	dispatched int64     // attempts ever sent
	beaten     int64     // of those, overtaken by another attempt of their call
	restarts   int64
	pushes     int // answers of back-pressure in a row
	torn       int // answers in a row that broke after their first content
	doubts     int // failures in a row of which nobody knows whose they are

	// Of the running attempts without content, those whose first token will be seen.
	unstarted      selection.Work
	unstartedCalls int
	busySince      mono.Time // since when the newest first token of those, or their beginning
	speed          admission.Speed
	roomy          admission.Speed    // likewise, while its KV cache had room; see DemandState
	crammed        bool               // its KV cache was full by its newest report
	limit          admission.Gradient // on the calls in flight, of pools whose queue is adaptive
	preempting     admission.Rise

	answered  bool      // a first token was seen
	lastFirst mono.Time // the newest

	trust    signal.CacheTrust
	compared signal.Tokens // since the endpoint has the slot
}

type report struct {
	Event
	at       mono.Time
	sequence int
}

const none = -1

// New returns a machine for the configuration, which must be valid: at least one pool,
// each with a policy.
func New(c Config) *Machine {
	m := &Machine{
		seed: c.Seed, freeCall: none,
		silenceAt: mono.Never, hedgeAt: mono.Never, recallAt: mono.Never, admitAt: mono.Never, followAt: mono.Never, wakeAt: mono.Never,
	}
	m.configure(0, c)
	return m
}

// Step takes an event that happens now and returns what must be done. now must not go
// backwards. The slice is the machine's own, valid until the next Step.
func (m *Machine) Step(now mono.Time, e Event) []Action {
	m.actions = m.actions[:m.carried]
	m.carried = 0
	m.last = max(m.last, now)
	now = m.last
	m.fold(now)
	switch e.kind {
	case arrival:
		m.arrive(now, e.request)
	case wakeUp:
		m.wake(now)
	default:
		m.queue(now, e)
	}
	m.speak(now)
	return m.actions
}

// queue keeps a report until the clock is past its instant. A failure that another
// attempt may follow asks for the wake-up at which that is decided.
func (m *Machine) queue(now mono.Time, e Event) {
	r := report{Event: e, at: now, sequence: len(m.pending)}
	m.pending = append(m.pending, r)
	if m.needsVerdict(r) || m.holding > 0 && r.makesRoom() || m.following > 0 && r.ends() {
		m.requestWake(now + 1)
	}
	if m.holding > 0 && r.makesRoom() {
		m.admitAt = min(m.admitAt, now+1)
	}
	if m.sharing.On && r.tellsOf() {
		m.requestWake(max(now+1, m.telling.next))
	}
}

// fold applies the queued reports whose instant has passed. They are all of one
// instant: each Step folds what is older before it queues anything.
func (m *Machine) fold(now mono.Time) {
	if len(m.pending) == 0 || m.pending[0].at >= now {
		return
	}
	if len(m.pending) > 1 {
		slices.SortFunc(m.pending, compareReports)
	}
	for i := range m.pending {
		m.apply(&m.pending[i])
	}
	m.pending = m.pending[:0]
}

func compareReports(a, b report) int {
	return cmp.Or(
		cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.slot, b.slot),
		cmp.Compare(a.ticket.Call, b.ticket.Call),
		cmp.Compare(a.attempt, b.attempt),
		comparePeers(a.word, b.word),
		cmp.Compare(a.sequence, b.sequence),
	)
}

// comparePeers orders what peers have said: by who, and by their own order.
func comparePeers(a, b *Word) int {
	if a == nil || b == nil {
		return 0 // reports of one kind have both or neither
	}
	return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Number, b.Number))
}

func (m *Machine) apply(r *report) {
	switch r.kind {
	case reportSignal:
		m.learnLoad(r)
	case reportHealth:
		m.asked(r)
	case reportAlive:
		if m.has(r.slot, r.generation) {
			m.state[r.slot].life, m.state[r.slot].unheard = r.at, 0
		}
	case reportProgress:
		m.progress(r)
	case reportFirst:
		m.firstToken(r)
	case reportClaim:
		m.claimed(r)
	case reportDone:
		m.done(r)
	case reportLeft:
		m.left(r)
	case reportPeer:
		m.hear(r)
	}
}

// arrive places a new call, holds it where its pool has no room and a queue, or refuses it. Held
// calls of lower priority give way to it.
func (m *Machine) arrive(now mono.Time, q *selection.Request) {
	if now >= m.admitAt { // who waits and need not any more goes first
		for m.admit(now) {
		}
	}
	if m.full() && m.leastHeld(q.Priority) == none {
		m.askInVain(now, q)
		m.actions = append(m.actions, Action{Kind: Refuse, Reason: TooManyCalls, Ticket: Ticket{Call: q.ID}})
		return
	}
	i := m.newCall(q)
	m.calls[i].arrived = now
	p, f := m.dispatch(now, i)
	m.ask(now, i, p, f == sent)
	why, wait := NoReason, time.Duration(0)
	switch f {
	case nowhere:
		why = NoEndpoint
	case keptOut:
		why = Shed
	case late:
		why = DeadlineUnmet
	case noRoom:
		why, wait = m.refusal(now, i, p)
	}
	if why != NoReason {
		m.forget(i)
		m.actions = append(m.actions, Action{Kind: Refuse, Reason: why, Wait: wait, Ticket: Ticket{Call: q.ID}})
		return
	}
	if f == noRoom {
		m.giveWay(now, i, p)
	}
	if m.bound > 0 && m.inFlight > m.bound {
		m.shed(now, m.leastHeld(q.Priority))
	}
	if f != sent {
		m.wait(now, i, p, f)
		m.actions = append(m.actions, Action{Kind: Hold, Ticket: Ticket{Call: q.ID, index: i}, Pool: p.position})
	}
	m.hedges.Earn(now)
}

// full reports whether the model has as many calls in flight as it may.
func (m *Machine) full() bool { return m.bound > 0 && m.inFlight >= m.bound }

// fate is what becomes of a call that looks for an endpoint.
type fate uint8

const (
	nowhere fate = iota // there is nobody to wait for
	sent
	noRoom  // it is to wait until an endpoint of the pool has room
	sibling // it is to wait for a call of the pool that computes what it needs
	keptOut // it may be shed, and whoever could answer is saturated
	late    // it is new, and its first token would come after its deadline
	passed  // its deadline is over
)

// dispatch picks an endpoint for the call's current attempt and charges it in the same
// step, unless the call is to wait. It returns the pool that this is about.
func (m *Machine) dispatch(now mono.Time, i int32) (*pool, fate) {
	c := &m.calls[i]
	if c.request.Owned && !m.has(c.request.Owner, c.request.OwnerGeneration) {
		c.request.Owned = false
	}
	if now >= c.due() {
		return nil, passed
	}
	kept := false
	for among := rested; among <= everybody; among++ {
		if !c.mayAsk(among) {
			continue
		}
		for _, p := range m.pools {
			if c.failures(p) >= mostFailures || among == bothered && p.queue == nil && !c.mayBother() {
				continue
			}
			if (p.queue != nil || c.phase == running) && m.keepsOut(now, c, p) {
				if p.queue != nil {
					return p, noRoom
				}
				kept = true
				continue
			}
			if p.refresh(m, now, c, among) {
				if p.flights != nil && m.shouldFollow(now, c, p) {
					return p, sibling
				}
				if c.phase == backingOff && p.queue != nil && p.queue.Len() > 0 && among != everybody {
					m.admitAt = min(m.admitAt, now+1) // it takes its place among those who wait
					return p, noRoom
				}
				if c.due() != mono.Never {
					switch wait, own, known := m.soonest(now, c, p, p.view.Candidates); {
					case !known:
					case c.phase == running && m.tooLate(now, c, p, wait, own) && !m.beginsAtOnce(p, p.view.Candidates): // it is new
						return p, late
					case c.phase == held && now.Add(wait+own) > c.due(): // its place is worth more to the next one
						return p, passed
					}
				}
				c.resort = among == everybody
				m.pick(now, i, p)
				return p, sent
			}
			if p.roomless {
				return p, noRoom
			}
		}
	}
	if kept {
		return nil, keptOut
	}
	return nil, nowhere
}

// wait lets the call wait for the pool, as its fate says.
func (m *Machine) wait(now mono.Time, i int32, p *pool, f fate) {
	if f == sibling {
		m.follow(now, i, p)
	} else {
		m.hold(now, i, p)
	}
}

// pick lets the pool's policy choose among the candidates that its view lists.
func (m *Machine) pick(now mono.Time, i int32, pool *pool) {
	c := &m.calls[i]
	if c.phase == held {
		m.depart(now, i)
	}
	if pool.usesOverlap {
		m.index.Find(now, c.request.Blocks, prefix.Overlaps{Believed: m.overlap, Held: m.held})
		m.mistrust()
	}
	if pool.usesActive {
		m.active.Match(c.request.Blocks, m.inUse)
	}
	if pool.usesAdapters {
		m.adapters.match(c.request.Adapter)
	}
	m.gather(now, pool)
	m.random = seed.New(m.seed, seed.Pick, uint64(c.request.ID), uint64(c.attempt))
	asked := m.explain || c.request.Explain
	var d *selection.Decision
	if asked { // before the policy books what it picks
		d = m.decision(pool, c)
	}
	choice := pool.policy.Pick(&pool.view, &c.request, &m.random)
	slot := pool.view.Candidates[choice.Index]
	a := Action{
		Kind: Dispatch, Ticket: m.ticket(i), Attempt: c.attempt, Hedge: c.hedge,
		Pool: pool.position, Slot: slot, Generation: m.endpoints[slot].Generation, Wait: c.waited,
		Predicted: choice.Predicted, Progress: pool.fair(),
	}
	if asked {
		decide(d, &pool.view, choice)
		a.Decision = d
	}
	if pool.shadow != nil {
		pool.shadow.pick(m, pool, c, choice.Index, d)
	}
	m.lead(now, i, pool, slot)
	m.charge(now, i, slot)
	m.actions = append(m.actions, a)
}

// firstToken commits the call to its attempt.
func (m *Machine) firstToken(r *report) {
	i, c := m.running(r.ticket, r.attempt)
	if c == nil || c.committed || c.beaten {
		return
	}
	m.settle(r.at, i)
	m.learnLimit(r.at, c)
	c.committed = true
	s := &m.state[c.slot]
	m.learnFirst(s.pool, c, r.at.Sub(c.dispatched))
	s.unanswered--
	m.succeed(r.at, c)
	if c.showsStart() {
		m.passed(r.at, i)
		s.answered, s.lastFirst = true, r.at
	}
	if c.pending {
		m.served(r.at, i)
	}
	c.first = r.at
	m.touch(c.slot)
	m.mention(WordHeld, c)
	if m.index != nil && m.fits(c) {
		m.index.Hold(r.at, c.slot, c.request.Blocks)
	}
	m.landed(r.at, c)
	if l := s.pool.learner; l != nil && c.showsStart() {
		m.end.Sample = c.sample()
		l.Learn(&m.end.Sample)
	}
	if x := s.pool.shadow; x != nil && x.learner != nil && c.showsStart() {
		m.end.Sample = x.sample(i, c)
		x.learner.Learn(&m.end.Sample)
	}
}

// done releases an attempt that has ended. A failure before the first content leaves the
// call waiting for its verdict; every other end is the call's.
func (m *Machine) done(r *report) {
	i, c := m.running(r.ticket, r.attempt)
	if c == nil {
		return
	}
	s := &m.state[c.slot]
	if r.usage.CachedKnown {
		s.promptSeen += int64(r.usage.Prompt)
		s.cachedSeen += int64(r.usage.Cached)
	}
	if c.beaten {
		m.outrun(r, i)
		return
	}
	if r.outcome == attempt.Success {
		m.settle(r.at, i)
	}
	if r.usage.CachedKnown && c.committed {
		m.compare(r.at, c, r.usage)
	}
	if l := s.pool.endLearner; l != nil && c.committed && r.outcome == attempt.Success {
		m.end = selection.End{Sample: c.sample(), Ended: r.at, ShowsStart: c.showsStart(), Usage: r.usage}
		l.LearnEnd(&m.end)
	}
	if x := s.pool.shadow; x != nil && x.endLearner != nil && c.committed && r.outcome == attempt.Success {
		m.end = selection.End{Sample: x.sample(i, c), Ended: r.at, ShowsStart: c.showsStart(), Usage: r.usage}
		x.endLearner.LearnEnd(&m.end)
	}
	if r.outcome == attempt.Success {
		s.pool.service.Learn(r.at.Sub(c.dispatched))
		if c.committed && c.showsStart() {
			s.pool.staying.Learn(r.at.Sub(c.first))
		}
		m.earn(r.at, s.pool, c)
	}
	m.square(c, r.outcome, r.usage)
	m.judge(r, c)
	tried := trial{s.pool, c.slot, m.endpoints[c.slot].Generation, r.outcome, s.suspect(m.health), c.committed}
	m.release(r.at, i)
	root := m.root(c)
	if root.settled && !m.resume(r, c) {
		m.conclude(i)
		return
	}
	// A stale connection says nothing about its endpoint: the call may go there again.
	if r.outcome != attempt.StaleConnection {
		root.tried[root.nTried] = tried
		root.nTried++
	}
	if c.hedge {
		tried.pool.hedging.Failed++
	}
	if r.outcome.Pushed() && root.pushed == 0 {
		root.pushed = r.at
	}
	root.final = root.final || !r.outcome.Retryable()
	if m.twinRuns(c) {
		m.retire(i)
		return
	}
	if root.final {
		m.conclude(i)
		return
	}
	m.rejoin(i)
	root.phase, root.last, root.wait = failed, r.outcome, r.wait
	m.verdicts = append(m.verdicts, r.ticket)
}

// left ends a call whose client is gone, whatever it was doing.
func (m *Machine) left(r *report) {
	c := m.lookup(r.ticket)
	if c == nil {
		return
	}
	switch c.phase {
	case running:
		if c.probe && !c.committed {
			m.probeLost(r.at, c.slot)
		}
		if c.beaten {
			m.waste(c)
		}
		m.release(r.at, r.ticket.index)
	case spent: // its hedge runs on
	case held:
		if c.follows != nil {
			m.unfollow(r.at, r.ticket.index)
		} else {
			m.unhold(r.at, r.ticket.index)
		}
	}
	m.leaveTwin(r.at, c)
	m.forget(r.ticket.index)
}
