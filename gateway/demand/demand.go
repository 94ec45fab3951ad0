// Package demand is layer 2 (gateway), pure: what is asked of a pool, beside what it can do. The
// gateway sees what no engine does: calls that wait before engines, and calls that it refused. An
// autoscaler that goes by it knows how many replicas would have answered all of them in time.
//
// Sources: Little's law and the Pollaczek–Khinchine formula as in article sections 1.2 and 1.3;
// article 11.2 for what is no signal (GPU utilization).
package demand

import (
	"math"
	"time"

	"kvasir/internal/mono"
	"kvasir/internal/queueing"
)

// Meter measures the calls that come, refused ones included, over the last minute. The zero
// Meter has seen none. It takes 12 cells of 5 s; it is not safe for concurrent use.
type Meter struct {
	cells  [cells]cell
	newest int64 // number of the newest cell, from the clock's beginning
	from   mono.Time
	any    bool
}

const (
	cells = 12
	width = 5 * time.Second
)

type cell struct {
	calls  int64
	tokens float64 // of prefill that they bring
	square float64 // summed over the calls: tokens²
}

// Come adds a call that came now and brings so many tokens of prefill that no cache holds.
func (m *Meter) Come(now mono.Time, tokens int64) {
	m.advance(now)
	if !m.any {
		m.any, m.from = true, now
	}
	c, x := &m.cells[m.newest%cells], float64(tokens)
	c.calls++
	c.tokens += x
	c.square += float64(x * x)
}

func (m *Meter) advance(now mono.Time) {
	n := int64(now.Duration() / width)
	if n-m.newest >= cells {
		m.cells = [cells]cell{}
		m.newest = n
		return
	}
	for m.newest < n {
		m.newest++
		m.cells[m.newest%cells] = cell{}
	}
}

// Asked is what came lately. The zero Asked is nothing.
type Asked struct {
	Calls     float64 // a second
	Tokens    float64 // of prefill that no cache holds, a second
	Variation float64 // of these tokens over the calls: squared coefficient of variation
}

// Lately returns what came in the last minute, or since the first call where that is less.
func (m *Meter) Lately(now mono.Time) Asked {
	m.advance(now)
	var sum cell
	for _, c := range m.cells {
		sum.calls += c.calls
		sum.tokens += c.tokens
		sum.square += c.square
	}
	if sum.calls == 0 {
		return Asked{}
	}
	// The oldest cell is there whole, the newest in part.
	seen := (cells-1)*width + now.Sub(mono.Time(m.newest*int64(width)))
	if since := now.Sub(m.from); since < seen {
		seen = since
	}
	s := max(seen, width).Seconds()
	n := float64(sum.calls)
	mean := sum.tokens / n
	a := Asked{Calls: n / s, Tokens: sum.tokens / s}
	if mean > 0 {
		a.Variation = max(sum.square/n/float64(mean*mean)-1, 0)
	}
	return a
}

// Replica is what one endpoint of a pool does, in the mean over those in rotation; a value of 0
// is not known.
type Replica struct {
	Speed     float64       // tokens of prefill a second
	Residence time.Duration // from a call's dispatch to its end
	Places    float64       // calls that it holds at once before its KV is full
}

// Need is what a demand asks for.
type Need struct {
	Knee     float64 // utilization at which a call waits as long as the SLO lets it; 0: not known
	Prefill  float64 // replicas that the prefill keeps busy up to the knee; 0: not known
	Places   float64 // replicas that hold the calls in flight, by Little's law; 0: not known
	Replicas int     // that are needed: the greater one, rounded up, 1 where nothing comes; 0: not known, for want of Prefill
}

// Of returns how many replicas the demand needs for a first token within ttft, in the mean.
//
// A replica's prefill is taken for an M/G/1 queue: with S the mean prefill of a call and C² its
// variation, a call waits S·ρ/(1−ρ)·(1+C²)/2, so that it waits ttft − S at the knee
//
//	ρ* = x / (x + (1+C²)/2)    x = (ttft − S)/S
//
// and tokens/(speed·ρ*) replicas are needed. A pool of such queues whose router looks at them waits
// less than each by itself, as much less as nine calls in ten are to be in time and not the mean:
// docs/operations.md has what the simulator says. The calls in flight are l = λ·W in the mean by
// Little's law, more than l + 1.28·√l in one of ten instants where calls come by chance, and take as
// many places.
func Of(a Asked, r Replica, ttft time.Duration) (n Need) {
	if a.Calls > 0 && r.Speed > 0 && a.Tokens > 0 && ttft > 0 {
		prefill := a.Tokens / a.Calls / r.Speed // S
		if x := ttft.Seconds()/prefill - 1; x > 0 {
			n.Knee = queueing.Knee(x, 1, a.Variation)
			n.Prefill = a.Tokens / float64(r.Speed*n.Knee)
		}
	}
	if r.Residence > 0 && r.Places > 0 {
		l := float64(a.Calls * r.Residence.Seconds())
		n.Places = (l + float64(slack*math.Sqrt(l))) / r.Places
	}
	switch {
	case n.Prefill > 0:
		most := min(max(n.Prefill, n.Places), mostReplicas)
		n.Replicas = int(math.Ceil(most - 1e-9)) // a sum that is whole but for its last bit is whole
	case a.Calls == 0 && ttft > 0:
		n.Replicas = 1
	}
	return n
}

// slack is how many standard deviations nine instants in ten stay below.
const slack = 1.28

// mostReplicas bounds what is asked for, whatever is measured.
const mostReplicas = 1 << 20
