package sim

import (
	"time"

	"kvasir/gateway/attempt"
	"kvasir/gateway/flow"
	"kvasir/gateway/limit"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection"
)

// Limits is what a router lets in, beside what its machine takes: the same book of limits
// that the live gateway keeps. Tenants are known by the hash of their name
// (kvblock.Seed("tenant", name)) in Request.Tenant.
type Limits struct {
	limit.Config
	Model   string        // the name of the router's model in the rules; "": none is for it
	MaxWait time.Duration // of a call behind its siblings; 0: no bound
}

// gate is a router's book of limits, and the calls that wait for a word of it.
type gate struct {
	cfg     *Limits
	book    *limit.Book
	tenants map[kvblock.Hash]string
	waiting []*life // by their grants' index
}

func newGate(c *Limits) *gate {
	if c == nil {
		return nil
	}
	g := &gate{cfg: c, book: limit.New(0, c.Config), tenants: map[kvblock.Hash]string{}}
	for _, r := range c.Rules {
		if r.Scope.Kind == limit.Tenant || r.Scope.Kind == limit.TenantModel {
			g.tenants[kvblock.Seed("tenant", r.Scope.Name)] = r.Scope.Name
		}
	}
	return g
}

// take asks for a call to be let in. It reports whether it goes on now; else it waits in line,
// or is over.
func (g *gate) take(now mono.Time, l *life) bool {
	q := &l.call.Request
	who := limit.Caller{Tenant: g.tenants[q.Tenant], Model: g.cfg.Model, Conversation: q.Conversation}
	v := g.book.Take(now, &who, limit.Estimate{Input: q.InputTokens, MaxOutput: q.OutputTokens, NoOutput: q.Kind == selection.Embed})
	l.grant = v.Grant
	switch v.Outcome {
	case limit.Granted:
		return true
	case limit.Refused:
		l.limited(now, v.Limit)
		return false
	}
	for len(g.waiting) <= v.Grant.Index() {
		g.waiting = append(g.waiting, nil)
	}
	g.waiting[v.Grant.Index()] = l
	l.lined = true
	d := g.cfg.MaxWait
	if q.Firm && q.Deadline > 0 && (d == 0 || q.Deadline < d) {
		d = q.Deadline
	}
	if d > 0 {
		l.router.world.queue.push(event{at: now.Add(d), kind: tires, life: l, serial: l.serial})
	}
	return false
}

// settle ends a call's grant. Those whose turn it is then go a nanosecond later: a decision is
// made at an instant of its own.
func (g *gate) settle(now mono.Time, l *life) {
	held := l.grant
	if !held.Held() {
		return
	}
	if l.lined {
		g.waiting[held.Index()] = nil
		l.lined = false
	}
	l.grant = limit.Grant{}
	for _, w := range g.book.Settle(now, held, l.used()) {
		i := w.Grant.Index()
		next := g.waiting[i]
		g.waiting[i] = nil
		next.lined = false
		next.behind = now.Sub(next.record.At)
		if q := &next.call.Request; q.Deadline > 0 {
			q.Deadline = max(q.Deadline-next.behind, 1)
		}
		if w.Verdict.Outcome == limit.Refused {
			next.grant = limit.Grant{}
			next.record.Limited = w.Verdict.Limit
		}
		next.router.world.queue.push(event{at: now + 1, kind: arrives, life: next, serial: next.serial})
	}
}

// used says what a call is charged for, as the live gateway does where answers report their
// usage.
func (l *life) used() limit.Usage {
	r := &l.record
	switch {
	case r.Attempts == 0:
		return limit.Usage{Unsent: true}
	case r.Refused == flow.NoReason && r.Outcome == attempt.Success:
		return limit.Usage{Input: r.Prompt, Cached: r.Cached, Output: l.call.Prompt.OutputTokens, Whole: true}
	case r.Outcome == attempt.ClientGone || l.winner != nil:
		return limit.Usage{Input: r.Prompt, Cached: r.Cached, Output: r.Tokens}
	}
	return limit.Usage{}
}

// limited ends a call that a limit refuses.
func (l *life) limited(now mono.Time, why limit.Limit) {
	l.record.Limited = why
	l.end(now, l.record.Outcome)
	l.close(now)
}
