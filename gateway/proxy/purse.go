package proxy

import (
	"sync"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
)

// purse is the budget of all models' retries. The models' machines ask it from under their
// routers' locks; its own is held for the arithmetic alone, and nothing is locked under it.
type purse struct {
	mu     sync.Mutex
	cfg    attempt.Config
	budget *attempt.Budget
}

// become takes over a configuration. What was earned stays where that is the same.
func (p *purse) become(c attempt.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.budget == nil || c != p.cfg {
		p.cfg, p.budget = c, attempt.NewBudget(c)
	}
}

// Earn implements flow.Purse.
func (p *purse) Earn(now mono.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget.Earn(now)
}

// Spend implements flow.Purse.
func (p *purse) Spend(now mono.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.budget.Spend(now)
}
