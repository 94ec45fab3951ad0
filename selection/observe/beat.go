package observe

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
)

// DefaultInterval is the time from one beat to the next where a target names none.
const DefaultInterval = time.Second

// timeoutMost bounds an answer where the interval is longer.
const timeoutMost = 5 * time.Second

// Phase returns when within the interval a router asks an endpoint, from 0 to just
// below interval, to the nanosecond. It follows from the two names alone: routers
// started together don't ask together, and a router's restart doesn't change its beat.
// It panics when interval isn't positive.
func Phase(router, endpoint string, interval time.Duration) time.Duration {
	r := seed.New(uint64(kvblock.Seed(router, endpoint)), seed.Scrape, 0, 0)
	return time.Duration(r.Int64n(int64(interval)))
}

// beat calls do until ctx ends: first phase after the call, then on the grid that an
// interval's steps from there make. A do that outlasts its step skips the beats that it
// missed; two never overlap.
func beat(ctx context.Context, phase, interval time.Duration, do func()) {
	b := beater{phase: phase, interval: interval}
	b.run(ctx, func() time.Duration { do(); return 0 })
}

// beater is a beat that can be hurried.
type beater struct {
	phase, interval time.Duration
	early           <-chan struct{} // a beat at once; nil: none ever
}

// run is beat; where do returns a time, the next one comes after that unless the grid's comes
// first.
func (b *beater) run(ctx context.Context, do func() (soon time.Duration)) {
	start := time.Now()
	timer := time.NewTimer(b.phase)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.early:
		}
		soon := do()
		next := b.next(time.Since(start))
		if soon > 0 {
			next = min(next, soon)
		}
		timer.Reset(next)
	}
}

// next returns the time to the grid's next beat, given the time since the start.
func (b *beater) next(since time.Duration) time.Duration {
	if since < b.phase { // hurried before the first one
		return b.phase - since
	}
	return untilBeat(since-b.phase, b.interval)
}

// untilBeat returns the time to the next multiple of interval, given the time since the
// first beat.
func untilBeat(since, interval time.Duration) time.Duration {
	return interval - since%interval
}

// parseURL reads a URL that can be asked, or says why it can't without quoting it where
// it may have a password.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("url: %w", cause(err))
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("url: %q is not allowed; allowed: http or https with a host", u.Redacted())
	}
	return u, nil
}
