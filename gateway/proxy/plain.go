package proxy

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
)

// relayPlain passes on an answer that is not a stream, or not one that can be read.
func (c *call) relayPlain(resp *http.Response, o attempt.Outcome, watch *connWatch) {
	body := io.Reader(resp.Body)
	if o != attempt.Success && c.answer.endpoint.Key != "" {
		switch err := c.keepAll(body); {
		case err == errNoRoom, c.keptQuotesKey():
			e := withheldError(resp.StatusCode)
			c.answer.unfit = &e
			c.fail(o)
			return
		case err != nil && err != io.EOF:
			c.fail(c.blame(watch, err))
			return
		}
		body = io.MultiReader(bytes.NewReader(c.kept), body)
	}
	c.scan.Reset(c.route.grammar)
	inspect := o == attempt.Success && identity(resp.Header)
	for {
		n, err := body.Read(c.buf)
		chunk := c.buf[:n]
		now := time.Now()
		intime := c.dog.read(now, n > 0)
		if inspect {
			c.scan.Feed(chunk)
		}
		if inspect && c.route.strict() {
			c.answer.text += int64(n)
		}
		if !c.answer.committed && (n > 0 || err != nil) {
			if err != nil && err != io.EOF || !intime {
				c.fail(c.blame(watch, err))
				return
			}
			if o == attempt.Success && n == 0 && c.route.strict() {
				c.unusable(emptyAnswer())
				return
			}
			if o == attempt.Success {
				c.contentCame(now)
			}
			if !c.commitUnlessLeak(chunk) {
				c.clientGone()
				return
			}
		}
		switch {
		case err == io.EOF:
			c.endPlain(o, inspect, chunk)
			return
		case !c.write(chunk, false):
			c.clientGone()
			return
		case err != nil:
			c.cut(true, c.blame(watch, err))
			return
		}
	}
}

// endPlain releases the charge, then writes what is left.
func (c *call) endPlain(o attempt.Outcome, inspected bool, last []byte) {
	var u flow.Usage
	if inspected {
		u = c.usage(c.scan.Usage())
		if id := c.scan.ResponseID(); id != nil {
			c.g.owners.note(c.record.Client, id, c.answer.endpoint, c.model.core)
		}
		if fault, failed := c.scan.Fault(); failed {
			o = faultOutcome(fault)
		}
	}
	c.upstreamEnded(o, u)
	c.writeLast(last)
}
