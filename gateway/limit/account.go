package limit

import (
	"kvasir/internal/mono"
)

// account is one scope's use.
type account struct {
	scope   Scope
	caps    Caps
	weights [3]int64 // of input, cached and output tokens, in thousandths

	running, waiting int
	requests, tokens bucket
	total            Total
	answers          mean // length
}

// configure changes the scope's bounds. Use so far stays.
func (a *account) configure(now mono.Time, c Caps) {
	burst := c.Burst
	if burst == 0 {
		burst = defaultBurst
	}
	a.caps = c
	w := c.Weights
	if w == (Weights{}) {
		w = DefaultWeights()
	}
	a.weights = [3]int64{thousandths(w.Input), thousandths(w.Cached), thousandths(w.Output)}
	a.requests.configure(now, c.RPM, burst)
	a.tokens.configure(now, c.TPM, burst)
}

func thousandths(w float64) int64 { return int64(float64(w*1000) + 0.5) }

// mostTokens bounds the tokens of a call that are believed: weighted they don't overflow.
const mostTokens = 1 << 28

// cost returns what so many tokens cost by the scope's weights, in units of its bucket.
func (a *account) cost(input, cached, output int) int64 {
	in := int64(min(max(input, 0), mostTokens))
	found := min(int64(max(cached, 0)), in)
	out := int64(min(max(output, 0), mostTokens))
	return ((in-found)*a.weights[0] + found*a.weights[1] + out*a.weights[2]) * milliUnit
}

// advance lets the time since the last look go by.
func (a *account) advance(now mono.Time) {
	a.requests.advance(now)
	a.tokens.advance(now)
}

// full reports whether as many calls run as may.
func (a *account) full() bool { return a.caps.Concurrency > 0 && a.running >= a.caps.Concurrency }

// refuses reports the limit of the scope that keeps a call out for longest, in v. waits says
// that the call will not run yet.
func (a *account) refuses(now mono.Time, cost int64, waits bool, v *Verdict) {
	if a.full() && !waits {
		v.hold(Verdict{Scope: a.scope, Limit: Concurrency, Allowed: a.caps.Concurrency, Used: a.running, Asked: 1, Retry: unknownRetry})
	}
	if d := a.requests.until(now, unit); d > 0 {
		v.hold(Verdict{Scope: a.scope, Limit: Requests, Allowed: a.caps.RPM, Used: a.requests.used(), Asked: 1, Retry: d})
	}
	if d := a.tokens.until(now, a.tokens.reserve(cost)); d > 0 {
		v.hold(Verdict{Scope: a.scope, Limit: Tokens, Allowed: a.caps.TPM, Used: a.tokens.used(), Asked: int(ceil(cost, unit)), Retry: d})
	}
}

// hold makes v a refusal by what r says, unless it is one that holds longer.
func (v *Verdict) hold(r Verdict) {
	if v.Outcome != Refused || r.Retry > v.Retry {
		r.Outcome = Refused
		*v = r
	}
}

// used returns how much of a bucket is used, rounded up.
func (b *bucket) used() int { return int(ceil(b.full-b.level, unit)) }
