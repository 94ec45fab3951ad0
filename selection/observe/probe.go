package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// probeMost is how much of a probe's answer is read. Health pages have a few bytes.
const probeMost = 4 << 10

// ProbeTarget is one endpoint's health page.
type ProbeTarget struct {
	Name     string        // the endpoint's name, for errors
	URL      string        // of the page, http or https
	Header   http.Header   // sent with each probe; may be nil
	Interval time.Duration // from one probe to the next; 0: DefaultInterval
	Timeout  time.Duration // of a probe, the reading of the answer included; 0: the interval, but 5s at most
	// Doubt, optional, asks for a probe at once, beside the beat: whoever sends has found that
	// nobody listens there (Refused).
	Doubt <-chan struct{}
}

// A probe that finds nobody listening is repeated soon, so that a process that has died is
// known to be dead before more calls go there; but not for long where nobody comes back.
const (
	refusedAgain = 250 * time.Millisecond
	refusedTimes = 20
)

// Refused reports whether an error of a Scrape or a Probe says that nobody listens at the
// address: the process is gone, or is not there yet.
func Refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// Probe asks the target whether it is well until ctx ends: first phase after the call,
// then on the grid that an interval's steps from there make. A probe that outlasts its
// step skips the beats that it missed; two never overlap. One that finds nobody listening is
// repeated every 250 ms, 20 times at most before one finds somebody. The sink is called by Probe's
// goroutine, once for each probe, and no more when ctx has ended.
//
// The endpoint is well when it answers 2xx within the timeout. Another status, a
// redirect, an answer that is late or cut short, and no connection are an error that
// says so in a few words, without what the endpoint said; it wraps
// context.DeadlineExceeded where it is about time, and ErrNoPage where the status may mean
// that there is no such page, or not for us: 401, 403, 404, 405 or 501. Of the answer at
// most 4 KiB are read.
//
// A target that can't be asked at all is an error once, and Probe returns.
func Probe(ctx context.Context, client *http.Client, t ProbeTarget, phase time.Duration, sink func(ok bool, err error)) {
	p, err := newProber(client, t)
	if err != nil {
		sink(false, fmt.Errorf("probe %s: %w", t.Name, err))
		return
	}
	refused := 0 // in a row
	b := beater{phase: phase, interval: p.target.Interval, early: p.target.Doubt}
	b.run(ctx, func() time.Duration {
		err := p.probe(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			sink(false, fmt.Errorf("probe %s: %s: %w", t.Name, p.url.Redacted(), err))
		default:
			sink(true, nil)
		}
		if !Refused(err) {
			refused = 0
			return 0
		}
		if refused++; refused > refusedTimes {
			return 0
		}
		return refusedAgain
	})
}

// ErrNoPage is the error of a health page that the endpoint may not have: one that has
// never been well says nothing of the endpoint.
var ErrNoPage = errors.New("no such page for us")

func hidden(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

// prober is what lasts from one probe to the next.
type prober struct {
	client http.Client
	target ProbeTarget
	url    *url.URL
}

func newProber(client *http.Client, t ProbeTarget) (*prober, error) {
	if t.Interval == 0 {
		t.Interval = DefaultInterval
	}
	if t.Timeout == 0 {
		t.Timeout = min(t.Interval, timeoutMost)
	}
	switch {
	case t.Interval < 0:
		return nil, fmt.Errorf("interval: %v is not allowed; allowed: above 0", t.Interval)
	case t.Timeout < 0:
		return nil, fmt.Errorf("timeout: %v is not allowed; allowed: above 0", t.Timeout)
	}
	u, err := parseURL(t.URL)
	if err != nil {
		return nil, err
	}
	return &prober{client: noRedirects(client), target: t, url: u}, nil
}

func (p *prober) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.target.Timeout)
	defer cancel()
	page := pages.Get().(*bytes.Buffer)
	defer pages.Put(page)
	resp, err := get(ctx, &p.client, p.url, p.target.Header, "*/*", page, probeMost, probeMost)
	switch {
	case resp != nil && hidden(resp.StatusCode):
		return fmt.Errorf("%w: %w", statusError(resp.StatusCode), ErrNoPage)
	case resp != nil && resp.StatusCode/100 != 2:
		return statusError(resp.StatusCode)
	case err != nil:
		return fail(err, p.target.Timeout)
	}
	return nil
}
