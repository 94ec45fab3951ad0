package admission

import (
	"time"

	"kvasir/internal/mono"
)

// Axis is one way in which an endpoint can be short of what calls need. They are kept apart,
// because none stands for another: a full KV cache leaves the processor idle, and a busy
// processor says nothing of the cache (article section 5; not guessed from GPU use).
type Axis uint8

// The axes.
const (
	Waiting     Axis = iota // work that is not begun: calls that the engine says wait there, or this gateway's unstarted prefill against the SLO
	KVUsage                 // share of KV blocks in use, of the fullest rank
	Preemptions             // calls that the engine puts back for want of KV blocks, a second
	TTFT                    // predicted time to first token against the SLO, the wait at the gateway included

	axes
)

var axisNames = [axes]string{"waiting", "kv_usage", "preemptions", "ttft"}

// String returns the axis's name in snake_case.
func (a Axis) String() string { return axisNames[a] }

// Axes returns all of them.
func Axes() []Axis { return []Axis{Waiting, KVUsage, Preemptions, TTFT} }

// Overload says when a pool is saturated, and which calls are refused because they would come
// too late. The zero Overload never refuses.
type Overload struct {
	// What is 1 on an axis; 0: the axis says nothing. Of TTFT and of unstarted prefill it is
	// the model's SLO.
	Waiting     float64 // calls that wait in an endpoint's engine
	KVUsage     float64 // share of its KV blocks in use, 0 to 1
	Preemptions float64 // a second, at an endpoint

	Ramp Ramp
}

// DefaultOverload returns the thresholds of GIE's utilization detector, five calls and 0.8, and one
// preemption a second. The ramp ends below 1, because predictions are of prefill alone, and what
// an engine decodes meanwhile makes it slower; docs/decisions/0023 has figures.
func DefaultOverload() Overload {
	return Overload{Waiting: 5, KVUsage: 0.8, Preemptions: 1, Ramp: Ramp{From: 0.6, To: 0.9}}
}

// Level is how far along an axis something is: 1 is saturated. What is not known is not 0.
type Level struct {
	Value float64
	Known bool
}

// AtLevel returns a level that is known.
func AtLevel(v float64) Level { return Level{v, true} }

// Reading is what is known of one endpoint, by axis.
type Reading [axes]Level

// Worst returns the highest of the levels, and its axis.
func (r *Reading) Worst() (Level, Axis) {
	worst, at := Level{}, Axis(0)
	for a, l := range r {
		if l.Known && (!worst.Known || l.Value > worst.Value) {
			worst, at = l, Axis(a)
		}
	}
	return worst, at
}

// Saturation is that of a pool. Its Level is the mean over the pool's endpoints of each one's
// worst axis, as GIE's utilization detector has it: one full endpoint among idle ones is a
// matter of placing, not of shedding. An endpoint of which nothing is known counts neither as
// idle nor as full. A pool of such endpoints alone has no level, and is not saturated.
type Saturation struct {
	Level
	Leads Axis    // the axis whose mean is highest; meaningless where the level is not known
	Axes  Reading // means over the endpoints that are known on each axis
}

// Saturated reports whether calls that may be shed are to stay out.
func (s *Saturation) Saturated() bool { return s.Known && s.Value >= 1 }

// Gauge adds up the readings of a pool's endpoints. The zero Gauge has none.
type Gauge struct {
	sum   float64
	n     int
	sums  [axes]float64
	known [axes]int
}

// Add adds an endpoint.
func (g *Gauge) Add(r Reading) {
	if worst, _ := r.Worst(); worst.Known {
		g.sum += worst.Value
		g.n++
	}
	for a, l := range r {
		if l.Known {
			g.sums[a] += l.Value
			g.known[a]++
		}
	}
}

// Saturation returns that of the endpoints that were added.
func (g *Gauge) Saturation() Saturation {
	var s Saturation
	if g.n > 0 {
		s.Level = AtLevel(g.sum / float64(g.n))
	}
	for a := range s.Axes {
		if g.known[a] > 0 {
			s.Axes[a] = AtLevel(g.sums[a] / float64(g.known[a]))
		}
	}
	_, s.Leads = s.Axes.Worst()
	return s
}

// Rise is how fast a counter rises that is read now and then. The zero Rise knows nothing.
type Rise struct {
	count float64
	at    mono.Time
	seen  bool
	rate  float64 // a second, between the latest two readings
	rated bool
}

// Read takes a reading that was true at the instant. A counter that falls was reset: it begins
// anew. A reading that is no newer than the one before says nothing.
func (r *Rise) Read(count float64, at mono.Time) {
	switch {
	case !r.seen || count < r.count:
		r.rated = false
	case at <= r.at:
		return
	default:
		r.rate, r.rated = (count-r.count)/at.Sub(r.at).Seconds(), true
	}
	r.count, r.at, r.seen = count, at, true
}

// Rate returns how fast it rises, a second; false where less than two readings are known, or
// the newest is older than maxAge. maxAge 0: any age counts.
func (r *Rise) Rate(now mono.Time, maxAge time.Duration) (float64, bool) {
	if !r.rated || maxAge > 0 && now.Sub(r.at) > maxAge {
		return 0, false
	}
	return r.rate, true
}

// Ramp says how likely a call is refused that would have to wait: not at all while the predicted
// wait is at most From of the time that its deadline leaves beside its own prefill, for certain
// from To on, and between them in proportion. Refusing all calls past one threshold makes the
// load swing about it: none goes, then all do. Under a lasting overload the wait settles on the
// ramp, so To stays below 1: what is predicted is not what comes.
type Ramp struct{ From, To float64 }

// Refuses reports whether a call is refused that would wait so long, where its deadline leaves so
// much beside its own prefill. draw is from 0 to 1, 1 exclusive.
func (r Ramp) Refuses(wait, left time.Duration, draw float64) bool {
	if r.To <= 0 {
		return false
	}
	if left <= 0 {
		return true
	}
	x := wait.Seconds() / left.Seconds()
	if r.To <= r.From {
		return x >= r.To
	}
	return draw < (x-r.From)/(r.To-r.From)
}
