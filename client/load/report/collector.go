package report

import (
	"slices"
	"strings"
	"time"

	"kvasir/api"
)

// Collector adds up the samples of a run. Its memory is bounded by constants, unless it
// keeps details. It is not safe for concurrent use.
type Collector struct {
	slo      SLO
	detailed bool
	details  []detail

	inFlight int
	timeline timeline
	result   Result
	groups   [2]groups // by endpoint, by class
	spans    []namedSpan
}

// NewCollector returns a collector that judges calls by an SLO. Where it is detailed it
// keeps every call and every gap, and its memory grows with the run.
func NewCollector(slo SLO, detailed bool) *Collector {
	return &Collector{slo: slo, detailed: detailed}
}

// Begin notes that a call is sent. Add must follow, at the call's end.
func (c *Collector) Begin(s *Sample) {
	c.inFlight++
	c.result.Peak = max(c.result.Peak, c.inFlight)
	c.timeline.at(s.Intended).intended++
	b := c.timeline.at(s.Sent)
	b.sent++
	b.inFlight = max(b.inFlight, c.inFlight)
	c.result.LastIntended = max(c.result.LastIntended, s.Intended)
	c.result.LastSent = max(c.result.LastSent, s.Sent)
	c.result.Sent++
	c.result.Lag.Add(s.Ready - s.Intended)
	c.result.Held.Add(s.Sent - s.Ready)
}

// Add counts a call that has ended. The sample's outputs may be used again afterwards.
func (c *Collector) Add(s *Sample) {
	r := &c.result
	if s.Failure == Unsent {
		r.Unsent++
		return
	}
	c.inFlight--
	r.Duration = max(r.Duration, s.End)
	if s.Failure == Unfinished {
		r.Unfinished++
		return
	}
	r.BadEvents += s.BadEvents
	if c.detailed {
		c.details = append(c.details, detailOf(s))
	}
	b := c.timeline.at(s.End)
	if s.Failure != "" {
		b.failed++
		r.Failed++
		c.fail(s)
	} else {
		b.completed++
		r.Completed++
		c.succeed(s)
	}
	c.groups[byEndpoint].add(s.Endpoint, s)
	c.groups[byClass].add(s.Class, s)
}

// fail counts a failed call by its kind. Nothing of it enters a latency.
func (c *Collector) fail(s *Sample) {
	for i := range c.result.Failures {
		if f := &c.result.Failures[i]; f.Kind == s.Failure {
			f.Calls++
			return
		}
	}
	c.result.Failures = append(c.result.Failures, FailureCount{s.Failure, 1, s.Detail})
}

func (c *Collector) succeed(s *Sample) {
	r := &c.result
	r.TTFT.addBoth(s, s.TTFT())
	r.E2E.addBoth(s, s.E2E())
	if s.Visible > 0 {
		r.Visible.Add(s.Visible - s.Intended)
	}
	if tpot, ok := s.TPOT(); ok {
		r.TPOT.Add(tpot)
	}
	if each, ok := s.per(s.E2E()); ok {
		r.NTPOT.Actual.Add(each)
		each, _ = s.per(s.End - s.Intended)
		r.NTPOT.Intended.Add(each)
	}
	s.Outputs.addGaps(&r.ITL)
	for i, n := range s.Outputs.seconds {
		c.timeline.at((s.Outputs.First/time.Second + time.Duration(i)) * time.Second).outputs += int(n)
	}
	b := c.timeline.at(s.Intended)
	ttft := s.Outputs.First - s.Intended
	b.ttft, b.ttftMost, b.ttfts = b.ttft+ttft, max(b.ttftMost, ttft), b.ttfts+1

	if c.slo.met(s, 0) {
		r.Good.Actual++
	}
	if c.slo.met(s, s.held()) {
		r.Good.Intended++
	}
	r.StreamedOutputs += s.Outputs.N
	r.Tokens.add(s)
	for _, span := range s.Spans {
		c.addSpan(span)
	}
}

// AddSession counts a session that has ended.
func (c *Collector) AddSession(s SessionSample) {
	r := &c.result
	r.Sessions++
	r.Skipped += s.Skipped
	if s.Failed {
		r.FailedSessions++
		return
	}
	r.Completion.Add(s.End - s.Intended)
	if s.Class != "" {
		c.groups[byClass].group(s.Class).completion.Add(s.End - s.Intended)
	}
}

// Both are two distributions of one quantity.
type Both struct {
	Intended Distribution // from when calls should have been sent
	Actual   Distribution // from when they were
}

func (b *Both) addBoth(s *Sample, actual time.Duration) {
	b.Actual.Add(actual)
	b.Intended.Add(actual + s.held())
}

// Tokens are sums over the calls that succeeded.
type Tokens struct {
	Input, Output int // as usage reports them, else as below
	NoInput       int // calls whose usage has no input tokens: the workload's count was taken
	NoOutput      int // calls whose usage has no output tokens: the streamed outputs were

	// Cached is the part of Input that came from a cache, of the calls whose usage says so;
	// CachedOf is their input.
	Cached, CachedOf int
}

func (t *Tokens) add(s *Sample) {
	n, reported := s.Tokens()
	t.Output += n
	if !reported {
		t.NoOutput++
	}
	input := s.Usage.Input
	if input == api.Unknown {
		input = s.Prompt
		t.NoInput++
	}
	t.Input += input
	if s.Usage.Cached != api.Unknown {
		t.Cached, t.CachedOf = t.Cached+s.Usage.Cached, t.CachedOf+input
	}
}

// FailureCount is how many calls have failed in one way, with the words of the first.
type FailureCount struct {
	Kind    Failure
	Calls   int
	Example string
}

// What groups are by.
const (
	byEndpoint = iota
	byClass
)

// mostGroups bounds the names of endpoints or classes that are told apart; calls of further
// ones count together under otherGroup.
const (
	mostGroups = 256
	otherGroup = "(others)"
)

// Group is the calls of one endpoint, or of one class.
type Group struct {
	Name              string
	Completed, Failed int
	TTFT, E2E         Distribution // from the intended send
	Tokens            Tokens
	completion        Distribution // of the sessions of a class
}

type groups []*Group

// group returns the group of a name, in the order in which names came.
func (g *groups) group(name string) *Group {
	at := slices.IndexFunc(*g, func(e *Group) bool { return e.Name == name })
	switch {
	case at >= 0:
		return (*g)[at]
	case len(*g) > mostGroups:
		return (*g)[mostGroups]
	case len(*g) == mostGroups:
		name = otherGroup
	}
	*g = append(*g, &Group{Name: name})
	return (*g)[len(*g)-1]
}

func (g *groups) add(name string, s *Sample) {
	if name == "" {
		return
	}
	e := g.group(name)
	if s.Failure != "" {
		e.Failed++
		return
	}
	e.Completed++
	e.TTFT.Add(s.Outputs.First - s.Intended)
	e.E2E.Add(s.End - s.Intended)
	e.Tokens.add(s)
}

// sorted returns the groups by name.
func (g groups) sorted() []*Group {
	s := slices.Clone(g)
	slices.SortFunc(s, func(a, b *Group) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// namedSpan is a span over all calls.
type namedSpan struct {
	name string
	time Distribution
}

// mostSpans bounds the names of spans that are kept.
const mostSpans = 16

func (c *Collector) addSpan(s Span) {
	for i := range c.spans {
		if c.spans[i].name == s.Name {
			c.spans[i].time.Add(s.Time)
			return
		}
	}
	if len(c.spans) < mostSpans {
		c.spans = append(c.spans, namedSpan{name: s.Name})
		c.spans[len(c.spans)-1].time.Add(s.Time)
		return
	}
	c.result.SpansLeftOut++
}
