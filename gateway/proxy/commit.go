package proxy

import (
	"net/http"
	"strconv"
	"time"

	"kvasir/api"
	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/selection"
)

// commit is the commitment point: from here on no other attempt's bytes may be sent, but to go on
// with this one's (seam.go). It reports false, and does nothing, where those of the attempt beside
// this one are.
func (c *call) commit() bool {
	if !c.wins() {
		return false
	}
	a := &c.answer
	a.committed = true
	if a.begun {
		c.reportFirst()
	}
	switch {
	case c.seam == nil:
		c.dropBody() // no other attempt needs it
	case c.continuing():
		c.resumed()
	}
	c.record.Status = a.status
	if !c.out.open(a.status, c.fillHeader) {
		c.record.Status = http.StatusOK // a heartbeat was first
	}
	return true
}

// dropBody gives the body's memory back, to whoever still sends it.
func (c *call) dropBody() {
	if c.body != nil {
		if c.runner == firstRunner { // the other one has its own copy of what was read
			c.reader.Reset() // it points to the body
		}
		c.asked = api.Request{}
		c.body.release()
		c.body = nil
	}
}

// fillHeader makes the response's header of the endpoint's.
func (c *call) fillHeader(h http.Header) {
	a := &c.answer
	copyResponseHeader(h, a.header, a.endpoint.Key)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // or the server would guess one
	}
	if a.stream {
		h.Del("Content-Length") // there may be an event of the gateway's own to add
		h.Set("X-Accel-Buffering", "no")
	}
	c.stamp(h)
}

// openStream makes the header of a stream that a heartbeat opens.
func openStream(h http.Header) {
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
}

// contentCame notes the answer's first content.
func (c *call) contentCame(now time.Time) {
	a := &c.answer
	if a.begun {
		return
	}
	a.begun, a.first, a.progress = true, now, now
	if a.committed { // more came before it than could be held back
		c.reportFirst()
	}
}

// reportFirst tells the machine that the call is committed to its attempt.
func (c *call) reportFirst() {
	a := &c.answer
	a.reported = true
	if !a.told {
		c.model.router.report(flow.FirstToken(c.ticket, a.action.Attempt))
	}
	if c.request.Stream && !c.continuing() {
		c.record.TTFT = a.first.Sub(c.arrived)
		a.endpoint.pool.metrics.TTFT(c.record.TTFT)
		if d := a.first.Sub(a.sent); a.action.Predicted > 0 && d > 0 {
			a.endpoint.pool.metrics.Prediction(a.action.Predicted, d)
		}
	}
}

// hedgeWords say what came of a hedge, by who has answered.
var hedgeWords = [2]string{"lost", "won"}

// stamp adds the gateway's own response headers.
func (c *call) stamp(h http.Header) {
	if c.answer.endpoint != nil {
		h.Set("X-Kvasir-Endpoint", c.answer.endpoint.name)
	}
	c.rates.show(h)
	if n := c.record.Attempts; n > 0 {
		h.Set("X-Kvasir-Attempts", strconv.Itoa(n))
		h.Set("X-Kvasir-Retries-Remaining", strconv.Itoa(c.retriesRemaining()))
	}
	if c.racing() && c.answer.endpoint != nil {
		h.Set("X-Kvasir-Hedged", hedgeWords[c.runner])
	}
	if c.answer.explain != "" {
		h.Set("X-Kvasir-Explain", c.answer.explain)
	} else if c.unexplained {
		h.Set("X-Kvasir-Explain", "denied")
	}
}

// retriesRemaining is how many attempts the gateway would still have made of the call, had
// this one failed; 0 where it has given up, for whatever reason.
func (c *call) retriesRemaining() int {
	if c.gaveUp {
		return 0
	}
	return max(c.model.Machine.Retry.Ceiling()+1-c.record.Attempts, 0)
}

// upstreamEnded releases the attempt's charge: when the upstream is done, not when a slow
// client has read it all.
func (c *call) upstreamEnded(o attempt.Outcome, u flow.Usage) {
	if o.Retryable() && !c.answer.reported {
		o = attempt.Forfeited
	}
	c.close(o)
	c.held = false
	if a := &c.answer; a.action.Progress && a.stream && !u.Known { // else nobody would be charged for the rest
		c.model.router.report(flow.Progress(c.ticket, a.action.Attempt, a.heard()))
	}
	c.model.router.ended(c, c.ending(u))
	c.finish(o)
}

// cut ends a committed answer that its upstream broke off, or that the watchdog did: with
// an error event where the stream stands between two events, else by breaking the
// client's connection too.
func (c *call) cut(torn bool, why attempt.Outcome) {
	if c.ctx.Err() != nil {
		c.clientGone()
		return
	}
	u := flow.Usage{}
	if c.answer.stream {
		u = c.usage(c.answer.tally.Usage())
	}
	c.upstreamEnded(why, u)
	if c.answer.stream && !torn {
		c.write(api.AppendErrorEvent(nil, c.route.grammar, cutShort(c.id, why, c.model.timeouts), c.answer.tally.NextSequence), true)
		return
	}
	c.abort = true
}

// clientGone ends a call whose client stopped reading or left.
func (c *call) clientGone() {
	if c.race != nil && !c.answer.committed && !(c.leaked && c.takes()) {
		c.fail(attempt.Beaten) // or the client is gone indeed
		return
	}
	c.close(attempt.ClientGone)
	c.left()
	if c.answer.stream {
		c.usage(c.answer.tally.Usage()) // the part that was streamed, where the endpoint says
	}
	c.finish(attempt.ClientGone)
}

// usage takes an answer's usage to the record and the machine. Where the output can't be
// believed the record's usage stays unknown; the machine looks at the prompt alone.
func (c *call) usage(u api.Usage) flow.Usage {
	if u.Input == api.Unknown {
		return flow.Usage{}
	}
	raw := u
	if c.continuing() {
		u = c.seam.whole.Usage(u)
	}
	output, cached := max(u.Output, 0), min(max(u.Cached, 0), u.Input) // a part of the input, whatever is said
	if u.Output != api.Unknown || c.request.Kind == selection.Embed {  // which has no output to report
		c.record.UsageKnown, c.record.CachedKnown = true, u.Cached != api.Unknown
		c.record.PromptTokens, c.record.CachedTokens, c.record.OutputTokens = u.Input, cached, output
	}
	prompt, answer := c.most()
	raw.Input = min(raw.Input, prompt)
	return flow.Usage{
		Known: true, CachedKnown: raw.Cached != api.Unknown,
		Prompt: raw.Input, Cached: min(max(raw.Cached, 0), raw.Input), Output: min(max(raw.Output, 0), answer),
	}
}

// write passes bytes to the client at once; between says that they end with an event. It
// reports whether more may follow: not where the client no longer takes them, and one that
// stalls for longer than the write timeout does not, nor where they would give the
// endpoint's key away.
func (c *call) write(p []byte, between bool) bool {
	if len(p) == 0 {
		return true
	}
	if c.leaked || c.secret.sees(p) {
		c.leak()
		return false
	}
	c.dog.hold()
	began := time.Now()
	err := c.out.write(p, began, between)
	c.dog.release(time.Since(began))
	return err == nil
}

// leak breaks off an answer that quotes its endpoint's key.
func (c *call) leak() {
	if !c.leaked {
		c.g.log.Warn("an answer quotes its endpoint's key and was cut", "endpoint", c.answer.endpoint.name, "request_id", c.id)
	}
	c.leaked, c.abort = true, true
}

// letGo commits and writes what was held back. next is what follows it.
func (c *call) letGo(next []byte) bool {
	return c.commitUnlessLeak(next) && c.writeKept()
}

// commitUnlessLeak commits, unless the answer's beginning quotes the endpoint's key: while
// nothing is sent the client can still be told.
func (c *call) commitUnlessLeak(next []byte) bool {
	if c.keptQuotesKey() || c.secret.in(next) {
		c.leak()
		return false
	}
	return c.commit()
}

// writeKept writes what was held back and drops it.
func (c *call) writeKept() bool {
	ok := c.write(c.kept, c.between())
	c.giveKept()
	return ok
}

// writeLast writes an answer's end, for which the call is already accounted.
func (c *call) writeLast(p []byte) {
	c.out.seal()
	if !c.write(p, false) {
		c.writeFailed()
	}
}

// writeFailed corrects the outcome of a call whose endpoint answered whole and whose
// client did not take it.
func (c *call) writeFailed() {
	c.finish(attempt.ClientGone)
}
