package sim

import (
	"time"

	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
)

// Clients says how those behave who wait for answers. The zero Clients wait for ever and try
// once. What clients do keeps an overload up once it is there: who leaves has had work done
// for nothing, and comes again (article section 9.1; metastable failures, HotOS '21).
type Clients struct {
	Patience time.Duration // until the first content, then the client leaves; 0: for ever
	Retries  int           // how often a call that failed, or that its client left, is sent again
	Backoff  time.Duration // before the first of those; doubles each time up to 8 s; default 500 ms

	// Deaf clients heed no Retry-After. Others wait for one of up to a minute in place of
	// their backoff, as OpenAI's and Anthropic's SDKs do.
	Deaf bool
}

// What SDKs have as bounds: of the backoff, and of the Retry-After that they heed.
const (
	clientBackoff    = 500 * time.Millisecond
	maxClientBackoff = 8 * time.Second
	maxHeeded        = time.Minute
)

// again returns when the client sends the call again that has ended, the nth of its tries from
// 0, if it does.
func (c *Clients) again(now mono.Time, r *Record, root uint64, n int) (mono.Time, bool) {
	if n >= c.Retries || r.Succeeded() || r.Refused == 0 && r.Outcome == attempt.CallerFault || r.First > 0 {
		return 0, false // after content an SDK does not try again
	}
	wait := c.Backoff
	if wait == 0 {
		wait = clientBackoff
	}
	for range n {
		wait = min(2*wait, maxClientBackoff)
	}
	x := seed.New(root, seed.Client, uint64(r.Call), uint64(n))
	wait = mono.FromSeconds(wait.Seconds() * (0.75 + float64(0.25*x.Float64())))
	if r.Later > 0 && r.Later <= maxHeeded && !c.Deaf {
		wait = r.Later
	}
	return now.Add(max(wait, 1)), true
}
