// Package admission is layer 2 (gateway), pure: calls that wait at the gateway, who of
// them goes next, and who is refused because too many wait already. A call that waits here
// is placed with what is known when an endpoint has room for it, not when it came; one that
// waits in an engine can't be placed anew (article section 9.3; late binding as in SkyWalker's
// selective pushing, EuroSys '26).
//
// The package keeps order and bounds, and says when a pool is saturated. gateway/flow owns the
// queues, decides which endpoint has room, and drives them under its machine's lock.
package admission

import (
	"fmt"
	"strings"
	"time"
)

// Order says who goes first of those that wait in one band of priority.
type Order uint8

// The orders.
const (
	FIFO       Order = iota // who came first
	LeastSlack              // who has the least time left: deadline less now less its own prefill
	Deadline                // whose deadline comes first
	Fair                    // whose principal has had the least service (Virtual Token Counter, OSDI '24)
	FairLocal               // of those whose principal is not too far ahead, who finds the longest prefix (deficit longest prefix match, arXiv 2501.14312)
)

var orderNames = [...]string{"fifo", "least-slack", "deadline", "fair", "fair-local"}

// String returns the order's name as files and flags have it.
func (o Order) String() string { return orderNames[o] }

// Fair reports whether the order goes by what principals have had.
func (o Order) Fair() bool { return o == Fair || o == FairLocal }

// ParseOrder returns the order of that name.
func ParseOrder(name string) (Order, error) {
	for i, n := range orderNames {
		if n == name {
			return Order(i), nil
		}
	}
	return 0, fmt.Errorf("order: %q is not allowed; allowed: %s", name, strings.Join(orderNames[:], ", "))
}

// Config is one pool's queue. A pool holds calls where Work, Tokens or Adaptive is set.
type Config struct {
	// An endpoint is given a call only while less than this is unstarted there: prefill that
	// it was sent and whose first token has not come. One that has none of it is given a call
	// in any case. 0: no bound.
	Work   time.Duration // predicted
	Tokens int64         // not in its prefix cache, as far as is known

	// An endpoint is given a call only while it has fewer in flight than a limit that is found
	// from how late its first tokens are.
	Adaptive bool
	Gradient GradientConfig

	Order    Order
	Fairness Fairness // of the fair orders
	Turn     int      // of so many calls that go, one is of a lower band where some wait; 0: none is

	Length  int           // most calls that wait
	Bytes   int64         // of their bodies, at most
	MaxWait time.Duration // longest wait, as predicted when a call comes, and as it turns out

	// MaxWaitRatio is the longest predicted wait as a multiple of the mean service time
	// (article section 9.3); 0: no such bound.
	MaxWaitRatio float64
}

// Default returns the bounds of a queue whose pool holds nothing.
func Default() Config {
	return Config{Gradient: DefaultGradient(), Fairness: DefaultFairness(), Turn: 8, Length: 1024, Bytes: 256 << 20, MaxWait: 30 * time.Second}
}

// On reports whether the pool holds calls.
func (c Config) On() bool { return c.Work > 0 || c.Tokens > 0 || c.Adaptive }

// Alike reports whether a queue of this configuration can go on with the other one: who
// waits keeps its place, and principals what they have had.
func (c Config) Alike(o Config) bool {
	return c.Order == o.Order && (!c.Order.Fair() || c.Fairness.By == o.Fairness.By)
}

// Bound is a bound of a queue.
type Bound uint8

// The bounds.
const (
	Within     Bound = iota // none is reached
	LengthMost              // Config.Length
	BytesMost               // Config.Bytes
	WaitMost                // Config.MaxWait, or Config.MaxWaitRatio
)
