package limit

import (
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// defaultBurst is how much of a rate can be saved up.
const defaultBurst = time.Minute

// mostScopes is how many accounts a call has: its tenant's, its key's, its model's, and
// that of its tenant at its model.
const mostScopes = 4

// Book knows what is used of the limits. Its memory is bounded by its Config and by the
// grants that are not settled: a conversation is forgotten with its last call. Take and
// Settle do not allocate once it is grown. Not safe for concurrent use.
type Book struct {
	accounts map[Scope]*account
	order    []*account // as configured
	fanOut   FanOut

	grants []grant
	unused []int32 // of grants

	conversations map[kvblock.Hash]int32 // into lines
	lines         []line
	spare         []int32 // of lines

	words []Word // that were said last
}

// grant is a call that is let in.
type grant struct {
	generation uint32
	held       bool
	running    bool // else it waits
	scopes     int
	accounts   [mostScopes]*account
	reserved   [mostScopes]int64 // units, by account
	line       int32             // of its conversation; none where that has no bound
	next       int32             // in that line
}

const none = -1

// New returns a book of which nothing is used.
func New(now mono.Time, c Config) *Book {
	b := &Book{accounts: map[Scope]*account{}, conversations: map[kvblock.Hash]int32{}}
	b.Configure(now, c)
	return b
}

// Configure changes the limits. A scope that stays keeps what is used of it, as do the
// grants that are held; a bound that is lower than what runs lets nobody in until enough
// have ended. The words are for calls that wait and that a higher bound lets go; they are
// valid until the next call.
func (b *Book) Configure(now mono.Time, c Config) []Word {
	b.words = b.words[:0]
	before := b.accounts
	b.accounts, b.order, b.fanOut = make(map[Scope]*account, len(c.Rules)), b.order[:0:0], c.FanOut
	for _, r := range c.Rules {
		a := before[r.Scope]
		if a == nil {
			a = &account{scope: r.Scope, answers: firstMean}
		}
		a.configure(now, r.Caps)
		b.accounts[r.Scope] = a
		b.order = append(b.order, a)
	}
	for at := range b.lines { // not by the map, whose order is none
		b.proceed(now, int32(at))
	}
	return b.words
}

// Take asks for a call to be let in. Where it is Refused nothing is taken. Where it has to
// Wait its requests and tokens are taken at once, and what runs is counted once it does.
func (b *Book) Take(now mono.Time, who *Caller, e Estimate) Verdict {
	g := grant{held: true, running: true, line: none, next: none}
	b.scopes(&g, who)
	at, waits := b.lineOf(who.Conversation)
	var v Verdict
	for i := range g.scopes {
		a := g.accounts[i]
		a.advance(now)
		cost := a.expect(e)
		g.reserved[i] = a.tokens.reserve(cost)
		a.refuses(now, cost, waits, &v)
	}
	if waits && b.lines[at].waiting >= b.fanOut.Waiting {
		v.hold(Verdict{Scope: Scope{Kind: Conversation}, Limit: Waiting, Allowed: b.fanOut.Waiting, Used: b.lines[at].waiting, Asked: 1, Retry: unknownRetry})
	}
	if v.Outcome == Refused {
		for i := range g.scopes {
			g.accounts[i].total.Refused++
		}
		b.meters(now, &g, &v)
		return v
	}
	if b.fanOut.Concurrency > 0 && who.Conversation != 0 {
		g.line = b.join(who.Conversation, at)
	}
	g.running = !waits
	for i := range g.scopes {
		a := g.accounts[i]
		a.requests.take(unit)
		a.tokens.take(g.reserved[i])
		a.count(g.running, 1)
	}
	v.Grant = b.keep(g)
	if waits {
		v.Outcome = Wait
		b.enqueue(g.line, v.Grant.index)
	} else if g.line != none {
		b.lines[g.line].running++
	}
	b.meters(now, &g, &v)
	return v
}

// Settle ends a grant: what was reserved is given back, and what was used is taken. One
// that still waits has used nothing, whatever u says. A grant that is settled already, or
// none, changes nothing. The words are for those of whom the end of this one decides; they
// are valid until the next call.
func (b *Book) Settle(now mono.Time, held Grant, u Usage) []Word {
	b.words = b.words[:0]
	g := b.find(held)
	if g == nil {
		return nil
	}
	if !g.running {
		b.leave(g.line, held.index)
		u = Usage{Unsent: true}
	}
	line := g.line
	b.close(now, held.index, u)
	if line != none {
		b.proceed(now, line)
	}
	return b.words
}

// close books a grant's use and forgets it.
func (b *Book) close(now mono.Time, index int32, u Usage) {
	g := &b.grants[index]
	for i := range g.scopes {
		a := g.accounts[i]
		a.advance(now)
		a.tokens.take(a.cost(u.Input, u.Cached, u.Output) - g.reserved[i])
		if u.Unsent {
			a.requests.take(-unit)
		} else {
			a.total.Requests++
		}
		a.total.add(u)
		a.count(g.running, -1)
		if u.Whole {
			a.answers.learn(u.Output)
		}
	}
	if g.line != none {
		l := &b.lines[g.line]
		if g.running {
			l.running--
		}
		b.forget(g.line)
	}
	*g = grant{generation: g.generation}
	b.unused = append(b.unused, index)
}

// count counts a call among those that run, or that wait.
func (a *account) count(running bool, by int) {
	if running {
		a.running += by
	} else {
		a.waiting += by
	}
}

// scopes finds a caller's accounts.
func (b *Book) scopes(g *grant, who *Caller) {
	for _, s := range [mostScopes]Scope{{Tenant, who.Tenant, ""}, {Key, who.Key, ""}, {Model, who.Model, ""}, {TenantModel, who.Tenant, who.Model}} {
		if s.Name == "" {
			continue
		}
		if a := b.accounts[s]; a != nil {
			g.accounts[g.scopes] = a
			g.scopes++
		}
	}
}

// keep gives a grant its place.
func (b *Book) keep(g grant) Grant {
	if len(b.unused) == 0 {
		b.unused = append(b.unused, int32(len(b.grants)))
		b.grants = append(b.grants, grant{})
	}
	last := len(b.unused) - 1
	i := b.unused[last]
	b.unused = b.unused[:last]
	g.generation = b.grants[i].generation + 1
	if g.generation == 0 {
		g.generation = 1
	}
	b.grants[i] = g
	return Grant{i, g.generation}
}

// find returns what is held by a grant; nil: nothing any more.
func (b *Book) find(g Grant) *grant {
	if !g.Held() || int(g.index) >= len(b.grants) {
		return nil
	}
	if x := &b.grants[g.index]; x.held && x.generation == g.generation {
		return x
	}
	return nil
}

// meters shows the caller what is left of its own rates.
func (b *Book) meters(now mono.Time, g *grant, v *Verdict) {
	for i := range g.scopes {
		if a := g.accounts[i]; a.scope.Kind == Tenant || a.scope.Kind == Key {
			v.Requests.tighten(a.requests.meter(now))
			v.Tokens.tighten(a.tokens.meter(now))
		}
	}
}

// tighten makes m the one of the two that has the smaller part left.
func (m *Meter) tighten(o Meter) {
	if o.Limit > 0 && (m.Limit == 0 || int64(o.Remaining)*int64(m.Limit) < int64(m.Remaining)*int64(o.Limit)) {
		*m = o
	}
}
