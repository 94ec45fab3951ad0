package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"

	"kvasir/api"
	"kvasir/telemetry"
)

// errCut is why the context of a call ends that Cut ends.
var errCut = errors.New("the gateway is stopping")

// BaseContext is for the data listener's http.Server: calls whose contexts descend from
// it can be ended by Cut.
func (g *Gateway) BaseContext(net.Listener) context.Context { return g.base }

// Drain turns readiness off. Calls are served as before: those in flight end in their
// time, and new ones may come until the listener closes.
func (g *Gateway) Drain() { g.draining.Store(true) }

// InFlight returns how many calls are in flight.
func (g *Gateway) InFlight() int64 { return g.calls.Load() }

// Cut ends the calls that are still in flight: their attempts are aborted, and each
// client is told, as far as its answer still allows.
func (g *Gateway) Cut() { g.cutAll(errCut) }

// wasCut reports whether Cut ended the call, and not its client.
func (c *call) wasCut() bool { return context.Cause(c.ctx) == errCut }

// tellCut tells the client of a call that Cut ended, which looks so far as if the client
// had left.
func (c *call) tellCut() {
	c.record.Outcome, c.record.Refusal = telemetry.Refused, telemetry.Draining
	e := api.Error{Status: http.StatusServiceUnavailable, Code: "draining", RequestID: c.id,
		Message: "The gateway is stopping and could not wait for the answer's end."}
	a := &c.answer
	ahead := c.out.isAhead()
	switch {
	case c.record.Status == 0 && !ahead: // nothing was sent
		c.abort = false
		c.out.w.Header().Set("Retry-After", "1")
		c.sendError(e)
	case ahead && !a.committed, a.stream && a.committed && c.between(), c.continuing():
		c.out.seal()
		c.abort = !c.write(api.AppendErrorEvent(nil, c.route.grammar, e, a.tally.NextSequence), true)
	}
}
