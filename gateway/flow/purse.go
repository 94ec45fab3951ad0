package flow

import (
	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
)

// Purse is a budget of retries that several machines share: all the models' of one gateway.
// A machine calls it within a Step, at instants that are its own, so a driver whose machines
// stand under different locks gives it a lock of its own, which holds nothing else.
type Purse interface {
	Earn(now mono.Time)       // books one success
	Spend(now mono.Time) bool // takes one retry, if there is one
}

var _ Purse = (*attempt.Budget)(nil)

// earn books a call that was answered. What its client sends again has earned when it came
// first, or it is the client's own load on top: it pays for nobody else's retry.
func (m *Machine) earn(at mono.Time, p *pool, c *call) {
	if c.request.Retry {
		return
	}
	p.budget.Earn(at)
	if m.total != nil {
		m.total.Earn(at)
	}
}

// pay takes a further attempt of the call from the budget of the pool that it would go to,
// which bears it, and from that of all models; from both or from none. A client that tries
// again is a layer of retries itself. Its calls get a further attempt of ours only where
// successes have earned one, so that in an outage, where nothing is earned, the two layers
// do not multiply; the floor is for calls that come for the first time.
func (m *Machine) pay(now mono.Time, p *pool, c *call) bool {
	has, spend := p.budget.Has, p.budget.Spend
	if c.request.Retry {
		has, spend = p.budget.Ample, p.budget.SpendEarned
	}
	if !has(now) || m.total != nil && !m.total.Spend(now) {
		return false
	}
	return spend(now)
}
