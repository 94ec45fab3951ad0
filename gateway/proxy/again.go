package proxy

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/telemetry"
)

// repeats remembers the idempotency keys of calls that came lately: one that comes again
// says that its client tries again. Whether the first call is still running makes no
// difference. Nothing is coalesced: the answer to one call is never given to two, and which
// of the two the client still reads only its connections tell. The one that it has left is
// aborted as any call whose client leaves (field case F15).
//
// What is remembered is bounded in number and in time: the older half goes when the newer
// one is full, or repeatsFor after it was begun.
type repeats struct {
	mu         sync.Mutex
	newer, old map[kvblock.Hash]struct{}
	since      time.Time // when newer was begun
}

const (
	// mostRepeats bounds each half; an entry takes about 30 bytes.
	mostRepeats = 1 << 16
	// repeatsFor is how long a key is remembered at the least, unless so many others come;
	// at most it is twice that. SDKs give up a call after 10 minutes by default.
	repeatsFor = 10 * time.Minute
)

// seen notes a client's key and reports whether it was there.
func (r *repeats) seen(now time.Time, client, key string) bool {
	h := kvblock.Seed("idempotency", client, key)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch age := now.Sub(r.since); {
	case r.newer == nil || age >= 2*repeatsFor:
		r.old, r.newer, r.since = nil, map[kvblock.Hash]struct{}{}, now
	case len(r.newer) >= mostRepeats || age >= repeatsFor:
		r.old, r.newer, r.since = r.newer, map[kvblock.Hash]struct{}{}, now
	}
	_, newer := r.newer[h]
	_, old := r.old[h]
	r.newer[h] = struct{}{}
	return newer || old
}

// againBy returns the sign by which a call shows that its client has sent it before;
// telemetry.NotRepeated: there is none. It is asked once a call.
func (c *call) againBy() telemetry.Repeated {
	counted := retryCount(c.in.Header) > 0
	if key := c.in.Header.Get("Idempotency-Key"); key != "" {
		who := c.record.Client
		if who == "" {
			who = c.record.Peer // clients without a key of ours are told apart as far as they can be
		}
		if c.g.repeats.seen(c.arrived, who, key) && !counted {
			return telemetry.RepeatedKey
		}
	}
	if counted {
		return telemetry.RepeatedCount
	}
	return telemetry.NotRepeated
}

// retryCount returns the number that OpenAI's and Anthropic's SDKs give a try, 0 being the
// first; 0 also for what is no number. One that is too large for an int is the largest.
func retryCount(h http.Header) int {
	v := h.Get("X-Stainless-Retry-Count")
	if v == "" { // of most calls: an error takes memory
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return n // of a number out of range Atoi gives the nearest
}
