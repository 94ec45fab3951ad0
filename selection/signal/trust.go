package signal

import "fmt"

// Trust says how far what is believed of an endpoint's prefix cache may be relied on.
type Trust uint8

// The states, from the least trust on.
const (
	LoadOnly    Trust = iota // beliefs have proved wrong: the endpoint is picked by load alone
	Approximate              // beliefs come from dispatches and answers
	Exact                    // beliefs come from what the engine tells of its blocks
)

var trustNames = [...]string{"load-only", "approximate", "exact"}

// String returns the state's name, as explanations and logs show it.
func (t Trust) String() string {
	if int(t) >= len(trustNames) {
		return fmt.Sprintf("Trust(%d)", uint8(t))
	}
	return trustNames[t]
}

// How an endpoint loses trust and gets it back. A prediction that comes true keeps nearly all
// of its tokens, and one for an engine without a prefix cache none. Between the two are
// engines that evict while calls queue: with a KV cache that thrashes about 45 % of what was
// predicted are found, and going by it still pays (kvasir sim on the Mooncake conversation at
// four times its rate and 800 blocks of 512 tokens: sticky-until-saturated finds 12.2 % of all
// prompt tokens, against 7.5 % where half is asked for). So trust is lost further down.
const (
	// TrustWindow is how many predictions are looked at, the newest ones. A verdict needs as
	// many that were made in the state that it ends, so no state is left before that.
	TrustWindow = 32
	// TrustMost is the most tokens that one prediction counts for. A few long prompts must not
	// decide: their calls may have an engine read no cache, where others find what they left.
	TrustMost = 500
	// TrustLost in a hundred of the predicted tokens must have been found, or a state is left
	// for the next one below.
	TrustLost = 20
	// TrustWon in a hundred must have been found for the next one above.
	TrustWon = 60
)

// Tokens are tokens of prompts: those that were predicted to be cached, and those of them that were.
type Tokens struct{ Predicted, Found int64 }

// CacheTrust compares what was predicted to be in an endpoint's prefix cache with what its
// answers report. In each state predictions are made and compared, also where nobody goes by
// them, so that there is a way back. An endpoint that reports nothing is never compared, and
// keeps its state. The zero CacheTrust is that of an endpoint of which nothing is known, and
// Approximate.
type CacheTrust struct {
	lost   uint8 // how many states it is below the best that its source of beliefs allows
	events bool  // the source is the engine itself

	ring  [TrustWindow]prediction
	next  int
	count int
	sum   Tokens // over the ring
}

type prediction struct{ predicted, found int32 }

// State returns how far beliefs may be relied on.
func (c *CacheTrust) State() Trust { return c.best() - Trust(c.lost) }

// best is the state that the source of beliefs allows.
func (c *CacheTrust) best() Trust {
	if c.events {
		return Exact
	}
	return Approximate
}

// Compare takes a prediction of tokens in the cache, above 0, and how many of them were
// found there. Where that changes the state it returns the sums that led to it.
func (c *CacheTrust) Compare(predicted, found int64) (led Tokens, changed bool) {
	if predicted <= 0 {
		return Tokens{}, false
	}
	found = min(max(found, 0), predicted)
	if predicted > TrustMost {
		found = found * TrustMost / predicted
		predicted = TrustMost
	}
	if old := &c.ring[c.next]; c.count == TrustWindow {
		c.sum.Predicted -= int64(old.predicted)
		c.sum.Found -= int64(old.found)
	} else {
		c.count++
	}
	c.ring[c.next] = prediction{int32(predicted), int32(found)}
	c.next = (c.next + 1) % TrustWindow
	c.sum.Predicted += predicted
	c.sum.Found += found
	if c.count < TrustWindow {
		return Tokens{}, false
	}
	switch share := c.sum.Found * 100; {
	case share < TrustLost*c.sum.Predicted && c.State() > LoadOnly:
		c.lost++
	case share >= TrustWon*c.sum.Predicted && c.lost > 0:
		c.lost--
	default:
		return Tokens{}, false
	}
	led = c.sum
	c.clear()
	return led, true
}

// Feed says whether the engine itself tells what is in its cache, from now on. Where that
// begins, or ends because its events were lost, what was compared says nothing of the new
// source: the state is the best that it allows, but what was load-only must first win trust
// from there. It reports whether the state has changed.
func (c *CacheTrust) Feed(events bool) bool {
	if events == c.events {
		return false
	}
	before := c.State()
	c.events = events
	c.lost = 0
	if before == LoadOnly {
		c.lost = uint8(c.best())
	}
	c.clear()
	return c.State() != before
}

// Forget begins anew with a process of which nothing is known, and whose beliefs have the
// same source.
func (c *CacheTrust) Forget() { *c = CacheTrust{events: c.events} }

// clear forgets what was compared.
func (c *CacheTrust) clear() { c.next, c.count, c.sum = 0, 0, Tokens{} }
