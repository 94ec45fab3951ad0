// Package seed derives independent random streams from one seed and a name, so that
// a decision's randomness depends on what is decided and on nothing else: not on how
// many draws others made before, nor on the order in which goroutines ran.
package seed

import "math/bits"

// Purpose names what a stream of randomness is for. Two purposes never share draws.
type Purpose uint64

// The purposes in use.
const (
	Pick        Purpose = 1 + iota // choosing among endpoints, ties included
	Backoff                        // jitter before another attempt
	Scrape                         // a router's phase within the scrape interval
	Workload                       // what a generated workload asks
	Output                         // how long an emulated answer becomes
	Fault                          // injected faults of an emulated engine
	SlowStart                      // whether a call may go to an endpoint that is new
	Arrival                        // when a generated workload's sessions come
	Speculation                    // which drafted tokens a model accepts
	Route                          // which of several gateways a session goes to
	Loss                           // which readings of an endpoint's gauges are lost
	Adapter                        // which LoRA adapter a generated session asks for
	PeerLoss                       // which words of other gateways are lost
	Shadow                         // choosing among endpoints by a policy whose choice has no effect
	Client                         // jitter before a client tries again
	Deadline                       // whether a call is refused whose deadline may not be kept
)

// Rand is a small deterministic generator (SplitMix64: Steele, Lea and Flood, 2014).
// It is a value, never allocates, and is not safe for concurrent use.
type Rand struct{ state uint64 }

// New returns the stream that belongs to (root, purpose, a, b).
func New(root uint64, purpose Purpose, a, b uint64) Rand {
	s := mix(root ^ 0x9e3779b97f4a7c15)
	s = mix(s ^ uint64(purpose))
	s = mix(s ^ a)
	s = mix(s ^ b)
	return Rand{state: s}
}

// Uint64 returns the next 64 random bits.
func (r *Rand) Uint64() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return mix(r.state)
}

// Intn returns a number in [0, n). It panics when n is not positive, which is a
// caller's mistake. The bias is below n/2^64.
func (r *Rand) Intn(n int) int {
	if n <= 0 {
		panic("seed: Intn of a non-positive bound")
	}
	return int(r.Int64n(int64(n)))
}

// Int64n is Intn for bounds that an int of 32 bits cannot hold, such as a time's
// nanoseconds. It draws the same.
func (r *Rand) Int64n(n int64) int64 {
	if n <= 0 {
		panic("seed: Int64n of a non-positive bound")
	}
	hi, _ := bits.Mul64(r.Uint64(), uint64(n))
	return int64(hi)
}

// Float64 returns a number in [0, 1) with 53 random bits.
func (r *Rand) Float64() float64 {
	return float64(r.Uint64()>>11) / (1 << 53)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
