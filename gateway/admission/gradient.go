package admission

import "math"

// GradientConfig says how an endpoint's limit on calls in flight is found.
type GradientConfig struct {
	Min, Max  int     // bounds of the limit; defaults 4 and 1024
	Tolerance float64 // how many times the unloaded slowdown is still no sign of a queue; default 3
	Smoothing float64 // weight of a step of the limit, 0 to 1; default 0.2
	Window    int     // samples between two looks at the unloaded slowdown; default 600
}

// DefaultGradient returns the defaults.
func DefaultGradient() GradientConfig {
	return GradientConfig{Min: 4, Max: 1024, Tolerance: 3, Smoothing: 0.2, Window: 600}
}

// Gradient finds how many calls an endpoint should have at once, from how much slower it gets
// when it has more: the gradient limit of Netflix's concurrency-limits. Its sample is a slowdown,
// not a time: how long the first token took over how long the call's own prefill takes by itself,
// since prompts differ by a hundred times. With s the mean of the newest slowdowns and b that of
// an endpoint which has half of its limit,
//
//	gradient = clamp(0.5, tolerance · b/s, 1)
//	limit   += smoothing · (limit · gradient + √limit − limit)    without √limit where gradient < 1
//
// so that it grows as long as nothing queues, and falls while something does. It grows only
// where it is in use. Netflix's Gradient2 takes a long-run mean for b, which follows a queue that
// stays; here b is measured, as BBR measures the shortest round trip: every Window samples the
// limit is halved for a round. The zero Gradient has no samples; it is not safe for concurrent
// use.
//
// What it is good for, by the simulator (docs/queue.md): without anything else to bound an engine's
// work it keeps most of the goodput under overload. A bound of unstarted prefill keeps a quarter more
// of it, and twice as much where KV memory is what is short: first tokens are late because of prefill that waits, and fewer calls in flight are
// a costly way to have less of that, since engines decode many at little more cost than few. But so
// their tokens come faster, which no bound of prefill sees to. A tolerance of 1.5, as Netflix has, takes
// the chance of two prompts at once for a queue: it loses a fifth of the goodput of a pool that is not
// overloaded. It is off by default.
type Gradient struct {
	limit, base, short float64
	n                  int // samples since the last look
	probing            int // samples left of the one under way
}

// start is the limit before any sample.
const start = 20

// shortly is over how many samples the newest slowdowns are a mean: one call's is chance.
const shortly = 10

// Limit returns how many calls the endpoint may have.
func (g *Gradient) Limit(c GradientConfig) int {
	limit := g.limit
	switch {
	case limit == 0:
		limit = start
	case g.probing > 0:
		limit /= 2
	}
	return min(max(int(limit), c.Min), c.Max)
}

// Learn adds a call's slowdown, which came while the endpoint had so many calls. One that is
// below 1, or no number, counts as 1: the call was faster than was thought.
func (g *Gradient) Learn(c GradientConfig, slowdown float64, inFlight int) {
	if !(slowdown > 1) {
		slowdown = 1
	}
	slowdown = min(slowdown, mostSlowdown)
	if g.limit == 0 {
		g.limit, g.base, g.short = float64(g.Limit(c)), slowdown, slowdown
	}
	g.short += (slowdown - g.short) / shortly
	if g.probing > 0 {
		if g.probing--; g.probing == 0 {
			g.base = min(g.short, mostBase)
		}
		return
	}
	g.base = min(g.base, g.short)
	if g.n++; g.n >= c.Window {
		g.n, g.probing = 0, int(g.limit)+2*shortly // calls of before the look end first
		return
	}
	gradient := min(max(float64(c.Tolerance*g.base)/g.short, 0.5), 1)
	if gradient == 1 && float64(inFlight) < g.limit/2 {
		return // nobody needs more
	}
	next := float64(g.limit * gradient)
	if gradient == 1 {
		next += math.Sqrt(g.limit)
	}
	g.limit = min(max(g.limit+float64(c.Smoothing*(next-g.limit)), float64(c.Min)), float64(c.Max))
}

const (
	// mostSlowdown bounds a sample, so that one hung call is not the mean for long.
	mostSlowdown = 100
	// mostBase bounds what counts as unloaded: an endpoint that is slower with half of its limit
	// suffers from more than these calls, and is given fewer.
	mostBase = 4
)
