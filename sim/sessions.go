package sim

import (
	"cmp"
	"container/heap"
	"fmt"
	"iter"
	"time"

	"kvasir/client/workload"
	"kvasir/engine"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// Clock says when the later calls of a session come.
type Clock uint8

// The clocks.
const (
	// ClosedLoop sends a call once those have ended that it waits for, and its gap is over: a
	// slow answer delays what follows it, as it does with people and agents.
	ClosedLoop Clock = iota
	// Recorded sends every call at the instant that the trace has, whatever became of those
	// before: an open loop within sessions, too.
	Recorded
)

// String returns the clock's name on the command line.
func (c Clock) String() string { return [...]string{"closed-loop", "recorded"}[c] }

// SessionsConfig is a workload and how it is sent.
type SessionsConfig struct {
	Source            workload.Source
	Clock             Clock
	Routers           int     // each session goes to one of so many, drawn at random
	Seed              uint64  // of that draw
	Rate              float64 // sessions come so many times as fast as the source says; above 0
	EngineBlockTokens int     // of the engines' KV blocks
	Clients           Clients // who wait for the answers

	// Ended, where set, hears of each session's end.
	Ended func(*SessionRecord)

	// Exhausted, where set, hears of the instant of the last call that comes by itself, when
	// that one comes.
	Exhausted func(last mono.Time)
}

// SessionRecord is what became of a session.
type SessionRecord struct {
	ID, Class string
	workload.Terms
	At, End mono.Time // of its start, and of its last call's end
	Calls   int       // that were sent
	Skipped int       // that were not, because one that they wait for failed
	Failed  bool      // a call of it did
}

// Sessions is a Feed of a workload. Close it when the run is over.
type Sessions struct {
	cfg    SessionsConfig
	next   func() (workload.Session, error, bool)
	stop   func()
	coming *session // read, and not begun
	roots  roots    // of begun sessions: calls that come by themselves
	begun  int
	calls  uint64        // ids given
	last   mono.Time     // when the latest call came by itself
	latest time.Duration // when the latest session came, by the source's clock
	err    error
}

// session is one that has begun.
type session struct {
	record  SessionRecord
	calls   []workload.Call
	waits   []int32   // by call: how many it still waits for
	then    [][]int32 // by call: which ones wait for it, in their order
	steps   []step    // by call: what its Tag points to
	running int
	router  int
	key     kvblock.Hash
	tenant  kvblock.Hash
	at      mono.Time
}

// tenant returns the hash by which a gateway knows a tenant; 0 for none.
func tenant(name string) kvblock.Hash {
	if name == "" {
		return 0
	}
	return max(kvblock.Seed("tenant", name), 1)
}

// step is a call of a session; a pointer to it is the Tag of its Call.
type step struct {
	session *session
	index   int
	tries   int       // that have failed
	since   mono.Time // when the first of those came
}

// root is a call that comes by itself.
type root struct {
	at    mono.Time
	order uint64 // of one instant, what was planned first comes first
	*step
}

// roots is a heap.
type roots struct {
	list    []root
	planned uint64
}

func (r *roots) Len() int { return len(r.list) }
func (r *roots) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(r.list[i].at, r.list[j].at), cmp.Compare(r.list[i].order, r.list[j].order)) < 0
}
func (r *roots) Swap(i, j int) { r.list[i], r.list[j] = r.list[j], r.list[i] }
func (r *roots) Push(x any)    { r.list = append(r.list, x.(root)) }
func (r *roots) Pop() any {
	last := r.list[len(r.list)-1]
	r.list = r.list[:len(r.list)-1]
	return last
}

// NewSessions returns the workload's Feed.
func NewSessions(c SessionsConfig) (*Sessions, error) {
	switch {
	case !(c.Rate > 0):
		return nil, fmt.Errorf("rate is %v; allowed: above 0", c.Rate)
	case c.Routers < 1:
		return nil, fmt.Errorf("routers is %d; allowed: at least 1", c.Routers)
	}
	s := &Sessions{cfg: c}
	s.next, s.stop = iter.Pull2(c.Source.Sessions)
	s.read()
	return s, nil
}

// Close ends the reading of the source. It returns the error that the source ended with.
func (s *Sessions) Close() error {
	s.stop()
	return s.err
}

// read takes the next session from the source.
func (s *Sessions) read() {
	s.coming = nil
	w, err, ok := s.next()
	if !ok || err != nil {
		s.err = err
		return
	}
	if w.At < s.latest {
		s.err = fmt.Errorf("session %q comes at %v and the one before it at %v; allowed: in order", w.ID, w.At, s.latest)
		return
	}
	s.latest = w.At
	s.begun++
	at := mono.Time(mono.FromSeconds(w.At.Seconds() / s.cfg.Rate))
	r := seed.New(s.cfg.Seed, seed.Route, uint64(s.begun), 0)
	s.coming = &session{
		record: SessionRecord{ID: w.ID, Class: w.Class, Terms: w.Terms, At: at}, calls: w.Calls, waits: make([]int32, len(w.Calls)),
		tenant: tenant(w.Tenant), steps: make([]step, len(w.Calls)), router: r.Intn(s.cfg.Routers), key: kvblock.Seed(w.ID), at: at,
	}
	for i := range s.coming.steps {
		s.coming.steps[i] = step{session: s.coming, index: i}
	}
}

// begin puts the calls that come by themselves with those of sessions before.
func (s *Sessions) begin(x *session) {
	closed := s.cfg.Clock == ClosedLoop
	if closed && len(x.calls) > 1 {
		x.then = make([][]int32, len(x.calls))
	}
	for i := range x.calls {
		c := &x.calls[i]
		gap := c.Offset
		if closed {
			x.waits[i] = int32(len(c.After))
			for _, before := range c.After {
				x.then[before] = append(x.then[before], int32(i))
			}
			if len(c.After) > 0 {
				continue
			}
			gap = c.Gap
		}
		heap.Push(&s.roots, root{x.at.Add(gap), s.roots.planned, &x.steps[i]})
		s.roots.planned++
		x.running++
	}
}

// Next implements Feed.
func (s *Sessions) Next(c *Call) bool {
	for s.coming != nil && (len(s.roots.list) == 0 || s.coming.at < s.roots.list[0].at) {
		x := s.coming
		s.read()
		s.begin(x)
	}
	if len(s.roots.list) == 0 {
		return false
	}
	r := heap.Pop(&s.roots).(root)
	s.last = max(r.at, s.last+1) // every arrival has a nanosecond of its own
	s.fill(c, r.step, s.last)
	if s.coming == nil && len(s.roots.list) == 0 && s.cfg.Exhausted != nil {
		s.cfg.Exhausted(s.last)
	}
	return true
}

// Ended implements Feed.
func (s *Sessions) Ended(now mono.Time, r *Record, follow func() *Call) {
	st := r.Tag.(*step)
	x := st.session
	if at, ok := s.cfg.Clients.again(now, r, s.cfg.Seed, st.tries); ok {
		r.Again = true
		st.tries, st.since = st.tries+1, r.Wanted()
		s.fill(follow(), st, at)
		return
	}
	x.running--
	x.record.Calls++
	x.record.End = now
	x.record.Failed = x.record.Failed || !r.Succeeded()
	if x.then != nil && r.Succeeded() {
		for _, i := range x.then[st.index] {
			if x.waits[i]--; x.waits[i] == 0 {
				x.running++
				s.fill(follow(), &x.steps[i], now.Add(x.calls[i].Gap))
			}
		}
	}
	if x.running == 0 && s.cfg.Ended != nil {
		x.record.Skipped = len(x.calls) - x.record.Calls
		s.cfg.Ended(&x.record)
	}
}

// fill makes a session's call one of the run's.
func (s *Sessions) fill(c *Call, st *step, at mono.Time) {
	s.calls++
	w := &st.session.calls[st.index]
	tokens := s.cfg.Source.BlockTokens
	q, p := &c.Request, &c.Prompt
	c.At, c.Router, c.Tag, c.Since = at, st.session.router, st, st.since
	if p := s.cfg.Clients.Patience; p > 0 {
		c.TiresAt = at.Add(p)
	}
	c.Request.Retry = st.tries > 0
	q.ID, q.Stream, q.InputTokens, q.Key = selection.CallID(s.calls), w.OutputTokens > 0, w.PromptTokens, st.session.key
	q.Conversation = st.session.key
	terms := &st.session.record.Terms
	q.Tenant, q.Share, q.Priority = st.session.tenant, terms.Share, int32(terms.Priority)
	q.Deadline, q.Firm = terms.Deadline, terms.Deadline > 0
	if w.OutputTokens == 0 {
		q.Kind = selection.Embed
	}
	p.PromptTokens, p.OutputTokens, p.Reason = w.PromptTokens, w.OutputTokens, engine.Stop
	if w.Adapter != "" {
		q.Adapter = signal.Adapter(w.Adapter)
		p.Adapter = q.Adapter
	}
	if tokens == 0 {
		q.Head = q.Key
		return
	}
	q.Blocks, q.BlockTokens = workload.RouterBlocks(q.Blocks, w, tokens), workload.RouterBlockTokens
	q.Head = head(w, q.Key)
	if q.Adapter != 0 {
		q.Head = workload.Extend(q.Head, uint64(q.Adapter))
	}
	chain, n := workload.EngineBlocks(p.Blocks, w, tokens, s.cfg.EngineBlockTokens)
	p.Blocks, p.AnswerBlocks = chain[:n], chain[n:]
}

// head names the whole prompt. Of a part behind its last full block only the length is
// known; a prompt without a full block is taken to be its session's own.
func head(c *workload.Call, session kvblock.Hash) kvblock.Hash {
	parent := session
	if n := len(c.Blocks); n > 0 {
		parent = c.Blocks[n-1]
	}
	return workload.Extend(parent, uint64(c.PromptTokens))
}
