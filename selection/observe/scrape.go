// Package observe is layer 3 (endpoint selection), live: it keeps what is known of
// endpoints fresh. Scrape asks one endpoint for its load at a steady beat, Probe for its
// health, and each hands over what comes; whose memory that goes to, and who waits for
// them to end, is the caller's business.
package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"kvasir/selection/signal"
	"kvasir/upstream"
)

// drainMost is how much of an answer that is of no use is read for the connection's sake.
const drainMost = 64 << 10

// absentFor is how long a page that an endpoint doesn't serve isn't asked for again.
const absentFor = time.Minute

// accept asks for the one metrics format that every exporter has, or for JSON.
const accept = "text/plain;version=0.0.4, application/json"

// Target is one endpoint that tells its load.
type Target struct {
	Name     string                // the endpoint's name, for errors
	Base     string                // the endpoint's URL, http or https, under which the dialect's pages are; "": URL is the only page
	URL      string                // of the metrics page; "": where the dialect has it under Base
	Header   http.Header           // sent with each request; may be nil
	Dialect  upstream.Dialect      // which pages there are and how to read them
	Interval time.Duration         // from one scrape to the next; 0: DefaultInterval
	Warn     func(upstream.Report) // told of each scrape that wasn't clean; may be nil
}

// Sink takes the outcome of a scrape: how long it took, and either the load or an
// error. The instants in load are the zero mono.Time: it has no clock of the machine's,
// so the sink stamps (signal.Load.Stamped), with an instant took ago or with its own. A
// Sink is called by Scrape's goroutine, one call at a time.
type Sink func(took time.Duration, load signal.Load, err error)

// Scrape asks the target for its load until ctx ends: first phase after the call, then
// on the grid that an interval's steps from there make, whatever a scrape takes. A
// scrape that outlasts its step skips the beats that it missed; two never overlap. Each
// may take the interval, but 5s at most. Nothing is handed over once ctx has ended.
//
// A scrape asks for the first of the dialect's load pages that the endpoint has, then
// for the metrics page, one after the other on one connection; while several are to be
// had, each may take an even share of the time that is left. A page that is answered
// with 404 or 501 isn't asked for again for a minute, as long as there is another one.
//
// A page that can't be had whole, has another status than 200, is longer than
// upstream.MaxPage or has none of the dialect's numbers is of no use; redirects are not
// followed. It is an error when no page was of use. When one was and another one should
// have been, the load is what the first says and the report tells why (Report.Failed).
//
// A target that can't be asked at all is an error once, and Scrape returns.
func Scrape(ctx context.Context, client *http.Client, t Target, phase time.Duration, sink Sink) {
	s, err := newScraper(client, t)
	if err != nil {
		sink(0, signal.Load{}, fmt.Errorf("scrape %s: %w", t.Name, err))
		return
	}
	beat(ctx, phase, s.target.Interval, func() {
		sent := time.Now()
		load, report, err := s.scrape(ctx)
		took := time.Since(sent)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			sink(took, signal.Load{}, fmt.Errorf("scrape %s: %w", t.Name, err))
			return
		}
		if t.Warn != nil && !report.Clean() {
			t.Warn(report)
		}
		sink(took, load, nil)
	})
}

// scraper is what lasts from one scrape to the next.
type scraper struct {
	client  http.Client
	target  Target
	better  []source // the dialect's load pages, best first
	metrics source
	timeout time.Duration
}

// source is one page of an endpoint.
type source struct {
	url    *url.URL
	read   upstream.Reader
	absent time.Time // until when it isn't asked for
}

// heard is what came of a source. Without an error some number was told.
type heard struct {
	load   signal.Load
	report upstream.Report
	err    error
}

// errAbsent is the error of a source that the endpoint doesn't serve.
var errAbsent = errors.New("not served")

func newScraper(client *http.Client, t Target) (*scraper, error) {
	if t.Interval == 0 {
		t.Interval = DefaultInterval
	}
	switch {
	case t.Interval < 0:
		return nil, fmt.Errorf("interval: %v is not allowed; allowed: above 0", t.Interval)
	case t.Dialect.ReadLoad == nil:
		return nil, fmt.Errorf("dialect: %q reports no load", t.Dialect.Name)
	}
	if t.URL == "" {
		t.URL = t.Base + t.Dialect.MetricsPath
	}
	u, err := parseURL(t.URL)
	if err != nil {
		return nil, err
	}
	s := &scraper{
		client: noRedirects(client), target: t, timeout: min(t.Interval, timeoutMost),
		metrics: source{url: u, read: t.Dialect.ReadLoad},
	}
	if t.Base == "" {
		return s, nil
	}
	for _, p := range t.Dialect.LoadPages {
		if u, err = parseURL(t.Base + p.Path); err != nil {
			return nil, err
		}
		s.better = append(s.better, source{url: u, read: p.Read})
	}
	return s, nil
}

// scrape asks the sources once. The error is the one that matters most when none was of
// use.
func (s *scraper) scrape(ctx context.Context) (signal.Load, upstream.Report, error) {
	now := time.Now()
	deadline := now.Add(s.timeout)
	better := heard{err: errAbsent}
	for i := range s.better {
		if p := &s.better[i]; !now.Before(p.absent) {
			if better = s.ask(ctx, p, time.Until(deadline)/2); !errors.Is(better.err, errAbsent) {
				break
			}
		}
	}
	if better.err == nil && now.Before(s.metrics.absent) {
		return better.load, better.report, nil
	}
	metrics := s.ask(ctx, &s.metrics, time.Until(deadline))
	switch lost := !errors.Is(metrics.err, errAbsent); {
	case metrics.err == nil && better.err == nil:
		load, report := upstream.Join(metrics.load, metrics.report, better.load, better.report)
		return load, report, nil
	case better.err == nil:
		if lost {
			better.report.Failed = metrics.err
		}
		return better.load, better.report, nil
	case metrics.err == nil:
		if !errors.Is(better.err, errAbsent) {
			metrics.report.Failed = better.err
		}
		return metrics.load, metrics.report, nil
	case lost || errors.Is(better.err, errAbsent):
		return signal.Load{}, upstream.Report{}, metrics.err
	}
	return signal.Load{}, upstream.Report{}, better.err
}

// ask asks one source and remembers whether the endpoint has it.
func (s *scraper) ask(ctx context.Context, p *source, timeout time.Duration) heard {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	page := pages.Get().(*bytes.Buffer)
	defer pages.Put(page)
	resp, err := get(ctx, &s.client, p.url, s.target.Header, accept, page, upstream.MaxPage+1, drainMost)
	switch {
	case resp != nil && resp.StatusCode != http.StatusOK:
		err = statusError(resp.StatusCode)
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusNotImplemented {
			p.absent = time.Now().Add(absentFor)
			err = fmt.Errorf("%w: %w", statusError(resp.StatusCode), errAbsent)
		}
	case err != nil:
		err = fail(err, timeout)
	case page.Len() > upstream.MaxPage:
		err = fmt.Errorf("the page is longer than %d bytes", upstream.MaxPage)
	default:
		h := heard{}
		h.load, h.report = p.read(upstream.Page{Body: page.Bytes(), Header: resp.Header.Get}, 0)
		if h.report.Samples > 0 {
			return h
		}
		err = fmt.Errorf("the page has none of the numbers of %s", s.target.Dialect.Name)
	}
	return heard{err: fmt.Errorf("%s: %w", p.url.Redacted(), err)}
}
