package proxy

import (
	"bytes"

	"kvasir/api"
	"kvasir/api/sse"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/telemetry"
)

// A stream that breaks off after its first content goes on at another endpoint, where its model
// says so: that one is prompted with what was said so far, and the client sees one answer. This
// is the one exception from the rule that after the first content no other attempt's bytes are
// sent. The seam is what it takes: of the first part no event is passed on before it is whole, so
// that the client always stands between two events, and its text is kept; the events of later
// parts are made to look like the first one's.
//
// Source: article section 9.4.

// Continue says whether streams that break off are continued elsewhere.
type Continue struct {
	Times int // most parts of an answer after the first, within the call's further attempts; 0: it is not continued
	Bytes int // most of what was said; an answer that is longer is not continued
}

type seam struct {
	plan  api.Continuation
	whole api.Whole
	said  []byte // of the answer, as it stands between the quotes of JSON strings
	sure  int    // of it, what the client has of the parts before this one

	times int             // parts that broke off
	why   attempt.Outcome // how the first of them did
	word  []byte          // the last one's own event about it; empty: none
	pool  *telemetry.Pool // its
	open  bool            // nothing of the next part has come yet

	// Of the running part.
	odd    bool   // it can't be continued: it says more than text, or too much
	lost   bool   // it can't be made part of the whole
	held   bool   // it has said why it breaks off, which the client was not told
	marked bool   // a comment says that it is another part
	out    []byte // of a later part: what may be passed on
	begun  []byte // of the first one: an event that is not whole
	base   int64  // where that begins in the stream
	end    int64  // where the last whole event ends
	booked int64
}

// continuedMark stands before the first event of each part but the first. It is a comment as a
// heartbeat is: SDKs skip it, a trace shows it.
const continuedMark = ": continued\n"

// sew readies the call for a seam, where its model wants one and its body allows it.
func (c *call) sew() {
	c.seam = nil
	if c.model.Continue.Times <= 0 || !c.request.Stream || c.once() {
		return
	}
	plan, err := api.ReadContinuation(c.bodyGrammar(), c.body.data)
	if err != nil {
		return
	}
	c.seam = &seam{plan: plan, whole: api.Whole{Prompt: api.Unknown}}
}

// continuing reports whether a part of the answer has broken off, and another one is to follow
// or does.
func (c *call) continuing() bool { return c.seam != nil && c.seam.times > 0 }

// begin readies the seam for an attempt.
func (s *seam) begin() {
	s.said = s.said[:s.sure]
	s.lost, s.held, s.marked = false, false, false
	s.out, s.begun, s.base, s.end = s.out[:0], s.begun[:0], 0, 0
	if s.times == 0 {
		s.odd = false
		s.whole.ID, s.whole.Created, s.whole.Model = s.whole.ID[:0], s.whole.Created[:0], s.whole.Model[:0]
	}
}

// hear takes in an event that was read. begun says that content came before it.
func (s *seam) hear(ev sse.Event, chunk api.Chunk, begun bool, most int) {
	if s.held {
		return
	}
	if chunk.Kind == api.Failure {
		if s.held = begun; begun {
			s.keepWord(ev.Data)
			return
		}
	}
	var spoken api.Spoken
	if chunk.Kind == api.Content || chunk.Kind == api.Preamble {
		if spoken = api.ReadSpoken(ev.Data); ev.Oversize || chunk.Kind == api.Content && spoken.Odd {
			s.odd = true
		}
		text := spoken.Text.Of(ev.Data)
		if s.odd = s.odd || len(s.said)+len(text) > most; !s.odd {
			s.said = append(s.said, text...)
		}
	}
	if s.times == 0 {
		s.end = ev.End
		if len(s.whole.ID) == 0 && !ev.Oversize {
			s.whole.Begin(ev.Data, spoken)
		}
		return
	}
	switch {
	case ev.Oversize:
		s.lost = true
	case chunk.Kind == api.Failure:
	case chunk.Kind == api.Done:
		s.out = append(s.out, "data: [DONE]\n\n"...)
	case chunk.Kind == api.Preamble && chunk.Finish == nil && !chunk.HasUsage: // the client has one
	default:
		if !s.marked {
			s.marked = true
			s.out = append(s.out, continuedMark...)
		}
		s.out = append(s.out, "data: "...)
		s.out = s.whole.Append(s.out, ev.Data, spoken)
		s.out = append(s.out, "\n\n"...)
	}
}

// keepWord keeps an endpoint's own event, in case nobody goes on.
func (s *seam) keepWord(data []byte) {
	s.word = s.word[:0]
	if len(data) <= maxHeldError && bytes.IndexByte(data, '\n') < 0 {
		s.word = append(append(append(s.word, "data: "...), data...), "\n\n"...)
	}
}

// passable returns what of the bytes that were read last may be passed on.
func (c *call) passable(p []byte) []byte {
	s := c.seam
	if s == nil {
		return p
	}
	if s.times > 0 {
		s.lost = s.lost || c.answer.blind
		s.odd = !c.bookSeam() || s.odd
		p, s.out = s.out, s.out[:0]
		return p
	}
	n := int(s.end - s.base)
	if len(s.begun) == 0 {
		n = afterLineEnd(p, n)
		s.begun = append(s.begun, p[n:]...)
		p = p[:n]
	} else {
		s.begun = append(s.begun, p...)
		n = afterLineEnd(s.begun, n)
		s.out = append(s.out[:0], s.begun[:n]...)
		s.begun = append(s.begun[:0], s.begun[n:]...)
		p = s.out
	}
	s.base += int64(n)
	if s.odd || c.answer.blind || c.answer.tally.Done && !s.held || len(s.begun) > c.svc.cfg.Limits.Event || !c.bookSeam() {
		return c.unsew(p)
	}
	return p
}

// afterLineEnd moves the end of an event behind the second half of its last line end.
func afterLineEnd(p []byte, n int) int {
	if n > 0 && n < len(p) && p[n-1] == '\r' && p[n] == '\n' {
		return n + 1
	}
	return n
}

// unsew lets the seam go and returns p with all that it has held back.
func (c *call) unsew(p []byte) []byte {
	p = append(p[:len(p):len(p)], c.seam.begun...)
	c.endSeam()
	c.seam = nil
	if c.answer.committed {
		c.dropBody()
	}
	return p
}

// bookSeam books what the seam holds instead of what it held before, and reports whether there
// was room.
func (c *call) bookSeam() bool {
	s := c.seam
	more := int64(cap(s.said)+cap(s.begun)+cap(s.out)) - s.booked
	if more > 0 && !c.g.buffered.take(more) {
		return false
	}
	if more < 0 {
		c.g.buffered.give(-more)
	}
	s.booked += more
	return true
}

// endSeam gives back what the seam holds, and says what became of a part that broke off.
func (c *call) endSeam() {
	s := c.seam
	if s == nil {
		return
	}
	c.g.buffered.give(s.booked)
	s.booked = 0
	if s.open {
		o := telemetry.NotContinued
		if c.record.Outcome == telemetry.ClientGone {
			o = telemetry.LeftMeanwhile
		}
		s.pool.Continuation(o)
	}
}

// tokens returns how many tokens the running part has said: as the endpoint reports, else as
// its events are heard.
func (c *call) tokens() int {
	if u := c.answer.tally.Usage(); u.Output != api.Unknown {
		return u.Output
	}
	return c.answer.heard()
}

// mayResume reports whether the answer, whose part has broken off so, may be continued.
func (c *call) mayResume(why attempt.Outcome) bool {
	s, a := c.seam, &c.answer
	switch {
	case s == nil, s.odd, s.lost, !a.begun, a.blind, a.tally.Finished, a.tally.Done && !s.held:
		return false
	case why != attempt.Broken && why != attempt.Stalled && why != attempt.StreamError:
		return false
	case s.times >= c.model.Continue.Times, c.racing(), c.leaked, c.ctx.Err() != nil, s.plan.Splits(s.said):
		return false
	}
	_, some := s.plan.Edits(s.said, s.whole.Output+c.tokens(), "")
	return some
}

// goesOn ends the attempt of an answer that has broken off so and may be continued; the machine
// says whether it is. last is what may be passed on before.
func (c *call) goesOn(last []byte, why attempt.Outcome) bool {
	if !c.mayResume(why) {
		return false
	}
	if !c.pass(last) {
		c.clientGone()
		return true
	}
	s, a := c.seam, &c.answer
	if s.times == 0 {
		s.why, s.whole.Prompt = why, a.tally.Usage().Input
	}
	if !s.held {
		s.word = s.word[:0]
	}
	s.whole.Output += c.tokens()
	if a.action.Progress {
		c.model.router.report(flow.Progress(c.ticket, a.action.Attempt, a.heard()))
	}
	a.contents, a.heardBytes, a.frame = 0, 0, 0 // they are the whole's now
	s.sure, s.open, s.pool = len(s.said), true, a.endpoint.pool.metrics
	s.times++
	c.close(why)
	return true
}

// untold returns last with what the seam has held back of an error that nobody makes good.
func (c *call) untold(last []byte) []byte {
	switch s := c.seam; {
	case s == nil || !s.held:
		return last
	case s.times == 0:
		return c.unsew(last)
	default:
		word := s.word
		s.word = nil // once is enough
		return append(last[:len(last):len(last)], word...)
	}
}

// resumable reports whether the endpoint that the machine has picked can go on with the answer.
func (c *call) resumable() bool {
	return !c.seam.plan.Chat() || c.answer.endpoint.pool.Dialect.GoOn != ""
}

// resumed notes that another part has content.
func (c *call) resumed() {
	c.seam.open = false
	c.record.Continued++
	c.seam.pool.Continuation(telemetry.Continued)
}

// tellBroken ends an answer that nobody goes on with as one ends that is not continued: with the
// endpoint's own event, or with one of the gateway's.
func (c *call) tellBroken() {
	s := c.seam
	c.record.Status = 200
	c.finish(s.why)
	if h := &s.whole; h.Prompt != api.Unknown {
		c.record.UsageKnown = true
		c.record.PromptTokens, c.record.OutputTokens = h.Prompt, h.Output
	}
	if len(s.word) > 0 {
		c.writeLast(s.word)
		return
	}
	c.writeLast(api.AppendErrorEvent(nil, c.route.grammar, cutShort(c.id, s.why, c.model.timeouts), 0))
}

// lastPart returns last with the event that the end of the stream cut off, and that misses
// nothing but its blank line. Where that is not the answer's end, too, the blank line is added:
// something may follow.
func (c *call) lastPart(last []byte) []byte {
	t := &c.answer.tally
	switch s := c.seam; {
	case s == nil:
		return last
	case s.times == 0 && (t.Finished || t.Done) && !s.held:
		return c.unsew(last)
	case s.times == 0 && !s.held:
		last = append(bytes.Clone(last), s.begun...)
		s.begun = s.begun[:0]
		if !bytes.HasSuffix(last, []byte("\n")) {
			last = append(last, '\n')
		}
		return append(last, '\n')
	default:
		last = append(bytes.Clone(last), s.out...)
		s.out = s.out[:0]
		return last
	}
}
