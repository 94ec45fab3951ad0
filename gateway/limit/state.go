package limit

import "kvasir/internal/mono"

// Total adds up what the calls of a scope that have ended used since it came.
type Total struct {
	Requests              int64 // that were sent
	Refused               int64 // calls that a limit has refused, of this scope or of another one of theirs
	Input, Cached, Output int64 // tokens; Cached is a part of Input
	Estimated             int64 // calls whose tokens were counted and not reported
}

func (t *Total) add(u Usage) {
	t.Input += int64(max(u.Input, 0))
	t.Cached += int64(max(u.Cached, 0))
	t.Output += int64(max(u.Output, 0))
	if u.Estimated {
		t.Estimated++
	}
}

// State is a scope's use at one moment.
type State struct {
	Scope            Scope
	Caps             Caps
	Running, Waiting int
	Requests, Tokens Meter // Limit 0: no such bound
	Total            Total
}

// States returns every scope's use, in the order of the Config's Rules.
func (b *Book) States(now mono.Time) []State {
	out := make([]State, 0, len(b.order))
	for _, a := range b.order {
		a.advance(now)
		out = append(out, State{
			Scope: a.scope, Caps: a.caps, Running: a.running, Waiting: a.waiting,
			Requests: a.requests.meter(now), Tokens: a.tokens.meter(now), Total: a.total,
		})
	}
	return out
}

// Load returns how many grants are held and how many conversations have calls.
func (b *Book) Load() (grants, conversations int) {
	return len(b.grants) - len(b.unused), len(b.conversations)
}
