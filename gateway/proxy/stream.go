package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"kvasir/api"
	"kvasir/api/sse"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/telemetry"
)

// endGrace is how long a stream may go on after its end mark, or after an error in it,
// before it is taken to be over: some servers never close.
const endGrace = time.Second

// relayStream passes a stream on. Until its first content nothing is written, so that an
// answer that fails before can be had elsewhere; afterwards bytes flow as they come and
// the reader beside them only watches. cancel aborts the attempt.
func (c *call) relayStream(resp *http.Response, watch *connWatch, cancel context.CancelFunc) {
	c.events.Reset(c.svc.cfg.Limits.Event)
	a := &c.answer
	a.stream = true
	grace := grace{cancel: cancel}
	defer grace.stop()
	for {
		n, err := resp.Body.Read(c.buf)
		chunk := c.buf[:n]
		c.look(chunk)
		chunk = c.passable(chunk)
		if s := c.seam; s != nil && s.lost {
			c.tooStrange()
			return
		}
		// An answer that has come to its end has done so in time.
		ended := a.begun && (a.tally.Done || a.tally.Failed)
		if why := c.dog.why(); why != attempt.Success && !ended {
			c.tooLate(chunk, why)
			return
		}
		if err != nil {
			c.streamEnded(chunk, err == io.EOF)
			return
		}
		if a.tally.Failed && !a.begun && !a.committed {
			if a.fault.Retryable() || c.racing() || c.continuing() {
				if c.keep(chunk) {
					c.keepRest(resp.Body, cancel)
				}
				c.fail(a.fault)
				return
			}
			if !c.letGo(chunk) {
				c.clientGone()
				return
			}
		}
		if a.tally.Failed && a.begun {
			if c.goesOn(chunk, a.fault) {
				return
			}
			chunk = c.untold(chunk)
		}
		if a.tally.Done && c.nothingSaid() {
			c.unusable(emptyAnswer())
			return
		}
		if a.tally.Done {
			c.endStream(chunk)
			c.relayRest(resp.Body, &grace)
			return
		}
		if !c.pass(chunk) {
			c.clientGone()
			return
		}
		if a.tally.Failed {
			grace.begin()
		}
	}
}

// tooLate ends a stream that the watchdog has given up. last is what was read before.
func (c *call) tooLate(last []byte, why attempt.Outcome) {
	switch {
	case !c.answer.begun && !c.answer.committed:
		c.fail(why)
	case c.goesOn(last, why):
	case !c.pass(last):
		c.clientGone()
	default:
		c.cut(!c.between(), why)
	}
}

// tooStrange ends an attempt that was to go on with an answer, and whose events can't be made
// part of it.
func (c *call) tooStrange() {
	if c.answer.committed {
		c.cut(false, attempt.Broken)
	} else {
		c.fail(attempt.Broken)
	}
}

// relayRest passes on what follows the end mark. The call is accounted for already: a
// client that leaves here has all that it wanted.
func (c *call) relayRest(r io.Reader, g *grace) {
	g.begin()
	for {
		n, err := r.Read(c.buf)
		if c.continuing() { // the whole has its end mark
			n = 0
		}
		if !c.write(c.buf[:n], false) || err != nil {
			return
		}
	}
}

// grace aborts an attempt endGrace after it began. It costs nothing until then.
type grace struct {
	cancel context.CancelFunc
	timer  *time.Timer
}

func (g *grace) begin() {
	if g.timer == nil {
		g.timer = time.AfterFunc(endGrace, g.cancel)
	}
}

func (g *grace) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// pass writes bytes of a stream, or holds them back while it has not begun. Where more is
// held back than may be, they are let go: another attempt is then no longer possible.
func (c *call) pass(p []byte) bool {
	if c.answer.committed {
		return c.write(p, c.between())
	}
	held := len(c.kept)+len(p) <= c.svc.cfg.Limits.Preamble && c.keep(p)
	if held && !c.answer.begun {
		return true
	}
	return c.letGo(p) && (held || c.write(p, c.between()))
}

// between reports whether what was read last ends with an event.
func (c *call) between() bool {
	return c.seam != nil || !c.answer.blind && !c.events.MidEvent()
}

// look reads the events that p completes.
func (c *call) look(p []byte) {
	if len(p) == 0 {
		return
	}
	now := time.Now()
	content := c.answer.blind
	c.answer.thinks = false
	if !c.answer.blind {
		c.events.Feed(p)
		for ev, ok := c.events.Next(); ok; ev, ok = c.events.Next() {
			switch {
			case ev.Oversize:
				c.g.metrics.Oddity(telemetry.EventTooLarge)
				content = c.takeEvent(ev, now) || content // its name is all that is known
			case len(ev.Data) > 0:
				content = c.takeEvent(ev, now) || content
			}
		}
		if !c.bookEvent(c.unfinished()) {
			// No room to see the event's end. The rest of the stream passes unread.
			c.answer.blind = true
			c.events.Reset(c.svc.cfg.Limits.Event)
			c.g.metrics.Oddity(telemetry.EventTooLarge)
			content = true
		}
	}
	// A large event that is on its way is progress, too, and so is reasoning that is held back.
	intime := c.dog.read(now, content || c.booked > 0 || c.answer.thinks)
	if c.answer.thinks && !c.answer.begun {
		c.alive(now)
	}
	if !intime || !content {
		return
	}
	if c.answer.begun {
		c.alive(now)
		c.progress(now)
	}
	c.contentCame(now)
}

// progress reports, once in a while, how far the answer is, where the machine asks for it. The
// tokens are as heard has them.
func (c *call) progress(now time.Time) {
	a := &c.answer
	if !a.action.Progress || !a.reported || now.Sub(a.progress) < flow.AliveEvery {
		return
	}
	a.progress = now
	c.model.router.report(flow.Progress(c.ticket, a.action.Attempt, a.heard()))
}

// alive reports, once in a while, that the endpoint sends: calls that wait there do not
// wait in vain.
func (c *call) alive(now time.Time) {
	e, at := c.answer.endpoint, int64(now.Sub(c.g.epoch))
	if last := e.heard.Load(); at-last >= int64(flow.AliveEvery) && e.heard.CompareAndSwap(last, at) {
		c.model.router.report(flow.Alive(e.slot, e.generation))
	}
}

// takeEvent is take of an event's chunk.
func (c *call) takeEvent(ev sse.Event, now time.Time) bool {
	chunk := api.ReadChunk(c.route.grammar, ev.Type, ev.Data)
	if s := c.seam; s != nil {
		s.hear(ev, chunk, c.answer.begun || c.answer.contents > 0, c.model.Continue.Bytes)
	}
	size := len(ev.Data)
	if ev.Oversize {
		size = c.svc.cfg.Limits.Event // it is longer than that
	}
	return c.take(chunk, size, now)
}

// take learns from a chunk of the answer, of an event of so many bytes, and reports whether it ends the choice of another
// attempt.
func (c *call) take(chunk api.Chunk, size int, now time.Time) bool {
	a := &c.answer
	if chunk.Kind == api.Failure && !a.tally.Failed {
		a.fault = faultOutcome(chunk.Fault)
	}
	a.tally.Add(chunk)
	if chunk.ResponseID != nil {
		c.g.owners.note(c.record.Client, chunk.ResponseID, a.endpoint, c.model.core)
	}
	if chunk.Kind == api.Content {
		if a.hear(size); a.contents > 1 {
			a.endpoint.pool.metrics.ITL(now.Sub(a.last))
		}
		a.last = now
	}
	if c.holdsBack(&chunk) {
		if a.thinks = true; c.record.Thought == 0 {
			c.record.Thought = now.Sub(c.arrived)
		}
		return false
	}
	return chunk.Commits()
}

// holdsBack reports whether a chunk is reasoning that nobody is shown, where the model says so: the
// choice of another attempt then ends with the first token that the user sees (article section 9.5).
func (c *call) holdsBack(chunk *api.Chunk) bool {
	return c.model.FirstVisible && chunk.Kind == api.Content && !chunk.Visible && chunk.Finish == nil
}

// faultOutcome says how an attempt ended whose answer is an error object.
func faultOutcome(f api.Fault) attempt.Outcome {
	if f.Status >= 400 && f.Status < 500 {
		return attempt.FromStatus(f.Status)
	}
	return attempt.StreamError
}

// unfinished returns how many bytes the reader holds of an event that has not ended.
func (c *call) unfinished() int64 {
	if !c.events.MidEvent() {
		c.answer.mark = c.events.Offset()
	}
	n := min(c.events.Offset()-c.answer.mark, int64(c.svc.cfg.Limits.Event))
	if n <= readBuffer {
		return 0 // it lies in memory that every stream has
	}
	return 2 * n // a buffer that grows is there twice
}

// bookEvent books what the reader holds instead of what it held before. It reports
// whether there was room.
func (c *call) bookEvent(n int64) bool {
	more := n - c.booked
	if more > 0 && !c.g.buffered.take(more) {
		c.bookEvent(0)
		return false
	}
	if more < 0 {
		c.g.buffered.give(-more)
	}
	c.booked = n
	return true
}

// streamEnded deals with a stream whose transfer has ended: cleanly or not.
func (c *call) streamEnded(last []byte, cleanly bool) {
	if !cleanly && c.ctx.Err() != nil {
		c.clientGone()
		return
	}
	a, t := &c.answer, &c.answer.tally
	torn := a.blind || c.events.MidEvent()
	if cleanly && torn && !a.blind {
		if cleanly = c.lastEvent(); cleanly {
			last = c.lastPart(last)
		}
	}
	switch {
	case cleanly && c.nothingSaid():
		c.unusable(emptyAnswer())
	case t.Failed && !a.begun && !a.committed && (a.fault.Retryable() || c.racing() || c.continuing()):
		a.whole = c.keep(last) && cleanly
		c.fail(a.fault)
	case t.Failed && c.goesOn(last, a.fault):
	case t.Failed, t.Done:
		c.endStream(c.untold(last))
	case cleanly && (a.blind || !c.route.grammar.HasDone()):
		if !a.begun {
			c.contentCame(time.Now()) // an answer without content is one
		}
		c.endStream(last)
	case cleanly && t.Finished:
		c.record.DoneMissing = true
		c.endStream(last)
	case !a.committed:
		c.fail(attempt.Broken)
	case c.goesOn(last, attempt.Broken):
	case !c.write(last, c.between()):
		c.clientGone()
	default:
		c.cut(torn && c.seam == nil, attempt.Broken)
	}
}

// nothingSaid reports whether a stream has brought no chunk but its end mark. One without
// content is an answer where it says so: a role, a reason to end, usage.
func (c *call) nothingSaid() bool {
	a := &c.answer
	return c.route.strict() && !a.committed && !a.begun && !a.blind && (a.tally.Chunks == 0 || a.tally.Chunks == 1 && a.tally.Done)
}

// lastEvent reads the event that the end of the stream cut off. It reports whether nothing
// of it is missing but its blank line, which some servers leave out.
func (c *call) lastEvent() bool {
	ev, ok := c.events.Finish()
	if !ok || ev.Oversize || !json.Valid(ev.Data) && string(bytes.TrimSpace(ev.Data)) != "[DONE]" {
		return false
	}
	now := time.Now()
	if c.takeEvent(ev, now) && c.dog.read(now, true) {
		c.contentCame(now)
	}
	return true
}

// endStream releases the charge of an answer that is over, then writes what is left.
func (c *call) endStream(last []byte) {
	o := attempt.Success
	if c.answer.tally.Failed {
		o = c.answer.fault
	}
	if !c.answer.committed && !c.commitUnlessLeak(last) {
		c.clientGone()
		return
	}
	c.upstreamEnded(o, c.usage(c.answer.tally.Usage()))
	if c.writeKept() {
		c.writeLast(last)
	} else {
		c.writeFailed()
	}
}
