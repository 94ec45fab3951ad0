// Package observe is layer 3 (endpoint selection), live: it keeps what is known of
// endpoints fresh. Scrape asks one endpoint for its load at a steady beat and hands
// over what it says; whose memory that goes to, and who waits for Scrape to end, is the
// caller's business.
package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
	"kvasir/selection/signal"
	"kvasir/upstream"
)

// DefaultInterval is the time from one scrape to the next where a Target names none.
const DefaultInterval = time.Second

// timeoutMost bounds a scrape, the reading of the page included, where the interval is
// longer.
const timeoutMost = 5 * time.Second

// drainMost is how much of an answer that is of no use is read for the connection's sake.
const drainMost = 64 << 10

// accept asks for the one format that every exporter has.
const accept = "text/plain;version=0.0.4"

// Target is one endpoint's page of metrics.
type Target struct {
	Name     string                // the endpoint's name, for errors
	URL      string                // of the page, http or https
	Header   http.Header           // sent with each scrape; may be nil
	Dialect  upstream.Dialect      // how to read the page
	Interval time.Duration         // from one scrape to the next; 0: DefaultInterval
	Warn     func(upstream.Report) // told of each page that was read and wasn't clean; may be nil
}

// Sink takes the outcome of a scrape: how long it took, and either the load or an
// error. The instants in load are the zero mono.Time: it has no clock of the machine's,
// so the sink stamps (signal.Load.Stamped), with an instant took ago or with its own. A
// Sink is called by Scrape's goroutine, one call at a time.
type Sink func(took time.Duration, load signal.Load, err error)

// Phase returns when within the interval a router scrapes an endpoint, from 0 to just
// below interval, to the nanosecond. It follows from the two names alone: routers
// started together don't ask together, and a router's restart doesn't change its beat.
// It panics when interval isn't positive.
func Phase(router, endpoint string, interval time.Duration) time.Duration {
	r := seed.New(uint64(kvblock.Seed(router, endpoint)), seed.Scrape, 0, 0)
	return time.Duration(r.Intn(int(interval)))
}

// Scrape asks the target for its load until ctx ends: first phase after the call, then
// on the grid that an interval's steps from there make, whatever a scrape takes. A
// scrape that outlasts its step skips the beats that it missed; two never overlap. Each
// may take the interval, but 5s at most. A page that can't be had whole, has another
// status than 200, is longer than upstream.MaxPage or has none of the dialect's series
// is an error; redirects are not followed. Nothing is handed over once ctx has ended.
//
// A target that can't be asked at all is an error once, and Scrape returns.
func Scrape(ctx context.Context, client *http.Client, t Target, phase time.Duration, sink Sink) {
	start := time.Now()
	s, err := newScraper(client, t)
	if err != nil {
		sink(0, signal.Load{}, err)
		return
	}
	timer := time.NewTimer(phase)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		sent := time.Now()
		load, err := s.scrape(ctx)
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		sink(now.Sub(sent), load, err)
		timer.Reset(untilBeat(time.Since(start)-phase, s.target.Interval))
	}
}

// untilBeat returns the time to the next multiple of interval, given the time since the
// first beat.
func untilBeat(since, interval time.Duration) time.Duration {
	return interval - since%interval
}

// scraper is what lasts from one scrape to the next.
type scraper struct {
	client  http.Client
	target  Target
	url     *url.URL
	timeout time.Duration
}

func newScraper(client *http.Client, t Target) (*scraper, error) {
	if t.Interval == 0 {
		t.Interval = DefaultInterval
	}
	u, err := url.Parse(t.URL)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which may have a password
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("scrape %s: url: %w", t.Name, err)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("scrape %s: url: %q is not allowed; allowed: http or https with a host", t.Name, u.Redacted())
	case t.Interval < 0:
		return nil, fmt.Errorf("scrape %s: interval: %v is not allowed; allowed: above 0", t.Name, t.Interval)
	case t.Dialect.ReadLoad == nil:
		return nil, fmt.Errorf("scrape %s: dialect: %q reports no load", t.Name, t.Dialect.Name)
	}
	s := &scraper{client: *client, target: t, url: u, timeout: min(t.Interval, timeoutMost)}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s, nil
}

func (s *scraper) scrape(ctx context.Context) (signal.Load, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	page := pages.Get().(*bytes.Buffer)
	defer pages.Put(page)
	if err := s.fetch(ctx, page); err != nil {
		return signal.Load{}, fmt.Errorf("scrape %s: %w", s.target.Name, err)
	}
	load, report := s.target.Dialect.ReadLoad(page.Bytes(), 0)
	if report.Samples == 0 {
		return signal.Load{}, fmt.Errorf("scrape %s: %s has none of the series of %s", s.target.Name, s.url.Redacted(), s.target.Dialect.Name)
	}
	if s.target.Warn != nil && !report.Clean() {
		s.target.Warn(report)
	}
	return load, nil
}

// fetch reads the page into page.
func (s *scraper) fetch(ctx context.Context, page *bytes.Buffer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.target.URL, nil)
	if err != nil {
		return err
	}
	if s.target.Header != nil {
		req.Header = s.target.Header.Clone()
	}
	req.Header.Set("Accept", accept)
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	page.Reset()
	if resp.StatusCode != http.StatusOK {
		// What is read to its end leaves the connection usable.
		_, _ = page.ReadFrom(io.LimitReader(resp.Body, drainMost))
		// The code alone: an endpoint may quote the key in the words beside it.
		return fmt.Errorf("%s: status %d", s.url.Redacted(), resp.StatusCode)
	}
	n, err := page.ReadFrom(io.LimitReader(resp.Body, upstream.MaxPage+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", s.url.Redacted(), err)
	case n > upstream.MaxPage:
		return fmt.Errorf("%s: the page is longer than %d bytes", s.url.Redacted(), upstream.MaxPage)
	}
	return nil
}

// pages are the buffers of scrapes under way. Kept by each of 500 scrapers, which
// sleep most of the time, they would be 100 MiB.
var pages = sync.Pool{New: func() any { return new(bytes.Buffer) }}
