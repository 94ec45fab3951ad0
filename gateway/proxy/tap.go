package proxy

import (
	"time"

	"kvasir/selection"
	"kvasir/telemetry"
)

// Tap takes some calls' decisions, and what became of them, for who watches. Its functions are
// called from the calls' goroutines, under no lock; they must not block.
type Tap struct {
	// Wants is asked once a call, before it is placed: whether it is to be explained. That
	// costs it what an explanation takes, under its model's lock.
	Wants func() bool
	// Decided gets the decision of each attempt of such a call.
	Decided func(Decided)
	// Ended hears how it ended, if an attempt was made. The record has names and numbers alone.
	Ended func(call uint64, c telemetry.Call)
	// Changed hears that an endpoint has left rotation, or is back.
	Changed func()
}

// Decided is a decision and whose it is.
type Decided struct {
	ID          string // of the request, as the log has it
	Model       string
	At          time.Time
	InputTokens int // as estimated
	Decision    *selection.Decision
}

// Tap has t take decisions from now on; nil: nobody does, and a call pays one look at that.
func (g *Gateway) Tap(t *Tap) { g.tap.Store(t) }

// changed tells whoever watches of an endpoint that has left rotation, or is back.
func (g *Gateway) changed() {
	if t := g.tap.Load(); t != nil {
		t.Changed()
	}
}

// offer asks whoever watches whether the call is to be explained.
func (c *call) offer() {
	if c.tap == nil {
		if t := c.g.tap.Load(); t != nil && t.Wants() {
			c.tap = t
		}
	}
	c.request.Explain = c.explains || c.tap != nil
}

// showDecision tells whoever watches of the running attempt's decision.
func (c *call) showDecision(d *selection.Decision) {
	if c.tap != nil {
		c.tap.Decided(Decided{ID: c.id, Model: c.model.Name, At: c.answer.sent, InputTokens: c.request.InputTokens, Decision: d})
	}
}

// showEnd tells whoever watches how the call ended.
func (c *call) showEnd() {
	if c.tap != nil && c.record.Attempts > 0 {
		c.tap.Ended(uint64(c.request.ID), c.record)
	}
}
